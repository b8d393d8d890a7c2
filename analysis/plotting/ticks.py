"""Logarithmic axes: their limits, and ticks at powers of two or at decades."""

import math
from collections.abc import Iterable

from matplotlib.axis import Axis, XAxis
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

Ends = tuple[float, float]  # limits of an axis
MOST_TICKS = 11
COMPACT_TICKS = 9
FEW_DECADES = 1.7
FEWEST_DECADES = 2  # number of powers of ten that suffice as labels
TINY = 1e-4  # axes of few decades that begin below this use powers, because decimals would be long


def limits(values: Iterable[float], below: float, above: float, least: float = 3) -> Ends:
    """Returns the limits of a logarithmic axis.

    Args:
      values: values to include.
      below, above: margins in octaves.
      least: minimum length of the axis in octaves, so that flat curves look flat.
    """
    values = list(values)
    low, high = math.log2(min(values)) - below, math.log2(max(values)) + above
    missing = max(0.0, least - (high - low)) / 2
    return 2 ** (low - missing), 2 ** (high + missing)


def powers_of_two(limits: Ends, most: float) -> list[float]:
    """Returns the powers of two within ``limits``. If there are more than ``most``, some are skipped."""
    first, last = math.ceil(math.log2(limits[0])), math.floor(math.log2(limits[1]))
    stride = max(1, math.ceil((last - first + 1) / most))
    return [2.0**power for power in range(first, last + 1, stride)]


def in_powers_of_two(axis: Axis, limits: Ends, *, compact: bool = False) -> None:
    """Makes an axis logarithmic, with ticks at powers of two. On ``compact`` axes, they are written as powers."""
    _scale(axis, limits)
    axis.set_major_locator(FixedLocator(powers_of_two(limits, COMPACT_TICKS if compact else MOST_TICKS)))
    axis.set_minor_locator(FixedLocator(powers_of_two(limits, math.inf)))
    in_full = limits[1] < 2**17 and not compact  # longer numbers are hard to read

    def written(x: float, _: float) -> str:
        if not in_full:
            return f"2{raised(math.log2(x))}"
        return f"{x:,.0f}" if x >= 1 else f"{x:.3g}"

    axis.set_major_formatter(written)
    axis.set_minor_formatter(NullFormatter())


def raised(power: float) -> str:
    """Formats an integer as superscript characters, which are drawn much faster than math text."""
    return f"{power:.0f}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def in_decades(axis: Axis, limits: Ends) -> None:
    """Makes an axis logarithmic, with ticks at powers of ten or, if there are few, at 1, 2 and 5 times these."""
    _scale(axis, limits)
    inside = math.floor(math.log10(limits[1])) - math.ceil(math.log10(limits[0])) + 1
    few = math.log10(limits[1] / limits[0]) < FEW_DECADES or inside < FEWEST_DECADES
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_minor_locator(LogLocator(subs=tuple(range(2, 10))))
    axis.set_minor_formatter(NullFormatter())
    plain = (0.0 if limits[0] >= TINY else math.inf, math.inf) if few else (0.01, 100.0)
    axis.set_major_formatter(lambda x, _: f"{x:g}" if plain[0] <= x <= plain[1] else _as_power(x))


def _scale(axis: Axis, limits: Ends) -> None:
    name = "x" if isinstance(axis, XAxis) else "y"
    axis.axes.set(**{f"{name}scale": "log", f"{name}lim": limits})


def _as_power(value: float) -> str:
    """Formats a value as one digit times a power of ten: ``10⁻⁴`` or ``5·10⁻⁵``."""
    power = math.floor(math.log10(value) + 1e-9)
    times = f"{value / 10.0**power:.0f}"
    return f"{'' if times == '1' else f'{times}·'}10{raised(power)}"
