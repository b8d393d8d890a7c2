"""The `steps` command: prints the steps to target of every study."""

import argparse

import pandas as pd

from analysis import columns, output, workload_studies
from analysis.arguments import requested_target
from analysis.fitting import FEWEST_BATCH_SIZES, confirmations
from analysis.trials import steps_to_target
from results.bad_input import BadInput
from results.plans.study import RERUNS, decimal
from results.printing import quoted, say
from results.rules.answers import MINIMUM, Rule


def run(options: argparse.Namespace) -> None:
    """Prints one row per study and target."""
    request, rule = requested_target(options), _rule(options)
    overview, target = steps_to_target.load(options.store, request, rule)
    notes: list[str] = []
    if options.rule == "released":
        overview, notes = steps_to_target.without_pruned(overview, target, "--rule released")
    table = steps_to_target.add_best(steps_to_target.table(overview, target), overview)
    notes += steps_to_target.notes(overview, table, target)
    table = confirmations.add_confirmed(table, overview if options.rule == "minimum" else None)
    table = workload_studies.add_distinctions(table, overview)
    for note in notes:
        say(f"note: {note}")
    shown = table[[*columns.STEPS, *columns.CONFIRMED, *columns.BEST, *columns.UNIT, *columns.DIFFERS]]
    output.print_table(shown, lambda: f"{steps_to_target.as_text(table, rule)}\n\n{_next(options, table)}")


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
    if options.rule != "released":
        if options.first is not None:
            raise BadInput("--first needs --rule released, not minimum. The rule minimum counts all trials.")
        return MINIMUM
    if options.metric is None:
        raise BadInput("--rule released needs --metric and --value: published studies have no targets of their own")
    first = 100 if options.first is None else options.first
    if first < 1:
        raise BadInput(f"--first must be at least 1, not {first}")
    return Rule("released", first)
