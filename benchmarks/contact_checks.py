"""The checks of first_contact.py, the numbers that they measure, and their goals."""

from collections.abc import Sequence
from typing import NamedTuple

PASS, FAIL, MEASURED, NOT_MEASURED, ERROR = "pass", "fail", "measured", "not measured", "error"


class Number(NamedTuple):
    """A number measured by a check.

    Attributes:
      name, value, unit: the name, value and unit of the number. A value that is not finite is replaced by None.
      goal: the goal as text, such as ≥ 20, or None if there is no goal.
      met: whether the goal is met, or True if there is no goal.
    """

    name: str
    value: float | None
    unit: str = ""
    goal: str | None = None
    met: bool = True


class Finding(NamedTuple):
    """The result of a check: its numbers, and a reason for the outcome if the numbers do not explain it."""

    numbers: Sequence[Number]
    why: str = ""
    outcome: str | None = None  # by default derived from the numbers

    def judged(self) -> str:
        """Returns "fail" if a goal is missed, "pass" if all goals are met, and "measured" if there are no goals."""
        if self.outcome is not None:
            return self.outcome
        if not all(number.met for number in self.numbers):
            return FAIL
        return PASS if any(number.goal for number in self.numbers) else MEASURED


class Check(NamedTuple):
    """A check, run in a separate process with a time limit.

    Attributes:
      run: dotted name of the function that returns the result. Its first argument is whether to use tiny inputs.
      seconds: time limit.
      arguments: the other arguments of the function.
      on_device: whether the check's process itself computes on the device, instead of starting processes that do.
      accelerator: whether the check requires an accelerator.
    """

    run: str
    seconds: float
    arguments: tuple[str, ...] = ()
    on_device: bool = True
    accelerator: bool = False


def at_most(name: str, value: float, limit: float, unit: str = "") -> Number:
    """Returns a number whose goal is at most ``limit``."""
    return Number(name, value, unit, f"≤ {limit:g}", bool(value <= limit))


def at_least(name: str, value: float, limit: float | None, unit: str = "") -> Number:
    """Returns a number whose goal is at least ``limit``. With None, there is no goal."""
    if limit is None:
        return Number(name, value, unit)
    return Number(name, value, unit, f"≥ {limit:g}", bool(value >= limit))


def last_line(text: str) -> str:
    """Returns the last line of a text that is not blank."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")


CHECKS = {
    "device": Check("contact_speeds.device", 90),
    "precision": Check("contact_precision.precision", 90),
    "release": Check("contact_sweeps.release", 150, on_device=False),
    "lanes": Check("contact_speeds.lanes", 90),
    "resume": Check("contact_sweeps.resume", 150, on_device=False),
    "speed:digits_fc": Check("contact_speeds.speed", 60, ("digits_fc", "float32")),
    "speed:digits_cnn": Check("contact_speeds.speed", 60, ("digits_cnn", "float32")),
    "speed:pydoc_transformer": Check("contact_speeds.speed", 60, ("pydoc_transformer", "float32")),
    "speed:transformer_base": Check("contact_speeds.speed", 150, ("transformer_base", "bfloat16"), accelerator=True),
    "speed:resnet_50": Check("contact_speeds.speed", 150, ("resnet_50", "bfloat16"), accelerator=True),
}
