"""sweeps.plan: what a sweep would cost, beside what is stored, from the command line to its exit code."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.compiled import topologies
from harness.costs import layout_costs, microbenchmarks, network_costs, questions as asked
from harness.costs.questions import Question
from harness.run import Settings
from harness.step.batch_partition import of_settings
from results import exit_codes, printing
from results.bad_input import BadInput
from results.costs import predictions
from results.costs.counts import Counts, Exchange, Work
from results.costs.hardware import described
from results.storage.commits import Commit
from sweeps import __main__ as sweep, overrides, plan, planning
from sweeps.costs import calibration, estimates
from sweeps.costs.absent_devices import AbsentDevices, shards_of
from workloads.layouts.shapes import SHAPES

ROOT = Path(__file__).parents[2]
SWEEP = ["optimizer=sgd", "batch_size=16,64", "trials=4", "pruning=off", "task.budget.steps=200", "-m"]
WORK = {
    "flops": 1e6,
    "activation_bytes": 1e5,
    "score_bytes": 0,
    "weight_bytes": 0,
    "other_bytes": 0,
    "operations": 100,
}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache without probes; answers are counted by the first test that asks."""
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path_factory.getbasetemp() / "cache-of-plans"))


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert plan.main([*words, "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def answering(
    monkeypatch: pytest.MonkeyPatch, verdict: Callable[[Question], dict[str, Any] | None], **changes: float
) -> None:
    """Has the process answer so: with counts of a device's share of a small program, and with a verdict."""

    def counts(question: Question) -> dict[str, Any]:
        devices = question.plan.get("cores") or of_settings(question.settings).devices
        share = [each / devices for each in (WORK | changes).values() if each != changes.get("held")]
        held = changes.get("held", 1e6)
        told = {"step": share[:6], "evaluation": share[:6], "parameters": 9, "equations": 200, "precision": "float32"}
        return {**told, "held_bytes": held, "least_bytes": held, "devices": devices}

    def process(questions: list[Question], *_: Any) -> list[dict[str, Any]]:
        given = [counts(one) if one.topology is None else verdict(one) for one in questions]
        return [each for each in given if each is not None]

    monkeypatch.setattr(asked, "_process", process)
    monkeypatch.setattr(asked, "_cache", lambda: None)
    monkeypatch.setattr(topologies, "has_compiler", lambda: True)


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
        assert one["fits"] is None and one["memory_source"] == "about"


@pytest.mark.slow
def test_a_stores_runs_scale_predictions_and_shorten_trials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured seconds are in no column of predicted ones, and those without any measurement stay as they were."""
    words = [*SWEEP[:1], *SWEEP[2:-1], f"store={tmp_path}", "ask_above_device_hours=null"]
    (before,) = rows(capsys, *words, "batch_size=32")
    assert sweep.main([*words, "batch_size=16,64,128", "-m"]) == 0
    capsys.readouterr()
    (after,) = rows(capsys, *words, "batch_size=32")
    assert "from 3 measured here" in after["predicted_from"] and "typical" in before["predicted_from"]
    assert after["expected_from"] == "store" and after["expected_steps"] <= 200
    assert after["predicted_seconds_per_step"] != before["predicted_seconds_per_step"]
    assert plan.main(["--calibration", f"store={tmp_path}", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert len(compared) == 3 and {one["predictor"] for one in compared} == {predictions.PREDICTOR}
    by_store = {
        commit.name: run.train_seconds / run.trial_steps
        for commit in calibration.commits(tmp_path)
        for run in calibration.runs_of(commit)
    }
    for one in compared:
        assert one["measured_seconds_per_step"] == pytest.approx(by_store[one["study"]])
        ratio = one["measured_seconds_per_step"] / one["predicted_seconds_per_step"]
        assert one["measured_over_predicted"] == pytest.approx(ratio)
    # Which are the same, and uncalibrated, when there is a probe.
    a_probe(estimates.here().kind)
    assert plan.main(["--calibration", f"store={tmp_path}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == compared
    names = {name for row in (after, *compared) for name in row}
    assert not [name for name in names if "seconds" in name and not name.startswith(("measured_", "predicted_"))]


RELEASED = "digits"  # of whose studies the release has many, each on one device of one kind


def released() -> list[Commit]:
    """Studies of the release, of one model."""
    every = calibration.commits(ROOT / "results" / "published")
    model = next(commit.study.labels.model for commit in every if commit.study.dataset == RELEASED)
    return [commit for commit in every if (commit.study.dataset, commit.study.labels.model) == (RELEASED, model)][:4]


def none(_: Question) -> dict[str, Any] | None:
    return None


def test_runs_over_several_devices_say_how_long_each_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 8 devices that take other trials is 8 times as slow as all together; one that shares a step is not."""
    answering(monkeypatch, none)
    one = released()[0]
    (alone,) = calibration.measured([one])
    read = calibration.read_table

    def changed(**columns: int | str) -> None:
        def table(commit: Commit, name: str) -> pa.Table:
            found = read(commit, name)
            for column, value in columns.items() if name == "studies" else ():
                values = pa.array([value] * len(found))
                at = found.schema.get_field_index(column)
                found = found.append_column(column, values) if at < 0 else found.set_column(at, column, values)
            return found

        monkeypatch.setattr(calibration, "read_table", table)

    changed(device_count=8)
    (apart,) = calibration.measured([one])
    assert apart.seconds == pytest.approx(8 * alone.seconds)
    changed(device_count=8, shards=8)
    (together,) = calibration.measured([one])
    assert together.seconds == pytest.approx(alone.seconds)
    changed(device_count=8, shards=2, mesh="data:2;model:4", layout="mlp:model")
    (divided,) = calibration.measured([one])
    assert divided.seconds == pytest.approx(alone.seconds)
    assert divided.flops == pytest.approx(alone.flops / 8)


def test_runs_on_other_numbers_of_devices_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    read, one = calibration.read_table, released()[0]

    def table(commit: Commit, name: str) -> pa.Table:
        found = read(commit, name)
        if name == "studies":
            at = found.schema.get_field_index("device_count")
            found = pa.concat_tables([found, found.set_column(at, "device_count", pa.array([8], pa.int32()))])
        return found

    monkeypatch.setattr(calibration, "read_table", table)
    assert [run.devices for run in calibration.runs_of(one)] == [1, 8]


def test_only_runs_of_a_like_size_scale_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within two decades of FLOPs: small networks say nothing of one whose steps are millions of times as large."""
    answering(monkeypatch, none)
    commits = released()
    known = calibration.StoreRatios(commits, lambda line: None)
    device, study = calibration.runs_of(commits[0])[0].device, commits[0].study
    for flops in (WORK["flops"], 90 * WORK["flops"], WORK["flops"] / 90):
        found = known.of(device, study, flops)
        assert found.steps is not None and found.steps.runs == len(commits)
    assert known.of(device, study, 1e6 * WORK["flops"]) == calibration.Known()


def a_probe(kind: str, slower: float = 2.0, call: float = 1e-3) -> None:
    """Keeps what a probe would find where small networks take so many times what tables say, and calls so long."""
    works = [Work(*one, operations=100) for one in ((1e6, 1e5), (1e8, 1e6), (1e9, 1e5))]
    works.append(Work(1e7, 1e7, operations=1000))
    networks = [
        (of, 0.05, slower * predictions.seconds(of, predictions.CPU).middle + 0.05 * call, 500, 3.0) for of in works
    ]
    one = {"flops": 1e12, "bytes": 1e12, "operation_seconds": 1e-9}  # which no such program comes to
    found = {"backend": "cpu", "networks": networks, "all_reduce": [(4, 4096, 1e-5), (4, 4194304, 1e-3)]}
    microbenchmarks.write(kind, {**found, "rates": {"float32": one, "bfloat16": one | {"flops": 5e11}}, "gathers": 1.0})


def test_a_table_of_step_times_holds_predicted_ones_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "times.csv"
    assert plan.main([*SWEEP, f"store={tmp_path}", f"step_times={file}"]) == 0
    table = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [(row["batch_size"], row["devices"], row["basis"]) for row in table] == [
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


BYTES = 1e12  # of a share, 5.19 times at 450 GB/s of a core of v3


@pytest.mark.parametrize(
    "words",
    [
        ["batch_size=64", "trials=1", "lanes=1", "shards=8"],
        ["batch_size=64", "trials=1"],
        ["task=web_graph", "ratings.variant=sparse", "cores=8"],
    ],
)
def test_a_share_of_a_step_is_divided_no_further(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traffic of a device is counted of its share, whether shards are told, found by the compiler, or are cores."""
    alone = verdict(flops=0, exchange_seconds=0, lanes=1, shards=8)
    answering(monkeypatch, lambda question: alone, activation_bytes=8 * BYTES, operations=0)
    (one,) = rows(capsys, *words, f"store={tmp_path}", "topology=v3:2x2")
    assert one["predicted_seconds_per_step"] == pytest.approx(5.19 * BYTES / 4.5e11, rel=0.01)
    assert (one["bytes_per_step"], one["lanes"], one["shards"], one["devices"]) == (BYTES, 1, 8, 8)
    # An evaluation of each trial takes as long, on all devices.
    evaluations = one["predicted_device_hours"] * 3600 / 8 / one["predicted_seconds_per_step"] - one["expected_steps"]
    assert 1 <= evaluations <= one["expected_steps"] + 1


def test_memory_that_this_machine_has_not_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lambda question: None, held=1e18)
    words = ["batch_size=64", f"store={tmp_path}"]
    assert plan.main(words) == exit_codes.FAILED
    assert "more than this machine has" in capsys.readouterr().out
    assert plan.main([*words, "--json"]) == exit_codes.FAILED
    (one,) = json.loads(capsys.readouterr().out)
    assert one["fits"] is False and one["too_large_by_bytes"] == pytest.approx(1e18, rel=0.01)


