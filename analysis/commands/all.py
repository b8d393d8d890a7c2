"""The command all: epochs, layouts, steps, fit and figures of a store, one after the other."""

import argparse
import importlib

from analysis import arguments, kind_views
from analysis.kind_views import BATCH, CORES, LAYOUTS
from results import store


def run(options: argparse.Namespace) -> None:
    """Runs each command that the store has studies for."""
    drawn = kind_views.drawn(store.catalogue(options.store))
    names = []
    if CORES in drawn:
        names.append("epochs")
    if LAYOUTS in drawn:
        names.append("layouts")
    if BATCH in drawn or not drawn:
        names += ["steps", "fit"]
    for name in names:
        _run(name, options)
    _run("figures", options, "--out", str(options.out))


def _run(name: str, options: argparse.Namespace, *words: str) -> None:
    parsed = arguments.parser().parse_args([name, "--store", str(options.store), *words])
    importlib.import_module(f"analysis.commands.{name}").run(parsed)
