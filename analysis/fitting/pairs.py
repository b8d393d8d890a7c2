"""Pairs: the curves of a store, each fitted as it was selected and, where repeats report, as it was confirmed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import studies, workloads
from analysis.fitting import confirmations, curves, fits
from analysis.fitting.confirmations import Confirmed
from analysis.fitting.curves import Curve
from analysis.fitting.fits import Judged
from analysis.trials import steps
from results import store
from results.durable import Folder
from results.plans import kinds
from results.plans.study import digest
from results.storage.commits import Commit

SELECTED, CONFIRMED = ANSWERS = ("selected", "confirmed")
COLUMNS = {
    "of": "selected: of what the best trials took; confirmed: of what they took again, on fresh seeds",
    "best_of": "how many trials of each study the search had; empty if unknown",
}
MOVED = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "selected": "critical batch size, if identified",
    "confirmed": "critical batch size, if identified",
    "octaves": "from the one to the other, in factors of two",
    "inside": "whether the confirmed one is in the 90 % interval of the selected one",
}


class Fitted(NamedTuple):
    """A curve of a store with what its fits say.

    Attributes:
      curve: its studies and their trials.
      judged: the fit of what was selected.
      commits: its studies.
      again: those whose answer was confirmed, by batch size.
      confirmed: the fit of what was confirmed; None if nothing was.
    """

    curve: Curve
    judged: Judged
    commits: tuple[Commit, ...] = ()
    again: Sequence[Confirmed] = ()
    confirmed: Judged | None = None


def of_store(folder: Folder, asked: tuple[str, float] | None = None) -> list[Fitted]:
    """The curves of a store with their fits; ``asked``: metric and value of a target other than the studies' own."""
    held, target = steps.load(folder, asked)
    members: dict[str, list[Commit]] = {}
    for commit in kinds.of_kind(store.catalogue(folder), *studies.drawn_as(studies.BATCH)):
        members.setdefault(digest(workloads.shared_plan(commit.study)), []).append(commit)
    return [of_curve(curve, tuple(members[curve.key])) for curve in curves.curves(held, target)]


def of_curve(curve: Curve, commits: tuple[Commit, ...]) -> Fitted:
    """A curve with both of its fits; ``commits`` are its studies."""
    again = confirmations.of(commits, curve.target) if curve.exact else []
    return Fitted(curve, fits.of_curve(curve), commits, again, confirmations.judge(again, curve.distinction))


def alike(found: Sequence[Fitted], *leaving: str) -> list[tuple[tuple[str, ...], list[Fitted]]]:
    """Curves of one data set, model and target whose studies agree in all of their plans but the fields ``leaving``.

    Returns:
      Of each group its name (data set, model, metric, value, and what tells it from groups that look alike, if there
      are any) and its curves.
    """
    shared: dict[str, dict[str, object]] = {}
    groups: dict[tuple[str, ...], dict[str, list[Fitted]]] = {}
    for one in found:
        rest = {field: value for field, value in one.curve.shared.items() if field not in leaving}
        shared[digest(rest)] = rest
        looks = (one.curve.dataset, one.curve.model, one.curve.target.metric, f"{one.curve.target.value:g}")
        groups.setdefault(looks, {}).setdefault(digest(rest), []).append(one)
    return [
        ((*looks, *([words] if words else [])), members)
        for looks, own in groups.items()
        for key, members in own.items()
        for words in [workloads.distinction(key, {other: shared[other] for other in own})]
    ]


def answers(one: Fitted) -> list[tuple[str, Judged]]:
    """What there is of a curve: selected, and confirmed if anything was, each with its fit."""
    return [(SELECTED, one.judged), *([(CONFIRMED, one.confirmed)] if one.confirmed else [])]


def rows(found: Sequence[Fitted]) -> tuple[pd.DataFrame, list[Judged]]:
    """What curves are called and ``COLUMNS``, a row for every answer of each, and the fits of these."""
    told = [(one.curve, of, one.judged.points.trials, judged) for one in found for of, judged in answers(one)]
    return named([row[:3] for row in told]), [judged for *_, judged in told]


def named(told: Sequence[tuple[Curve, str, int | None]]) -> pd.DataFrame:
    """What curves are called, what their points are, and of how many trials: a row each."""
    columns = ["dataset", "model", "optimizer", "target_metric", "target_value", *COLUMNS]
    values: list[tuple[Any, ...]] = [
        (c.dataset, c.model, c.optimizer, c.target.metric, c.target.value, of, k) for c, of, k in told
    ]
    return pd.DataFrame(values, columns=columns).astype({"best_of": "Int64"})


def moved(found: Sequence[Fitted]) -> pd.DataFrame:
    """A row of ``MOVED`` for every curve of which anything was confirmed; empty where a knee is not identified."""
    table = []
    for one in found:
        if one.confirmed is None:
            continue
        before, after = (critical(judged) for judged in (one.judged, one.confirmed))
        fit, octaves = one.judged.fit, float(np.log2(after / before))
        inside = bool(fit.low <= after <= fit.high) if fit and np.isfinite(octaves) else None
        table.append((one.curve.dataset, one.curve.model, one.curve.optimizer, before, after, octaves, inside))
    return pd.DataFrame(table, columns=list(MOVED))


def critical(judged: Judged) -> float:
    """The critical batch size, examples; NaN unless it is identified."""
    return judged.fit.critical_batch_size if judged.fit and judged.verdict == "identified" else float("nan")