def test_what_does_not_fit_ends_with_1_and_says_by_how_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    too_large = verdict(fits=False, needed_bytes=16e9 + 2**32, flops=None, why="Ran out of memory")
    answering(monkeypatch, lambda question: too_large if question.plan["batch_size"] == 64 else verdict())
    words = [*SWEEP, f"store={tmp_path}", "topology=v3:2x2"]
    assert plan.main(words) == exit_codes.FAILED
    printed = capsys.readouterr().out
    assert "too large by 4.0 GiB" in printed and "fits" in printed
    assert "With its arguments it needs 18.90 GiB, and a device has 14.90 GiB" in printed
    assert printed.count("32 × 1 × 1") == 2  # lanes, shards and microbatches
    assert "4 of 8 devices are unused" in printed and "lanes=1 shards=8" in printed
    assert plan.main([*words, "--json"]) == exit_codes.FAILED
    fits, large = json.loads(capsys.readouterr().out)
    assert (fits["fits"], fits["too_large_by_bytes"], fits["device_kind"]) == (True, None, "TPU v3")
    assert (fits["lanes"], fits["shards"], fits["microbatches"]) == (32, 1, 1)
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
    printed = capsys.readouterr().out
    assert printed.count("not known") == 2 and "the compiler did not end within 1 s" in printed
    assert plan.main([*words, "--json"]) == 0
    assert {one["topology_verdict"] for one in json.loads(capsys.readouterr().out)} == {"not known"}


