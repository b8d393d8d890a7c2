"""The `epochs` command: prints seconds per epoch and recall of factorizations over cores."""

import argparse

from analysis import output
from analysis.cores import core_counts, factorizations
from results.printing import quoted, say


def run(options: argparse.Namespace) -> None:
    """Prints a row per study, or per curve with --fit."""
    measured = factorizations.load(options.store)
    if not measured:
        raise factorizations.no_factorization(options.store)
    table = factorizations.table(measured)
    for note in factorizations.notes(measured, factorizations.waiting_names(options.store, measured)):
        say(f"note: {note}")
    folder = quoted(options.store)
    if options.fit:
        core_fits = [core_counts.of_curve(curve) for curve in core_counts.curves(measured)]
        table, words = core_counts.table(core_fits), core_counts.as_text(core_fits)
        then = f"figures --store {folder} --out figures"
    else:
        words = factorizations.as_text(table)
        then = f"epochs --store {folder} --fit"
    output.print_table(table, lambda: f"{words}\n\nnext: python -m analysis {then}")
