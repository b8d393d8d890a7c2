"""Buffers the trials of an archive until there are enough of them to store.

Files can come in any order. A trial is stored together with others from its study, once both of its files and
study.json have been read. The size of the buffer is limited. If it is exceeded, curves are postponed to a second pass
over the archive, when everything else is known.
"""

import collections
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from results import store
from results.aliases import StringMap
from results.durable import Folder
from results.importers import partial_studies, shallue2018_format
from results.importers.partial_studies import Batch, PartialStudy, Stored
from results.importers.shallue2018_format import ArchivePath
from results.importers.tar_stream import ArchiveEntry, Broken
from results.importers.untrusted import ImportWarnings, Unusable

ENOUGH = 8 << 20  # bytes of text from one study that are stored as a part
MOST_WAITING = 96 << 20  # maximum bytes of text waiting for other files
MOST_UNDER_WAY = 32 << 20  # maximum bytes of text being stored
MOST_BATCHES = 32  # maximum number of batches being stored
WORTH_A_PART = 64 << 10  # minimum bytes of text to store as a part if the buffer is full
LARGEST_JSON, LARGEST_CURVE, LARGEST_STUDY = 64 << 10, 64 << 20, 1 << 30  # bytes
MOST_CONFIGURED = 8 << 20  # maximum total bytes of study.json files, which stay in memory
MOST_STUDIES, MOST_TRIALS, MOST_WARNINGS = 5_000, 2_000_000, 100_000


class _UnderWay(NamedTuple):
    study: PartialStudy
    bytes: int
    future: Future[Stored]


