"""sweeps.plan: what a sweep would cost, beside what is stored, from the command line to its exit code."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import costs as asked
from harness import predictions, probes
from harness.costs import Question
from results import command_line, exit_codes
from results.bad_input import BadInput
from sweeps import __main__ as sweep
from sweeps import costs, overrides, plan, planning

SWEEP = ["optimizer=sgd", "batch_size=16,64", "trials=4", "pruning=off", "task.budget.steps=200", "-m"]
WORK = {"flops": 1e6, "fused_bytes": 1e5, "most_bytes": 1e6, "operations": 100}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without probes; answers are counted by the first test that asks."""
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-plans"))


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert plan.main([*words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def answering(
    monkeypatch: pytest.MonkeyPatch, verdict: Callable[[Question], dict[str, Any] | None], flops: float = 1e6
) -> None:
    """Has the process answer so: with counts of a small program, and with a verdict."""
    work = [flops, *list(WORK.values())[1:]]
    counts = {"step": work, "evaluation": work, "parameters": 9, "held_bytes": 1e6, "equations": 200, "devices": 1}
    counts["precision"] = "float32"

    def process(questions: list[Question], timeout_seconds: float | None) -> list[dict[str, Any]]:
        given = [counts if one.topology is None else verdict(one) for one in questions]
        return [each for each in given if each is not None]

    monkeypatch.setattr(asked, "_process", process)
    monkeypatch.setattr(asked, "_cache", lambda: None)


def test_a_plan_predicts_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, *SWEEP, f"store={tmp_path}")
    assert [one["to_run"] for one in found] == [4, 4]
    # 64 × 64 and 64 × 10 weights, and no gradient of the inputs.
    assert [one["flops_per_step"] for one in found] == [2 * b * (2 * 64 * 64 + 3 * 64 * 10) for b in (16, 64)]
    for one in found:
        low, middle, high = (one[f"predicted_seconds_per_step{end}"] for end in ("_low", "", "_high"))
        assert 0 < low < middle < high
        assert one["expected_steps"] == 200 and one["expected_from"] == "budget"
        assert one["predicted_device_hours"] > 4 * 200 * middle / 3600
        assert one["fits"] is None and one["memory_says"] == "about"


def test_a_stores_runs_scale_predictions_and_shorten_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured seconds are in no column of predicted ones, and those without any measurement stay as they were."""
    words = [*SWEEP[:1], *SWEEP[2:-1], f"store={tmp_path}", "ask_above_device_hours=null"]
    (before,) = rows(capsys, *words, "batch_size=32")
    assert sweep.main([*words, "batch_size=16,64,128", "-m"]) == 0
    capsys.readouterr()
    (after,) = rows(capsys, *words, "batch_size=32")
    assert "3 measured here" in after["predicted_from"] and "typical" in before["predicted_from"]
    assert after["expected_from"] == "store" and after["expected_steps"] <= 200
    assert after["predicted_seconds_per_step"] != before["predicted_seconds_per_step"]
    assert plan.main(["--calibration", f"store={tmp_path}", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert len(compared) == 3 and {one["predictor"] for one in compared} == {predictions.PREDICTOR}
    by_store = {
        commit.name: run.train_seconds / run.trial_steps
        for commit in costs.commits(tmp_path)
        for run in costs.runs_of(commit)
    }
    for one in compared:
        assert one["measured_seconds_per_step"] == pytest.approx(by_store[one["study"]])
        ratio = one["measured_seconds_per_step"] / one["predicted_seconds_per_step"]
        assert one["measured_over_predicted"] == pytest.approx(ratio)
    names = {name for row in (after, *compared) for name in row}
    assert not [name for name in names if "seconds" in name and not name.startswith(("measured_", "predicted_"))]


def test_a_table_of_step_times_holds_predicted_ones_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "times.csv"
    assert plan.main([*SWEEP, f"store={tmp_path}", f"step_times={file}"]) == 0
    table = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [(row["batch_size"], row["devices"], row["says"]) for row in table] == [
        ("16", "1", "predicted"),
        ("64", "1", "predicted"),
    ]
    assert all(0 < float(row["low"]) < float(row["seconds_per_step"]) < float(row["high"]) for row in table)
    other = tmp_path / "mine.csv"
    other.write_text("a,b\n1,2\n")
    assert plan.main([*SWEEP, f"store={tmp_path}", f"step_times={other}"]) == exit_codes.INVALID
    assert other.read_text() == "a,b\n1,2\n"


def verdict(**changes: Any) -> dict[str, Any]:
    usual = {"fits": True, "needed_bytes": 1e9, "device_bytes": 16e9, "flops": 4e6, "exchange_seconds": 1e-6}
    told = {"lanes": 4, "device_kind": "TPU v3", "devices": 8, "how": "32 lanes × 1 shards × 1 microbatches"}
    return {"exchanges": [], **usual, **told, **changes}


def test_what_does_not_fit_ends_with_1_and_says_by_how_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    too_large = verdict(fits=False, needed_bytes=16e9 + 2**32, flops=None, why="Ran out of memory")
    answering(monkeypatch, lambda question: too_large if question.plan["batch_size"] == 64 else verdict())
    words = [*SWEEP, f"store={tmp_path}", "topology=v3:2x2"]
    assert plan.main(words) == exit_codes.FAILED
    printed = capsys.readouterr().out
    assert "too large by 4.0 GiB" in printed and "fits" in printed
    assert plan.main([*words, "--json"]) == exit_codes.FAILED
    fits, large = json.loads(capsys.readouterr().out)
    assert (fits["fits"], fits["too_large_by_bytes"], fits["device_kind"]) == (True, None, "TPU v3")
    assert (large["fits"], large["too_large_by_bytes"]) == (False, 2**32)
    assert large["predicted_seconds_per_step"] is None
    # All devices are held while four trials run on the first of them.
    rounds = fits["predicted_seconds_per_step"] * 4 * 200 * 8 / 3600
    assert fits["predicted_device_hours"] > rounds


def test_what_did_not_end_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lambda question: None)
    words = [*SWEEP, f"store={tmp_path}", "topology=v3:2x2", "timeout=1"]
    assert plan.main(words) == 0
    assert capsys.readouterr().out.count("not known") == 2
    assert plan.main([*words, "--json"]) == 0
    assert {one["topology_says"] for one in json.loads(capsys.readouterr().out)} == {"not known"}


def test_a_probe_comes_before_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    device = costs.here()
    one = {"flops": 1e9, "bytes": 1e9, "operation_seconds": 1e-7, "call_seconds": 1e-4, "equation_seconds": 1e-3}
    probes.write(device.kind, {"backend": "cpu", "rates": {"float32": one}})
    found = probes.rates(device.kind, "float32")
    assert found is not None and found.flops == 1e9 and "probe" in found.source
    assert probes.rates(device.kind, "bfloat16") is None and probes.rates("another", "float32") is None


def test_a_dear_sweep_asks_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lambda question: None, flops=1e12)
    words = ["batch_size=64", "trials=1000", "task.budget.steps=100000", "task.targets=[]", "pruning=off"]
    ran: list[object] = []
    monkeypatch.setattr(planning, "run", lambda *_: ran.append(None) or pytest.fail("it began"))
    assert sweep.main([*words, f"store={tmp_path}"]) == exit_codes.INVALID
    line = capsys.readouterr().err
    assert "predicted to take" in line and "yes=true" in line and not ran
    request = planning.request(overrides.command_line([*words, f"store={tmp_path}", "yes=true"]))
    assert request.ask_above_device_hours is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["topology="], "topology= is empty"),
        (["timeout=soon"], "timeout=soon is not a number of seconds above 0"),
        (["--calibration", "batch_size=4"], "takes store=DIR alone, not batch_size=4"),
        (["--calibration"], "has no runs whose time says anything"),
    ],
)
def test_mistakes_are_one_line(words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main([*words, f"store={tmp_path}"]) == exit_codes.INVALID
    assert says in capsys.readouterr().err


def test_data_of_a_stated_size_need_not_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda question: None)
    words = ["task=web_graph", "ratings.variant=sparse", f"store={tmp_path}"]
    assert plan.main(words) == 0
    with pytest.raises(BadInput, match="is not here"):
        planning.request(overrides.command_line(words))
    command_line.set_output()
