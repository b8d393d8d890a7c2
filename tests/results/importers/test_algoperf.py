import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results.__main__ as results_cli
from results import durable, store
from results.bad_input import BadInput
from results.checks import verify
from results.durable import Folder
from results.importers import algoperf, algoperf_trials, algoperf_workloads
from results.storage import commits

STUDY = "algoperf_v05/logs/external_tuning/amos/study_0"
OGBG = "ogbg_jax"
METADATA = {
    "workload.target_metric_name": "mean_average_precision",
    "workload.validation_target_value": 0.28,
    "workload.test_target_value": 0.26,
    "workload.step_hint": 80000,
    "workload.max_allowed_runtime_sec": 18477,
    "workload.num_train_examples": 350343,
    "gpu_model_name": "Tesla V100-SXM2-16GB",
    "gpu_count": 8,
    "rng_seed": -1847430325,
}
FLAGS = {"workload": "ogbg", "framework": "jax", "max_global_steps": 80000, "num_tuning_trials": 1}
HPARAMS = {"learning_rate": 1e-3, "one_minus_beta1": 0.1, "nesterov": True, "style": "reduced", "optimizer": "amos"}
HEADER = (
    "accumulated_eval_time,accumulated_submission_time,global_step,score,test/loss,test/mean_average_precision,"
    "train/mean_average_precision,validation/loss,validation/mean_average_precision,validation/num_examples"
)


def evaluation(step: int, precision: object = 0.1, *, seconds: float | None = None, loss: object = 0.5) -> str:
    seconds = float(step) if seconds is None else seconds
    return f"1.5,{seconds},{step},{seconds},{loss},{precision},{precision},{loss},{precision},43793"