class Intake:
    """Buffers the files of an archive, and stores trials in threads.

    Attributes:
      studies: studies read so far, by path below the top-level folder.
      trials, rows: number of newly stored trials and measurements.
      present: number of trials already in the store.
      left_out: columns that were not imported.
      warnings: warnings about data that could not be imported.

    The argument ``about`` has values of the studies table, by column.
    """

    def __init__(self, folder: Folder, pool: ThreadPoolExecutor, warnings: ImportWarnings, about: StringMap):
        self.studies: dict[str, PartialStudy] = {}
        self.trials = self.rows = self.present = 0
        self.left_out: set[str] = set()
        self._folder, self._pool, self.warnings, self._about = folder, pool, warnings, about
        self._under_way: collections.deque[_UnderWay] = collections.deque()
        self._seen = self._waiting = self._configured = 0
        self._current: PartialStudy | None = None

    def take(self, place: ArchivePath, entry: ArchiveEntry) -> None:
        """Takes a file from the archive.

        Raises:
          Broken: the rest of the archive cannot be read.
        """
        study = self.studies.setdefault(place.study, PartialStudy(place.study))
        previous, self._current = self._current, study
        if previous and previous is not study and previous.whole and not previous.at_the_end:
            self._hand_over(previous, last=True)
            previous.at_the_end = True
        if study.refused:
            return
        try:
            if place.trial is None:
                self._take_study(study, entry)
            else:
                self._take_trial(study, place.trial, entry, is_outcome=place.file == "metadata.json")
        except Unusable as error:
            self.warnings.add(entry.path, error)
        self._make_room(study)

    def take_put_off(self, place: ArchivePath, entry: ArchiveEntry) -> None:
        """Takes a file in the second pass, in which only postponed curves are read."""
        study = self.studies.get(place.study)
        if study and place.trial in study.put_off and place.file == "measurements.csv":
            study.put_off.remove(place.trial)
            self._read_curve(study, place.trial, entry)
            self._make_room(study)

    def end_of_pass(self, *, cut: bool) -> bool:
        """Returns whether a second pass is needed.

        Args:
          cut: whether the archive ended early, so that files may be missing.
        """
        for study in self.studies.values():
            if study.recorded is None and not study.refused:
                self._refuse(study, "its study.json is in an unreadable part" if cut else "no study.json")
            storable = study.done | study.lost | (study.outcomes.keys() & (study.curves.keys() | study.put_off))
            if not (storable if cut else study.seen) and not study.refused:
                self._refuse(study, "its trials are in an unreadable part" if cut else "no trials")
            if cut or study.refused:
                study.put_off &= study.outcomes.keys()
                continue
            for trial in sorted(study.measured - study.statuses.keys() - study.lost):
                self._lose(study, trial, f"{study.path}/{trial}", "no metadata.json")
            complete = {trial for trial, outcome in study.outcomes.items() if outcome.status == "COMPLETE"}
            for trial in sorted(complete - study.measured):
                self._lose(study, trial, f"{study.path}/{trial}", "no measurements.csv")
        return any(study.put_off for study in self.studies.values())

    def finish(self, *, cut: bool) -> None:
        """Makes every study visible, with all its trials."""
        for study in self.studies.values():
            if study.recorded and not study.refused and not (study.visible and not study.outcomes):
                self._hand_over(study, last=True, without_curves=not cut)
        self._settle(0)

    def _take_study(self, study: PartialStudy, entry: ArchiveEntry) -> None:
        if study.recorded is not None:
            raise Unusable("occurs twice; the first one is kept")
        try:
            data = _read(entry, LARGEST_JSON)
            self._configured += len(data)
            study.recorded = store.with_stored_name(self._folder, shallue2018_format.study(study.path, data))
        except Unusable as error:
            self._refuse(study, f"study.json {error}")
            return
        if (self._folder / study.recorded.name).is_dir():
            study.at_the_end = True
            study.done |= store.settled_ids(self._folder, study.recorded.name)
            self.present += len(study.done)
            self._forget(study, study.done)

    def _take_trial(self, study: PartialStudy, trial: int, entry: ArchiveEntry, *, is_outcome: bool) -> None:
        if trial in (study.statuses if is_outcome else study.measured):
            raise Unusable("occurs twice; the first one is kept")
        if not any(trial in trials for trials in (study.statuses, study.measured, study.lost)):
            self._seen += 1
        is_needed = trial not in study.done and trial not in study.lost
        if not is_outcome:
            study.measured.add(trial)
            if is_needed:
                self._read_curve(study, trial, entry)
            return
        try:
            outcome = shallue2018_format.outcome(trial, _read(entry, LARGEST_JSON))
        except Unusable as error:
            self._lose(study, trial, entry.path, error)
            return
        study.statuses[trial] = outcome.status
        if is_needed:
            study.take_outcome(trial, outcome)

    def _read_curve(self, study: PartialStudy, trial: int, entry: ArchiveEntry) -> None:
        try:
            text = _read(entry, min(LARGEST_CURVE, LARGEST_STUDY - study.text))
        except Unusable as error:
            self._lose(study, trial, entry.path, error)
            return
        study.take_curve(trial, text)
        self._waiting += len(text)

    def check_bounds(self) -> None:
        """Raises Broken if the archive is larger than any published archive."""
        for what, count, limit in (
            ("studies", len(self.studies), MOST_STUDIES),
            ("trials", self._seen, MOST_TRIALS),
            ("faults", len(self.warnings.lines), MOST_WARNINGS),
            ("bytes of study.json", self._configured, MOST_CONFIGURED),
        ):
            if count > limit:
                raise Broken(f"it holds more than {limit:,} {what}")

    def _refuse(self, study: PartialStudy, why: str) -> None:
        self.warnings.add(study.path, why)
        study.refused = True
        self._forget(study, study.curves.keys() | study.outcomes.keys())

    def _lose(self, study: PartialStudy, trial: int, place: str, why: object) -> None:
        self.warnings.add(place, why)
        study.lost.add(trial)
        study.visible = False
        study.put_off.discard(trial)
        self._forget(study, {trial})

    def _forget(self, study: PartialStudy, trials: Iterable[int], *, outcomes: bool = True) -> None:
        before = study.waiting
        study.drop(trials, outcomes=outcomes)
        self._waiting += study.waiting - before

    def _make_room(self, study: PartialStudy) -> None:
        """Stores the study if there are enough data for a part, and other studies while the buffer is too full."""
        if study.ready >= ENOUGH:
            self._hand_over(study)
        while self._waiting > MOST_WAITING:
            readiest = max(self.studies.values(), key=lambda study: study.ready)
            fullest = max(self.studies.values(), key=lambda study: study.waiting - study.ready)
            if readiest.ready >= WORTH_A_PART or fullest.ready == fullest.waiting:
                self._hand_over(readiest)
            else:
                late = fullest.curves.keys() - (fullest.outcomes.keys() if fullest.recorded else set())
                fullest.put_off |= late
                self._forget(fullest, late, outcomes=False)

    def _hand_over(self, study: PartialStudy, *, last: bool = False, without_curves: bool = False) -> None:
        """Stores the ready trials of a study.

        Args:
          study: a study whose study.json has been read.
          last: whether to make the study visible afterwards.
          without_curves: whether to store trials without measurements too.
        """
        assert study.recorded is not None
        trials = study.outcomes.keys() & study.curves.keys()
        if without_curves:
            trials = study.outcomes.keys() - study.put_off
        batch = Batch(
            study.recorded,
            study.seen,
            {trial: study.outcomes[trial] for trial in trials},
            {trial: study.curves[trial] for trial in trials if trial in study.curves},
            frozenset(study.lost) if last else frozenset(),
            last,
            self._about,
        )
        size = sum(map(len, batch.curves.values()))
        study.done |= trials
        study.visible = last
        self._forget(study, trials)
        self._settle(max(0, MOST_UNDER_WAY - size))
        study.writing = self._pool.submit(_save, study.writing, self._folder, batch)
        self._under_way.append(_UnderWay(study, size, study.writing))

    def _settle(self, limit: int) -> None:
        """Waits until at most ``limit`` bytes are being stored, and collects the results of finished batches."""
        while self._under_way and (
            limit == 0 or len(self._under_way) > MOST_BATCHES or sum(batch.bytes for batch in self._under_way) > limit
        ):
            study, _, future = self._under_way.popleft()
            stored = future.result()
            self.trials += stored.trials
            self.rows += stored.rows
            self.left_out |= stored.left_out
            study.lost |= stored.broken.keys()
            kept = "rows repeat a step; the first of each is kept"
            repeats = {trial: f"{rows} {kept}" for trial, rows in stored.repeated.items()}
            for trial, why in [*stored.broken.items(), *repeats.items()]:
                self.warnings.add(f"{study.path}/{trial}/measurements.csv", why)


def _save(before: Future[Stored] | None, folder: Folder, batch: Batch) -> Stored:
    """Stores a batch once the previous batch of the study, which was submitted earlier, is stored."""
    if before is not None:
        before.result()
    return partial_studies.save(folder, batch)


def _read(entry: ArchiveEntry, limit: int) -> bytes:
    if entry.size > limit:
        raise Unusable(f"has {entry.size:,} bytes, but the limit is {limit:,}")
    return entry.read()
