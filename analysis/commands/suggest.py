"""The `suggest` command: suggests the additional runs that narrow an answer most per unit of cost."""

import argparse

from analysis import next_runs, output
from analysis.arguments import requested_target
from results.bad_input import BadInput
from results.printing import say


def run(options: argparse.Namespace) -> None:
    """Prints up to five rows per curve."""
    if options.budget is not None and not options.budget > 0:
        raise BadInput(f"--budget must be a number of device-hours above 0, not {options.budget:g}")
    target = requested_target(options)
    suggestions = next_runs.of_store(options.store, target, options.where, options.budget, options.gain, say)
    output.print_table(next_runs.table(suggestions), lambda: next_runs.as_text(suggestions))
