"""The `compare` command: compares two stores or releases."""

import argparse

from analysis import compare, output
from analysis.arguments import requested_target


def run(options: argparse.Namespace) -> int:
    """Prints one row per comparison. Returns 1 if A and B contradict each other, else 0."""
    table = compare.table(options.a, options.b, requested_target(options))
    output.print_table(table, lambda: compare.as_text(table, options.a, options.b))
    return int(compare.differs(table))
