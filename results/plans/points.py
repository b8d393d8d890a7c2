"""Points: the answers in a release, with one row per study and target, ready for fitting."""

from results import definitions
from results.plans.schema import read_columns

POINTS = read_columns(
    "points",
    pays_up_to=definitions.PAYS_UP_TO.format(gain=20),
    efficient_up_to=definitions.EFFICIENT_UP_TO,
    critical_batch_size=definitions.CRITICAL_BATCH_SIZE,
)  # then one float64 column per metaparameter of the selected trial, under its own name

_OF_A_FIT = ("critical_batch_size", "critical_low", "critical_high", "verdict", "doubts")
FITS = {prefix: tuple(f"{prefix}{name}" for name in _OF_A_FIT) for prefix in ("", "confirmed_")}
# Columns of each answer whatever the shape: best, low, high and verdict.
EXTENTS = {
    prefix: tuple(
        tuple(f"{prefix}{answer}_{name}" for name in ("up_to", "low", "high", "verdict"))
        for answer in ("pays", "efficient")
    )
    for prefix in FITS
}
# Columns that depend on the whole curve. All others follow from the study's own tables.
OF_CURVES = frozenset({"curve"}.union(*FITS.values(), *(names for answers in EXTENTS.values() for names in answers)))