def test_a_probe_comes_before_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    a_probe("mine")
    found, half = (microbenchmarks.rates("mine", "cpu", each) for each in ("float32", "bfloat16"))
    assert found is not None and half is not None and "probe" in found.source
    # What networks took, and not the best that products and vectors come to.
    assert found.flops == pytest.approx(predictions.CPU.flops / 2) and half.flops == pytest.approx(found.flops / 2)
    assert found.bytes == pytest.approx(predictions.CPU.bytes / 2) and found.factor == microbenchmarks.FACTOR
    assert found.call_seconds == pytest.approx(1e-3)
    assert microbenchmarks.rates("another", "cpu", "float32") is None
    assert microbenchmarks.all_reduce_seconds("mine", 4, 4194304) == pytest.approx(1e-3)
    assert microbenchmarks.all_reduce_seconds("mine", 2, 4096) is None
    kept = microbenchmarks.read("mine")
    assert kept is not None and kept.keys() == {"device_kind", *microbenchmarks.KEPT}


def test_streamed_data_are_planned_with_the_lanes_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU: one, as every lane has a stream of its own, unless told; other data have one for each trial."""
    monkeypatch.setattr(estimates, "here", lambda: calibration.Device("NVIDIA H100", "gpu"))
    for streamed, words, lanes in ((False, [], 8), (True, [], 1), (True, ["lanes=4"], 4)):
        answering(monkeypatch, lambda question: None)
        counted = asked._process
        monkeypatch.setattr(asked, "_process", lambda *a, f=counted, s=streamed: [e | {"streamed": s} for e in f(*a)])
        request = planning.request(overrides.command_line(["batch_size=64", "trials=8", f"store={tmp_path}", *words]))
        (cost,) = estimates.of_request(request, {study.name: 8 for study in request.studies})
        assert (cost.lanes, cost.is_single and cost.step is not None) == (lanes, lanes == 1 and cost.step is not None)


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
    assert not list(tmp_path.iterdir())  # a sweep that is refused leaves nothing behind
    request = planning.request(overrides.command_line([*words, f"store={tmp_path}", "yes=true"]))
    assert request.ask_above_device_hours is None


def test_a_cost_that_is_not_known_is_said_before_a_sweep_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["batch_size=64", "trials=1000", "task.budget.steps=100000", "task.targets=[]", "pruning=off"]
    request = planning.request(overrides.command_line([*words, f"store={tmp_path}"]))
    missing = {study.name: 1000 for study in request.studies}
    said: list[str] = []

    def fails(*_: Any, **__: Any) -> None:
        raise asked.Unanswered("the process that counts ended with 1")

    answering(monkeypatch, lambda question: None)
    monkeypatch.setattr(estimates, "here", lambda: calibration.Device("a device in no table", "gpu"))
    assert estimates.of_sweep(request, missing, said.append) is None
    monkeypatch.setattr(asked, "ask", fails)
    assert estimates.of_sweep(request, missing, said.append) is None
    told = [line for line in said if "unknown" in line]
    assert "this device is unknown" in told[0] and "ended with 1" in told[1]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["topology="], "topology= is empty"),
        (["optimizer=glob(x*)", "-m"], "optimizer=glob(x*): this does not match a name of optimizer"),
        (["batch_size=interval(1,4)", "-m"], "batch_size=interval(1,4): an interval has no list of values"),
        (["timeout=soon"], "timeout=soon is not a number of seconds above 0"),
        (["--calibration", "batch_size=4"], "takes only store=DIR, not batch_size=4"),
        (["--calibration"], "has no runs with usable times"),
        (["topology=v5e"], "'v5e' is not a TPU slice. Give its chips along two directions, such as v5e:2x2"),
        (["topology=v5e:2x2x2"], "Give its chips along two directions, such as v5e:2x2"),
        (["topology=v4:2x2"], "Give its chips along three directions, such as v4:2x2x1"),
        (["topology=v9:2x2"], "unknown TPU version 'v9'"),
        (["topology=h100:8"], "For a GPU, use device=NAME devices=N, such as device=h100 devices=8"),
        (["topology=v5e:2x2", "topology=v5e:4x4"], "topology is given twice"),
        (["+experiment=zzzz"], "unknown preset 'zzzz'; the nearest are "),
        (["device=h1000"], "unknown device 'h1000'; did you mean 'h100'? choices: "),
        (["device=h100", "devices=0"], "devices=0 is not a number of devices"),
        (["device=h100", "devices=8", "shards=3"], "8 devices cannot be divided into groups of shards=3"),
        (["task=tiny/imagenet_resnet", "batch_size=64", "shards=3"], "shards=3 would split the 8 examples"),
        (["device=h100", "mesh=data:2;model:2"], "are predicted only by compiling"),
        (["devices=8"], "devices=8 needs a device, such as device=h100"),
        (["device=h100", "topology=v5e:2x2"], "topology= and device= both name devices"),
        (["device=h100;nodes:4"], "unknown option of hardware 'nodes'; did you mean 'node'?"),
        (["device=h100;node:4.5"], "node=4.5 is not a whole number"),
        (["device=h100;far:-1"], "far=-1 is not a number above 0"),
        (["device=h100", "price=cheap"], "price=cheap is not a number of dollars per device-hour above 0"),
    ],
)
def test_mistakes_are_one_line(words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main([*words, f"store={tmp_path}"]) == exit_codes.INVALID
    assert says in capsys.readouterr().err


def test_devices_that_are_absent_have_hours_and_a_price(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates are those of the table only, although there are a probe and a store."""
    a_probe("h100")
    answering(monkeypatch, none, activation_bytes=3.35e12 / 5.19, operations=0, flops=0)
    words = ["batch_size=64", "trials=16", "lanes=8", f"store={tmp_path}", "device=h100", "devices=8"]
    (one,) = rows(capsys, *words, "--price", "2")
    assert one["predicted_seconds_per_step"] == pytest.approx(1, rel=0.01)
    assert (one["device_kind"], one["device_is_attached"], one["devices"], one["shards"]) == ("h100", False, 8, 1)
    for end in ("", "_low", "_high"):
        device_hours = one[f"predicted_device_hours{end}"]
        assert one[f"predicted_hours{end}"] == pytest.approx(device_hours / 8)
        assert one[f"predicted_dollars{end}"] == pytest.approx(2 * device_hours)
    assert one["lanes"] == 8 and one["dollars_per_device_hour"] == 2
    # Two rounds of eight trials, and an evaluation takes as long as a step.
    evaluations = one["predicted_device_hours"] * 3600 / 16 - one["expected_steps"]
    assert 1 <= evaluations <= one["expected_steps"] + 1
    assert one["predicted_from"].startswith("tables (")
    assert plan.main([*words, "--price", "2"]) == 0
    printed = capsys.readouterr().out
    assert "device-hours of 8 × h100, which this machine does not have" in printed and "dollars, at 2" in printed
    (here,) = rows(capsys, *words[:-2], "--price", "2")
    assert here["device_is_attached"] is True and here["predicted_hours"] is None
    assert here["predicted_dollars"] == pytest.approx(2 * here["predicted_device_hours"])


