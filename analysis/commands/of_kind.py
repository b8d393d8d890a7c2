"""Commands for the kinds of studies. Each command prints a table of all studies of its kind."""

import argparse
import importlib
import pkgutil

from analysis import kind_views, output, text
from results import store
from results.bad_input import BadInput
from results.printing import quoted, say


def run(options: argparse.Namespace) -> None:
    """Prints one row per study or, with --fit, one row per curve."""
    view, row = kind_views.commands()[options.command]
    if options.anchor is not None and not options.published:
        raise BadInput("--anchor needs --published: it scales predictions of published steps")
    if options.published:
        table, words = pkgutil.resolve_name(view.published)(options.anchor)
        output.print_table(table, lambda: words)
        return
    module = importlib.import_module(view.module)
    studies = pkgutil.resolve_name(row.load)(options.store)
    if not studies:
        raise module.absent(options.store)
    waiting = [plan.name for plan in store.waiting(options.store) if kind_views.PRESENTATIONS[plan.kind] == row]
    for note in text.notes({"not in the table, because no run has ended yet": waiting}) + module.remarks(studies):
        say(f"note: {note}")
    folder = quoted(options.store)
    next_command = f"figures --store {folder} --out figures"
    if options.fit:
        table, words = pkgutil.resolve_name(view.fits)(studies)
    else:
        table, words = module.table(studies), module.as_text(studies)
        if view.fits:
            next_command = f"{view.name} --store {folder} --fit"
    output.print_table(table, lambda: f"{words}\n\nnext: python -m analysis {next_command}")
