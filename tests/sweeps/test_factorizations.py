"""Factorizations from the command line to rows in a store, each in a process of its own; and their users' mistakes."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from harness.processes import processors
from harness.runners.factorizations import METRICS
from results import store
from results.checks import verify
from results.plans.factorization import Factorization
from sweeps import (
    __main__ as sweeps_cli,
    factorization_config,
    overrides,
    plan,
    planning,
    status,
    study_run as run_module,
)
from sweeps.configured_study import ConfiguredStudy
from sweeps.launchers import local
from workloads import memory, ratings_sources
from workloads.factorization import fused, prepared

GRAPH = [
    *("task=webgraph_synthetic", "ratings.rows=90", "ratings.columns=80", "ratings.links=500"),
    *("ratings.communities=8", "ratings.exponent=6", "ratings.heldout_rows=20"),  # few lengths of rows
]


def run(*words: str) -> int:
    return sweeps_cli.main(list(words))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files(here: Path) -> list[str]:
    """A user's files, with empty rows and columns, and links that are given twice."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 38, 300), rng.integers(0, 28, 300)
    links = pd.DataFrame({"row": rows, "col": columns}).drop_duplicates()
    training, heldout = links.iloc[:-40], links.iloc[-40:]
    pd.concat([training, training.iloc[:7]]).to_parquet("links.parquet", index=False)
    matrix = (np.ones(len(heldout)), (heldout["row"], heldout["col"]))
    scipy.sparse.save_npz("heldout.npz", scipy.sparse.csr_matrix(matrix, shape=(40, 30)))
    return ["task=ratings", "ratings.path=links.parquet", "ratings.heldout=heldout.npz"]


