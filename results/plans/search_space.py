"""Ranges of metaparameters, and values drawn from them."""

import dataclasses
import math
import sys
from collections.abc import Mapping
from typing import Literal

import numpy as np

from results.aliases import Fields, Json
from results.bad_input import BadInput, check_choice

Scale = Literal["LINEAR", "LOG", "REVERSE_LOG", "DISCRETE", "INTEGER"]
SCALES = ("LINEAR", "LOG", "REVERSE_LOG", "DISCRETE", "INTEGER")
WITH_DENOMINATOR = ("LINEAR", "LOG")

LARGEST_FLOAT = int(sys.float_info.max)
LARGEST_INTEGER = 2**53  # floats represent all smaller integers


def finite(what: str, value: object) -> float:
    """Converts ``value`` to a float. Raises BadInput, with the name ``what``, if it is not a finite number."""
    if isinstance(value, int) and abs(value) > LARGEST_FLOAT:
        raise BadInput(f"{what} must be a finite number, not one with more than 300 digits")
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise BadInput(f"{what} must be a finite number, not {value!r}")
    return float(value)


@dataclasses.dataclass(frozen=True)
class Range:
    """The range of a metaparameter, on one of the scales of Shallue et al. (2018).

    LINEAR is uniform in [low, high], LOG is uniform in the logarithm, and REVERSE_LOG is uniform in log(1 - value).
    INTEGER is uniform over the integers low..high, and DISCRETE is uniform over ``values``.

    If there is a ``denominator`` n, values are multiples of 1/n. LINEAR is uniform over the multiples from low to high.
    LOG draws a number that is uniform in the logarithm, and divides its integer part by n. Examples are step counts
    within a budget of n steps, and integers on a LOG scale (n = 1).
    """

    scale: Scale
    low: float | None = None
    high: float | None = None
    values: tuple[float, ...] = ()
    denominator: int | None = None

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        if self.denominator is not None and self.scale not in WITH_DENOMINATOR:
            raise BadInput(f"scale {self.scale} takes no denominator. Use it with {' or '.join(WITH_DENOMINATOR)}.")
        if self.scale == "DISCRETE":
            if not self.values or self.low is not None or self.high is not None:
                raise BadInput("scale DISCRETE takes a non-empty list `values`, and neither low nor high")
            object.__setattr__(self, "values", tuple(finite("a value of scale DISCRETE", v) for v in self.values))
            return
        if self.values or self.low is None or self.high is None:
            raise BadInput(f"scale {self.scale} takes both low and high, and no `values`")
        low, high = finite("low", self.low), finite("high", self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        is_integral = low.is_integer() and high.is_integer()
        if low > high:
            raise BadInput(f"low={low:g} is above high={high:g}. Swap them.")
        if self.scale == "LOG" and low <= 0:
            raise BadInput(f"scale LOG takes positive bounds, not low={low:g}. Use LINEAR or a small positive low.")
        if self.scale == "REVERSE_LOG" and high >= 1:
            raise BadInput(f"scale REVERSE_LOG takes values below 1, not high={high:g}. Use a bound such as 0.999.")
        if self.scale == "INTEGER" and not is_integral:
            raise BadInput(f"scale INTEGER takes integers, not low={low:g}, high={high:g}")
        if self.denominator is not None:
            self._check_multiples(low, high, self.denominator)

    def at(self, u: float) -> float:
        """Returns the value at quantile ``u`` in [0, 1) of this range."""
        if self.scale == "DISCRETE":
            return self.values[int(u * len(self.values))]
        assert self.low is not None and self.high is not None  # checked by __post_init__
        low, high = self.low, self.high
        if self.scale == "INTEGER":
            return float(low + math.floor(u * (high - low + 1)))
        if self.denominator is not None:
            return self._multiple_at(u, round(low * self.denominator), round(high * self.denominator))
        if self.scale == "LOG":
            value = math.exp((1 - u) * math.log(low) + u * math.log(high))
        elif self.scale == "REVERSE_LOG":
            value = 1 - math.exp((1 - u) * math.log1p(-low) + u * math.log1p(-high))
        else:
            value = (1 - u) * low + u * high
        return min(max(value, low), high)  # rounding may give a value outside the range

    def plan(self) -> Json:
        """Returns plain data from which ``Range(**plan)`` restores the range."""
        if self.scale == "DISCRETE":
            return {"scale": self.scale, "values": list(self.values)}
        fields: Json = {"scale": self.scale, "low": self.low, "high": self.high}
        return fields if self.denominator is None else fields | {"denominator": self.denominator}

    def _multiple_at(self, u: float, first: int, last: int) -> float:
        """Returns the multiple of 1 / ``denominator`` at quantile ``u``, given the numerators of the bounds."""
        assert self.denominator is not None
        if self.scale == "LOG":
            number = math.floor(math.exp((1 - u) * math.log(first) + u * math.log(last + 1)))
        else:
            number = first + math.floor(u * (last - first + 1))
        return min(max(number, first), last) / self.denominator

    @staticmethod
    def _check_multiples(low: float, high: float, denominator: object) -> None:
        if isinstance(denominator, bool) or not isinstance(denominator, int) or denominator < 1:
            raise BadInput(f"denominator must be an integer of at least 1, not {denominator!r}")
        for bound in (low, high):
            number = bound * denominator
            if abs(number) > LARGEST_INTEGER or not math.isclose(number, round(number), rel_tol=1e-12):
                raise BadInput(f"with denominator={denominator}, low and high must be multiples of 1/{denominator}")


class SearchSpace(dict[str, Range]):
    """The metaparameter ranges of a study, sorted by name."""

    def __init__(self, ranges: Mapping[str, Range]):
        super().__init__(sorted(ranges.items()))

    @classmethod
    def from_plan(cls, plan: Mapping[str, Fields]) -> "SearchSpace":
        """Builds a space from plain data. Errors include the metaparameter's name."""
        ranges = {}
        for name, fields in plan.items():
            try:
                ranges[name] = Range(**{**fields, "values": tuple(fields.get("values", ()))})
            except BadInput as error:
                raise BadInput(f"search space of {name}: {error}") from None
        return cls(ranges)

    def plan(self) -> Json:
        return {name: ranged.plan() for name, ranged in self.items()}
