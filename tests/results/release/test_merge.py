import dataclasses
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from results import durable, store
from results.bad_input import BadInput
from results.checks import repair, verify
from results.plans.batch_study import BatchStudy
from results.plans.recorded import Recorded
from results.plans.study import Target
from results.release import merge, release
from results.release.union import Union, union
from results.storage import claims, parts
from results.storage.claims import Claim
from results.storage.commits import Commit, read_table
from results.storage.compaction import TABLES, Piece
from results.storage.parts import claim_file

from .. import by_hand
from ..by_hand import METRIC

Fill = Callable[..., None]


def silent(line: str) -> None:
    pass


def joined(sources: list[Path], into: Path) -> str:
    """The last line that a merge reports."""
    lines: list[str] = []
    assert merge.merge(sources, into, lines.append) == 0
    return lines[-1].removeprefix(f"{into}: studies: ")


def refusal(sources: list[Path], into: Path) -> tuple[list[str], str]:
    lines: list[str] = []
    with pytest.raises(BadInput) as refused:
        merge.merge(sources, into, lines.append)
    assert "\n" not in str(refused.value)
    return lines, str(refused.value)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same(one: Path, other: Path, *, but: tuple[str, ...] = ()) -> None:
    for ours, theirs in zip(store.read(one), store.read(other), strict=True):
        dropped = [name for name in but if name in ours]
        pd.testing.assert_frame_equal(ours.drop(columns=dropped), theirs.drop(columns=dropped))


def without_paths(held: list[Commit]) -> list[Commit]:
    return [c._replace(files={t: f._replace(path=Path()) for t, f in c.files.items()}) for c in held]


@pytest.fixture
def two(
    tmp_path: Path, make_study: Callable[..., BatchStudy], make_recorded: Callable[..., Recorded], fill: Fill
) -> Path:
    """A store with a study that ran twice, and one that somebody else published."""
    fill(tmp_path / "two", make_study(trials=4), [0, 2])
    fill(tmp_path / "two", make_study(trials=4), [1])
    fill(tmp_path / "two", make_recorded())
    return tmp_path / "two"


