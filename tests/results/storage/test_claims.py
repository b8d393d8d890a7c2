import functools
import os
import random
import shlex
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from results import durable, store
from results.bad_input import BadInput
from results.checks import repair, verify
from results.durable import Damaged
from results.plans.batch_study import BatchStudy
from results.storage import claims, commits, parts
from results.storage.claims import Claim, TakenOver
from results.storage.parts import Part, claim_file, table_file


@pytest.fixture(autouse=True)
def _disk_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # no machine goes down in these tests


# Which parts count: all that three writers can do, as a model


class Model(NamedTuple):
    """A folder and those who write to it. A writer is at (what it does next, its number, its count of parts, ...).

    Attributes:
      cutoffs: of the claims, in order.
      there: parts, each with those that its trials were first written in, as one may be taken from others.
      promised: those that counted when the newest claim was made.
      told: what a writer was told to be stored.
      adopted: whether the writer of the newest claim has taken over what it cut off.
      writers: what each does next; "claim" holds what it saw: how many claims, and the parts that counted.
    """

    cutoffs: tuple[int, ...]
    there: frozenset[tuple[Part, frozenset[Part]]]
    promised: tuple[Part, ...]
    told: frozenset[Part]
    adopted: bool
    writers: tuple[tuple[Any, ...], ...]

    def counting(self) -> tuple[Part, ...]:
        return tuple(parts.counting_parts((part for part, _ in self.there), dict(enumerate(self.cutoffs, 1)), 0))

    def held(self, among: Collection[Part]) -> frozenset[Part]:
        return frozenset().union(*(first for part, first in self.there if part in among))


def steps(model: Model, most_claims: int) -> Iterator[Model]:
    """Every state that one step of one writer leads to."""
    for i, (doing, *held) in enumerate(model.writers):

        def then(*next_up: Any, i: int = i, **changes: Any) -> Model:
            return model._replace(writers=(*model.writers[:i], next_up, *model.writers[i + 1 :]), **changes)

        if doing == "look" and len(model.cutoffs) < most_claims:
            yield then("claim", len(model.cutoffs), model.counting())
        elif doing == "claim":
            seen, counting = held
            if seen != len(model.cutoffs):
                yield then("look")
            else:
                cutoffs = (*model.cutoffs, len(counting))
                yield then("adopt", seen + 1, counting, cutoffs=cutoffs, promised=counting, adopted=False)
        elif doing == "adopt":
            token, counting = held
            there = [part for part, _ in model.there if part.token < token]
            newest = [part for part in there if part.token == max(each.token for each in there)]
            late = model.held(newest) - model.held(counting)
            adopted = model.adopted or (not late and token == len(model.cutoffs))
            yield then("write", token, len(counting), late, adopted=adopted)
        elif doing == "write":
            token, seq, late = held
            part = Part(seq, token)
            yield then("check", token, seq, late, there=model.there | {(part, late or frozenset({part}))})
        elif doing == "check":
            token, seq, late = held
            if len(model.cutoffs) > token:
                yield then("look")
            else:
                told = model.told | (late or {Part(seq, token)})
                after = ("write", token, seq + 1, frozenset()) if seq < 2 else ("",)
                yield then(*after, told=told, adopted=True)