def test_batch_too_large_for_any_device_count_uses_all_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run divides it further, into microbatches: its least bytes fit."""
    answering(monkeypatch, none)
    counted = estimates.questions.counts_of
    monkeypatch.setattr(estimates.questions, "counts_of", lambda answer: counted(answer)._replace(held_bytes=1e12))
    (one,) = rows(capsys, "batch_size=64", "trials=16", f"store={tmp_path}", "device=v5e", "devices=8")
    assert (one["shards"], one["lanes"]) == (8, 1)
    assert (one["fits"], one["microbatches"]) == (True, 64)  # 1e12 bytes on 16e9


def test_links_of_absent_devices_can_be_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum of 1e9 float32 gradients over 16 GPUs, in nodes of 8 and of 4: the smaller half of the bytes leaves."""
    answering(monkeypatch, none, flops=0, operations=0)
    counted = estimates.questions.counts_of
    summed = Exchange("all-reduce", "data", 1, 4e9, 2 * 15 / 16 * 4e9)
    monkeypatch.setattr(
        estimates.questions,
        "counts_of",
        lambda answer: counted(answer)._replace(exchanges=(summed,), mesh=(("data", 16),)),
    )
    words = ["batch_size=64", "trials=1", "lanes=1", "shards=16", "devices=16", f"store={tmp_path}"]
    found = {}
    for device, nodes, within in (("h100", 2, 8), ("h100;node:4", 4, 4), ("h100;node:4;far:1e9", 4, 4)):
        (one,) = rows(capsys, *words, f"device={device}")
        far = 1e9 if "far" in device else 5e10
        by_hand = 2 * (nodes - 1) / nodes * 4e9 / within / far
        assert one["predicted_seconds_per_step"] == pytest.approx(max(by_hand, 2 * 15 / 16 * 4e9 / 4.5e11), rel=0.02)
        found[device] = one["predicted_seconds_per_step"]
    assert len(set(found.values())) == 3
    one, two = (rows(capsys, *words, f"device=v5p{options}")[0] for options in ("", ";slices:4"))
    ratio = two["predicted_seconds_per_step"] / one["predicted_seconds_per_step"]
    assert ratio == pytest.approx(1 + 2 * 0.0225, rel=1e-3)


