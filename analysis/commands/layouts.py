"""The `layouts` command: prints the costs of each layout of a step on a mesh."""

import argparse

from analysis import measured_layouts, output
from results.printing import quoted, say


def run(options: argparse.Namespace) -> None:
    """Prints a row per study."""
    found = measured_layouts.load(options.store)
    if not found:
        raise measured_layouts.no_layout(options.store)
    for note in measured_layouts.notes(found):
        say(f"note: {note}")
    if any(one.refused for one in found):
        say("note: --csv explains each refusal")
    then = f"figures --store {quoted(options.store)} --out figures"
    output.print_table(
        measured_layouts.table(found), lambda: f"{measured_layouts.as_text(found)}\n\nnext: python -m analysis {then}"
    )
