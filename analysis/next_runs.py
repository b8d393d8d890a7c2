"""Next runs: for each curve in a store, the additional runs that narrow *pays up to* most per unit of cost."""

import functools
import importlib.resources
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from analysis import text
from analysis.columns import DIFFERS, SUGGESTIONS as COLUMNS
from analysis.fitting import curve_fits, curves, fits, suggestions
from analysis.fitting.curve_fits import CurveFits
from analysis.fitting.curves import Curve
from analysis.fitting.extents import GAIN, UNKNOWN, Data, Extent
from analysis.fitting.suggestions import NEW, OPEN, REPEATS, TRIALS, Suggestion
from analysis.trials import steps_to_target
from results import progress
from results.aliases import Fields, Strings
from results.bad_input import BadInput, number_of
from results.durable import Folder
from results.plans.kinds import along
from results.plans.recorded import TOKENS
from results.plans.study import TargetRequest
from results.printing import Report, quoted
from results.store import Commit, read_table

LIMITS = (
    "octaves: the width of the interval of pays up to, now and as expected after the runs. All rows follow from the "
    "present fit, so run the first one and ask again. Gaps of more than an octave near the answer are divided first.\n"
    "A batch size with more trials than others counts with the expected best of as many trials as they have."
)
SHOWN = 5
MOSTLY_OPEN = OPEN / 2  # mean width above which an end is expected to stay open
AGAIN = 6  # repeats of the best trial to consider
(DIFFERING,) = DIFFERS  # the column that separates curves with the same names
DEFAULTS = {"pruning": "exact", "stop": "target", "seed": 0}  # settings of a sweep that are part of the plan


class Costs(NamedTuple):
    """The cost of a curve's trials, in device-hours, or in examples if there are no times.

    Attributes:
      ln_batch: float64[n], ln of the timed batch sizes, sorted.
      ln_hours: float64[n], ln of the device-hours per step at these batch sizes.
      lasted: mean number of steps of a trial, as a multiple of the steps to target.
    """

    ln_batch: np.ndarray
    ln_hours: np.ndarray
    lasted: float

    @property
    def timed(self) -> bool:
        """Whether costs are device-hours rather than examples."""
        return len(self.ln_batch) > 0

    def step(self, batch_size: float) -> float:
        """Returns the cost of a step. Above the timed batch sizes, it grows in proportion to the batch size."""
        if not self.timed:
            return batch_size
        excess = max(0.0, float(np.log(batch_size) - self.ln_batch[-1]))
        return float(np.exp(np.interp(np.log(batch_size), self.ln_batch, self.ln_hours) + excess))

    def trial(self, batch_size: float, steps_to_target: float) -> float:
        """Returns the cost of one trial."""
        return self.lasted * steps_to_target * self.step(batch_size)


class NextRuns(NamedTuple):
    """The suggestions for one curve.

    Attributes:
      one: the curve.
      pays: current answer of the curve.
      costs: cost of the curve's trials.
      spent: cost of all trials so far.
      best: the suggestions, in order.
      commands: the command for each suggestion, or a description of the runs.
      reason: reason why there are no suggestions, or a note.
    """

    one: CurveFits
    pays: Extent
    costs: Costs
    spent: float
    best: Sequence[Suggestion] = ()
    commands: Sequence[str] = ()
    reason: str = ""


def of_store(
    folder: Folder,
    request: TargetRequest = None,
    where: Sequence[str] = (),
    budget: float | None = None,
    gain: float = GAIN,
    report: Report | None = None,
) -> list[NextRuns]:
    """Returns suggestions for every curve in a store.

    Args:
      folder: the store.
      request: metric and value to use instead of the studies' own targets.
      where: conditions on studies (see ``workload_studies.of_store``).
      budget: maximum device-hours of a suggestion.
      gain: required speed-up per doubling, as a fraction.
      report: called with progress lines.

    Raises:
      BadInput: there is no store or no curve, or a budget is given but there are no seconds per step.
    """
    selected = curves.meeting(curves.of_store(*steps_to_target.load(folder, request)), folder, where)
    if budget is not None and not any(_hours(curve.workload.commits) for curve in selected):
        raise BadInput("--budget needs seconds per step, which these studies do not have. Leave it out.")
    fitted = curve_fits.of_curves(selected, report)
    return [_of_curve(curve, folder, budget, gain) for curve in progress.track(fitted, "suggest", " curves", report)]