def csv(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


def write(folder: Folder, **changed: Any) -> None:
    """A trial in the source's own format; a change to None leaves a file out, text is written as it is."""
    files = {
        "eval_measurements": csv(evaluation(1), evaluation(735, 0.2), evaluation(1500, 0.27)),
        "measurements": "global_step,loss\n0,0.7\n",
        "meta_data_0": METADATA,
        "flags_0": FLAGS,
        "hparams": HPARAMS,
    } | changed
    durable.make_folder(folder)
    for name, content in files.items():
        suffix = ".csv" if name.endswith("measurements") else ".json"
        if content is not None:
            text = content if isinstance(content, str) else json.dumps(content)
            (folder / (name + suffix)).write_bytes(text.encode())


def imported(source: Folder, target: Folder) -> tuple[int, list[str]]:
    lines: list[str] = []
    return algoperf.run(source, target, report=lines.append), lines


def test_a_study_folder_of_a_workload_is_a_study(tmp_path: Path) -> None:
    flags = FLAGS | {"num_tuning_trials": 2}
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1", flags_0=flags)
    write(tmp_path / "logs" / STUDY / OGBG / "trial_2", flags_0=flags, hparams=HPARAMS | {"learning_rate": 2})
    submission = tmp_path / "logs" / "algoperf_v05/submissions/external_tuning/amos/submission.py"
    submission.parent.mkdir(parents=True)
    submission.write_text("def get_batch_size(workload_name):\n  if workload_name == 'ogbg':\n    return 768\n")
    code, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert code == 0
    assert lines == ["1 study: 1 new (2 trials, 6 evaluations), 0 already present; 0 warnings"]
    commit = store.catalogue(tmp_path / "store")[0]
    study, details = commit.study, commit.plan["details"]
    assert (study.dataset, study.model, study.optimizer, study.batch_size) == ("ogbg", "gnn", "amos", 768)
    assert details["leaderboard"] == "algoperf_v05"
    assert (details["ruleset"], details["study"], details["framework"]) == ("external_tuning", "study_0", "jax")
    assert details["targets"] == {
        "validation_average_precision_error": 0.72,
        "test_average_precision_error": 0.74,
    }
    assert details["other_metaparameters"]["style"] == {"1": "'reduced'", "2": "'reduced'"}
    assert details["licence"] == "Apache-2.0"
    found = store.read(tmp_path / "store")
    assert found.studies["device_kind"].tolist() == ["Tesla V100-SXM2-16GB"]
    assert found.trials["trial"].tolist() == [1, 2]
    assert found.trials["seed"].tolist() == [2**32 - 1847430325] * 2
    assert found.trials["learning_rate"].tolist() == [1e-3, 2.0]
    assert found.trials["nesterov"].tolist() == [1.0, 1.0]
    assert found.trials["steps"].tolist() == [1500, 1500]
    assert found.trials["submission_seconds"].tolist() == [1500.0, 1500.0]
    first = found.measurements[found.measurements["trial"] == 1]
    assert first["step"].tolist() == [1, 735, 1500]
    assert first["validation_average_precision_error"].tolist() == [0.9, 0.8, 0.73]
    assert first["validation_loss"].tolist() == [0.5] * 3
    metrics = set(found.measurements) - {"study", "trial", "step"}
    assert metrics == {
        "test_loss",
        "test_average_precision_error",
        "train_average_precision_error",
        "validation_loss",
        "validation_average_precision_error",
    }
    assert {found.measurements[metric].dtype for metric in metrics} == {np.dtype(np.float64)}


@pytest.mark.parametrize(
    ("column", "name", "value", "error"),
    [
        ("train/loss", "train_loss", 0.1, 0.1),
        ("validation/ctc_loss", "validation_loss", 3.25, 3.25),
        ("test/accuracy", "test_error", 0.7, 0.3),
        ("validation/accuracy", "validation_error", 0.77431, 0.22569),
        ("validation/wer", "validation_word_error_rate", 1.25, 1.25),
        ("validation/ssim", "validation_ssim_error", 0.9, 0.1),
        ("validation/ssim", "validation_ssim_error", -0.25, 1.25),
        ("test/mean_average_precision", "test_average_precision_error", 0.28098, 0.71902),
        ("validation/bleu", "validation_bleu_error", 30.8491, 0.691509),
    ],
)
def test_metrics_are_errors_exact_in_decimal(column: str, name: str, value: float, error: float) -> None:
    found = algoperf_trials.parse_evaluations(csv(f"3,{value}", header=f"global_step,{column}").encode())
    assert algoperf_trials.errors(found).drop("step").to_pydict() == {name: [error]}


ENDS = {
    "reached both targets": ([evaluation(1), evaluation(9, 0.28)], {}, ("COMPLETE", None)),
    "reached both, at different times": (
        [evaluation(1, 0.27).replace("0.27,43793", "0.29,43793"), evaluation(9, 0.27)],
        {},
        ("COMPLETE", None),
    ),
    "reached one target": ([evaluation(1), evaluation(9, 0.27)], {}, ("INCOMPLETE", "unstated")),
    "took its steps": ([evaluation(1), evaluation(80000, seconds=3)], {}, ("COMPLETE", None)),
    "took fewer, as asked": ([evaluation(50, seconds=3)], {"max_global_steps": 50}, ("COMPLETE", None)),
    "had no time for another evaluation": (
        [evaluation(1, seconds=9000), evaluation(9, seconds=14000)],
        {},
        ("INCOMPLETE", "time_limit"),
    ),
    "ended early": ([evaluation(1), evaluation(9)], {}, ("INCOMPLETE", "unstated")),
    "ended as NaN": ([evaluation(1), evaluation(9, "nan")], {}, ("INFEASIBLE", None)),
    "ended in infinity": ([evaluation(1), evaluation(9, loss="inf")], {}, ("INFEASIBLE", None)),
    "ended with nothing written": ([evaluation(1), evaluation(9, "", loss="")], {}, ("INCOMPLETE", "unstated")),
    "was NaN in between": ([evaluation(1, "nan"), evaluation(9)], {}, ("INCOMPLETE", "unstated")),
}


@pytest.mark.parametrize(("rows", "flags", "outcome"), ENDS.values(), ids=ENDS.keys())
def test_how_a_trial_ended(
    rows: list[str], flags: dict[str, Any], outcome: tuple[str, str | None], tmp_path: Path
) -> None:
    write(tmp_path, eval_measurements=csv(*rows), flags_0=FLAGS | flags)
    trial = algoperf_trials.read(tmp_path, 1, os.listdir(tmp_path), tmp_path)
    assert trial.faults == ()
    assert algoperf_trials.outcome(trial) == outcome


def test_an_empty_cell_is_nothing_and_nan_is_nan() -> None:
    found = algoperf_trials.parse_evaluations(csv(evaluation(1, ""), evaluation(2, "nan")).encode())
    null, nan = algoperf_trials.errors(found)["validation_average_precision_error"].to_pylist()
    assert null is None
    assert nan != nan


def test_an_evaluation_before_the_first_step_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1", eval_measurements=csv(evaluation(0), evaluation(3)))
    write(tmp_path / "logs" / STUDY / OGBG / "trial_2", eval_measurements=csv(evaluation(0)))
    assert imported(tmp_path / "logs", tmp_path / "store")[0] == 0
    found = store.read(tmp_path / "store")
    assert found.measurements[["trial", "step"]].to_numpy().tolist() == [[1, 0], [1, 3], [2, 0]]
    assert found.trials[["steps", "reason"]].to_numpy().tolist() == [[3, "unstated"], [0, "unstated"]]
    assert verify.run(tmp_path / "store", print) == 0


SUBMISSION = """
raise SystemExit("this code is not run")
class Wrapped:
  def get_batch_size(workload_name):
    # Return the global batch size.
    if workload_name == 'fastmri':
      return 16 # 32
    elif workload_name == "imagenet_resnet_silu":
      return 512
    elif workload_name == 'imagenet_resnet':
      return 1_024
    elif workload_name == 'wmt':
      return compute()
    # elif workload_name == 'ogbg':
      return 4
    else:
      raise ValueError(f'Unsupported workload name: {workload_name}.')

<<<<<<< this is no Python
"""


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("fastmri", 16),
        ("fastmri_tanh", 16),
        ("imagenet_resnet_silu", 512),
        ("imagenet_resnet_large_bn_init", 1024),
    ],
)
def test_batch_sizes_are_read_from_code_that_is_not_run(workload: str, expected: int) -> None:
    chosen = algoperf_workloads.batch_sizes(SUBMISSION)
    assert set(chosen) == {"fastmri", "imagenet_resnet_silu", "imagenet_resnet"}
    assert algoperf_workloads.batch_size(workload, chosen) == (expected, "get_batch_size of the submission")


