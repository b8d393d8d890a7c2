"""Options of the command `figures`: what they ask of a kind, and which of them a figure by name does not take."""

import argparse
from typing import TYPE_CHECKING

from results.bad_input import BadInput

if TYPE_CHECKING:
    from analysis.figures.asked import Asked


def asked(options: argparse.Namespace) -> "Asked":
    """What the options ask of a kind; BadInput if they do not go together."""
    from analysis.figures.asked import Asked
    from results.rules.answers import MINIMUM, Rule

    if options.name is not None:
        raise BadInput("--name and --kind do not go together: a figure by name has its kind")
    if options.value and options.metric is None:
        raise BadInput("--value needs --metric, such as --metric test_error --value 0.05")
    if options.first is not None and (options.rule != "released" or options.first < 1):
        raise BadInput("--first goes with --rule released and is at least 1")
    if min(options.steps, default=1) < 1:
        raise BadInput(f"--steps must be at least 1, not {min(options.steps)}")
    rule = Rule("released", options.first or 100) if options.rule == "released" else MINIMUM
    where, values, steps = tuple(options.where), tuple(options.value), tuple(sorted(set(options.steps)))
    return Asked(options.kind, where, options.by, options.metric, values, rule, steps)


def check_unused(options: argparse.Namespace) -> None:
    """Raises BadInput if an option is given that a figure by name does not take."""
    for flag, value in (("--where", options.where), ("--by", options.by), ("--steps", options.steps)):
        if value:
            raise BadInput(f"{flag} goes with --kind, such as --kind steps; `--list` names the kinds")
    if options.rule or options.first:
        raise BadInput("--rule and --first go with --kind; a figure by name has its own rule")
    if (options.metric is None) != (not options.value) or len(options.value) > 1:
        raise BadInput("--metric and --value go together, once each, such as --metric test_error --value 0.05")
