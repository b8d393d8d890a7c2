"""The rule that sets the targets of tasks, and that conf/task has what docs/performance.md says it gave."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from results import store
from results.plans.batch_study import BatchStudy

from ..analysis.conftest import Ran, plan, publish

ROOT = Path(__file__).parents[2]


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import targets  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "targets")
    return targets


@pytest.mark.parametrize(
    ("value", "expected"), [(0.1718, 0.18), (0.18, 0.18), (0.1992, 0.2), (2.41, 2.5), (0.0501, 0.051), (12.3, 13.0)]
)
def test_rounding_goes_up_to_two_digits(targets: ModuleType, value: float, expected: float) -> None:
    assert targets.rounded_up(value) == expected


def test_an_eighth_of_the_budget_counts(
    targets: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study: BatchStudy = plan(targets=(), budget_steps=80, trials=2)
    ran = {0: Ran([(5, 0.5), (10, 0.321), (80, 0.3)]), 1: Ran([(10, 0.4), (11, 0.2), (80, 0.1)])}
    publish(tmp_path, study, ran, ("validation_loss",))
    (commit,) = store.catalogue(tmp_path)
    assert targets.lowest(commit, targets.SHARES["digits"]) == pytest.approx(0.321)
    targets.main(tmp_path)
    assert "validation_loss 0.3210 within 10 of 80 steps, 0.1000 within all, 2 trials: target 0.33" in (
        capsys.readouterr().out
    )


def test_tasks_have_the_targets_that_the_docs_say_the_rule_gave(targets: ModuleType) -> None:
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| ([\d.]+) \| \*\*([\d.]+)\*\* \|$", (ROOT / "docs/performance.md").read_text(), re.M
    )
    assert sorted(name for name, *_ in rows) == ["digits_cnn", "digits_fc", "pydoc_lstm", "pydoc_transformer"]
    for name, lowest, value in rows:
        task = yaml.safe_load((ROOT / f"conf/task/{name}.yaml").read_text())
        assert task["targets"] == [{"metric": "validation_loss", "value": float(value)}]
        assert targets.rounded_up(float(lowest)) == float(value)