@pytest.mark.parametrize("most_claims", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_counted_results_survive_three_writers_in_any_order(
    most_claims: int,
) -> None:
    found = {Model((), frozenset(), (), frozenset(), True, (("look",),) * 3)}
    waiting = list(found)
    late = 0
    while waiting:
        model = waiting.pop()
        counting = model.counting()  # raises if any is missing between others
        # Of what was written under older claims, the newest one counted what counts; whatever else lands is too late.
        assert tuple(part for part in counting if part.token < len(model.cutoffs)) == model.promised
        # Nothing that a writer was told is lost, once the newest one has taken over what its claim cut off.
        assert not model.adopted or model.told <= model.held(counting)
        late += len(model.there) > len(counting)
        for after in steps(model, most_claims):
            after = after._replace(writers=tuple(sorted(after.writers, key=repr)))  # who is who makes no difference
            if after not in found:
                found.add(after)
                waiting.append(after)
    assert len(found) > 10_000 and late > 1000, (len(found), late)


def test_a_hole_is_noticed() -> None:
    with pytest.raises(LookupError, match=r"parts \[0, 2\] are not consecutive from 0"):
        parts.counting_parts([Part(2, 1), Part(0, 1)], {1: 0}, 0)
    assert parts.counting_parts([Part(2, 1), Part(0, 1)], {1: 0}, 2) == [Part(2, 1)]
    assert parts.counting_parts([Part(0, 1), Part(1, 1), Part(1, 2)], {1: 0, 2: 1}, 0) == [Part(0, 1), Part(1, 2)]


# Real writers, stopped wherever they do something that others can see


class Stalled(threading.Thread):
    """A writer that waits before everything it creates, and before it looks who else is there."""

    def __init__(self, work: Callable[[], object]):
        super().__init__(daemon=True)
        self._work, self._go, self._stopped = work, threading.Semaphore(0), threading.Semaphore(0)
        self.over, self.taken_over, self.error = False, False, ""
        self.start()
        self._stopped.acquire()

    def run(self) -> None:
        self.wait()
        try:
            self._work()
        except TakenOver:
            self.taken_over = True
        except Exception as error:
            self.error = repr(error)
        self.over = True
        self._stopped.release()

    def wait(self) -> None:
        self._stopped.release()
        self._go.acquire()

    def step(self, count: int = 1) -> None:
        """Lets it go on until it has waited ``count`` times more, or is over."""
        while not self.over and count:
            self._go.release()
            self._stopped.acquire()
            count -= 1

    def finish(self) -> None:
        self.step(1000)
        assert self.over and not self.error, self.error


@pytest.fixture
def _gates(monkeypatch: pytest.MonkeyPatch) -> None:
    def gated(function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            me = threading.current_thread()
            if isinstance(me, Stalled) and not str(args[0]).endswith((".parquet", ".arrow")):  # nobody looks at these
                me.wait()
            return function(*args)

        return call

    monkeypatch.setattr(durable, "create", gated(durable.create))
    list_study = gated(commits.list_study)
    monkeypatch.setattr(claims, "list_study", list_study)
    monkeypatch.setattr(commits, "list_study", list_study)


@pytest.fixture
def begin(writer: ModuleType, tmp_path: Path, _gates: None) -> Callable[[int], Stalled]:
    study = writer.study_of("off", 4)
    store.ask(tmp_path, study)

    def work(attempt: int) -> None:
        writer.finish(Claim(tmp_path, study.name), study, attempt, lambda: None)

    return lambda attempt: Stalled(functools.partial(work, attempt))


# Of a writer of two parts: 2 looks, claim, look, part, look, part, look, claim, 2 looks, record, 2 looks; start, end.
BOUNDARIES = 16


def check(writer: ModuleType, folder: Path, study: BatchStudy, *, whole: bool) -> None:
    """What is visible is of one attempt per trial and adds up; ``whole``: it is the truth, and ``verify`` agrees."""
    commit = commits.newest_commit(folder, study.name)
    assert commit is None or commit.ledger.adds_up
    found = store.read(folder, study.name)
    if len(found.trials):
        marks = found.trials.set_index("trial")["seed"].loc[found.measurements["trial"]]
        assert marks.tolist() == found.measurements["test_loss"].tolist()
    if whole:
        assert writer.unlike(folder, study) == []
        assert store.progress(folder, study).visible
        assert [fault.line for findings in verify.examine(folder, print) for fault in findings.faults] == []


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("first", range(BOUNDARIES))
def test_stalled_writer_does_no_harm_when_it_resumes(
    writer: ModuleType, tmp_path: Path, begin: Callable[[int], Stalled], first: int, stride: int
) -> None:
    study = writer.study_of("off", 4)
    for second in range(first % stride, BOUNDARIES, stride):
        for path in (tmp_path / study.name).glob("*"):
            path.unlink()
        store.ask(tmp_path, study)
        one = begin(1)
        one.step(first)
        two = begin(2)
        two.step(second)
        one.finish()
        check(writer, tmp_path, study, whole=two.over)
        two.finish()
        check(writer, tmp_path, study, whole=not one.taken_over or not two.taken_over)
        if 4 <= first <= 9 and second >= 4:  # the second has claimed after the first, which has yet to seal
            assert one.taken_over
        writer.insist(tmp_path, study, 3, lambda: None)
        check(writer, tmp_path, study, whole=True)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 300))])
def test_writers_in_any_order(writer: ModuleType, tmp_path: Path, begin: Callable[[int], Stalled], seed: int) -> None:
    study, chance = writer.study_of("off", 4), random.Random(seed)
    everybody = [begin(attempt) for attempt in range(1, 5)]
    while going := [each for each in everybody if not each.over]:
        chance.choice(going).step(chance.choice([1, 1, 1, 2, 5]))
        check(writer, tmp_path, study, whole=False)
    assert not any(each.error for each in everybody)
    writer.insist(tmp_path, study, 5, lambda: None)
    check(writer, tmp_path, study, whole=True)


