import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from results import durable, store
from results.bad_input import BadInput
from results.durable import Folder
from results.importers import mlperf_rcp, mlperf_records
from results.importers.untrusted import ImportWarnings
from results.plans.recorded import Recorded

# A copy of mlperf_logging/rcp_checker, or of some of its releases.
SHARED = Path(os.environ.get("MLPERF") or Path(__file__).resolve().parents[4] / "shared" / "reference" / "mlperf_rcp")
RUNS = [40, 42, 41]


def record(**changed: Any) -> dict[str, Any]:
    """A record in the source's own spelling; a change to None leaves a field out."""
    fields = {
        "Benchmark": "resnet",
        "Creator": "NVIDIA",
        "When": "At 1.0 submission",
        "Platform": "TBD",
        "BS": 4096,
        "Hyperparams": {"optimizer": "lars", "opt_base_learning_rate": 10, "opt_weight_decay": "2e-4"},
        "Epochs to converge": RUNS,
    } | changed
    return {name: value for name, value in fields.items() if value is not None}


def write(root: Folder, release: str, *records: dict[str, Any], file: str = "rcps_resnet.json") -> None:
    durable.make_folder(root / release)
    named = {f"{r['Benchmark']}_ref_{r['BS']}_{i}": r for i, r in enumerate(records)}
    (root / release / file).write_bytes(json.dumps(named).encode())


def imported(source: Folder, target: Folder) -> tuple[int, list[str]]:
    lines: list[str] = []
    return mlperf_rcp.run(source, target, report=lines.append), lines


def test_a_record_is_a_study_and_its_seeds_are_trials(tmp_path: Path) -> None:
    write(tmp_path / "rcp", "training_2.0.0", record())
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    assert lines == ["1 record: 1 study, 1 new (3 trials), 0 already present; 0 repeated records; 0 not usable"]
    found = store.read(tmp_path / "store")
    study = store.catalogue(tmp_path / "store")[0].study
    assert (study.dataset, study.model, study.optimizer, study.batch_size) == ("imagenet", "resnet_50", "lars", 4096)
    assert found.trials["trial"].tolist() == [0, 1, 2]
    assert found.trials["seed"].isna().all()
    assert set(found.trials["status"]) == {"COMPLETE"}
    assert found.trials["steps"].tolist() == [12512, 13137, 12825]  # epochs · 1,281,167 / 4096, rounded up
    assert found.trials["epochs_to_converge"].tolist() == [40.0, 42.0, 41.0]
    assert found.trials["samples_to_converge"].tolist() == [epochs * 1_281_167.0 for epochs in RUNS]
    assert found.trials["opt_weight_decay"].tolist() == [2e-4] * 3
    assert found.measurements["step"].tolist() == [12512, 13137, 12825]
    assert found.measurements["validation_shortfall"].tolist() == [0.0] * 3
    assert found.measurements["validation_shortfall"].dtype == np.float64
    details = study.details
    assert details["metaparameters"] == {
        "optimizer": "lars",
        "opt_base_learning_rate": 10.0,
        "opt_weight_decay": 2e-4,
    }
    assert (details["creator"], details["when"], details["platform"]) == ("NVIDIA", "At 1.0 submission", None)
    assert (details["unit"], details["training_examples"], details["evaluation_samples"]) == (
        "epochs",
        1_281_167,
        1_281_167.0,
    )
    assert details["licence"] == "Apache-2.0"
    assert "mlcommons/logging" in details["citation"]


