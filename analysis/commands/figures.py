"""The `figures` command: writes figures as PNG and SVG."""

import argparse
from pathlib import Path

from analysis.figures import registry
from results import printing
from results.bad_input import BadInput
from results.plans.study import RERUNS, TargetRequest


def run(options: argparse.Namespace) -> None:
    """Lists or draws figures."""
    if options.list:
        printing.show(("figure", "shows"), registry.listed(), registry.listing)
        return
    if printing.is_data():
        raise BadInput("--csv and --json need --list: figures are written as PNG and SVG")
    if options.store is None or options.out is None:
        raise BadInput("figures needs --store DIR and --out DIR, or --list")
    from analysis.figures import requests  # slow to import, and --list does not need it

    if options.target == RERUNS and (options.kind is not None or options.value):
        raise BadInput("--target reruns excludes --kind, --metric and --value. Draw figures by --name, or all of them.")
    if options.kind is not None:
        registry.write_kind(options.store, options.out, _report, requests.from_options(options), printing.say)
        return
    requests.check_unused(options)
    target: TargetRequest = (options.metric, options.value[0]) if options.value else None
    if options.target == RERUNS:
        target = RERUNS
    registry.write_all(options.store, options.out, _report, options.name, target, printing.say)


def _report(figure: object) -> None:
    if isinstance(figure, Path):
        printing.answer(str(figure))
    else:
        printing.say(f"not drawn: {figure}")