@pytest.mark.parametrize(
    "source",
    [
        "",
        "\0" * 99,
        " " * 500_000,
        "def get_batch_size(x):\n  return 3\n",
        "def get_batch_size(x):\n  if x == 'wmt':\n    return 0\n  if x == 'wmt':\n    return 999999999999\n",
        "def get_batch_size(x):\n  if x == 'wmt':\n    return _\n  if x == 'wmt':\n    return 1__2\n",
    ],
)
def test_code_that_tells_no_batch_size(source: str) -> None:
    assert algoperf_workloads.batch_sizes(source) == {}
    assert algoperf_workloads.batch_size("wmt_post_ln", {}) == (128, algoperf_workloads.BASELINE)
    assert algoperf_workloads.batch_size("imagenet_resnet_gelu", {}) == (512, algoperf_workloads.BASELINE)
    assert algoperf_workloads.batch_size("newcomer", {}) is None


def test_batch_size_assumed_is_reported_and_unknown_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1")
    write(tmp_path / "logs" / STUDY / "newcomer_jax" / "trial_1")
    code, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert code == 0
    assert lines[0].startswith("amos/study_0/newcomer_jax: not imported, because no readable submission.py")
    assert lines[1].startswith("1 study with the batch size of AlgoPerf's baselines")
    assert [commit.plan["batch_size"] for commit in store.catalogue(tmp_path / "store")] == [512]


def _with(**changed: Any) -> Callable[[Path], None]:
    return lambda folder: write(folder, **changed)


def _huge(folder: Path) -> None:
    write(folder)
    with open(folder / "eval_measurements.csv", "wb") as sparse:
        sparse.truncate(1 << 40)


def _pipe(folder: Path) -> None:
    write(folder, eval_measurements=None)
    os.mkfifo(folder / "eval_measurements.csv")


def _device(folder: Path) -> None:
    write(folder, meta_data_0=None)
    (folder / "meta_data_0.json").symlink_to("/dev/zero")