@pytest.mark.parametrize(
    ("fields", "unit", "steps", "samples", "epochs"),
    [
        ({"Benchmark": "bert", "BS": 448, "Epochs to converge": [2558976, 2634240]}, "samples", 5712, 2558976, None),
        ({"Benchmark": "bert", "BS": 1536, "Epochs to converge": [2836240]}, "samples", 1847, 2836240, None),
        ({"Benchmark": "flux1", "BS": 512, "samples to converge": [7077888]}, "samples", 13824, 7077888, None),
        ({"Benchmark": "flux1", "BS": 512, "Samples To Converge": [7077888]}, "samples", 13824, 7077888, None),
        ({"Benchmark": "gpt3", "BS": 1536, "Epochs to converge": [1157627904]}, "tokens", 368, 565248, None),
        ({"Benchmark": "sd", "BS": 512, "Epochs to converge": [5000]}, "steps", 5000, 2560000, None),
        (
            {"Benchmark": "dlrmv4", "BS": 8192, "Epochs to converge": [66519040]},
            "samples",
            8120,
            66519040,
            66519040 / 2290835423,
        ),
        (
            {"Benchmark": "dlrm", "BS": 32768, "Epochs to converge": [1.75]},
            "epochs",
            224048,
            1.75 * 4195197692,
            1.75,
        ),
        ({"Benchmark": "unet3d", "BS": 56, "Epochs to converge": [2600]}, "epochs", 7800, 436800, 2600),
        ({"Benchmark": "unet3d", "BS": 56, "Epochs to converge": [436800]}, "samples", 7800, 436800, 2600),
        ({"Benchmark": "newcomer", "BS": 8, "samples to converge": [81]}, "samples", 11, 81, None),
        ({"Benchmark": "newcomer", "BS": 8, "Epochs to converge": [81]}, "unstated", None, None, None),
        ({"Benchmark": "rnnt", "BS": 1024, "Epochs to converge": [59]}, "epochs", None, None, 59),
    ],
)
def test_units(
    fields: dict[str, Any], unit: str, steps: int | None, samples: float | None, epochs: float | None
) -> None:
    given = {name: value for name, value in record(**fields).items() if name in fields or "converge" not in name}
    one = mlperf_records.record("training_4.0.0", "x", given)
    content = mlperf_rcp.content([one])
    assert content.study.details["unit"] == unit
    assert content.trials["steps"][0] == steps
    assert content.trials["samples_to_converge"][0] == samples
    assert content.trials["epochs_to_converge"][0] == epochs
    assert len(content.measurements["step"]) == (0 if steps is None else len(one.values))


def test_what_cannot_be_told_is_kept_without_steps_and_said(tmp_path: Path) -> None:
    unknown = record(Benchmark="newcomer", BS=8)
    write(tmp_path / "rcp", "training_9.0.0", unknown, record(Benchmark="rnnt", BS=64))
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    assert [line for line in lines if "without steps" in line and "newcomer" in line]
    assert [line for line in lines if "without steps" in line and "rnn_t" in line and "longest utterance" in line]
    found = store.read(tmp_path / "store")
    assert found.trials["steps"].isna().all()
    assert len(found.trials) == 6
    assert not len(found.measurements)


def merged(*records: tuple[str, dict[str, Any]]) -> list[list[str]]:
    """The places of records that are taken for one study, in groups."""
    read = [mlperf_records.record(release, str(i), fields) for i, (release, fields) in enumerate(records)]
    return [[one.place for one in group] for group in mlperf_rcp.merge(read)]


def test_record_in_several_releases_is_one_study() -> None:
    new, old = record(Benchmark="rgat", BS=4096), record(Benchmark="gnn", BS=4096, Creator=None, Platform=None)
    assert len(merged(("training_4.0.0", old), ("training_4.1.0", old), ("training_5.0.0", new))) == 1
    boxes = record(Benchmark="ssd")
    assert len(merged(("training_4.0.0", boxes), ("training_5.0.0", boxes | {"Benchmark": "retinanet"}))) == 1
    assert len(merged(("training_1.1.0", boxes), ("training_4.0.0", boxes))) == 2  # another model then
    strings = record(Hyperparams={"optimizer": "lars", "opt_base_learning_rate": "10.0", "opt_weight_decay": 0.0002})
    assert len(merged(("training_1.1.0", record()), ("training_4.0.0", strings))) == 1


