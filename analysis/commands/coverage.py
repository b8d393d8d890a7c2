"""The `coverage` command: shows how often the conclusions of fit and epochs --fit are correct on simulated data."""

import argparse
import time

from analysis import output
from analysis.cores import law_coverage as of_cores
from analysis.fitting import (
    extent_coverage as of_extents,
    fit_coverage as of_fits,
    narrowing_simulation as of_narrowing,
    suggestion_simulation as of_suggestions,
)
from results import printing
from results.bad_input import BadInput

TABLES = {
    "extents": of_extents,
    "fits": of_fits,
    "narrowing": of_narrowing,
    "cores": of_cores,
    "suggestions": of_suggestions,
}
SLOW = ("suggestions",)  # 10 s per data set


def run(options: argparse.Namespace) -> None:
    """Prints one row per scenario."""
    for name, minimum in (("datasets", 1), ("seed", 0)):
        number = getattr(options, name)
        if number < minimum:
            raise BadInput(f"--{name} must be at least {minimum}, not {number}")
    if printing.is_data():  # CSV and JSON hold a single table
        output.print_table(TABLES[options.of or "extents"].run(options.datasets, options.seed, printing.say), str)
        return
    blocks = [options.of] if options.of else [name for name in TABLES if name not in SLOW]
    for name in blocks:
        began = time.monotonic()
        table = TABLES[name].run(options.datasets, options.seed, printing.say)
        if name != blocks[0]:
            printing.answer("")
        printing.answer(TABLES[name].as_text(table, options.seed, time.monotonic() - began))