def test_batches_use_the_fewest_absent_devices_that_hold_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["batch_size=64", "trials=16", f"store={tmp_path}", "device=v5e", "devices=8", "task.budget.steps=10"]
    counted = estimates.questions.counts_of
    answering(monkeypatch, none)
    monkeypatch.setattr(
        estimates.questions, "counts_of", lambda answer: counted(answer)._replace(held_bytes=50e9 / answer["devices"])
    )
    (one,) = rows(capsys, *words)
    assert (one["shards"], one["lanes"], one["device_memory_bytes"]) == (4, 2, 16e9)
    assert (one["fits"], one["microbatches"]) == (True, 1)


@pytest.mark.parametrize(("batch_size", "shards"), [(55296, 1728), (65536, 128)])
def test_absent_devices_share_only_batches_that_divide(batch_size: int, shards: int) -> None:
    """Of ResNet-50 on 3,456 chips, 32 examples are normalized together. Some batches cannot be split far enough."""
    counts = Counts(Work(), Work(), 1, 1e14, 1, 1, "bfloat16", 1e9, group=32)
    absent = AbsentDevices("v4p", 3456)
    assert shards_of(absent, batch_size, counts._replace(held_bytes=1700 * 32e9)) == shards
    assert shards_of(absent, batch_size, counts._replace(held_bytes=1e9)) is None
    assert shards_of(absent, batch_size, counts._replace(devices=3456)) is None


