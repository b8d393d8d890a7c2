"""The release in the repository: whole, small, of the sweeps that `make published` runs, and as the documents tell it.

These are README, docs/optimizers.md, docs/sql.md and docs/performance.md.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis import measured_layouts
from analysis.cores import measured_factorizations
from analysis.fitting import curve_fits, extents, fits
from analysis.fitting.curve_fits import CurveFits
from results import store
from results.checks import verify
from results.costs import collectives
from results.costs.collectives import Collective
from results.costs.hardware import HARDWARE, passes
from results.plans.batch_study import BatchStudy
from results.plans.layout import LayoutStudy
from results.plans.plan import Plan
from results.plans.study import COMPARABLE, RERUNS, Target
from results.storage.commits import Commit, read_table
from sweeps import overrides, planning
from workloads.layouts.notation import read_mesh

ROOT = Path(__file__).parents[1]
RELEASE = ROOT / "results" / "published"
RELEASES = [RELEASE, ROOT / "results" / "mlperf"]
MOST_BYTES = 20e6


@pytest.fixture(scope="module")
def commits() -> list[Commit]:
    return store.catalogue(RELEASE)


@pytest.fixture(scope="module")
def tables() -> store.Tables:
    return store.read(RELEASE)


def preset_names() -> list[str]:
    """What `make published` sweeps."""
    recipe = (ROOT / "Makefile").read_text().split("\npublished:")[1].split("\n\n")[0]
    return re.findall(r"(?:alx2022|layouts|published)/\w+", recipe.split("; do")[0])


def named(study: Plan) -> tuple[str, int]:
    """Its readable name and how many trials; the hash in a name depends on the text of this Python's manual."""
    return study.name.rsplit("-", 1)[0], study.request.planned


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_every_byte_is_unchanged_and_every_ledger_adds_up(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.run(folder, lambda progress: None) == 0
    assert capsys.readouterr().out.strip().endswith("; no faults")
    for commit in store.catalogue(folder):
        assert commit.ledger.adds_up and not commit.ledger.unfinished


@pytest.mark.parametrize("folder", RELEASES, ids=lambda folder: folder.name)
def test_it_is_small(folder: Path) -> None:
    sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    assert 1e6 < sum(sizes) <= MOST_BYTES


@pytest.mark.slow
def test_it_holds_the_studies_of_its_presets_and_no_others() -> None:
    assert {commit.plan["comparable"] for commit in store.catalogue(RELEASE)} == {COMPARABLE}
    asked: Counter[tuple[str, int]] = Counter()
    for name in preset_names():
        line = overrides.command_line([f"+experiment={name}", "-m"])
        asked.update(named(study) for study in planning.request(line).studies)
    held = Counter(named(commit.study) for commit in store.catalogue(RELEASE))
    assert held == asked
    assert len(preset_names()) == 12 and sum(asked.values()) > 320


@pytest.mark.slow
def test_exact_pruning_shortened_the_curves_it_should() -> None:
    """Of the trials that two sweeps share: 64 of 1,024, at every batch size, to the bit."""
    searches = [commit for commit in store.catalogue(RELEASE) if is_to_its_targets(commit.study)]
    many = [commit for commit in searches if isinstance(commit.study, BatchStudy) and commit.study.pruning == "exact"]
    assert len(many) == 11
    for cut in many:
        (whole,) = (c for c in searches if named(c.study)[0] == named(cut.study)[0] and c is not cut)
        a, b = (store.read(RELEASE, commit.name).measurements for commit in (cut, whole))
        a = a[a["trial"] < whole.trials]
        assert a["trial"].nunique() == 64 and 64 < len(a) < len(b)
        metrics = [name for name in a if name not in ("study", "trial", "step")]
        joined = a.merge(b, on=["trial", "step"], suffixes=("", "_whole"), how="left")
        assert all(joined[metric].equals(joined[f"{metric}_whole"].astype(a[metric].dtype)) for metric in metrics)


def is_to_its_targets(study: Plan) -> bool:
    """Whether a study ends its trials at their target, at a constant learning rate."""
    return isinstance(study, BatchStudy) and (study.stop, study.schedule) == ("target", "constant")


def test_predicted_layout_seconds_are_those_of_the_cost_model(commits: list[Commit]) -> None:
    """From the counted columns: products in the passes of their precision, and a whole slice over all its links."""
    checked: Counter[str] = Counter()
    for commit in commits:
        study = commit.study
        if not isinstance(study, LayoutStudy):
            continue
        for row in read_table(commit, "measurements").to_pylist():
            if row["refusal"] is not None:
                continue
            hardware = HARDWARE[row["hardware"]]
            of_device = row["executed_flops"] / study.device_count
            slower = passes(hardware, study.precision)
            assert row["predicted_compute_seconds"] == pytest.approx(of_device * slower / hardware.flops, rel=1e-12)
            products = max(row["predicted_compute_seconds"], row["predicted_memory_seconds"])
            assert row["predicted_step_seconds"] == products + row["predicted_exchange_seconds"]
            checked[f"{study.engine_name}, {study.precision}"] += 1
            if (mesh := read_mesh(study.mesh)) and len(mesh) == 1 and "permute" not in row["collectives"]:
                chips = {"v3": [16, 16]}.get(row["hardware"])  # as of its topology; of the others as even as can be
                over = collectives.links(hardware, mesh, chips)
                seconds = sum(
                    each["count"] * collectives.exchange_seconds(hardware, _once(each, mesh.size), over)
                    for each in json.loads(row["collectives"])
                )
                assert row["predicted_exchange_seconds"] == pytest.approx(seconds, rel=1e-9)
                checked["whole"] += 1
    assert checked == {
        "cpu-emulated, float32": 88, "device, float32": 48, "tpu-aot, bfloat16": 3, "whole": 53,
    }  # fmt: skip


def test_predicted_tpu_seconds_agree_with_compiled_schedules() -> None:
    """A core of TPU v3 has 0.94e9 cycles per second (Jouppi et al. 2020, doi 10.1145/3360307)."""
    compiled = [one for one in measured_layouts.load(RELEASE) if one.number("scheduled_cycles") > 0]
    ratios = [one.number("scheduled_cycles") / 0.94e9 / one.number("predicted_step_seconds") for one in compiled]
    assert sorted(ratios) == pytest.approx([0.75, 0.94, 1.20], abs=0.01)
    for one in compiled:
        low, middle, high = (one.number(f"predicted_step_seconds{end}") for end in ("_low", "", "_high"))
        assert 0 < low < middle < high


def _once(each: dict[str, Any], devices: int) -> Collective:
    """A collective over all devices, as a total of so many tells of it."""
    return Collective(each["operation"], each["bytes"] / each["count"], (tuple(range(devices)),), (), "")


def text(name: str) -> str:
    """A document, on one line."""
    return " ".join((ROOT / name).read_text().split())


def sweep(study: Plan) -> str:
    """The sweep of the release that a study is of: the first words of a row of the table in docs/performance.md."""
    if not isinstance(study, BatchStudy):
        engine = study.plan().get("engine", "").partition(":")[0]
        return {"": "web graphs", "cpu-emulated": "layouts", "device": "cores", "tpu-aot": "mesh_tf_bert"}[engine]
    if study.stop == "budget":
        return "decay"
    if study.pruning == "exact":
        return "many"
    return f"{study.dataset} × {study.model}"


@pytest.mark.slow
def test_the_table_of_sweeps_is_that_of_the_release(commits: list[Commit], tables: store.Tables) -> None:
    trials = tables.trials.merge(
        pd.DataFrame([(c.name, sweep(c.study)) for c in commits], columns=["study", "sweep"]), on="study"
    )
    rows = tables.measurements["study"].map(dict(zip(trials["study"], trials["sweep"], strict=True))).value_counts()
    found = {
        name: (
            f"{own['study'].nunique():,}",
            f"{len(own):,}",
            f"{(own['status'] == 'INFEASIBLE').sum():,}",
            f"{own['steps'].sum():,}",
            f"{rows[name]:,}",
        )
        for name, own in trials.groupby("sweep")
    }
    assert dict(told()) == found


def told() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Rows of the table: the words in bold that name the sweep, and its numbers."""
    for line in (ROOT / "docs" / "performance.md").read_text().splitlines():
        if named := re.match(r"\| \*\*(.+?)\*\*", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            yield named[1], tuple(cell.removesuffix(" epochs") for cell in cells[1:])


def test_the_sums_of_the_release_are_told_as_they_are(commits: list[Commit], tables: store.Tables) -> None:
    factorized = [commit.name for commit in commits if commit.plan["kind"] == "cores"]
    steps = tables.trials.loc[~tables.trials["study"].isin(factorized), "steps"]
    size = sum(file.stat().st_size for file in RELEASE.rglob("*") if file.is_file())
    sums = (
        f"{len(commits)} studies, {len(tables.trials):,} trials, {steps.sum() / 1e6:.1f} million training steps "
        f"and {len(tables.measurements):,} measurements in {size / 1e6:.1f} MB"
    )
    assert sums in text("README.md")
    runs = tables.studies["study"].value_counts()
    assert len(runs) == len(commits) and set(runs) == {1, 2}
    several = {2: "two", 3: "three", 4: "four"}[(runs > 1).sum()]
    rows = (
        f"one row per run: {len(tables.studies)} rows for {len(runs)} studies, because {several} studies were resumed."
    )
    assert rows in text("docs/sql.md")


def test_what_is_infeasible_is_told_as_it_is(commits: list[Commit]) -> None:
    refused = sum(commit.ledger.infeasible for commit in commits if commit.plan["kind"] == "layout")
    diverged = sum(commit.ledger.infeasible for commit in commits) - refused
    counts = (
        f"{diverged + refused} trials are `INFEASIBLE`: {diverged} trials diverged and {refused} layouts were rejected."
    )
    assert refused and counts in text("docs/sql.md")


def test_points_of_the_searches_are_one_curve_of_each_workload() -> None:
    """The choice that the card names, and the trials that the other curves share."""
    points = pd.read_parquet(RELEASE / "points.parquet")
    points = points[points["kind"] == "batch"]
    plain = points[points["stop"].eq("target") & points["schedule"].eq("constant")]
    chosen = plain[plain["pruning"] == "off"]
    assert (chosen.groupby(["dataset", "model", "optimizer"])["curve"].nunique() == 1).all()
    assert "WHERE pruning = 'off' AND stop = 'target' AND schedule = 'constant'" in text("results/published/README.md")
    many = plain[plain["pruning"] == "exact"]
    trials = pd.read_parquet(RELEASE / "trials.parquet", columns=["study", "trial", "seed", "batch_size"])
    own, other = (
        trials[trials["study"].isin(rows["study"])]
        for rows in (many, chosen.merge(many[["dataset", "model", "optimizer"]].drop_duplicates()))
    )
    shared = own.merge(other[other["trial"] < 64], on=["batch_size", "trial"])
    assert len(shared) == 64 * many["study"].nunique() and (shared["seed_x"] == shared["seed_y"]).all()


def test_the_gain_of_the_second_core_is_told_as_it_is() -> None:
    table = measured_factorizations.table(measured_factorizations.load(RELEASE))
    seconds = table[table["data"].str.contains("links=10000000")].set_index("cores")["seconds_per_epoch"]
    assert sorted(seconds.index) == [1, 2]
    told = f"Two cores run an ALS epoch {seconds[1] / seconds[2]:.2f} times as fast as one."
    assert told in text("README.md")


MODEL = "fully_connected_64"  # of the table in docs/optimizers.md, on digits
OPTIMIZERS = ("adam", "adamw", "lamb", "lars", "momentum", "muon", "nesterov", "schedule_free", "sgd")


@pytest.fixture(scope="module")
def fitted() -> list[CurveFits]:
    return curve_fits.of_store(RELEASE)


@pytest.mark.slow
def test_optimizer_table_has_the_critical_sizes_of_the_release(fitted: list[CurveFits]) -> None:
    of_search = [one for one in fitted if _is_plain(one.curve.workload.commits[0].study)]
    of_many = {
        one.curve.optimizer: one.selected for one in fitted if sweep(one.curve.workload.commits[0].study) == "many"
    }
    page = (ROOT / "docs" / "optimizers.md").read_text().splitlines()
    for one in of_search:
        _, by_count = curve_fits.rows_by_k([one], [8, 16, 32])
        points_fits = [one.selected, one.confirmed, *by_count, of_many.get(one.curve.optimizer)]
        cells = [each.critical_in_words if each else "" for each in points_fits]
        assert f"| {' | '.join([one.curve.optimizer, *cells])} |" in page
    assert len(of_search) == 9
    assert [each.points.trials for each in of_many.values()] == [1024]


def _is_plain(study: Plan) -> bool:
    """Whether a study is one of those that differ in optimizer and batch size alone."""
    if not isinstance(study, BatchStudy):
        return False
    plain = (study.pruning, study.stop, study.schedule) == ("off", "target", "constant")
    return plain and (study.dataset, study.labels.model) == ("digits", MODEL)


@pytest.mark.slow
def test_the_table_of_optimizers_says_how_far_doubling_pays_off(fitted: list[CurveFits]) -> None:
    page = text("docs/optimizers.md")
    of_search = [one for one in fitted if _is_plain(one.curve.workload.commits[0].study)]
    assert len(of_search) == 9
    for one in of_search:
        assert one.confirmed
        pairs = zip(one.selected.extents_in_words, one.confirmed.extents_in_words, strict=True)
        assert f"| {' | '.join([one.curve.optimizer, *(cell for pair in pairs for cell in pair)])} |" in page
    (adam,) = (one for one in of_search if one.curve.optimizer == "adam")
    never = [str(each.batch_size) for each in adam.confirmations if not each.reached]
    assert f"At batch size {', '.join(never)}, no rerun of Adam's best trial reaches {adam.curve.target.value}." in page
    at_least = [one.selected.extents.pays.verdict == "at_least" for one in of_search if one.selected.extents]
    assert sum(at_least) > len(of_search) / 2, "for most of them doubling may pay off up to the end of the data"


@pytest.mark.slow
def test_first_optimizer_table_has_a_target_reached_by_reruns() -> None:
    page = text("docs/optimizers.md")
    found = curve_fits.of_store(RELEASE, RERUNS)
    own = [one for one in found if _is_plain(one.curve.workload.commits[0].study)]
    for one in own:
        assert one.curve.target == Target("validation_loss", 0.21)
        row = f"| {' | '.join([one.curve.optimizer, *one.selected.extents_in_words])} |"
        assert 0 < page.find(row) < page.index("The second table")
    assert sorted({one.curve.optimizer for one in own}) == sorted(set(OPTIMIZERS) - {"lars"})


@pytest.mark.slow
def test_shifts_and_doubts_of_answers_for_any_shape_are_told(fitted: list[CurveFits]) -> None:
    page = text("docs/optimizers.md")
    shifts: dict[str, list[float]] = {name: [] for name in extents.NAMES}
    for one in fitted:
        if one.confirmed and one.confirmed.extents and one.selected.extents:
            for name in extents.NAMES:
                before, after = (getattr(each, name) for each in (one.selected.extents, one.confirmed.extents))
                if before.verdict == after.verdict == "identified":
                    shifts[name].append(float(np.log2(after.best / before.best)))
    pays, efficient = shifts[extents.PAYS], shifts[extents.EFFICIENT]
    assert (
        f"{len(pays)} answers for *pays up to* are identified both ways. {sum(each > 0 for each in pays)} of them are "
        f"larger once confirmed. The median shift of all {len(pays)} is {np.median(pays):+.2f} octaves. For *efficient "
        f"up to*, {sum(each > 0 for each in efficient)} of {len(efficient)} are larger, with a median of "
        f"{np.median(efficient):+.2f} octaves."
    ) in page
    doubts = [one.selected.search_doubts for one in fitted if one.selected.extents]
    count = {name: sum(name in each for each in doubts) for name in fits.OF_SEARCH}
    assert (
        f"{len(doubts)} curves have these answers. {sum(map(bool, doubts))} are in doubt: {count['space']} because of "
        f"`space` and {count['search']} because of `search`"
    ) in page
    assert not count["trials"] and sum(map(len, doubts)) == sum(map(bool, doubts))


@pytest.mark.slow
def test_luck_of_best_trials_is_told_over_the_whole_release(fitted: list[CurveFits]) -> None:
    confirmed = [study for curve in fitted for study in curve.confirmations]
    table = pd.DataFrame([(study.ratio, study.batch_size <= 16) for study in confirmed], columns=["ratio", "small"])
    finite = table[np.isfinite(table["ratio"])]
    median, small, large, median_all, small_all, large_all = (
        rows["ratio"].median()  # infinite if half of the studies never reached
        for measured in (finite, table)
        for rows in (measured, measured[measured["small"]], measured[~measured["small"]])
    )
    moved = curve_fits.moves(fitted).dropna(subset="octaves")
    page = text("docs/optimizers.md")
    assert (
        f"took {median:.2f} times as many steps as the selected ones. This is the median over the {len(finite)} "
        f"of {len(table)} studies whose repeats reached the target. It is {small:.2f} up to batch size "
        f"16 and {large:.2f} above. In the other {len(table) - len(finite)} studies, at least half of the repeats "
        "never reached the target. If they count as infinite, the median is "
        f"{median_all:.2f} ({small_all:.2f} and {large_all:.2f})."
    ) in page
    assert (
        f"{len(moved)} critical batch sizes are identified both ways. {(moved['octaves'] > 0).sum()} of them are "
        f"larger once confirmed. The median shift of all {len(moved)} is {moved['octaves'].median():+.2f} octaves."
    ) in page
    assert f"they needed {median:.2f}× the steps (median of {len(finite)} studies)" in text("README.md")


@pytest.mark.slow
def test_doubts_are_told_as_they_are(fitted: list[CurveFits]) -> None:
    identified = [one.selected for one in fitted if one.selected.verdict == "identified"]
    doubts = [{check.assumption for check in each.checks if check.outcome == "doubt"} for each in identified]
    count = {name: sum(name in each for each in doubts) for name in ("space", "perfect scaling", "batch sizes")}
    assert set().union(*doubts) == set(count)
    (twice,) = (each for each in doubts if len(each) > 1)
    assert twice == {"space", "perfect scaling"}
    page = text("docs/optimizers.md")
    doubtful = sum(map(bool, doubts))
    assert (
        f"The release has {len(fitted)} curves. {len(identified)} critical batch sizes are identified, "
        f"and {doubtful} of these are in doubt:"
    ) in page
    assert all(f"| {name} | {number} |" in page for name, number in count.items())
    assert f"{doubtful} of the {len(identified)} identified critical batch sizes are [uncertain]" in text("README.md")
