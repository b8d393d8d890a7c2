"""Names and meanings of the columns in every printed table, from ``columns.csv``."""

import csv
from pathlib import Path

from results import definitions
from results.grouping import grouped

# Components of the seconds per epoch, in the law that `epochs --fit` fits.
TIMES = ("serial", "parallel", "communication")

# Texts that meanings insert, by their names in braces.
_PHRASES = {
    "pays_up_to": definitions.PAYS_UP_TO.format(gain=20),
    "pays_up_to_gain": definitions.PAYS_UP_TO.format(gain="gain_percent"),
    "efficient_up_to": definitions.EFFICIENT_UP_TO,
    "critical_batch_size": definitions.CRITICAL_BATCH_SIZE,
    "critical_cores": definitions.CRITICAL_CORES,
}


def _read() -> dict[str, dict[str, str]]:
    """Returns the meaning of each column by name, for each table, in the order of the file."""
    with open(Path(__file__).with_suffix(".csv"), encoding="utf-8", newline="") as file:
        tables = grouped(csv.DictReader(file), lambda row: row["table"])
    return {table: {row["name"]: row["meaning"].format(**_PHRASES) for row in rows} for table, rows in tables.items()}


_TABLES = _read()
STEPS = _TABLES["steps"]  # by the rules minimum and released
CONFIRMED = _TABLES["confirmed"]  # repeats with new seeds, by the minimum rule; see ``fitting.confirmations``
BEST = _TABLES["best"]
UNIT = _TABLES["unit"]
DIFFERS = _TABLES["differs"]
PAIRS = _TABLES["pairs"]  # of fit, before those of the fit itself: which fit of the curve it is
FITS = _TABLES["fits"]
CHECKS = _TABLES["checks"]  # of fit --checks, after the curve
COVERAGE = _TABLES["coverage"]
EXTENT_COVERAGE = _TABLES["extent_coverage"]
NARROWING = _TABLES["narrowing"]
SUGGESTED = _TABLES["suggested"]  # of coverage --of suggestions
COVERAGE_OF_CORES = _TABLES["coverage_of_cores"]
SUGGESTIONS = _TABLES["suggestions"]  # of suggest, one row per suggestion
EPOCHS = _TABLES["epochs"]
CORE_COUNTS = _TABLES["core_counts"]  # of epochs --fit
PAYOFF = _TABLES["payoff"]  # after the names of the curve
PAYOFF_TIMES = _TABLES["payoff_times"]  # of payoff --times, one row per number of devices
COMPARE = _TABLES["compare"]
LAYOUTS = _TABLES["layouts"]
PUBLISHED_STEPS = _TABLES["published_steps"]