def test_a_failed_count_reports_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX ends its tracebacks with a remark about itself."""
    failing = "import jax, numpy; jax.make_jaxpr(lambda x: x.reshape(3))(numpy.ones(4))"
    monkeypatch.setattr(asked, "PROGRAM", failing)
    study = study_of("batch_size=64")
    with pytest.raises(asked.Unanswered, match="cannot reshape array of shape"):
        asked._process([Question(study.plan(), 1, None, Settings())], None, lambda count: None)


def test_topology_without_compiler_is_predicted_from_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, none)
    monkeypatch.setattr(topologies, "has_compiler", lambda: False)
    words = ["batch_size=64", "trials=1", f"store={tmp_path}", "topology=v3:2x2"]
    (one,) = rows(capsys, *words)
    assert (one["device_kind"], one["devices"], one["device_is_attached"]) == ("v3", 8, False)
    assert one["memory_source"] == "about" and one["predicted_device_hours"] > 0
    assert plan.main(words) == 0
    assert "the TPU compiler is not installed" in capsys.readouterr().err


def test_data_of_a_stated_size_need_not_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, lambda question: None)
    words = ["task=web_graph", "ratings.variant=sparse", f"store={tmp_path}"]
    assert plan.main(words) == 0
    with pytest.raises(BadInput, match="is not prepared"):
        planning.request(overrides.command_line(words))
    printing.set_output()


def test_a_release_may_be_the_store_of_a_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lambda question: None)
    (one,) = rows(
        capsys,
        "+experiment=published/noise",
        "optimizer=sgd",
        "batch_size=16",
        "-m",
        f"store={ROOT / 'results' / 'published'}",
    )
    assert one["to_run"] == 0 and one["stored"] == one["trials"] and one["predicted_device_hours"] == 0


def test_a_layout_is_counted_like_other_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight devices share the products of a step, and its parameters are those of all of them."""
    (one,) = rows(capsys, "task=layouts", "step.model=tiny", f"store={tmp_path}")
    shape = SHAPES["tiny"]
    assert one["flops_per_step"] == shape.flops(16, 64) / 8
    assert (one["parameters"], one["devices"], one["shards"]) == (shape.parameters, 8, 8)
    assert 0 < one["predicted_seconds_per_step_low"] < one["predicted_seconds_per_step_high"]