def _of_curve(curve: CurveFits, folder: Folder, budget: float | None, gain: float) -> NextRuns:
    points, commits = curve.selected.points, curve.curve.workload.commits
    costs, spent = _costs(curve, commits)
    data = fits.data_of(points)
    if data is None:
        return NextRuns(curve, UNKNOWN, costs, spent, reason=curve.selected.reason)
    recorded = curve.curve.workload.recorded
    words = [] if recorded else sweep_words(commits)
    unit, length = commits[0].study.batch_unit
    granularity = length if unit == TOKENS and length else 1
    sizes = _possible(suggestions.new_sizes(data, gain), data, words, granularity, recorded=recorded)
    some, trial_counts = points.trials or 1, points.usable().trial_counts
    available = np.full(len(data.batch_size), some) if trial_counts is None else trial_counts
    counts = [int(count) for count in available]
    affordable = suggestions.suggest(
        data,
        counts,
        some,
        costs.trial,
        sizes,
        gain,
        more_trials=not curve.curve.pruned,
        repeats=0 if recorded or curve.confirmed else AGAIN,
    )
    if budget is not None and costs.timed:
        affordable = [suggestion for suggestion in affordable if suggestion.cost <= budget]
    best = affordable[:SHOWN]
    totals = dict(zip(data.batch_size.tolist(), counts, strict=True))
    commands = [_command(suggestion, totals, words, curve.curve, folder) for suggestion in best]
    limit = "" if budget is None else " within the budget"
    reason = "" if best else f"no further runs are expected to narrow the interval{limit}"
    return NextRuns(curve, suggestions.pays_up_to(data, gain), costs, spent, best, commands, reason)


def _hours(commits: Sequence[Commit]) -> dict[float, float]:
    """Returns the median device-hours per step over runs, by batch size, sorted."""
    columns = ["batch_size", "seconds_per_step", "device_count"]
    runs = pd.concat(
        [read_table(commit, "studies").select(columns).to_pandas() for commit in commits], ignore_index=True
    )
    hours = runs["seconds_per_step"].astype(float) * runs["device_count"].astype(float) / 3600
    medians = hours[hours > 0].groupby(runs["batch_size"].astype(float)).median()
    return {float(size): float(hours) for size, hours in medians.items()}


def _costs(curve: CurveFits, commits: Sequence[Commit]) -> tuple[Costs, float]:
    """Returns the cost of a curve's trials, and the total cost of all trials so far."""
    hours = _hours(commits)
    costs = Costs(np.log(np.array([*hours])), np.log(np.array([*hours.values()])), 1.0)
    points = curve.selected.points
    lasted, spent = [], 0.0
    for study, rows in curve.curve.trials_by_rule:
        size = float(along(study.study))
        spent += float(rows["steps"].sum()) * costs.step(size)
        if size in points.batch_size and len(rows):
            lasted.append(float(rows["steps"].mean()) / curve.steps_at(int(size)))
    return costs._replace(lasted=float(np.median(lasted)) if lasted else 1.0), spent


def _possible(
    sizes: Sequence[float], data: Data, words: Sequence[str], granularity: int, *, recorded: bool
) -> list[float]:
    """Returns the batch sizes that can be run, rounded to multiples of ``granularity``, which is a sequence for tokens.

    A batch that is larger than all previous ones may not fit in memory, or may exceed the training set. Such batches
    are omitted unless ``python -m sweeps.plan`` accepts them. Recorded runs can always accumulate gradients over
    smaller batches.
    """
    rounded = sorted(
        {float(granularity * max(1, round(size / granularity))) for size in sizes} - set(data.batch_size.tolist())
    )
    return [size for size in rounded if size < data.batch_size[-1] or recorded or (words and _planned(words, size))]


def sweep_words(commits: Sequence[Commit]) -> list[str]:
    """Returns the settings of ``python -m sweeps`` for a curve's studies, except the batch size and trials.

    The store does not record these settings, so each task in ``conf/task`` is tried. The result is empty if the
    settings would produce a different study, for example because the sweep changed a setting of its task.
    """
    first = commits[0]
    plan = first.plan
    for name, task in _tasks():
        model = task.get("model") or {}
        options = {key: value for key, value in model.items() if key != "name"}
        if (task.get("dataset"), model.get("name")) != (plan["dataset"], plan["model"]):
            continue
        if not options.items() <= plan["model_options"].items():
            continue
        words = [f"task={name}", f"optimizer={plan['optimizer']}"]
        words += [f"task.schedule={plan['schedule']}"] if plan["schedule"] != task.get("schedule") else []
        words += [f"{key}={plan[key]}" for key, value in DEFAULTS.items() if plan[key] != value]
        if (_planned(words, along(first.study)) or "").startswith(first.name):
            return words
    return []


def _tasks() -> list[tuple[str, Fields]]:
    """Returns the tasks in ``conf/task`` by name."""
    folder = Path(str(importlib.resources.files("conf"))) / "task"
    paths = [(str(path.relative_to(folder).with_suffix("")), path) for path in sorted(folder.rglob("*.yaml"))]
    return [(name, yaml.safe_load(path.read_text())) for name, path in paths]


