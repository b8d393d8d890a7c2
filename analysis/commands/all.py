"""The `all` command: runs epochs, layouts, steps, fit and figures on a store, one after the other."""

import argparse
import importlib

from analysis import arguments
from analysis.kind_views import BATCH, CORES, LAYOUTS, PRESENTATIONS
from results import store


def run(options: argparse.Namespace) -> None:
    """Runs each command for which the store has studies."""
    kinds = {commit.kind for commit in store.catalogue(options.store)}
    drawn = {source for kind in kinds for source in PRESENTATIONS[kind].figures}
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
