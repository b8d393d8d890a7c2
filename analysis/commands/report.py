"""The `report` command: renders a store as a single HTML page."""

import argparse

from analysis.arguments import requested_target
from analysis.report import page
from results.printing import answer, say


def run(options: argparse.Namespace) -> None:
    """Writes the page."""
    size = page.write(options.store, options.out, requested_target(options), say)
    answer(f"{options.out} ({size / 1e6:.1f} MB); open it in a browser")
