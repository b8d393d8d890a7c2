"""Calibration: seconds of steps as a store measured them, beside what is predicted without any measurement."""

import math
from pathlib import Path
from typing import Any

from harness import predictions
from results import command_line
from results.bad_input import BadInput, number_of
from sweeps import costs
from sweeps.costs import Measured

COLUMNS = (
    "device_kind",
    "study",
    "trial_steps",
    "measured_seconds_per_step",
    "predicted_seconds_per_step",
    "predicted_seconds_per_step_low",
    "predicted_seconds_per_step_high",
    "measured_over_predicted",
    "within_range",
    "predictor",
)
_HEADER = ("study", "trial-steps", "measured s a step", "predicted s a step", "measured / predicted", "in range")


def show(store: Path) -> int:
    """Prints the calibration of all kinds of devices in a store or a release.

    Raises:
      BadInput: it has no runs to compare with.
    """
    found = sorted(costs.measured(costs.commits(store), command_line.say), key=_order)
    if not found:
        raise BadInput(f"store={store} has no runs whose time says anything; run a sweep into it first")
    command_line.show(COLUMNS, [_cells(one) for one in found], lambda: _text(found))
    return 0


def _order(one: Measured) -> tuple[Any, ...]:
    return one.device.kind, command_line.numbered(one.study.name)


def _cells(one: Measured) -> tuple[Any, ...]:
    within = one.predicted.low <= one.seconds <= one.predicted.high
    return (
        one.device.kind,
        one.study.name,
        one.trial_steps,
        one.seconds,
        *one.predicted,
        one.ratio,
        within,
        predictions.PREDICTOR,
    )


def _text(found: list[Measured]) -> str:
    parts = []
    for device in dict.fromkeys(one.device for one in found):
        own = [one for one in found if one.device == device]
        rows = [
            (
                one.study.name,
                one.trial_steps,
                f"{one.seconds:.3g}",
                f"{one.predicted.low:.2g} – {one.predicted.high:.2g}",
                f"{one.ratio:.2f}",
                "yes" if one.predicted.low <= one.seconds <= one.predicted.high else "no",
            )
            for one in own
        ]
        known = predictions.calibration([one.ratio for one in own])
        assert known is not None
        ratios = sorted(one.ratio for one in own)
        spread = f"from {ratios[0]:.2f} to {ratios[-1]:.2f}, standard deviation × ÷ {math.exp(_deviation(ratios)):.2f}"
        inside = sum(row[-1] == "yes" for row in rows)
        parts += [
            f"{device.kind}, uncalibrated predictions, from tables alone (predictor {predictions.PREDICTOR}):",
            command_line.table(_HEADER, rows, ("study", "in range")),
            f"{number_of(len(own), 'study')}: measured is {known.scale:.2f} × predicted, {spread}; {inside} in range",
            "",
        ]
    return "\n".join(parts[:-1])


def _deviation(ratios: list[float]) -> float:
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / len(logs)
    return math.sqrt(sum((each - mean) ** 2 for each in logs) / max(1, len(logs) - 1))
