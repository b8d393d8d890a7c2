"""The `all` command: runs epochs, layouts, steps, fit and figures on a store, in this order."""

import argparse
import importlib

from analysis import arguments, kind_views
from analysis.kind_views import BATCH
from results import store


def run(options: argparse.Namespace) -> None:
    """Runs each command for which the store has studies."""
    drawn = kind_views.drawn(store.catalogue(options.store))
    names = [name for name, (_, row) in kind_views.commands().items() if row.source in drawn]
    if BATCH in drawn or not drawn:
        names += ["steps", "fit"]
    for name in names:
        _run(name, options)
    _run("figures", options, "--out", str(options.out))


def _run(name: str, options: argparse.Namespace, *words: str) -> None:
    parsed = arguments.parser().parse_args([name, "--store", str(options.store), *words])
    importlib.import_module(f"analysis.commands.{arguments.module(parsed)}").run(parsed)