def test_a_late_part_and_a_late_commit_of_a_stalled_writer(
    writer: ModuleType, tmp_path: Path, begin: Callable[[int], Stalled]
) -> None:
    study = writer.study_of("off", 4)
    folder = tmp_path / study.name
    one = begin(1)
    one.step(7)  # it has claimed, stored trials 0 and 1, and was about to store 2 and 3
    assert commits.list_study(folder).parts == (Part(0, 1),)
    writer.insist(tmp_path, study, 2, lambda: None)
    before = store.read(tmp_path)
    one.finish()
    assert one.taken_over
    assert commits.list_study(folder).parts == (Part(1, 1),), "what was committed is removed, what came late is left"
    assert store.read(tmp_path).measurements.equals(before.measurements)
    assert store.progress(tmp_path, study).visible, "what came too late counts for nothing"
    assert before.trials["seed"].tolist() == [1, 1, 2, 2]

    more = writer.study_of("off", 6)
    assert more.name == study.name
    store.ask(tmp_path, more)
    two = Stalled(lambda: writer.finish(Claim(tmp_path, more.name), more, 3, lambda: None))
    late = max(commits.list_study(folder).claims) + 2  # one claim to write, one to commit
    while not (folder / table_file("envelope", late)).exists():
        two.step(1)  # until it is about to write its commit record
    assert claim_file(late) in {path.name for path in folder.iterdir()}
    even_more = writer.study_of("off", 8)
    store.ask(tmp_path, even_more)
    writer.insist(tmp_path, even_more, 4, lambda: None)
    two.finish()
    assert late in commits.list_study(folder).commits
    newest = commits.newest_commit(tmp_path, study.name)
    assert newest and newest.number > late
    check(writer, tmp_path, even_more, whole=True)
    assert store.read(tmp_path).trials["seed"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_writer_that_looked_long_ago_costs_nobody_a_part(writer: ModuleType, tmp_path: Path) -> None:
    """Without a lock that reaches it: what was written between its first look and its claim was told to be stored."""
    study = writer.study_of("off", 4)
    store.ask(tmp_path, study)
    one = Claim(tmp_path, study.name)
    one.write(writer.tables(study, [0], 1))
    two = Claim(tmp_path, study.name)
    one.write(writer.tables(study, [1], 1))
    two.write(writer.tables(study, [2], 2))
    assert store.settled_ids(tmp_path, study.name) == {0, 1, 2}


def test_a_writer_that_was_taken_over_is_told_by_whom(writer: ModuleType, tmp_path: Path) -> None:
    study = writer.study_of("off", 4)
    store.ask(tmp_path, study)
    one = Claim(tmp_path, study.name)
    one.write(writer.tables(study, [0]))
    writer.insist(tmp_path, study, 2, lambda: None)
    for attempt in (lambda: one.write(writer.tables(study, [1])), lambda: one.commit(study)):
        with pytest.raises(TakenOver, match=f"by process {os.getpid()} on "):
            attempt()


def test_asking_for_fewer_than_are_stored_adds_up(writer: ModuleType, tmp_path: Path) -> None:
    many, few = writer.study_of("off", 6), writer.study_of("off", 2)
    store.ask(tmp_path, many)
    with store.claim(tmp_path, many.name) as claim:
        claim.write(writer.tables(many, [0, 1, 2]))  # and is killed here
    writer.replay(tmp_path, few)
    commit = commits.newest_commit(tmp_path, many.name)
    assert commit and commit.ledger.adds_up
    assert (commit.trials, commit.ledger.missing) == (6, 3)


def test_a_claim_that_is_missing_or_torn_stops_a_writer(writer: ModuleType, tmp_path: Path) -> None:
    study = writer.study_of("off", 4)
    store.ask(tmp_path, study)
    for ids in ([0], [1]):
        Claim(tmp_path, study.name).write(writer.tables(study, ids))
    path = tmp_path / study.name / claim_file(1)
    whole = path.read_bytes()
    for damaged in (whole.replace(b'"parts": 0', b'"parts": 1'), durable.seal({"claim": 1, "parts": "0"})):
        path.unlink()
        path.write_bytes(damaged)
        with pytest.raises(Damaged, match=claim_file(1)):
            Claim(tmp_path, study.name)
    path.unlink()
    with pytest.raises(Damaged, match="some of the claims 1 to 2 are missing"):
        Claim(tmp_path, study.name)
    there = tmp_path / study.name
    spaced = tmp_path.with_name(f"{tmp_path.name} a b's")
    spaced.mkdir()
    there.rename(spaced / study.name)
    with pytest.raises(Damaged) as refused:
        Claim(spaced, study.name)
    hint = str(refused.value).split("`")[1]  # a command for the shell
    assert shlex.split(hint)[-2:] == ["--store", str(spaced)]


# Clocks that are off, and writers that stall for days


def about_to_commit(writer: ModuleType, folder: Path) -> tuple[BatchStudy, Stalled]:
    """A study that was committed, and a writer that has made the tables of its next commit, and not the record."""
    writer.replay(folder, writer.study_of("off", 4))
    more = writer.study_of("off", 6)
    store.ask(folder, more)
    number = max(commits.list_study(folder / more.name).claims) + 2
    stalled = Stalled(lambda: writer.finish(Claim(folder, more.name), more, 1, lambda: None))
    while not (folder / more.name / table_file("envelope", number)).exists():
        stalled.step(1)
    return more, stalled


def aged(folder: Path) -> None:
    """Makes every file look days old, to a clock that is right or not."""
    for path in folder.iterdir():
        os.utime(path, (0, 0))


@pytest.mark.usefixtures("_gates")
def test_tables_of_the_next_commit_stay_at_any_clock(writer: ModuleType, tmp_path: Path) -> None:
    study, stalled = about_to_commit(writer, tmp_path)
    aged(tmp_path / study.name)
    claims.remove_leftovers(tmp_path / study.name)
    stalled.finish()
    check(writer, tmp_path, study, whole=True)


@pytest.mark.usefixtures("_gates")
def test_parts_stay_if_a_file_of_their_commit_is_gone(writer: ModuleType, tmp_path: Path) -> None:
    study, stalled = about_to_commit(writer, tmp_path)
    (measurements,) = (tmp_path / study.name).glob("measurements-000004.parquet")
    measurements.unlink()
    before = commits.list_study(tmp_path / study.name).parts
    stalled.step(1000)
    assert "measurements-000004.parquet is missing" in stalled.error
    assert commits.list_study(tmp_path / study.name).parts == before != ()
    assert repair.run(tmp_path, print) == 0
    writer.insist(tmp_path, study, 2, lambda: None)
    check(writer, tmp_path, study, whole=True)
    assert store.read(tmp_path).trials["seed"].tolist() == [0, 0, 0, 0, 1, 1], "no trial had to run again"


def test_nothing_is_replaced_by_a_commit_that_lacks_a_file(writer: ModuleType, tmp_path: Path) -> None:
    for trials in (4, 6):
        writer.replay(tmp_path, writer.study_of("off", trials))
    (folder,) = tmp_path.iterdir()
    older = [path for path in folder.iterdir() if "-000002." in path.name and "claim" not in path.name]
    assert len(older) == 5
    trials = folder / "trials-000004.parquet"
    data = trials.read_bytes()
    trials.unlink()
    aged(folder)
    claims.remove_leftovers(folder)
    assert all(path.exists() for path in older)
    trials.write_bytes(data)
    claims.remove_leftovers(folder)
    assert not any(path.exists() for path in older)
    check(writer, tmp_path, writer.study_of("off", 6), whole=True)


def test_replaced_commit_stays_readable_at_any_age(writer: ModuleType, tmp_path: Path) -> None:
    """An export holds its records; days after a study was committed a sweep goes on, and claims it twice."""
    writer.replay(tmp_path, writer.study_of("off", 4))
    (folder,) = tmp_path.iterdir()
    (held,) = store.catalogue(tmp_path)
    aged(folder)
    for trials in (6, 8):
        writer.replay(tmp_path, writer.study_of("off", trials))
    assert [len(commits.read_table(held, "trials"))] == [4]
    aged(folder)  # days later
    claims.remove_leftovers(folder)
    assert not any(file.path.exists() for file in held.files.values())


def test_there_are_no_names_that_nobody_would_see() -> None:
    most = Part(parts.MOST, parts.MOST)
    listed = parts.listing([most.file, claim_file(parts.MOST), parts.commit_file(parts.MOST)])
    assert (listed.parts, listed.claims, listed.commits, listed.others) == ((most,), (999_999,), (999_999,), ())
    for name in (
        lambda: Part(parts.MOST + 1, 1).file,
        lambda: Part(1, parts.MOST + 1).file,
        lambda: claim_file(parts.MOST + 1),
        lambda: parts.commit_file(parts.MOST + 1),
    ):
        with pytest.raises(BadInput, match=r"at most 999,999 claims and parts\. Merge it into another store"):
            name()


def test_claim_with_too_many_parts_stops_a_writer(writer: ModuleType, tmp_path: Path) -> None:
    study = writer.study_of("off", 4)
    store.ask(tmp_path, study)
    Claim(tmp_path, study.name).write(writer.tables(study, [0]))
    path = tmp_path / study.name / claim_file(1)
    record = durable.read_sealed(path)
    path.unlink()
    path.write_bytes(durable.seal(record | {"parts": 10**8}))
    with pytest.raises(Damaged, match=r"claim-000001\.json is not a claim"):
        Claim(tmp_path, study.name)
    assert any("claim-000001.json: is not a claim" in line for line in writer.faults(tmp_path))
