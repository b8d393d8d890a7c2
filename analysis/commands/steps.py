"""The `steps` command: prints the steps to target of every study."""

import argparse
import functools

import pandas as pd

from analysis import columns, output, workload_studies
from analysis.arguments import requested_target
from analysis.fitting import FEWEST_BATCH_SIZES, confirmations
from analysis.trials import steps
from results.bad_input import BadInput
from results.plans.study import RERUNS, decimal
from results.printing import quoted, say
from results.rules.answers import MINIMUM, Rule


def run(options: argparse.Namespace) -> None:
    """Prints one row per study and target."""
    request, rule = requested_target(options), _rule(options)
    overview, target = steps.load(options.store, request, rule)
    if options.rule == "median":
        from analysis.trials import medians  # slow to import, so only if needed

        table, notes = medians.answer(overview, target, medians.TrialCounts(options.k, options.best_of))
        names, as_text = columns.MEDIAN_COLUMNS, medians.as_text
    else:
        notes = []
        if options.rule == "released":
            overview, notes = steps.without_pruned(overview, target, "--rule released")
        table = steps.table(overview, target)
        notes += steps.notes(overview, table, target)
        names = columns.STEPS | columns.CONFIRMED | columns.BEST
        table = steps.add_best(table, overview)
        table = confirmations.add_confirmed(table, overview if options.rule == "minimum" else None)
        as_text = functools.partial(steps.as_text, rule=rule)
    table = workload_studies.add_distinctions(table, overview)
    for note in notes:
        say(f"note: {note}")
    shown = table[[*names, *columns.UNIT, *columns.DIFFERS]]
    output.print_table(shown, lambda: f"{as_text(table)}\n\n{_next(options, table)}")


def _next(options: argparse.Namespace, table: pd.DataFrame) -> str:
    """Returns the command to run next: a fit if a workload has enough batch sizes, else figures."""
    curve = [*workload_studies.CURVE_COLUMNS, *columns.DIFFERS]
    words = f"--store {quoted(options.store)}"
    if options.metric:
        words += f" --metric {options.metric} --value {decimal(options.value)}"
    if options.target == RERUNS:
        words += f" --target {RERUNS}"
    if table.groupby(curve)["batch_size"].nunique().max() >= FEWEST_BATCH_SIZES:
        return f"next: python -m analysis fit {words}"
    few = f"A fit needs at least {FEWEST_BATCH_SIZES} batch sizes of one workload."
    return f"{few}\nnext: python -m analysis figures {words} --out figures"


def _rule(options: argparse.Namespace) -> Rule:
    for flag, count in (("--k", options.k), ("--best-of", options.best_of)):
        if count is not None and options.rule != "median":
            raise BadInput(f"{flag} needs --rule median, not {options.rule}")
        if count is not None and count < 1:
            raise BadInput(f"{flag} must be at least 1, not {count}")
    if options.first is not None and options.rule != "released":
        alternative = {"median": "Use --k to limit the trials.", "minimum": "The rule minimum counts all trials."}
        raise BadInput(f"--first needs --rule released, not {options.rule}. {alternative[options.rule]}")
    if options.k and options.best_of and options.best_of > options.k:
        raise BadInput(f"--best-of {options.best_of} needs at least {options.best_of} trials. --k gives {options.k}.")
    if options.rule != "released":
        return MINIMUM  # also for the median, because trials reach a target in the same way
    if options.metric is None:
        raise BadInput("--rule released needs --metric and --value: published studies have no targets of their own")
    first = 100 if options.first is None else options.first
    if first < 1:
        raise BadInput(f"--first must be at least 1, not {first}")
    return Rule("released", first)
