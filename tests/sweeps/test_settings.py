"""Every setting that changes a step is stored with a run, and read from there by plans and calibrations."""

import dataclasses
from collections.abc import Callable

import pytest

from harness.costs import network_costs
from harness.run import Record, Settings
from harness.runners import engine
from harness.step.batch_partition import Division, Request, of_settings
from harness.trials import search
from results.plans import schema
from results.plans.batch_study import BatchStudy
from sweeps import rows
from sweeps.costs import calibration
from sweeps.schema import NetworkConfig

# They change when results are written or when a run ends, not its steps.
WRITING = {"time_limit_seconds", "flush_seconds", "checkpoint_seconds", "checkpoint_dir"}
GIVEN = Settings(lanes=2, lane_strategy="map", shards=1, microbatches=2, mesh="model:1", layout="mlp:model")
NAMES = {field.name for field in dataclasses.fields(Settings)} - WRITING


def test_every_setting_of_a_step_is_known_everywhere() -> None:
    assert {*Division._fields} == {*Request._fields} <= NAMES
    assert all(getattr(GIVEN, name) != getattr(Settings(), name) for name in NAMES)
    for known in (
        {column.name for column in schema.STUDIES},
        {field.name for field in dataclasses.fields(Record)},
        {field.name for field in dataclasses.fields(NetworkConfig)},
        {*calibration._TOGETHER},
    ):
        assert known >= NAMES


def test_every_setting_of_a_step_is_stored(make_study: Callable[..., BatchStudy]) -> None:
    study = make_study(budget_steps=2, trials=1)
    record = engine.run(study, search.draw(study, [0]), GIVEN)
    (stored,) = rows.tables(study, record, {})["studies"].to_pylist()
    given = Settings(**{name: stored[name] for name in NAMES})
    assert given == GIVEN and of_settings(given) == of_settings(GIVEN)
    record = engine.run(study, search.draw(study, [0]), Settings(lanes=1))
    assert (record.mesh, record.layout) == (None, None)


@pytest.mark.parametrize(
    "settings",
    [{"shards": 2}, {"microbatches": 2}, {"mesh": "data:2"}, {"mesh": "model:2", "layout": "mlp:model"}],
)
def test_every_division_of_a_step_is_counted(
    settings: dict[str, object], make_study: Callable[..., BatchStudy]
) -> None:
    whole, counts = (
        network_costs.counts(make_study(), None, Settings(**given))  # type: ignore[arg-type]
        for given in ({}, settings)
    )
    assert counts.step != whole.step
