"""Selection bias (luck): how much better the answers of searches are than the same trials rerun with new seeds.

``ratios`` and ``summary`` describe a store. ``simulate`` simulates searches in which all configurations are equally
good, so selection only picks up noise. The selected steps are below the truth, and the reported ones are not.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.fitting import confirmations
from analysis.fitting.confirmations import Confirmed
from analysis.fitting.curve_fits import CurveFits
from analysis.trials import trials
from analysis.trials.trials import StudyTrials
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from results.plans.study import Target
from results.rules import confirmation

RATIOS = {
    "dataset": "name of the data set",
    "model": "name of the model, then its options",
    "optimizer": "name of the optimizer",
    "batch_size": "examples",
    "selected": "steps of the best trial of the search",
    "confirmed": "median steps of the reporting repeats (infinite if at least half of them never reached)",
    "ratio": "confirmed over selected",
    "same": "whether the confirmed trial is the best one of the search",
    "repeats": "number of reporting repeats",
    "reached": "number of them that reached the target",
}
SUMMARY = {
    "studies": "studies with a confirmed answer",
    "never": "studies in which the median of repeats never reached the target",
    "ratio": "median of confirmed over selected steps in the others",
    "small": "the same at batch sizes up to 16",
    "large": "the same above 16",
    "same": "share of the studies that confirmed the best trial of their search",
}
ALL = "all"
SMALL = 16  # the largest small batch size

TARGET = Target("test_error", 0.1)


def ratios(fitted: Sequence[CurveFits]) -> pd.DataFrame:
    """Returns one row of ``RATIOS`` for every study of these curves that has a confirmed answer."""
    rows = [
        (
            *(one.curve.dataset, one.curve.model, one.curve.optimizer, each.batch_size),
            *(confirmations.middle(each.selected), confirmations.middle(each.median), each.ratio),
            *(each.chosen == each.best, each.repeats, each.reached),
        )
        for one in fitted
        for each in one.confirmations
    ]
    return pd.DataFrame(rows, columns=list(RATIOS))


def summary(table: pd.DataFrame, by: str = "dataset") -> pd.DataFrame:
    """Returns a row of ``SUMMARY`` for each value in the column ``by`` of ``ratios``, and one for the whole table."""
    groups = [*((str(name), own) for name, own in table.groupby(by, sort=False)), (ALL, table)]
    return pd.DataFrame([_summary(own) for _, own in groups], index=pd.Index([name for name, _ in groups], name=by))


def _summary(table: pd.DataFrame) -> dict[str, float]:
    finite = table[np.isfinite(table["ratio"])]
    small = finite["batch_size"] <= SMALL
    return {
        "studies": len(table),
        "never": len(table) - len(finite),
        "ratio": finite["ratio"].median(),
        "small": finite.loc[small, "ratio"].median(),
        "large": finite.loc[~small, "ratio"].median(),
        "same": table["same"].mean(),
    }


def simulate(searches: int, seed: int = 0, *, confirm: int = 6, top: int = 5) -> list[Confirmed]:
    """Simulates searches with equal configurations: a trial needs 10,000 exp(0.15 z) steps, with z standard normal.

    ``results.rules.confirmation`` determines the candidates, the chosen trial and the reporting repeats.
    ``confirmations`` reads the results like those of a real study.

    Args:
      searches: number of searches.
      seed: seed of the simulation.
      confirm, top: number of repeats and number of candidates, as in a real study.
    """
    rng = np.random.default_rng(seed)
    study = _study(confirm, top)
    return [_search(study, rng) for _ in range(searches)]


TRUTH = 10_000.0  # median steps of every configuration in ``simulate``
SPREAD = 0.15  # standard deviation of ln steps


def bias(confirmed: Sequence[Confirmed]) -> pd.Series:
    """Returns the medians of selected, choosing and confirmed steps, relative to a configuration's true median."""
    medians = {
        "selected": [confirmations.middle(one.selected) for one in confirmed],
        "median that chose": [confirmations.middle(one.choosing) for one in confirmed if one.choosing],
        "confirmed": [confirmations.middle(one.median) for one in confirmed],
    }
    return pd.Series({name: float(np.median(steps)) / TRUTH for name, steps in medians.items() if steps})


def _study(confirm: int, top: int) -> BatchStudy:
    space = SearchSpace({"learning_rate": Range("LOG", 1e-3, 1.0)})
    return BatchStudy(
        dataset="digits",
        dataset_version="",
        model="fully_connected",
        model_options={},
        optimizer="sgd",
        schedule="constant",
        batch_size=1,
        space=space,
        targets=(TARGET,),
        budget_steps=10**9,
        evaluation_ratio=1.1,
        evaluation_spacing=0.0,
        seed=0,
        pruning="off",
        trials=64,
        confirm=confirm,
        confirm_top=top,
    )


def _search(study: BatchStudy, rng: np.random.Generator) -> Confirmed:
    """Simulates one search and its repeats, and reads the result."""
    # The choosing repeats must run before the reporting ones are known.
    ids, steps = list(range(study.trials)), _steps(rng, study.trials)
    while len(ids) < study.request.planned:
        repeats = confirmation.missing_ids(study, *_tables(study, ids, steps))
        ids, steps = [*ids, *repeats], np.append(steps, _steps(rng, len(repeats)))
    role = [confirmation.role(i) for i in ids]
    rows = pd.DataFrame({"trial": ids, "role": role, "reason": None, "outcome": trials.REACHED})
    read = confirmations.of_study(StudyTrials(study, TARGET, rows.assign(steps_low=steps - 1, steps_high=steps)))
    assert read is not None  # because every trial reached
    return read


def _steps(rng: np.random.Generator, count: int) -> np.ndarray:
    return np.round(TRUTH * np.exp(SPREAD * rng.standard_normal(count)))


def _tables(study: BatchStudy, ids: Sequence[int], steps: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the trials and measurements tables, with one measurement per trial, at the target."""
    role = [confirmation.role(i) for i in ids]
    measured = {"study": study.name, "trial": ids, "step": steps.astype(np.int64), TARGET.metric: np.float32(0)}
    return pd.DataFrame({"trial": ids, "role": role, "reason": None}), pd.DataFrame(measured)