@functools.lru_cache(maxsize=256)
def _plan(words: Strings) -> str | None:
    command = [sys.executable, "-m", "sweeps.plan", *words, "trials=1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return str(json.loads(done.stdout)[0]["study"]) if done.returncode == 0 else None


def _planned(words: Sequence[str], batch_size: float) -> str | None:
    """Returns the name of the study that a sweep would run, or None if the sweep cannot run on this machine."""
    return _plan((*words, f"batch_size={batch_size:.0f}"))


def _command(
    suggestion: Suggestion, totals: Mapping[float, int], words: Sequence[str], curve: Curve, folder: Folder
) -> str:
    """Returns the command for a suggestion, or a description of the runs."""
    again = suggestion.kind == REPEATS
    confirm = AGAIN if again else curve.workload.commits[0].study.request.repeats.confirm
    if again:
        sizes, trials = ",".join(f"{size:.0f}" for size in totals), max(totals.values())
    else:
        sizes = f"{suggestion.batch_size:.0f}"
        trials = suggestion.trials + totals.get(suggestion.batch_size, 0)
    repeats = [f"confirm={confirm}"] if confirm else []
    settings = [*words, f"batch_size={sizes}", f"trials={trials}", *repeats, f"store={folder}"]
    arguments = " ".join(map(quoted, settings))
    if words:
        return f"python -m sweeps {arguments}{' -m' if again else ''}"
    if curve.workload.recorded:
        unit = curve.unit.partition(" ")[0]
        how = "searched like the others" if suggestion.kind == NEW else "with other seeds or metaparameters"
        if suggestion.batch_size > max(totals):
            how += ", accumulating gradients if a batch does not fit in memory"
        return f"{number_of(suggestion.trials, 'run')} at a batch of {sizes} {unit}, {how}. Then import again"
    return f"your sweep with {arguments}"


def table(all_runs: Sequence[NextRuns]) -> pd.DataFrame:
    """Returns a table with one row per suggestion. A curve without suggestions has a single row with the reason."""
    rows = []
    for runs in all_runs:
        curve, now = runs.one.curve, suggestions.octaves(runs.pays)
        first = {
            **curve.workload._asdict(),
            "target_metric": curve.target.metric,
            "target_value": curve.target.value,
            "unit": curve.unit,
            DIFFERING: curve.distinction,
            "octaves": now if now < OPEN else None,
            **dict(zip(("pays_up_to", "pays_up_to_low", "pays_up_to_high", "pays_verdict"), runs.pays, strict=True)),
        }
        for suggestion, command in zip(runs.best, runs.commands, strict=True):
            row = {
                "suggestion": suggestion.kind,
                "batch_size": suggestion.batch_size,
                "trials": suggestion.trials,
                "expected_octaves": suggestion.width.octaves,
                "device_hours": suggestion.cost if runs.costs.timed else None,
                "cost_share": suggestion.cost / runs.spent,
                "command": command,
                "reason": "",
            }
            rows.append(first | row)
        if not runs.best:
            rows.append(first | {"suggestion": "", "command": "", "reason": runs.reason})
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"trials": "Int64", "batch_size": "Int64"})


def as_text(all_runs: Sequence[NextRuns]) -> str:
    """Formats the suggestions as text: one table per curve, followed by the commands."""
    blocks = []
    for runs in all_runs:
        title = f"{runs.one.curve.workload.title} · {runs.one.curve.target_text}"
        width = suggestions.octaves(runs.pays)
        octaves = "" if width >= OPEN else f", {width:.2f} octaves"
        lines = [f"{title}: pays up to {text.answer(*runs.pays)}{octaves}, batch sizes in {runs.one.curve.unit}"]
        if runs.best:
            rows = [_cells(i, suggestion, runs) for i, suggestion in enumerate(runs.best, start=1)]
            lines += ["", text.table(rows, ["further runs"]), ""]
            lines += [f"{i}: {command}" for i, command in enumerate(runs.commands, start=1)]
        else:
            lines.append(runs.reason)
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, LIMITS])


def _cells(number: int, suggestion: Suggestion, runs: NextRuns) -> dict[str, str]:
    words = {
        NEW: f"new batch size {suggestion.batch_size:,.0f}",
        TRIALS: f"more trials at batch size {suggestion.batch_size:,.0f}",
        REPEATS: "repeats of the best trial at every batch size",
    }
    open_end = suggestion.width.octaves > MOSTLY_OPEN
    cells = {"": str(number), "further runs": words[suggestion.kind], "trials": f"{suggestion.trials:,}"}
    cells["expected octaves"] = "open" if open_end else f"{suggestion.width.octaves:.2f}"
    if runs.costs.timed:
        cells["device-hours"] = text.number(suggestion.cost, 2)
    return cells | {"share of the cost so far": f"{suggestion.cost / runs.spent:.1%}"}