def _link(folder: Path) -> None:
    write(folder, eval_measurements=None)
    (folder / "eval_measurements.csv").symlink_to("/nowhere/at/all")


def _folder(folder: Path) -> None:
    write(folder, eval_measurements=None)
    (folder / "eval_measurements.csv").mkdir()


STEPS = "not an integer"
MALFORMED: list[tuple[str, Callable[[Path], None], str]] = [
    ("no evaluations", _with(eval_measurements=None), "eval_measurements.csv is missing"),
    ("no metadata", _with(meta_data_0=None), "meta_data_0.json is missing"),
    ("metaparameters alone", _with(eval_measurements=None, meta_data_0=None), "meta_data_0.json is missing"),
    ("an empty file of evaluations", _with(eval_measurements=""), "is empty"),
    ("evaluations of a header", _with(eval_measurements=HEADER), "no evaluation"),
    ("another header", _with(eval_measurements="a,b\n1,2\n"), "no header"),
    ("no metric", _with(eval_measurements="global_step,score\n1,2\n"), "no header"),
    ("a column twice", _with(eval_measurements=HEADER + ",global_step\n" + evaluation(1) + ",2\n"), "no header"),
    ("a row cut short", _with(eval_measurements=csv(evaluation(1), "1.5,2")), "cannot be parsed"),
    ("a word for a number", _with(eval_measurements=csv(evaluation(1, "good"))), "cannot be parsed"),
    ("bytes", _with(eval_measurements="\0\1\2" * 99), "no header"),
    ("a quote without end", _with(eval_measurements=csv(evaluation(1, '"0.1'))), "cannot be parsed"),
    ("steps that stay", _with(eval_measurements=csv(evaluation(5), evaluation(5))), "do not increase"),
    ("steps that fall", _with(eval_measurements=csv(evaluation(5), evaluation(4))), "do not increase"),
    ("a negative step", _with(eval_measurements=csv(evaluation(-5))), STEPS),
    ("a step beyond all", _with(eval_measurements=csv(evaluation(2**31))), STEPS),
    ("half a step", _with(eval_measurements=csv("1,1,1.5,1,1,1,1,1,1,1")), STEPS),
    ("no step", _with(eval_measurements=csv("1,1,,1,1,1,1,1,1,1")), STEPS),
    ("a terabyte of evaluations", _huge, "bytes"),
    ("a pipe", _pipe, "regular"),
    ("a link to nowhere", _link, "symbolic link"),
    ("a folder for a file", _folder, "missing"),
    ("a device for metadata", _device, "symbolic link"),
    ("metadata cut short", _with(meta_data_0='{"workload.step_hint": 1'), "is not JSON"),
    ("metadata as a list", _with(meta_data_0=[1]), "not a JSON object"),
    ("metadata nested without end", _with(meta_data_0="[" * 100_000), "is not JSON"),
]


