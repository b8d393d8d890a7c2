"""Identity: recognizes copies of a run, and runs that are stored already, by their rows.

Runs with the same seed and metaparameters have the same key. If the rows of one start the rows of another, both are the
same run. A stored run is recognized in the same way, because the rows of a log only grow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from results.aliases import Row
from results.importers.runs import series
from results.importers.runs.runs import Run
from results.importers.runs.series import Series
from results.storage import commits
from results.storage.commits import Commit

Curves: TypeAlias = Mapping[str, Series]  # rows by metric
First: TypeAlias = tuple[str, str, int, float]  # a key, a metric, and the step and value of its first row

_NOT_TUNED = ("study", "trial", "run", "role", "seed", "status", "reason", "steps")


class StoredTrial(NamedTuple):
    """A stored run.

    Attributes:
      key: text of its seed and metaparameters.
      seeded: whether it has a seed.
      steps: its last logged step.
      curves: its stored rows.
    """

    key: str
    seeded: bool
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
    trial, step = (measured[name].to_numpy() for name in ("trial", "step"))
    columns = {name: measured[name] for name in commit.metrics}
    logged = {name: (column.is_valid().to_numpy(), column.to_numpy()) for name, column in columns.items()}
    trials = {}
    for row in commits.read_table(commit, "trials").to_pylist():
        rows = slice(*np.searchsorted(trial, [row["trial"], row["trial"] + 1]))
        curves = {
            name: Series(step[rows], step[rows], value[rows].astype(np.float64)).where(valid[rows])
            for name, (valid, value) in logged.items()
            if valid[rows].any()
        }
        trials[row["trial"]] = StoredTrial(_stored_key(row), row["seed"] is not None, row["steps"], curves)
    return trials


def _stored_key(row: Row) -> str:
    tuned = {name: value for name, value in row.items() if name not in _NOT_TUNED and value is not None}
    return repr((row["seed"], tuple(sorted(tuned.items()))))


def without_copies(runs: Sequence[Run]) -> list[Run]:
    """Returns the runs in their order, without those whose rows start another run with the same key."""
    longest_first = sorted(runs, key=lambda run: -sum(len(rows.step) for rows in run.logged.values()))
    kept: dict[First, list[Run]] = {}
    originals = set[int]()
    for run in longest_first:
        firsts = list(_firsts(repr(run.key), run.logged))
        if any(starts(run.logged, other.logged) for other in kept.get(firsts[0], ())):
            continue
        originals.add(id(run))
        for first in firsts:
            kept.setdefault(first, []).append(run)
    return [run for run in runs if id(run) in originals]


def match(runs: Iterable[Run], trials: Mapping[int, StoredTrial]) -> Matches:
    """Numbers the runs of a study. A stored run keeps its number, and others get new numbers.

    A run that continues no stored run is a changed run if one with the same key is left that has a seed, or has more
    than half of its rows in common. If not, it is new.
    """
    near: dict[First, list[int]] = {}
    same_key: dict[str, list[int]] = {}
    for number, trial in trials.items():
        same_key.setdefault(trial.key, []).append(number)
        for first in _firsts(trial.key, trial.curves):
            near.setdefault(first, []).append(number)
    numbered: dict[int, Run] = {}
    shorter: dict[int, Run] = {}
    extended, others = set[int](), list[tuple[Run, Sequence[int]]]()
    for run in runs:
        key = repr(run.key)
        firsts = {*_firsts(key, run.logged), *_firsts(key, run.metrics)}
        candidates = sorted({number for first in firsts for number in near.get(first, ())})
        started = [number for number in candidates if number not in numbered and _continues(trials[number], run)]
        longer = [number for number in candidates if _starts_stored(run, trials[number])]
        if started:
            number = max(started, key=lambda number: trials[number].steps)
            numbered[number] = run
            if number not in longer:
                extended.add(number)
        elif longer:
            shorter[longer[0]] = run
        else:
            similar = [number for number in candidates if _is_similar(trials[number], run)]
            others.append((run, similar if run.seed is None else same_key.get(key, [])))
    new = []
    for run, candidates in others:
        free = next((number for number in candidates if number not in numbered), None)
        if free is None:
            new.append(run)
        else:
            numbered[free] = run
    added = dict(enumerate(new, max(trials, default=-1) + 1))
    return Matches(dict(sorted((numbered | added).items())), frozenset(added), frozenset(extended), shorter)


def _firsts(key: str, curves: Curves) -> Iterator[First]:
    """Yields a text for the first row of each metric. Averaging and longer logs do not change this row."""
    for name, rows in curves.items():
        yield key, name, int(rows.step[0]), float(rows.value[0])


def _shared(a: Series, b: Series) -> int:
    """Returns the number of equal rows at the start of two curves."""
    n = min(len(a.step), len(b.step))
    missing = np.isnan(a.value[:n]) & np.isnan(b.value[:n])
    equal = (a.step[:n] == b.step[:n]) & ((a.value[:n] == b.value[:n]) | missing)
    return n if equal.all() else int(np.argmin(equal))


def starts(shorter: Curves, longer: Curves) -> bool:
    """Returns whether each metric of one run starts that of another."""
    return all(name in longer and _shared(rows, longer[name]) == len(rows.step) for name, rows in shorter.items())


def _is_similar(trial: StoredTrial, run: Run) -> bool:
    """Returns whether a log has more than half of the rows of a stored run, from the start."""
    shared = (
        max(_shared(rows, run.logged[name]), _shared(rows, run.metrics[name]))
        for name, rows in trial.curves.items()
        if name in run.metrics
    )
    return 2 * sum(shared) > sum(len(rows.step) for rows in trial.curves.values())


def _starts_stored(run: Run, trial: StoredTrial) -> bool:
    return run.steps <= trial.steps and starts(run.metrics, trial.curves)


def _continues(trial: StoredTrial, run: Run) -> bool:
    """Returns whether a stored run is the start of a run. No stored value changes, except by averaging more rows."""
    return trial.steps <= run.steps and all(
        name in run.metrics and _is_start(rows, run, name, trial.steps) for name, rows in trial.curves.items()
    )


def _is_start(stored: Series, run: Run, metric: str, steps: int) -> bool:
    rows = series.without_restarts(run.logged[metric])[0]
    then = series.averaged(rows.where(rows.step <= steps))[0]
    return any(_shared(stored, curve) == len(stored.step) for curve in (run.metrics[metric], rows, then))