def test_runs_continued_or_in_another_unit_are_one_study() -> None:
    longer = record(**{"Epochs to converge": [*RUNS, 45]})
    assert len(merged(("training_1.0.0", record()), ("training_1.1.0", longer))) == 1
    fewer = record(Hyperparams={"optimizer": "lars"})
    assert len(merged(("training_1.0.0", record()), ("training_1.1.0", fewer))) == 1
    epochs = record(Benchmark="unet3d", BS=32, **{"Epochs to converge": [1617, 2436, 3171]})
    samples = epochs | {"Epochs to converge": [1617 * 160, 2436 * 160, 3171 * 160]}  # 5 batches of 32, not 168 examples
    both = [mlperf_records.record(release, "x", r) for release, r in [("t_3.0.0", epochs), ("t_3.1.0", samples)]]
    (group,) = mlperf_rcp.merge(both)
    assert mlperf_rcp.content(group).trials["steps"] == [1617 * 5, 2436 * 5, 3171 * 5]
    steps = record(Benchmark="sd", BS=512, **{"Epochs to converge": [5000, 5500]})
    images = record(Benchmark="stable_diffusion", BS=512, **{"Epochs to converge": [2560000, 2816000]})
    assert len(merged(("training_3.1.0", steps), ("training_4.0.0", images))) == 1


def test_runs_or_metaparameters_that_differ_are_other_studies(tmp_path: Path) -> None:
    other = record(**{"Epochs to converge": [41, 40, 42]})
    assert len(merged(("training_1.0.0", record()), ("training_1.1.0", other))) == 2
    corrected = record(Hyperparams={"optimizer": "lars", "opt_base_learning_rate": 8})
    assert len(merged(("training_1.0.0", record()), ("training_1.1.0", corrected))) == 2
    write(tmp_path / "rcp", "training_1.0.0", record())
    write(tmp_path / "rcp", "training_1.1.0", corrected)
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    names = [commit.name for commit in store.catalogue(tmp_path / "store")]
    assert lines[0].startswith("1 lists are kept twice, because their metaparameters contradict")
    assert sorted(lines[0].rpartition(": ")[2].split(" and ")) == names
    assert len(names) == 2


def test_joined_lists_are_named_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "rcp", "training_1.0.0", record(), record(BS=8192))
    longer = record(**{"Epochs to converge": [*RUNS, 45]})
    write(tmp_path / "rcp", "training_1.1.0", longer, record(BS=8192))  # the other one is only repeated
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    joined, repeated = (commit.name for commit in store.catalogue(tmp_path / "store"))
    assert "-b4096-" in joined
    assert lines[0].startswith("1 study joined from lists") and lines[0].endswith(f": {joined}")
    assert store.read(tmp_path / "store", joined).trials["source_lists"].tolist() == [2.0, 2.0, 2.0, 1.0]
    assert "source_lists" not in store.read(tmp_path / "store", repeated).trials


def test_epochs_are_the_sources_own_where_it_has_any() -> None:
    epochs = record(Benchmark="unet3d", BS=80, **{"Epochs to converge": [1428, 1512, 1617]})
    samples = epochs | {"Epochs to converge": [1428 * 240, 1512 * 240, 1617 * 240]}  # 3 batches of 80, not 168 examples
    for records in ((epochs, samples), (samples, epochs)):
        both = [mlperf_records.record(f"training_{i}.0.0", "x", one) for i, one in enumerate(records, 1)]
        (group,) = mlperf_rcp.merge(both)
        trials = mlperf_rcp.content(group).trials
        assert trials["epochs_to_converge"] == [1428.0, 1512.0, 1617.0]
        assert trials["samples_to_converge"] == [342720.0, 362880.0, 388080.0]
        assert trials["source_lists"] == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("metaparameters", "optimizer"),
    [
        ({"opt_name": "SGD"}, "sgd"),
        ({"optimizer": "adam", "opt_momentum": 0.9}, "adam"),
        ({"opt_lamb_beta_1": 0.9, "opt_base_learning_rate": 1}, "lamb"),
        ({"opt_adamw_beta_1": 0.9}, "adamw"),
        ({"opt_adagrad_epsilon": 1}, "adagrad"),
        ({"sgd_opt_base_learning_rate": 18}, "sgd"),
        ({"sgd_opt_base_learning_rate": 18, "opt_lamb_beta_1": 0.9}, "lamb+sgd"),
        ({"opt_base_learning_rate": 1}, "unstated"),
        ({"opt_name": 3}, "unstated"),
    ],
)
def test_the_optimizer_as_far_as_told(metaparameters: dict[str, Any], optimizer: str) -> None:
    assert mlperf_rcp.optimizer(metaparameters) == optimizer