def test_a_release_merged_into_an_empty_store_is_the_store_again(
    two: Path, tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    assert release.export(two, tmp_path / "release", silent) == 0
    back = tmp_path / "back"
    assert joined([tmp_path / "release"], back) == "2 new, 0 grown, 0 already present"
    parts_stay_behind = [commit._replace(parts=0) for commit in store.catalogue(two)]
    assert without_paths(store.catalogue(back)) == without_paths(parts_stay_behind)
    assert_same(back, two)
    assert verify.run(back, silent) == verify.run(tmp_path / "release", silent) == 0
    assert release.export(back, tmp_path / "again", silent) == 0
    assert contents(tmp_path / "again") == contents(tmp_path / "release")
    # And it grows as the first one would: no run gets the number of another.
    fill(back, make_study(trials=4), [3])
    found = store.read(back, make_study(trials=4).name)
    assert found.trials["trial"].tolist() == [0, 1, 2, 3]
    assert found.studies["run"].tolist() == sorted(set(found.trials["run"])) == [1, 3, 5]


def test_a_second_merge_changes_nothing(two: Path, tmp_path: Path) -> None:
    joined([two], tmp_path / "store")
    before = contents(tmp_path / "store")
    assert release.export(two, tmp_path / "release", silent) == 0
    assert joined([two, tmp_path / "release"], tmp_path / "store") == "0 new, 0 grown, 4 already present"
    assert joined([tmp_path / "store"], tmp_path / "store") == "0 new, 0 grown, 2 already present"
    assert contents(tmp_path / "store") == before


def test_merged_trials_keep_the_runs_that_made_them(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    study = make_study(trials=6)
    fill(tmp_path / "a", study, [0, 1, 2], started_at="2026-01-01")
    fill(tmp_path / "b", study, [2, 3], started_at="2026-01-02")
    fill(tmp_path / "b", study, [5], started_at="2026-01-03")
    fill(tmp_path / "whole", study, range(6))
    assert joined([tmp_path / "b"], tmp_path / "a") == "0 new, 1 grown, 0 already present"
    found = store.read(tmp_path / "a")
    assert found.trials["trial"].tolist() == [0, 1, 2, 3, 5]
    began = found.trials["run"].map(found.studies.set_index("run")["started_at"])
    assert began.tolist() == ["2026-01-01"] * 3 + ["2026-01-02", "2026-01-03"]
    (commit,) = store.catalogue(tmp_path / "a")
    assert commit.ledger.adds_up and commit.ledger.missing == 1
    assert verify.run(tmp_path / "a", silent) == 0
    assert joined([tmp_path / "whole", tmp_path / "b"], tmp_path / "a") == "0 new, 1 grown, 1 already present"
    found, whole = store.read(tmp_path / "a"), store.read(tmp_path / "whole")
    pd.testing.assert_frame_equal(found.trials.drop(columns="run"), whole.trials.drop(columns="run"))
    pd.testing.assert_frame_equal(found.measurements, whole.measurements)


def test_several_sources_hold_the_same_new_study(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    for place, ids in (("a", [0, 1]), ("b", [1, 2]), ("c", [0, 2])):
        fill(tmp_path / place, make_study(trials=3), ids)
    sources = [tmp_path / place for place in "abc"]
    assert joined(sources, tmp_path / "store") == "1 new, 1 grown, 1 already present"
    assert store.read(tmp_path / "store").trials["trial"].tolist() == [0, 1, 2]


def test_a_conflict_is_told_and_nothing_is_written(
    two: Path, tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    study = make_study(trials=20)
    fill(tmp_path / "a", study)
    fill(tmp_path / "b", study, scale=1.5)
    fill(tmp_path / "b", make_study(batch_size=16))
    before = contents(tmp_path / "a")
    lines, error = refusal([two, tmp_path / "b"], tmp_path / "a")
    assert len(lines) == 11 and lines[-1] == "and 10 more"
    step = study.evaluations[0]
    assert lines[0].startswith(f"{study.name}: trial 0: validation_loss at step {step} is 0.99")
    assert f" in {tmp_path / 'a'} and 1.4" in lines[0]
    assert lines[0].endswith(f" in {tmp_path / 'b'}")
    assert error.startswith("20 conflicts") and "Nothing was written" in error
    assert contents(tmp_path / "a") == before
    # Two sources that contradict each other are no better.
    assert len(refusal([tmp_path / "a", tmp_path / "b"], tmp_path / "new")[0]) == 11
    assert not (tmp_path / "new").exists()


def test_what_is_to_be_run_again_gives_way_to_what_is_finished(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    study = make_study(trials=4)
    fill(tmp_path / "lost", study, [0, 1, 2], reason="lost")
    fill(tmp_path / "late", study, [2], reason="time_limit")
    fill(tmp_path / "done", study, [0, 1])
    for into, source in (("lost", "done"), ("done", "lost")):
        shutil.copytree(tmp_path / into, tmp_path / "store")
        assert joined([tmp_path / source, tmp_path / "late"], tmp_path / "store") == "0 new, 1 grown, 1 already present"
        found = store.read(tmp_path / "store")
        assert found.trials["status"].tolist() == ["COMPLETE", "COMPLETE", "INCOMPLETE"]
        assert found.trials["reason"].tolist()[2] == "lost"
        assert set(found.measurements["trial"]) == {0, 1}
        assert store.settled_ids(tmp_path / "store", study.name) == {0, 1}
        shutil.rmtree(tmp_path / "store")


START = by_hand.Ran("INCOMPLETE", [(1, 0.9), (10, 0.5)], "time_limit")


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (
            by_hand.Ran("INCOMPLETE", [(1, 0.9), (10, 0.4), (20, 0.3)], "time_limit"),
            f"{METRIC} at step 10 is 0.5 in A and 0.4 in B",
        ),
        (
            by_hand.Ran("COMPLETE", [(1, 0.8), (10, 0.5), (20, 0.3)]),
            f"{METRIC} at step 1 is 0.9 in A and 0.8 in B",
        ),
        (by_hand.Ran("COMPLETE", [(1, 0.9), (5, 0.6), (10, 0.5)]), "step 5 is missing in A and measured in B"),
        (by_hand.Ran("INCOMPLETE", [(1, 0.9), (10, 0.5)]), "reason is time_limit in A and unstated in B"),
        (by_hand.Ran("INFEASIBLE", [(1, 0.9)]), "step 10 is measured in A and missing in B"),
        (by_hand.Ran("COMPLETE", [(1, 0.9), (10, 0.5)]), "status is INCOMPLETE in A and COMPLETE in B"),
    ],
)
def test_differing_trials_of_others_are_a_conflict(tmp_path: Path, other: by_hand.Ran, line: str) -> None:
    whole = by_hand.Ran("COMPLETE", [(7, 0.1)])
    by_hand.publish(tmp_path / "A", by_hand.study(trials=2), {3: START, 4: whole})
    by_hand.publish(tmp_path / "B", by_hand.study(trials=2), {3: other, 4: whole})
    told = line.replace(" A", f" {tmp_path / 'A'}").replace(" B", f" {tmp_path / 'B'}")
    shutil.copytree(tmp_path / "A", tmp_path / "store")
    for sources, into in ((["A", "B"], "new"), (["B"], "A")):
        lines, error = refusal([tmp_path / name for name in sources], tmp_path / into)
        assert lines == [f"{by_hand.study().name}: trial 3: {told}"]
        assert error.startswith("1 conflicts")
    assert contents(tmp_path / "A") == contents(tmp_path / "store")


@pytest.mark.parametrize("start", [START, by_hand.Ran("INCOMPLETE", [])], ids=["begun", "empty"])
def test_of_trials_of_others_the_one_that_goes_on_stands(tmp_path: Path, start: by_hand.Ran) -> None:
    longer = by_hand.Ran("COMPLETE", [*START.rows, (20, 0.05)])
    for name, ran in (("start", start), ("longer", longer)):
        by_hand.publish(tmp_path / name, by_hand.study(trials=1), {3: ran})
    for into, source, grown in (("start", "longer", 1), ("longer", "start", 0)):
        shutil.copytree(tmp_path / into, tmp_path / "store")
        lines: list[str] = []
        assert merge.merge([tmp_path / source], tmp_path / "store", lines.append) == 0
        assert lines == [f"{tmp_path / 'store'}: studies: 0 new, {grown} grown, {1 - grown} already present"]
        found = store.read(tmp_path / "store")
        assert found.trials["status"].tolist() == ["COMPLETE"]
        assert found.measurements["step"].tolist() == [1, 10, 20]
        assert verify.run(tmp_path / "store", silent) == 0
        shutil.rmtree(tmp_path / "store")


def test_merge_keeps_the_finished_or_longer_own_trial(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    study = make_study(trials=4)
    fill(tmp_path / "short", study, [0, 1, 2], reason="time_limit", rows=3, scale=1.5)
    fill(tmp_path / "long", study, [1, 2], reason="failed", rows=5)
    fill(tmp_path / "done", study, [0])
    step = study.evaluations[0]
    for into, source in (("short", "long"), ("long", "short")):
        shutil.copytree(tmp_path / into, tmp_path / "store")
        lines: list[str] = []
        assert merge.merge([tmp_path / source, tmp_path / "done"], tmp_path / "store", lines.append) == 0
        assert len(lines) == 4
        for trial, line in zip((1, 2), lines, strict=False):
            assert line.startswith(
                f"{study.name}: trial {trial} is unfinished in both: validation_loss at step {step} is "
            )
            stands = tmp_path / (source if source == "long" else "store")
            assert line.endswith(f"; the one in {stands} is kept")
        assert lines[2] == "1 trials to rerun were replaced by finished ones"
        found = store.read(tmp_path / "store")
        assert found.trials["reason"].fillna("").tolist() == ["", "failed", "failed"]
        assert found.measurements["trial"].value_counts()[[1, 2]].tolist() == [5, 5]
        assert found.measurements.loc[found.measurements["trial"] == 1, "validation_loss"].iloc[0] < 1
        assert verify.run(tmp_path / "store", silent) == 0
        shutil.rmtree(tmp_path / "store")


def test_pruned_curves_are_cut_as_if_one_store_had_run_them_all(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    study = make_study(trials=12, pruning="exact", targets=(Target("validation_loss", 0.5),))
    fill(tmp_path / "whole", study)
    fill(tmp_path / "a", study, range(7))
    fill(tmp_path / "b", study, range(4, 12))
    steps = {place: store.read(tmp_path / place).trials.set_index("trial")["steps"] for place in ("a", "b", "whole")}
    assert any((steps[place] > steps["whole"].loc[steps[place].index]).any() for place in "ab")
    for first, second in (("a", "b"), ("b", "a")):
        into = tmp_path / f"{first}{second}"
        joined([tmp_path / first, tmp_path / second], into)
        found, expected = store.read(into), store.read(tmp_path / "whole")
        pd.testing.assert_frame_equal(found.trials.drop(columns="run"), expected.trials.drop(columns="run"))
        pd.testing.assert_frame_equal(found.measurements, expected.measurements)


def test_study_asked_for_more_trials_keeps_asking_after_merge(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    small, large = make_study(trials=2), make_study(trials=5)
    fill(tmp_path / "small", small)
    shutil.copytree(tmp_path / "small", tmp_path / "large")
    fill(tmp_path / "large", large, [1])
    assert joined([tmp_path / "large"], tmp_path / "small") == "0 new, 1 grown, 0 already present"
    (commit,) = store.catalogue(tmp_path / "small")
    assert (commit.trials, commit.ledger.missing) == (5, 3)
    assert store.stored_plan(tmp_path / "small", large.name) == large
    store.ask(tmp_path / "new", dataclasses.replace(large, trials=9))
    joined([tmp_path / "large"], tmp_path / "new")
    (commit,) = store.catalogue(tmp_path / "new")
    assert (commit.trials, commit.ledger.missing, commit.ledger.adds_up) == (9, 7, True)


def test_uncommitted_parts_count_only_in_their_store(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    study = make_study(trials=3)
    fill(tmp_path / "store", study, [2], commit=False)
    fill(tmp_path / "source", study, [0, 2])
    fill(tmp_path / "source", make_study(seed=1), commit=False)
    lines: list[str] = []
    assert merge.merge([tmp_path / "source"], tmp_path / "store", lines.append) == 0
    assert "skipped studies without a commit" in lines[0] and make_study(seed=1).name in lines[0]
    found = store.read(tmp_path / "store")
    assert found.trials["trial"].tolist() == [0, 2]
    fill(tmp_path / "conflict", study, [2], commit=False, scale=2.0)
    assert "trial 2" in refusal([tmp_path / "source"], tmp_path / "conflict")[0][1]


def test_types_that_differ_are_a_conflict(tmp_path: Path, make_recorded: Callable[..., Recorded], fill: Fill) -> None:
    study = make_recorded(trials=2)
    fill(tmp_path, study)
    (commit,) = store.catalogue(tmp_path)
    ours = Piece(*(read_table(commit, table) for table in TABLES))
    column = ours.measurements["test_error"].cast(pa.float32())
    theirs = ours._replace(measurements=ours.measurements.set_column(3, "test_error", column))
    assert union(ours, ours, study) == Union(frozenset())
    (clash,) = union(ours, theirs, study).clashes
    assert clash.describe("A", "B") == "the type of test_error is double in A and float in B"


def test_places_in_memory_are_merged_from_and_into(two: Path, tmp_path: Path) -> None:
    remote = durable.location("memory://test-merge/release")
    assert release.export(two, remote, silent) == 0
    joined([remote], tmp_path / "local")
    assert_same(tmp_path / "local", two)
    into = durable.location("memory://test-merge/store")
    assert joined([two, remote], into) == "2 new, 0 grown, 2 already present"
    assert_same(into, two)
    assert joined([into], tmp_path / "local") == "0 new, 0 grown, 2 already present"


def test_places_that_cannot_be_merged_are_refused_in_a_line(
    two: Path, tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    assert release.export(two, tmp_path / "release", silent) == 0
    assert "is a release" in refusal([two], tmp_path / "release")[1]
    assert "no store at" in refusal([tmp_path / "nothing"], tmp_path / "store")[1]
    (tmp_path / "empty").mkdir()
    lines: list[str] = []
    assert merge.merge([tmp_path / "empty"], tmp_path / "store", lines.append) == 1
    assert lines == [f"nothing to merge: no committed study in {tmp_path / 'empty'}"]
    damaged = tmp_path / "release" / "trials.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"X")
    assert f"{damaged}: is not what was written" in refusal([two, tmp_path / "release"], tmp_path / "store")[1]
    damaged.unlink()
    assert f"{damaged}: is missing" in refusal([tmp_path / "release"], tmp_path / "store")[1]
    assert not (tmp_path / "store").exists()


def resealed(folder: Path, **changed: int) -> None:
    """Has the manifest of a release say something else of its first study."""
    path = folder / "manifest.json"
    record = durable.unseal(path.read_bytes(), path)
    record["studies"][0] |= changed
    path.write_bytes(durable.seal(record))


def test_absurd_claim_number_makes_no_thousand_claims(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    fill(tmp_path / "source", make_study(trials=2))
    assert release.export(tmp_path / "source", tmp_path / "release", silent) == 0
    resealed(tmp_path / "release", number=parts.MOST, parts=parts.MOST)
    joined([tmp_path / "release"], tmp_path / "store")
    assert len(list((tmp_path / "store").glob("*/claim-*"))) == 2
    assert_same(tmp_path / "store", tmp_path / "source")


def test_parts_after_a_merge_count_from_the_first(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    fill(tmp_path / "source", make_study(trials=3), [0, 1])
    assert release.export(tmp_path / "source", tmp_path / "release", silent) == 0
    resealed(tmp_path / "release", parts=parts.MOST)
    joined([tmp_path / "release"], tmp_path / "store")
    fill(tmp_path / "store", make_study(trials=3), [2], commit=False)
    assert store.settled_ids(tmp_path / "store", make_study().name) == {0, 1, 2}
    assert verify.run(tmp_path / "store", silent) == 0


def test_merge_stopped_anywhere_leaves_nothing_in_the_way(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whoever goes on: the same merge, a sweep, or a repair."""
    study = make_study(trials=4)
    fill(tmp_path / "source", study, [0, 2])
    fill(tmp_path / "source", study, [1])
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no machine goes down in this test
    create = durable.create
    for last in (0, 1, 4, 5, 9, 10):  # of ten writes: the plan, claims 1 to 4, three tables, the envelope, the record
        written, into = 0, tmp_path / str(last)

        def until_full(path: Path, data: bytes, last: int = last) -> bool:
            nonlocal written
            if written == last:
                raise OSError(28, "No space left on device")
            written += 1
            return create(path, data)

        with monkeypatch.context() as full:
            full.setattr(durable, "create", until_full)
            if last == 10:
                assert joined([tmp_path / "source"], into) == "1 new, 0 grown, 0 already present"
                return
            assert "No space left" in refusal([tmp_path / "source"], into)[1]
        for name in ("swept", "repaired"):
            shutil.copytree(into, tmp_path / f"{last}-{name}")
        fill(tmp_path / f"{last}-swept", study, [3])
        assert verify.run(tmp_path / f"{last}-swept", silent) == 0
        assert repair.run(tmp_path / f"{last}-repaired", silent) == 0
        for place in (into, tmp_path / f"{last}-swept", tmp_path / f"{last}-repaired"):
            joined([tmp_path / "source"], place)
            assert verify.run(place, silent) == 0
            assert store.read(place).trials["trial"].tolist() == [0, 1, 2, 3][: 3 + place.name.endswith("swept")]


def test_leftovers_of_an_old_killed_merge_are_no_fault(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    """It said in its claims that it had counted the parts of its source."""
    study = make_study(trials=4)
    store.ask(tmp_path, study)
    for number in (1, 2, 3):
        durable.create(tmp_path / study.name / claim_file(number), claims.claim_bytes(number, 2, "merge"))
    fill(tmp_path, study, [3])
    assert verify.run(tmp_path, silent) == 0
    assert store.read(tmp_path).trials["trial"].tolist() == [3]


def test_whoever_claims_in_the_midst_of_a_merge_is_told_of(
    two: Path, tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lock that reaches it; it may commit over what it has not seen, so the merge does not say it is done."""
    study, create = make_study(trials=4), durable.create

    def interrupted(path: Path, data: bytes) -> bool:
        if path.name.startswith("commit-") and study.name in str(path):
            monkeypatch.setattr(durable, "create", create)
            Claim(tmp_path / "store", study.name).write(_part(two, study))
        return create(path, data)

    monkeypatch.setattr(durable, "create", interrupted)
    assert "was taken over by another process" in refusal([two], tmp_path / "store")[1]
    assert store.settled_ids(tmp_path / "store", study.name) == {0, 1, 2}, (
        "and what it wrote counts, beside what was merged"
    )
    assert joined([two], tmp_path / "store").endswith("1 already present")
    assert verify.run(tmp_path / "store", silent) == 0


def _part(folder: Path, study: BatchStudy) -> dict[str, pa.Table]:
    """What a store holds of a study, as a run would write it."""
    commit = next(commit for commit in store.catalogue(folder) if commit.name == study.name)
    whole = {table: read_table(commit, table) for table in TABLES}
    return whole | {"studies": whole["studies"].slice(0, 1)}


def test_what_verify_has_to_say_against_is_not_merged(
    tmp_path: Path, make_recorded: Callable[..., Recorded], fill: Fill
) -> None:
    fill(tmp_path / "source", make_recorded(trials=3))
    assert release.export(tmp_path / "source", tmp_path / "release", silent) == 0
    path = tmp_path / "release" / "manifest.json"
    record = durable.unseal(path.read_bytes(), path)
    record["studies"][0] |= {"trials": 2}
    record["studies"][0]["ledger"] |= {"planned": 2, "missing": -1}
    path.write_bytes(durable.seal(record))
    assert "has a ledger that does not match its trials" in refusal([tmp_path / "release"], tmp_path / "store")[1]
    assert not (tmp_path / "store").exists()


def test_an_envelope_that_lies_is_not_merged(tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill) -> None:
    """What it says is answered without a look at the tables."""
    fill(tmp_path / "source", make_study(trials=3))
    assert release.export(tmp_path / "source", tmp_path / "release", silent) == 0
    path = tmp_path / "release" / "envelopes.arrow"
    rows = pa.ipc.open_stream(path.read_bytes()).read_all()
    sink = pa.BufferOutputStream()
    lie = rows.set_column(2, "step_before", pa.array([0] * len(rows), pa.int32()))
    with pa.ipc.new_stream(sink, lie.schema) as stream:
        stream.write_table(lie)
    path.write_bytes(sink.getvalue().to_pybytes())
    manifest = tmp_path / "release" / "manifest.json"
    record = durable.unseal(manifest.read_bytes(), manifest)
    size = {"bytes": path.stat().st_size}
    record["files"][path.name] |= size | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    record["studies"][0]["files"]["envelope"] |= size
    manifest.write_bytes(durable.seal(record))
    assert "does not match the tables" in refusal([tmp_path / "release"], tmp_path / "store")[1]
    assert not (tmp_path / "store").exists()


# Names


def shorter(study: BatchStudy) -> BatchStudy:
    """The study under the name that it has in older stores."""
    return dataclasses.replace(study, digits=8)


def held(folder: Path) -> list[tuple[str, list[int]]]:
    """Names and trials of the studies of a store, which has no faults."""
    assert verify.run(folder, silent) == 0
    return [
        (commit.name, store.read(folder, commit.name).trials["trial"].tolist()) for commit in store.catalogue(folder)
    ]


@pytest.mark.parametrize("into", [0, 1])
def test_a_study_under_two_names_is_one(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill, into: int
) -> None:
    study = make_study(trials=4)
    names = (shorter(study), study)
    fill(tmp_path / "0", names[0], [0, 1])
    fill(tmp_path / "1", names[1], [1, 2])
    assert release.export(tmp_path / str(1 - into), tmp_path / "release", silent) == 0
    assert joined([tmp_path / "release"], tmp_path / str(into)) == "0 new, 1 grown, 0 already present"
    assert held(tmp_path / str(into)) == [(names[into].name, [0, 1, 2])]
    assert joined([tmp_path / str(1 - into)], tmp_path / str(into)) == "0 new, 0 grown, 1 already present"
    assert joined([tmp_path / str(into), tmp_path / "release"], tmp_path / "new") == "1 new, 0 grown, 1 already present"
    assert held(tmp_path / "new") == [(names[into].name, [0, 1, 2])]


def test_two_studies_of_one_older_name_are_two(
    tmp_path: Path,
    make_study: Callable[..., BatchStudy],
    fill: Fill,
    colliding_seeds: Callable[[BatchStudy], tuple[int, int]],
) -> None:
    one, two = (make_study(trials=2, seed=seed) for seed in colliding_seeds(make_study()))
    assert shorter(one).name == shorter(two).name and one.name != two.name
    fill(tmp_path / "a", shorter(one))
    fill(tmp_path / "b", shorter(two))
    assert joined([tmp_path / "a", tmp_path / "b"], tmp_path / "c") == "2 new, 0 grown, 0 already present"
    assert held(tmp_path / "c") == [(shorter(one).name, [0, 1]), (two.name, [0, 1])]
    assert joined([tmp_path / "a", tmp_path / "b"], tmp_path / "c") == "0 new, 0 grown, 2 already present"
    assert [store.with_stored_name(tmp_path / "c", each).name for each in (one, two)] == [shorter(one).name, two.name]


def test_a_source_that_holds_a_plan_twice_is_refused(
    tmp_path: Path, make_study: Callable[..., BatchStudy], fill: Fill
) -> None:
    for study in (make_study(trials=2), shorter(make_study(trials=2))):
        fill(tmp_path / "source", study)
    assert "has one plan twice, as digits-" in refusal([tmp_path / "source"], tmp_path / "store")[1]
