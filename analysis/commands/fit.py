"""The `fit` command: prints up to which batch size doubling pays off, and the critical batch size, by curve.

Both are printed with confidence intervals.
"""

import argparse

from analysis import output
from analysis.arguments import requested_target
from analysis.fitting import curve_fits, fit_tables, points_file
from results.bad_input import BadInput
from results.printing import quoted, say


def run(options: argparse.Namespace) -> None:
    """Prints one row per fit or, with --checks, one row per assumption."""
    target = requested_target(options)
    if options.points and target:
        raise BadInput("--metric, --value and --target need --store: a file of points contains its target")
    if options.points and options.best_of:
        raise BadInput("--best-of needs --store: a file of points has no trials")
    if options.points:
        named_fits = points_file.of_file(options.points, say)
    else:
        fitted = curve_fits.of_store(options.store, target, say)
        ks = options.best_of
        named_fits = curve_fits.rows_by_k(fitted, ks, say) if ks else curve_fits.rows(fitted)
        for note in curve_fits.notes_by_k(fitted, options.best_of or ()):
            say(f"note: {note}")
    next_command = (
        f"\nnext: python -m analysis figures --store {quoted(options.store)} --out figures" if options.store else ""
    )
    if options.checks:
        output.print_table(
            fit_tables.checks(*named_fits), lambda: fit_tables.checks_as_text(*named_fits) + next_command
        )
    else:
        nothing = options.assume == "nothing"
        table = fit_tables.table(*named_fits, options.gain, assume_nothing=nothing, report=say)
        output.print_table(
            table, lambda: fit_tables.as_text(table, options.gain, assume_nothing=nothing) + next_command
        )