def test_a_second_import_does_nothing_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "rcp", "training_2.0.0", record(), record(BS=8192))
    imported(tmp_path / "rcp", tmp_path / "store")
    before = sorted(p.name for p in (tmp_path / "store").rglob("*.*"))
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    assert "0 new (0 trials), 2 already present" in lines[-1]
    assert sorted(p.name for p in (tmp_path / "store").rglob("*.*")) == before


def test_studies_of_older_names_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "rcp", "training_2.0.0", record(), record(BS=8192))
    with monkeypatch.context() as then:
        then.setattr(Recorded.__init__, "__defaults__", (8, *Recorded.__init__.__defaults__[1:]))
        imported(tmp_path / "rcp", tmp_path / "store")
    names = store.names(tmp_path / "store")
    assert {len(name.rpartition("-")[2]) for name in names} == {8}
    write(tmp_path / "rcp", "training_2.1.0", record(BS=16384))
    _, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert "1 new (3 trials), 2 already present" in lines[-1]
    assert set(names) < set(store.names(tmp_path / "store"))


def test_what_was_imported_otherwise_before_is_told_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "rcp", "training_2.0.0", record())
    with monkeypatch.context() as then:
        content = mlperf_rcp.content

        def older(group: Any) -> Any:
            made = content(group)
            return made._replace(trials=made.trials | {"epochs_to_converge": [40.0, 43.0, 42.0]})

        then.setattr(mlperf_rcp, "content", older)
        then.setattr(Recorded.__init__, "__defaults__", (8, *Recorded.__init__.__defaults__[1:]))
        imported(tmp_path / "rcp", tmp_path / "store")
    write(tmp_path / "rcp", "training_2.1.0", record(BS=8192))
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    (name,) = (commit.name for commit in store.catalogue(tmp_path / "store") if commit.plan["batch_size"] == 4096)
    assert len(name.rpartition("-")[2]) == 8
    assert lines[:2] == [
        "1 study changed, 2 values: the stored values are kept (import into a new store to get the current ones)",
        f"{name}: trial 1: epochs_to_converge is 43 in the store and 42 in the import, and 1 more trials",
    ]
    assert "1 new (3 trials), 1 already present" in lines[-1]
    kept = store.read(tmp_path / "store").trials
    assert kept.loc[kept["study"] == name, "epochs_to_converge"].tolist() == [40.0, 43.0, 42.0]


def test_more_releases_later_add_only_what_is_new(tmp_path: Path) -> None:
    write(tmp_path / "rcp", "training_2.0.0", record())
    imported(tmp_path / "rcp", tmp_path / "store")
    write(tmp_path / "rcp", "training_2.1.0", record(), record(BS=8192))
    _, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert "1 study stored from fewer or other releases" in lines[0]
    assert "1 new (3 trials), 1 already present; 1 repeated record" in lines[-1]
    assert len(store.catalogue(tmp_path / "store")) == 2


def test_places_that_fsspec_knows(tmp_path: Path) -> None:
    source, target = durable.location("memory://mlperf/rcp"), durable.location("memory://mlperf/store")
    write(source, "training_2.0.0", record())
    assert imported(source, target)[0] == 0
    assert store.read(target).trials["steps"].tolist() == [12512, 13137, 12825]


def _fields(**changed: Any) -> Callable[[Path], None]:
    return lambda file: file.write_text(json.dumps({"resnet_ref": record(**changed)})) and None


def _bytes(data: bytes) -> Callable[[Path], None]:
    return lambda file: file.write_bytes(data) and None


def _huge(file: Path) -> None:
    with open(file, "wb") as sparse:
        sparse.truncate(1 << 40)


def _elsewhere(file: Path) -> None:
    secret = file.parents[2] / "secret.json"
    secret.write_text(json.dumps({"resnet_ref": record()}))
    file.symlink_to(secret)


