"""Measured steps of a store scale the predictions of its other layouts."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from analysis import measured_layouts
from analysis.measured_layouts import MeasuredLayout

RELEASE = Path(__file__).parents[2] / "results" / "published"


@pytest.fixture(scope="module")
def timed() -> list[MeasuredLayout]:
    """Returns the layouts of the release that were measured, on two cores."""
    return [one for one in measured_layouts.load(RELEASE) if math.isfinite(one.number("step_seconds"))]


def changed(one: MeasuredLayout, **row: object) -> MeasuredLayout:
    return dataclasses.replace(one, row=one.row | row)


def test_steps_that_are_left_out_are_predicted_from_the_others(timed: list[MeasuredLayout]) -> None:
    measured = np.array([one.number("step_seconds") for one in timed])
    predicted = np.array([one.number("predicted_step_seconds") for one in timed])
    errors, within = [], []
    for i, left in enumerate(timed):
        layouts = [changed(one, step_seconds=None) if one is left else one for one in timed]
        found = measured_layouts.anchored(layouts)
        scale = np.exp(np.median(np.log(np.delete(measured / predicted, i))))
        assert found[i].number("predicted_step_seconds") == pytest.approx(predicted[i] * scale)
        assert found[i].number("predicted_exchange_seconds") == left.number("predicted_exchange_seconds") * scale
        assert found[i].number("predicted_anchors") == len(timed) - 1
        low, high = (found[i].number(f"predicted_step_seconds_{end}") for end in ("low", "high"))
        errors.append(np.log(found[i].number("predicted_step_seconds") / measured[i]))
        within.append(low <= measured[i] <= high)
        others = [one for at, one in enumerate(found) if at != i]
        assert others == [one for one in timed if one is not left]  # measured layouts are compared, so they stay
    assert abs(np.median(errors)) < abs(np.median(np.log(predicted / measured)))
    assert np.mean(within) >= 0.85 and len(timed) == 16
    notes = " ".join(measured_layouts.notes(found))
    assert "predictions of 1 layout are scaled" in notes


@pytest.mark.parametrize(
    "row", [{"hardware": "v5p"}, {"executed_flops": 1e16}, {"refusal": "memory"}], ids=["device", "size", "rejected"]
)
def test_steps_of_another_device_or_size_do_not_scale(timed: list[MeasuredLayout], row: dict[str, object]) -> None:
    left = changed(timed[0], step_seconds=None, **row)
    (found, *_) = measured_layouts.anchored([left, *timed[1:]])
    assert found == left and found.number("predicted_anchors") == 0


def test_steps_that_were_timed_on_another_device_do_not_scale(timed: list[MeasuredLayout]) -> None:
    assert {one.device for one in timed} == {"cpu"}
    for_tpus = [changed(one, hardware="v5p") for one in timed]  # predicted for TPUs, and timed on a processor
    left = changed(for_tpus[0], step_seconds=None)
    assert measured_layouts.anchored([left, *for_tpus[1:]])[0] == left


def test_few_steps_do_not_narrow_the_range(timed: list[MeasuredLayout]) -> None:
    left = changed(timed[0], step_seconds=None)
    (found, _) = measured_layouts.anchored([left, timed[1]])
    high, middle = (found.number(f"predicted_step_seconds{end}") for end in ("_high", ""))
    before = left.number("predicted_step_seconds_high") / left.number("predicted_step_seconds")
    assert found.number("predicted_anchors") == 1 and high / middle == pytest.approx(before)