@pytest.mark.parametrize(("make", "why"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_a_hole_is_a_line_and_lost_in_the_ledger(make: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1")
    make(tmp_path / "logs" / STUDY / OGBG / "trial_2")
    code, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert code == 0
    assert lines[0].startswith(f"{STUDY}/{OGBG}/trial_2: ")
    assert why in lines[0]
    assert lines[-1].endswith("; 1 warning")
    assert all(len(line) < 300 and line.isprintable() for line in lines)
    (commit,) = store.catalogue(tmp_path / "store")
    assert (commit.ledger.planned, commit.ledger.lost, commit.ledger.missing) == (2, 1, 0)
    assert commit.ledger.adds_up


OTHER_FAULTS = [
    ("metaparameters cut short", _with(hparams='{"a":'), "hparams.json is not JSON"),
    ("metaparameters as a list", _with(hparams=[1]), "hparams.json holds list"),
    ("a thousand metaparameters", _with(hparams={f"x{i}": i for i in range(1000)}), "more than 256 names"),
    ("no metaparameters", _with(hparams=None), "hparams.json is missing"),
    ("flags of another kind", _with(flags_0="7"), "flags_0.json holds int"),
]


@pytest.mark.parametrize(("make", "why"), [case[1:] for case in OTHER_FAULTS], ids=[case[0] for case in OTHER_FAULTS])
def test_a_fault_beside_the_evaluations_leaves_them(make: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    make(tmp_path / "logs" / STUDY / OGBG / "trial_1")
    code, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert code == 0
    assert why in lines[0]
    assert len(store.read(tmp_path / "store").measurements) == 3


def test_nothing_is_read_through_a_link(tmp_path: Path) -> None:
    secret, logs = tmp_path / "secret", tmp_path / "logs"
    write(secret / "trial_1", hparams={"password": "hunter2"}, meta_data_0=METADATA | {"gpu_model_name": "hunter2"})
    (secret / "amos").mkdir()
    code = "def get_batch_size(workload_name):\n  if workload_name == 'ogbg':\n    return 768\n"
    (secret / "amos" / "submission.py").write_text(code)
    write(logs / STUDY / OGBG / "trial_1", hparams=None, meta_data_0=None)
    for name in ("hparams.json", "meta_data_0.json"):
        (logs / STUDY / OGBG / "trial_1" / name).symlink_to(secret / "trial_1" / name)
    (logs / STUDY / OGBG / "trial_2").symlink_to(secret / "trial_1")
    write(logs / STUDY / OGBG / "trial_3", eval_measurements=None)
    (logs / STUDY / OGBG / "trial_3" / "eval_measurements.csv").symlink_to(secret / "trial_1" / "eval_measurements.csv")
    (logs / "algoperf_v05/submissions").mkdir()
    (logs / "algoperf_v05/submissions/external_tuning").symlink_to(secret)
    code, lines = imported(logs, tmp_path / "store")
    assert code == 0
    told = {line.partition(":")[0] for line in lines if "symbolic link" in line}
    assert told == {"algoperf_v05/submissions/external_tuning", *(f"{STUDY}/{OGBG}/trial_{i}" for i in (1, 2, 3))}
    (commit,) = store.catalogue(tmp_path / "store")
    assert commit.study.batch_size == 512  # not what the code behind a link says
    assert store.read(tmp_path / "store").measurements["trial"].unique().tolist() == [1]
    assert not [file for file in (tmp_path / "store").rglob("*.*") if b"hunter2" in file.read_bytes()]


def test_metadata_of_the_wrong_types_are_as_good_as_none(tmp_path: Path) -> None:
    odd = {name: ["x", {}, None, True, "9"][i % 5] for i, name in enumerate(METADATA)} | {"rng_seed": 1e40}
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1", meta_data_0=odd, flags_0={"max_global_steps": "many"})
    names = {"learning rate": 1, "steps": 2, "a" * 200: 3, "": 4, "big": 10**400, "ok": "0.25"}
    write(tmp_path / "logs" / STUDY / OGBG / "trial_2", hparams=names, flags_0={"num_tuning_trials": 10**9})
    assert imported(tmp_path / "logs", tmp_path / "store")[0] == 0
    trials = store.read(tmp_path / "store").trials
    assert trials["reason"].tolist() == ["unstated", "unstated"]
    assert trials["ok"].tolist()[1] == 0.25
    assert trials["steps"].tolist() == [1500, 1500]


def test_trials_asked_for_without_a_folder_are_lost(tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / OGBG / "trial_2", flags_0=FLAGS | {"num_tuning_trials": 4})
    _, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert lines[0] == "amos/study_0/ogbg_jax: no folder for trials 1, 3, 4, which the flags request"
    trials = store.read(tmp_path / "store").trials
    assert trials["trial"].tolist() == [1, 2, 3, 4]
    assert trials["reason"].tolist() == ["lost", "unstated", "lost", "lost"]


def test_a_trial_outside_its_workloads_folder(tmp_path: Path) -> None:
    root = tmp_path / "logs" / STUDY
    write(root / OGBG / "trial_1")
    write(root / "trial_1")  # its flags name the workload
    write(root / "trial_2")
    _, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert lines[0] == f"{STUDY}/trial_1: repeats {STUDY}/{OGBG}/trial_1"
    assert store.read(tmp_path / "store").trials["trial"].tolist() == [1, 2]
    write(root / "trial_1", eval_measurements=csv(evaluation(7)))
    _, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert lines[0] == f"{STUDY}/trial_1: contradicts {STUDY}/{OGBG}/trial_1, which is kept"


def test_only_the_first_ten_warnings_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1")
    for number in range(2, 15):
        write(tmp_path / "logs" / STUDY / OGBG / f"trial_{number}", eval_measurements=None)
    _, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert len([line for line in lines if "is missing" in line]) == 10
    assert lines[10] == "and 3 more"
    assert lines[-1].endswith("13 warnings")


def test_a_second_import_does_nothing_and_a_new_trial_is_added(tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1", hparams={"learning_rate": 1})
    imported(tmp_path / "logs", tmp_path / "store")
    before = sorted(p.name for p in (tmp_path / "store").rglob("*.*"))
    code, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert code == 0
    assert "0 new (0 trials, 0 evaluations), 1 already present" in lines[-1]
    assert sorted(p.name for p in (tmp_path / "store").rglob("*.*")) == before
    write(tmp_path / "logs" / STUDY / OGBG / "trial_2", hparams={"learning_rate": 2})
    assert "1 new" in imported(tmp_path / "logs", tmp_path / "store")[1][-1]
    found = store.read(tmp_path / "store")
    assert found.trials["learning_rate"].tolist() == [1.0, 2.0]
    assert len(found.measurements) == 6


def test_changed_logs_are_reported_and_replaced_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs, folder = tmp_path / "logs" / STUDY / OGBG, tmp_path / "store"
    before = [evaluation(1), evaluation(735, 0.2)]
    for number in (1, 2, 3):
        write(logs / f"trial_{number}", eval_measurements=csv(*before))
    assert imported(tmp_path / "logs", folder)[0] == 0
    write(logs / "trial_1", eval_measurements=csv(*before, evaluation(1500, 0.27)))  # goes on
    assert "1 new" in imported(tmp_path / "logs", folder)[1][-1]
    write(logs / "trial_2", eval_measurements=csv(evaluation(1), evaluation(735, 0.25)))
    write(logs / "trial_3", eval_measurements=csv(evaluation(1)))  # cut short
    files = sorted(folder.rglob("*"))
    code, lines = imported(tmp_path / "logs", folder)
    assert code == 0
    told = "1 study changed, 10 values: the stored values are kept (--replace takes those of the logs)"
    (name,) = (commit.name for commit in store.catalogue(folder))
    where = f"{name}: trial 2: train_average_precision_error at step 735 is 0.8 in the store and 0.75 in the logs"
    assert lines[:2] == [told, f"{where}, and 1 more trials"]
    assert lines[-1].startswith("1 study: 0 new (0 trials, 0 evaluations), 1 already present")
    assert sorted(folder.rglob("*")) == files
    command = ["import", "algoperf-logs", str(tmp_path / "logs"), "--store", str(folder), "--replace"]
    assert results_cli.main(command) == 0
    assert "1 study changed, 10 values: replaced by the current values of the logs\n" in capsys.readouterr().err
    found = store.read(folder)
    assert found.measurements[["trial", "step"]].to_numpy().tolist() == [
        *([1, step] for step in (1, 735, 1500)),
        *([2, step] for step in (1, 735)),
        [3, 1],
    ]
    assert found.measurements["validation_average_precision_error"].tolist()[4] == 0.75
    assert "0 new" in imported(tmp_path / "logs", folder)[1][-1]
    assert verify.run(folder, print) == 0


def test_only_logs_can_be_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source in ("shallue2018", "mlperf-rcp"):
        assert results_cli.main(["import", source, str(tmp_path), "--store", str(tmp_path / "s"), "--replace"]) == 2
        assert capsys.readouterr().err.startswith("error: --replace is an option of import runs and algoperf-logs")


def test_studies_whose_trials_are_all_lost_are_in_the_ledger(tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / "criteo1tb_jax" / "trial_1", eval_measurements=None)
    code, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert (code, len(lines)) == (1, 2)  # nothing was evaluated at all
    assert not (tmp_path / "store").exists()
    write(tmp_path / "logs" / STUDY / OGBG / "trial_1")
    assert imported(tmp_path / "logs", tmp_path / "store")[0] == 0
    assert [commit.ledger.lost for commit in store.catalogue(tmp_path / "store")] == [1, 0]


def test_a_part_of_the_leaderboards_is_the_same_study(tmp_path: Path) -> None:
    source = tmp_path / "logs"  # a folder above that is called like one inside
    write(source / STUDY / OGBG / "trial_1")
    assert imported(source, tmp_path / "whole")[0] == 0
    assert imported(source / STUDY / OGBG, tmp_path / "part")[0] == 0
    names = [[commit.name for commit in store.catalogue(tmp_path / folder)] for folder in ("whole", "part")]
    assert names[0] == names[1]


def test_folders_that_are_no_trials(tmp_path: Path) -> None:
    write(tmp_path / "logs" / STUDY / OGBG / "trial_one")
    write(tmp_path / "logs" / STUDY / OGBG / "trial_2\n")
    code, lines = imported(tmp_path / "logs", tmp_path / "store")
    assert code == 1
    assert len(lines) <= 3
    assert "is not called trial_<n>" in lines[1]
    assert all(line.isprintable() for line in lines)


def test_no_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no folder at"):
        imported(tmp_path / "none", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    assert imported(tmp_path / "empty", tmp_path / "store")[0] == 1
    (tmp_path / "file").write_text("")
    assert imported(tmp_path / "file", tmp_path / "store")[0] == 1


def test_places_that_fsspec_knows() -> None:
    source, target = durable.location("memory://algoperf/logs"), durable.location("memory://algoperf/store")
    write(source / STUDY / OGBG / "trial_1")
    write(source / STUDY / OGBG / "trial_2", eval_measurements=None)
    code, lines = imported(source, target)
    assert code == 0
    assert "trial_2: eval_measurements.csv is missing" in lines[0]
    assert store.read(target).trials["status"].tolist() == ["INCOMPLETE", "INCOMPLETE"]


def of_row(name: str, text: str) -> float:
    """A cell of the source as the error it stands for."""
    kind = name.split("/")[1]
    if text == "" or not np.isfinite(float(text)) or kind in ("loss", "ctc_loss", "wer"):
        return float(text or "nan")
    return float(1 - Decimal(text) / (100 if kind == "bleu" else 1))


@pytest.mark.slow
@pytest.mark.skipif("ALGOPERF" not in os.environ, reason="ALGOPERF names no copy of previous_leaderboards")
def test_real_logs_import_completely_and_merge_with_ours(tmp_path: Path) -> None:
    raw, folder, whole = Path(os.environ["ALGOPERF"]), tmp_path / "store", tmp_path / "whole"
    assert imported(raw, folder)[0] == 0
    random, cells, trials = np.random.default_rng(0), 0, 0
    for commit in store.catalogue(folder):
        told = commit.plan["details"]
        logs = raw / told["leaderboard"] / "logs" / told["ruleset"] / told["submission"] / told["study"]
        rows = commits.read_table(commit, "measurements").to_pandas()
        for file in (logs / f"{told['workload']}_{told['framework']}").glob("trial_*/eval_measurements.csv"):
            source = pd.read_csv(file, dtype=str, keep_default_na=False)
            kept = rows[rows["trial"] == int(file.parent.name[6:])]
            assert kept["step"].tolist() == source["global_step"].astype(float).astype(int).tolist()
            trials += 1
            for name in sorted(algoperf_workloads.COLUMNS.keys() & set(source)):
                for row in random.integers(len(source), size=2):
                    expected = of_row(name, source[name].iloc[row])
                    np.testing.assert_equal(kept[algoperf_workloads.COLUMNS[name]].iloc[row], expected)
                    cells += 1
    assert trials > 0.9 * sum(commit.trials for commit in store.catalogue(folder))
    assert cells > 20_000
    ours = [str(Path(__file__).parents[3] / "results" / name) for name in ("published", "mlperf")]
    assert results_cli.main(["merge", "--store", str(whole), *ours, str(folder)]) == 0
    assert results_cli.main(["export", "--store", str(whole), "--out", str(tmp_path / "release")]) == 0
    for made in (folder, whole, tmp_path / "release"):
        assert results_cli.main(["verify", "--store", str(made), "--full"]) == 0