NOT_JSON = "is not JSON"
MALFORMED: list[tuple[str, Callable[[Path], None], str]] = [
    ("empty", _bytes(b""), NOT_JSON),
    ("truncated", _bytes(json.dumps({"x": record()}).encode()[:-20]), NOT_JSON),
    ("binary", _bytes(bytes(range(256))), NOT_JSON),
    ("not unicode", _bytes(b'{"x": "\xff\xfe"}'), NOT_JSON),
    ("nested without end", _bytes(b"[" * 200_000), NOT_JSON),
    ("a number of a million digits", _bytes(b'{"x": ' + b"9" * 1_000_000 + b"}"), NOT_JSON),
    ("NaN", _bytes(b'{"x": {"Benchmark": "resnet", "BS": NaN}}'), NOT_JSON),
    ("a list", _bytes(b"[1, 2]"), "not a JSON object"),
    ("null", _bytes(b"null"), "not a JSON object"),
    ("a name twice", _bytes(b'{"x": {}, "x": {}}'), "twice"),
    ("no record", _bytes(b"{}"), "no record"),
    ("too many records", _bytes(json.dumps({str(i): 1 for i in range(1001)}).encode()), "1,001 records"),
    ("of a terabyte", _huge, "bytes"),
    ("a folder", lambda file: file.mkdir(), ""),
    ("a link to nowhere", lambda file: file.symlink_to("/nowhere/at/all"), "symbolic link"),
    ("a link to a record", _elsewhere, "symbolic link"),
    ("a pipe", lambda file: os.mkfifo(file), "regular"),
    ("a device", lambda file: file.symlink_to("/dev/zero"), "symbolic link"),
    ("a record that is a list", _bytes(b'{"x": [1]}'), "not an object"),
    ("no benchmark", _fields(Benchmark=None), "Benchmark"),
    ("benchmark of another kind", _fields(Benchmark=["resnet"]), "Benchmark"),
    ("no batch size", _fields(BS=None), "BS"),
    ("batch size 0", _fields(BS=0), "BS"),
    ("batch size as a word", _fields(BS="many"), "BS"),
    ("batch size true", _fields(BS=True), "BS"),
    ("batch size of 30 digits", _fields(BS=10**30), "BS"),
    ("metaparameters as a list", _fields(Hyperparams=[1]), "Hyperparams"),
    ("a thousand metaparameters", _fields(Hyperparams={str(i): i for i in range(1000)}), "Hyperparams"),
    ("an object as metaparameter", _fields(Hyperparams={"a": {"b": 1}}), "metaparameter"),
    ("an endless metaparameter", _fields(Hyperparams={"a": 10**400}), "metaparameter"),
    ("no number of epochs", _fields(**{"Epochs to converge": None}), "has 0 entries"),
    ("epochs and samples", _fields(**{"samples to converge": [1]}), "has 2 entries"),
    ("no list of epochs", _fields(**{"Epochs to converge": 40}), "no list"),
    ("no epochs in the list", _fields(**{"Epochs to converge": []}), "no list"),
    ("a word among the epochs", _fields(**{"Epochs to converge": [40, "41"]}), "not a positive number"),
    ("null among the epochs", _fields(**{"Epochs to converge": [40, None]}), "not a positive number"),
    ("negative epochs", _fields(**{"Epochs to converge": [-1]}), "not a positive number"),
    ("more steps than fit", _fields(**{"Epochs to converge": [10**9]}), "steps"),
]


@pytest.mark.parametrize(("make", "why"), [case[1:] for case in MALFORMED], ids=[case[0] for case in MALFORMED])
def test_what_is_malformed_is_a_line_and_stores_nothing(make: Callable[[Path], None], why: str, tmp_path: Path) -> None:
    (tmp_path / "rcp" / "training_2.0.0").mkdir(parents=True)
    make(tmp_path / "rcp" / "training_2.0.0" / "rcps_odd.json")
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 1
    assert len(lines) <= 3
    assert lines[0].startswith(f"error: nothing to import in {tmp_path / 'rcp'}")
    assert all(len(line) < 300 and line.isprintable() for line in lines)
    if why:
        assert why in lines[1]
        assert "training_2.0.0/rcps_odd.json" in lines[1]
    assert not (tmp_path / "store").exists()