@pytest.mark.slow
def test_a_users_files_on_one_and_two_cores(
    files: list[str], here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = [*files, "als.dim=4", "als.epochs=2", "cores=1,2", "-m", "store=kept"]
    assert plan.main(line) == 0
    assert "2 studies; 2 trials to run, at most 4 trial-steps (a step of als is an epoch" in capsys.readouterr().out
    assert run(*line) == 0
    out, err = capsys.readouterr()
    assert "next: python -m analysis epochs --store kept" in out
    assert "ratings: 7 duplicate links were merged\n" in err
    assert verify.run(Path("kept"), lambda line: None) == 0
    tables = store.read(Path("kept"))
    measured = [group.reset_index(drop=True) for _, group in tables.measurements.groupby("study", observed=True)]
    for one in measured:
        assert one["step"].tolist() == [1, 2]
        assert (one["row_half_seconds"] > 0).all()
    for metric in METRICS:
        np.testing.assert_allclose(measured[0][metric], measured[1][metric], rtol=1e-4)
    assert tables.trials["seed"].nunique() == 1
    about = tables.studies.sort_values("device_count")
    cores = processors.physical_cores()
    assert about["device_count"].tolist() == [1, 2]
    assert about["physical_cores"].tolist() == [1, min(2, len(cores))]
    assert about["affinity"].tolist()[0] == ",".join(map(str, cores[0]))
    assert about["emulated"].tolist() == [False, len(cores) < 2]
    assert not list(here.glob("*/*/checkpoint-*"))
    assert run(*line) == 0
    assert "nothing to train: 2 studies" in capsys.readouterr().out
    assert status.main(["store=kept"]) == 0
    assert capsys.readouterr().out.count("done") == 2


def run_here(*words: str) -> run_module.RunSummary:
    """Runs a study on one core in this process."""
    request = planning.request(overrides.command_line(words))
    (study,) = request.studies
    store.ask(request.store, study)
    return run_module.run_study(request.store, study, request.settings, source=request.sources[study.name])


def test_a_search_and_trials_added_later() -> None:
    tuned = "als.norm_penalty={scale: LOG, low: 1e-3, high: 1e-1}"
    line = [*GRAPH, "als.dim=4", "als.epochs=1", tuned]
    (study,) = planning.request(overrides.command_line([*line, "store=kept"])).studies
    assert study.trials == factorization_config.DEFAULT_TRIALS
    for trials in (1, 3):
        assert run_here(*line, f"trials={trials}", "store=kept").complete == min(trials, 2)
    found = store.read(Path("kept"))
    assert found.trials["norm_penalty"].nunique() == 3
    assert found.trials["unobserved_weight"].unique().tolist() == [0.01]
    assert found.trials["run"].tolist() == [1, 3, 3]
    assert len(found.measurements) == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.slow
def test_a_study_whose_process_is_killed_goes_on(here: Path, children: Callable[[int], list[int]]) -> None:
    line = [*GRAPH, "als.dim=4", "als.epochs=60", "checkpoint_seconds=0"]
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 90
        while not killed and time.monotonic() < deadline:
            if len(list(here.glob("*/*/checkpoint-*"))):
                for child in children(os.getpid()):
                    os.kill(child, signal.SIGKILL)
                    killed.append(child)
            time.sleep(0.005)

    killer = threading.Thread(target=kill)
    killer.start()
    assert run(*line, "store=killed") == 0
    killer.join()
    assert killed
    run_here(*line, "store=calm")
    one, other = (store.read(Path(name)).measurements for name in ("killed", "calm"))
    assert one["step"].tolist() == list(range(1, 61))
    for metric in METRICS:
        np.testing.assert_array_equal(one[metric], other[metric])
    assert verify.run(Path("killed"), lambda line: None) == 0


@pytest.mark.slow
def test_a_process_that_always_dies_loses_its_study_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slot = local.slot_alone

    def dying(cores: int) -> tuple[tuple[int, ...], dict[str, str]]:
        # An XLA flag that does not exist makes the process abort as soon as JAX starts.
        return slot(cores)[0], slot(cores)[1] | ({"XLA_FLAGS": "--xla_no_such_flag=1"} if cores == 2 else {})

    monkeypatch.setattr(local, "slot_alone", dying)
    line = [*GRAPH, "als.dim=4", "als.epochs=1", "cores=2,1", "-m", "store=kept"]
    assert run(*line) == 1
    assert "its process died 2 times" in capsys.readouterr().err
    found = store.read(Path("kept")).trials
    assert sorted(zip(found["status"], found["reason"].fillna(""), strict=True)) == [
        ("COMPLETE", ""),
        ("INCOMPLETE", "lost"),
    ]


def test_a_study_that_raises_has_failed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "slot_alone", lambda cores: ((), {"JAX_NUM_CPU_DEVICES": "1"}))
    assert run(*GRAPH, "als.dim=4", "als.epochs=1", "cores=3", "store=kept") == 1
    assert "the study needs 3 cores, but this process has 1" in capsys.readouterr().err
    assert store.read(Path("kept")).trials["reason"].tolist() == ["failed"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda links: links.assign(row=links["row"] - 1), "links.parquet: row -1 is negative"),
        (lambda links: links.assign(row=links["row"] + 20), "is out of range. heldout.npz has 40"),
        (lambda links: links.iloc[:0], "links.parquet holds no links"),
        (lambda links: links.assign(col=links["col"] + 0.5), "column col is double"),
    ],
    ids=["negative", "out of range", "empty", "fractions"],
)
def test_unusable_files_are_one_line_and_write_nothing(
    files: list[str],
    change: Callable[[pd.DataFrame], pd.DataFrame],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    change(pd.read_parquet("links.parquet").sort_values("row")).to_parquet("links.parquet", index=False)
    assert_refused([*files, "als.dim=4"], message, capsys)


def test_files_of_different_shapes(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    scipy.sparse.save_npz("other.npz", scipy.sparse.csr_matrix(np.ones((40, 29))))
    files[1] = "ratings.path=other.npz"
    assert_refused(files, "heldout.npz is 40 × 30 and other.npz is 40 × 29", capsys)


def test_single_held_out_row_cannot_be_validation_and_test(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    matrix = scipy.sparse.load_npz("heldout.npz").tolil()
    known = pd.read_parquet("links.parquet")["row"]
    matrix[[row for row in range(40) if row != known[0]]] = 0
    scipy.sparse.save_npz("heldout.npz", matrix.tocsr())
    assert_refused([*files, "als.dim=4"], "ratings has a history and held-out links in only 1 row. Half of", capsys)


def test_a_dim_larger_than_the_smaller_side(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused([*files, "als.dim=31"], "als.dim=31 is larger than the smaller side of ratings, 30 columns", capsys)


def test_tables_that_do_not_fit(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared.load(ratings_sources.source({"name": "ratings", "path": "links.parquet", "heldout": "heldout.npz"}))
    monkeypatch.setattr(memory, "available", lambda: 10_000)
    assert_refused([*files, "als.dim=30"], "factorizing ratings with als.dim=30 on cores=1 needs about", capsys)


def test_more_cores_than_accelerators(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(processors, "accelerators", lambda: ("gpu", 2))
    assert_refused([*GRAPH, "als.dim=4", "cores=4"], "cores=4: this machine has 2 gpu devices. Use", capsys)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,7")
    assert local.slot_alone(2) == ((), {"CUDA_VISIBLE_DEVICES": "3,5"})


def assert_refused(line: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*line, "store=new") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not Path("new").exists()


def test_a_fused_kernel_without_a_compiler(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*files, "als.dim=4", "als.kernel=fused"]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert_refused(line, "als.kernel=fused needs CXX=no-such-compiler, which does not exist. Install one", capsys)
    monkeypatch.setenv("CXX", "false")
    fused.library.cache_clear()
    assert_refused(line, "/false cannot compile the kernel (exit code 1). Use als.kernel=xla", capsys)


@pytest.mark.slow
def test_a_fused_kernel_that_kills_its_study_is_compiled_anew(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fused.library.__wrapped__(4)
    (library,) = here.glob("cache/kernels/*.so")
    deadly = 'extern "C" void* scaling_limits_fused_rows(void*) { __builtin_trap(); }'
    command = [fused.compiler(), "-shared", "-fPIC", "-x", "c++", "-", "-o", str(here / "deadly.so")]
    subprocess.run(command, input=deadly, text=True, check=True)
    (here / "deadly.so").replace(library)
    library.with_suffix(".sha256").write_text(hashlib.sha256(library.read_bytes()).hexdigest())
    before = library.read_bytes()
    assert run(*GRAPH, "als.dim=4", "als.epochs=1", "als.kernel=fused", "store=kept") == 0
    assert store.read(Path("kept")).trials["status"].tolist() == ["COMPLETE"]
    assert library.read_bytes() != before


def test_rows_that_are_split_are_in_the_memory_that_is_needed(files: list[str]) -> None:
    rng = np.random.default_rng(0)
    row, column = (ids.ravel() for ids in np.meshgrid(np.arange(5000), np.arange(30), indexing="ij"))
    links = pd.DataFrame({"row": row, "col": column})[rng.random(len(row)) < 0.9]
    links.iloc[:-40].to_parquet("links.parquet", index=False)
    links.iloc[-40:].to_parquet("heldout.parquet", index=False)
    line = [files[0], files[1], "ratings.heldout=heldout.parquet", "als.dim=30", "als.solver=cg,cholesky", "cores=2"]
    request = planning.request(overrides.command_line([*line, "-m", "store=new"]))
    data = prepared.load(ratings_sources.source(request.sources[request.studies[0].name]))
    needed = [
        factorization_config._memory_needed(study, data)[0]
        for study in request.studies
        if isinstance(study, Factorization)
    ]
    hubs = 30 * 30 * 30 * 4  # every column is longer than an eighth of a chunk
    assert needed[1] - needed[0] == 2 * factorization_config.HUB_COPIES * hubs


def test_rows_without_history_are_reported_or_refused(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    links = pd.read_parquet("links.parquet")
    matrix = scipy.sparse.load_npz("heldout.npz").tocoo()
    rows = np.concatenate([matrix.row, [38, 38, 39]])
    columns = np.concatenate([matrix.col, [0, 1, 2]])
    scipy.sparse.save_npz("heldout.npz", scipy.sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(40, 30)))
    assert not links["row"].isin([38, 39]).any()
    (study,) = planning.request(overrides.command_line([*files, "als.dim=4", "store=new"])).studies
    assert isinstance(study, Factorization)
    data = {"name": "ratings"} | dict(word.removeprefix("ratings.").split("=") for word in files[1:])
    said: list[str] = []
    factorization_config.make_ready([ConfiguredStudy(study, data)], said.append)
    assert "ratings: 2 rows with held-out links have no history and cannot be evaluated" in said
    known = ([1.0, 1.0], ([38, 39], [0, 0]))
    scipy.sparse.save_npz("heldout.npz", scipy.sparse.csr_matrix(known, shape=(40, 30)))
    assert_refused([*files, "als.dim=4"], "ratings has a history and held-out links in only 0 rows. Half of", capsys)


def test_a_corrupted_cache_is_made_anew_and_said(here: Path, files: list[str]) -> None:
    request = planning.request(overrides.command_line([*files, "als.dim=4", "store=new"]))
    asked = [ConfiguredStudy(s, request.sources[s.name]) for s in request.studies if isinstance(s, Factorization)]
    said: list[str] = []
    factorization_config.make_ready(asked, said.append)
    assert said == ["ratings: 7 duplicate links were merged"]
    (columns,) = here.glob("cache/ratings/*/train.columns.npy")
    columns.write_bytes(columns.read_bytes()[:-1] + b"\7")
    said.clear()
    factorization_config.make_ready(asked, said.append)
    assert "was corrupted (train.columns.npy has changed) and has been prepared again" in said[0]


def test_cores_beyond_the_physical_ones_are_said_to_be_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "physical_cores", lambda: [(0, 2), (1, 3)])
    assert local.slot_alone(1)[0] == (0, 2)
    assert local.slot_alone(2)[0] == local.slot_alone(8)[0] == (0, 1, 2, 3)
    assert local.slot_alone(8)[1]["JAX_NUM_CPU_DEVICES"] == "8"
    request = planning.request(overrides.command_line([*GRAPH, "als.dim=4", "cores=1,2,4,8", "-m", "store=new"]))
    said: list[str] = []
    asked = [ConfiguredStudy(s, request.sources[s.name]) for s in request.studies if isinstance(s, Factorization)]
    factorization_config.make_ready(asked, said.append)
    assert said == ["cores=4,8 on 2 physical cores are emulated. Their times do not show the speed of real cores."]


def test_what_a_plan_says_of_its_data(files: list[str]) -> None:
    fewer = [word for word in GRAPH if not word.startswith("ratings.links=")]
    (study,) = planning.request(overrides.command_line([*fewer, "ratings.links=5e2", "als.dim=4", "store=x"])).studies
    (same,) = planning.request(overrides.command_line([*GRAPH, "als.dim=4", "store=x"])).studies
    assert isinstance(study, Factorization)
    assert study == same
    assert study.dataset_options["links"] == 500
    (study,) = planning.request(overrides.command_line([*files, "als.dim=4", "store=x"])).studies
    assert isinstance(study, Factorization)
    assert (study.dataset, study.dataset_options, study.trials) == ("ratings", {}, 1)
    Path("links.parquet").rename("moved.parquet")
    moved = [files[0], "ratings.path=moved.parquet", files[2]]
    assert planning.request(overrides.command_line([*moved, "als.dim=4", "store=x"])).studies == (study,)


def test_a_sweep_over_both_kinds_of_tasks_gives_each_what_is_its(here: Path) -> None:
    words = ["task=digits_fc,webgraph_synthetic", "optimizer=sgd,adam", "cores=1,2", "batch_size=8", "-m", "store=x"]
    studies = planning.request(overrides.command_line(words)).studies
    assert [(study.labels.optimizer, study.plan().get("batch_size")) for study in studies] == [
        *(("sgd", 8), ("adam", 8)),
        *(("als", None), ("als", None)),
    ]


def test_reading_a_command_line_of_a_factorization_starts_no_jax(files: list[str]) -> None:
    environment = os.environ | {"JAX_PLATFORMS": "none_such"}
    command = [sys.executable, "-m", "sweeps.plan", *files, "als.dim=4", "store=x"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not Path("x").exists()
