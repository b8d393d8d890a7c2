"""Identity: recognizes copies of a run, and runs that are stored already, by their rows.

Runs with the same seed and metaparameters have the same key. If the rows of one start the rows of another, both are the
same run. A stored run is recognized in the same way, because the rows of a log only grow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np

from results.grouping import grouped
from results.importers.runs import series
from results.importers.runs.runs import Key, Run, key_of
from results.importers.runs.series import Curves, Series
from results.storage import commits
from results.storage.commits import Commit

Head: TypeAlias = tuple[Key, str, int, int]  # a key, a metric, and the number and the hash of its first rows

T = TypeVar("T")

_NOT_TUNED = ("study", "trial", "run", "role", "status", "reason", "steps")


class StoredTrial(NamedTuple):
    """A stored run.

    Attributes:
      key: its seed and metaparameters.
      steps: its last logged step.
      curves: its stored rows.
    """

    key: Key
    steps: int
    curves: Curves


class Matches(NamedTuple):
    """The runs of a study and their numbers in the store.

    Attributes:
      numbered: runs to store or to compare, by trial number.
      new: numbers of runs that are not in the store.
      extended: numbers of runs that continue a stored run.
      shorter: runs of which the store has more rows, by trial number.
    """

    numbered: Mapping[int, Run]
    new: frozenset[int]
    extended: frozenset[int]
    shorter: Mapping[int, Run]

    def replacing(self) -> Mapping[int, Run]:
        """Returns the runs to store if they replace stored runs that have changed or have more rows."""
        return {**self.shorter, **self.numbered}


def stored_trials(commit: Commit) -> dict[int, StoredTrial]:
    """Reads the trials of a stored study, by number."""
    measured = commits.read_table(commit, "measurements")
    trial, step = (measured[name].to_numpy().astype(np.int64) for name in ("trial", "step"))
    trials = {}
    for row in commits.read_table(commit, "trials").to_pylist():
        start, end = np.searchsorted(trial, [row["trial"], row["trial"] + 1])
        steps, curves = step[start:end], {}
        for name in commit.metrics:
            values = measured[name].slice(start, end - start)
            logged = values.is_valid().to_numpy()
            if logged.any():
                curves[name] = Series(steps, steps, values.to_numpy().astype(np.float64), steps).where(logged)
        key = key_of({name: value for name, value in row.items() if name not in _NOT_TUNED})
        trials[row["trial"]] = StoredTrial(key, row["steps"], curves)
    return trials


class _Heads(Generic[T]):
    """Runs by their heads, which finds runs whose rows may start those of another."""

    def __init__(self) -> None:
        self._runs: dict[tuple[Head, bool], list[T]] = {}

    def add(self, run: T, key: Key, curves: Curves) -> None:
        for head, is_longest in _heads(key, curves).items():
            for of_shorter in {False, is_longest}:
                self._runs.setdefault((head, of_shorter), []).append(run)

    def near(self, key: Key, curves: Curves) -> Iterator[T]:
        """Yields the runs that share the longest head of the shorter run with these curves, possibly repeatedly."""
        for head, is_longest in _heads(key, curves).items():
            yield from self._runs.get((head, not is_longest), ())


def without_copies(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs in their order, without those whose rows start another run with the same key."""
    originals = _Heads[Run]()
    kept = set()
    for run in sorted(runs, key=lambda run: -run.rows):
        if not any(starts(run.logged, original.logged) for original in originals.near(run.key, run.logged)):
            kept.add(id(run))
            originals.add(run, run.key, run.logged)
    return [run for run in runs if id(run) in kept]


def match(runs: Iterable[Run], trials: Mapping[int, StoredTrial]) -> Matches:
    """Numbers the runs of a study. A stored run keeps its number, and others get new numbers.

    A run that continues no stored run is a changed run if one with the same key is left that has a seed, or has more
    than half of its rows in common. If not, it is new.
    """
    heads = _Heads[int]()
    for number, trial in trials.items():
        heads.add(number, trial.key, trial.curves)
    by_key = grouped(sorted(trials), lambda number: trials[number].key)
    same_key = {key: iter(numbers) for key, numbers in by_key.items()}
    numbered, shorter = {}, dict[int, Run]()
    extended, unmatched = set(), []
    for run in runs:
        counted = {name: series.without_restarts(rows)[0] for name, rows in run.logged.items()}
        versions = (run.logged, counted, run.metrics)
        candidates = sorted({number for curves in versions for number in heads.near(run.key, curves)})
        started = [number for number in candidates if number not in numbered and _continues(trials[number], run)]
        longer = [number for number in candidates if _is_continued(trials[number], run)]
        if started:
            number = max(started, key=lambda number: trials[number].steps)
            numbered[number] = run
            if number not in longer:
                extended.add(number)
        elif longer:
            shorter[longer[0]] = run
        else:
            similar = iter([number for number in candidates if _is_similar(trials[number], run)])
            unmatched.append((run, similar if run.seed is None else same_key.get(run.key, similar)))
    new = []
    for run, stored in unmatched:
        number = next((number for number in stored if number not in numbered), -1)
        if number < 0:
            new.append(run)
        else:
            numbered[number] = run
    added = dict(enumerate(new, max(trials, default=-1) + 1))
    return Matches(dict(sorted((numbered | added).items())), frozenset(added), frozenset(extended), shorter)


def _heads(key: Key, curves: Curves) -> dict[Head, bool]:
    """Returns the heads of a run of 1, 2, 4, ... rows, up to half of its rows, and whether each is the longest."""
    heads = {}
    for name, rows in curves.items():
        half = (len(rows.step) + 1) // 2
        for n in (2**i for i in range(half.bit_length())):
            heads[key, name, n, hash((rows.step[:n].tobytes(), rows.value[:n].tobytes()))] = 2 * n > half
    return heads


def starts(shorter: Curves, longer: Curves) -> bool:
    """Returns whether each metric of one run starts that of another."""
    return all(name in longer and rows.starts(longer[name]) for name, rows in shorter.items())


def _is_similar(trial: StoredTrial, run: Run) -> bool:
    """Returns whether a log has more than half of the rows of a stored run, from the start."""
    shared = (
        max(rows.shared(run.logged[name]), rows.shared(run.metrics[name]))
        for name, rows in trial.curves.items()
        if name in run.metrics
    )
    return 2 * sum(shared) > sum(len(rows.step) for rows in trial.curves.values())


def _is_continued(trial: StoredTrial, run: Run) -> bool:
    """Returns whether a run is the start of a stored run."""
    return run.steps <= trial.steps and starts(run.metrics, trial.curves)


def _continues(trial: StoredTrial, run: Run) -> bool:
    """Returns whether a stored run is the start of a run. No stored value changes, except by averaging more rows."""
    return trial.steps <= run.steps and all(
        name in run.metrics and _is_start(rows, run, name, trial.steps) for name, rows in trial.curves.items()
    )


def _is_start(stored: Series, run: Run, metric: str, steps: int) -> bool:
    rows = series.without_restarts(run.logged[metric])[0]
    stored_average = series.averaged(rows.where(rows.step <= steps))[0]
    return any(stored.starts(curve) for curve in (run.metrics[metric], rows, stored_average))