def test_malformed_record_does_not_stop_the_import(tmp_path: Path) -> None:
    write(tmp_path / "rcp", "training_2.0.0", record())
    for i, (_, make, _) in enumerate(MALFORMED):
        make(tmp_path / "rcp" / "training_2.0.0" / f"rcps_{i}.json")
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    assert len(store.catalogue(tmp_path / "store")) == 1
    faults = len([case for case in MALFORMED if case[2]])
    assert lines[10] == f"and {faults - 10} more"
    assert f"{faults} not usable" in lines[11]


def test_names_nobody_expects_stay_on_one_line(tmp_path: Path) -> None:
    odd = record(Benchmark="../evil\n name", Hyperparams={"learning rate": 1, "steps": 2, "x" * 100: 3, "ok": 4})
    write(tmp_path / "rcp", "training_2.0.0\n", odd | {"samples to converge": [9], "Epochs to converge": None})
    (tmp_path / "rcp" / "training_2.0.0\n" / "rcps_resnet.json").write_text(
        json.dumps({"a\nb": odd, "c": {"Benchmark": 1}})
    )
    code, lines = imported(tmp_path / "rcp", tmp_path / "store")
    assert code == 0
    assert all(line.isprintable() for line in lines)
    trials = store.read(tmp_path / "store").trials
    assert trials["ok"].tolist() == [4.0] * 3
    assert trials["steps"].isna().all()
    assert {p.parent for p in (tmp_path / "store").rglob("commit-*")} == set((tmp_path / "store").iterdir())


def test_no_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no folder at"):
        imported(tmp_path / "none", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    assert imported(tmp_path / "empty", tmp_path / "store")[0] == 1


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no copy of MLPerf's reference convergence points at {SHARED}")
def test_real_releases_import_completely(tmp_path: Path) -> None:
    warnings = ImportWarnings()
    files = sorted(SHARED.rglob("rcps_*.json"))
    there = [(f.parent.name, name) for f in files for name in json.loads(f.read_text())]
    read = mlperf_records.read(SHARED, warnings)
    assert warnings.lines == []
    assert sorted(f"{release}/{name}" for release, name in there) == sorted(one.place for one in read)
    code, lines = imported(SHARED, tmp_path / "store")
    assert code == 0
    assert f"{len(there)} records" in lines[-1]
    commits = store.catalogue(tmp_path / "store")
    places = [place for commit in commits for place in commit.plan["details"]["records"]]
    assert sorted(places) == sorted(one.place for one in read)
    found = store.read(tmp_path / "store")
    assert len(found.trials) == sum(commit.trials for commit in commits)
    raw = {f"{f.parent.name}/{name}": fields for f in files for name, fields in json.loads(f.read_text()).items()}
    rows = dict(list(found.trials.sort_values("trial").groupby("study")))
    for commit in commits:
        epochs, samples = (rows[commit.name][f"{name}_to_converge"] for name in ("epochs", "samples"))
        assert (epochs.notna() | samples.notna()).all()
        units = [epochs, samples, samples / commit.plan["batch_size"], samples * 2048]  # the last are GPT-3's tokens
        for place in commit.plan["details"]["records"]:
            (listed,) = (value for name, value in raw[place].items() if name.lower().endswith(" to converge"))
            assert any(np.allclose(unit[: len(listed)], listed, rtol=1e-15, atol=0) for unit in units)
    assert all(commit.ledger.adds_up and not commit.ledger.missing for commit in commits)
    timeless = {commit.plan["model"] for commit in commits if not commit.files["measurements"].rows}
    assert timeless == {"rnn_t"}
    (bert,) = [c for c in commits if c.plan["model"] == "bert_large" and c.plan["batch_size"] == 448 and c.trials == 23]
    steps = found.trials.loc[found.trials["study"] == bert.name, "steps"]  # listed by two of the releases
    assert steps.min() == -(-1981952 // 448)
    mixed = [c.plan["details"]["unit"] for c in commits if c.plan["model"] == "gpt3_175b"]
    assert set(mixed) == {"tokens"}