def study_of(*words: str) -> Any:
    (study,) = planning.request(overrides.command_line([*words, "store=none"]), written=False).studies
    return study


def test_exchanges_of_a_layout_are_predicted_without_a_compiler() -> None:
    """Layouts of equal work differ by their collectives. A mesh axis that splits nothing repeats the work."""
    layout = ["task=layouts", "step.model=small", "step.batch_size=64", "step.precision=bfloat16"]
    found = []
    for mesh, name in (("data:8", "batch:data"), ("data:2;model:4", "megatron"), ("data:2;model:4", "batch:data")):
        counts = layout_costs.counts(study_of(*layout, f"mesh={mesh}", f"layout={name}"), None, Settings())
        counts = asked.counts_of(json.loads(json.dumps(counts._asdict())))
        links, far = estimates._exchange(calibration.Device("v5e", "tpu"), counts, probed=False)
        hardware = described("v5e")
        assert hardware is not None and counts.exchanges and far == 0
        by_hand = sum(each.wire_bytes / hardware.link_bandwidth for each in counts.exchanges)
        assert links > by_hand / hardware.axes
        found.append((counts.step.flops, links, counts.held_bytes))
    one, megatron, repeated = found
    assert one[0] == megatron[0] == repeated[0] / 4 == SHAPES["small"].flops(64, 64) / 8
    assert len({links for _, links, _ in found}) == 3
    assert repeated[2] > one[2]


def test_a_mesh_of_a_batch_study_is_counted() -> None:
    study = study_of("task=digits_fc", "batch_size=64", "trials=2")
    whole = network_costs.counts(study, None, Settings())
    settings = {"mesh=data:4": 4, "mesh=model:4 layout=mlp:model": 4, "mesh=data:2;model:4 layout=mlp:model": 8}
    for text, devices in (settings | {"shards=2": 2}).items():
        given = dict(pair.split("=") for pair in text.split())
        own = Settings(**{name: int(value) if name == "shards" else value for name, value in given.items()})
        counts = network_costs.counts(study, None, own)
        assert (counts.devices, counts.step.flops, counts.parameters) == (
            devices,
            whole.step.flops / devices,
            whole.parameters,
        )
        assert counts.step.operations >= whole.step.operations  # on smaller arrays
        assert (counts.exchanges is None) == ("model" in text)  # the collectives of a layout are not known


def test_rows_differ_in_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(monkeypatch, lambda question: None)
    monkeypatch.setattr("results.printing.width", lambda stream: 80)
    words = ["optimizer=momentum,nesterov", "batch_size=1,16", "trials=4", "-m", f"store={tmp_path}"]
    assert plan.main(words) == 0
    printed = capsys.readouterr().out
    for optimizer in ("momentum", "nesterov"):
        assert f"digits-fully_connected-{optimizer}\n" in printed
    assert max(map(len, printed.splitlines())) <= 80
