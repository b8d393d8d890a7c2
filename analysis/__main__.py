"""Command line, python -m analysis: numbers, tables, figures and pages of what was measured."""

from results import cli

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    cli.run("analysis.__main__")

import argparse
import functools
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import arguments, columns
from results.bad_input import BadInput
from results.cli import answer, quoted, say
from results.plans.study import decimal

if TYPE_CHECKING:
    import pandas as pd

    from results.rules.answers import Rule


@cli.guarded
def main(words: list[str] | None = None) -> int | None:
    """Runs one command and returns its exit code; a user's mistake is one line and 2."""
    options = arguments.parser().parse_args(words)
    cli.set_output(**{form: getattr(options, form, False) for form in ("csv", "json", "wide")})
    code = COMMANDS[options.command](options)
    read = [getattr(options, name, None) for name in ("store", "a", "b")]
    if any(read):
        from results.catalog import withdrawn

        for note in itertools.chain.from_iterable(withdrawn.of_store(folder) for folder in read if folder):
            say(f"note: {note}")
    return code


def _print(table: "pd.DataFrame", as_text: Callable[[], str]) -> None:
    """Prints what a command answers: with --csv or --json the table, else what a reader is shown of it."""
    cli.show([str(name) for name in table], table.astype(object).to_numpy(), as_text)


def _request(options: argparse.Namespace) -> tuple[str, float] | None:
    if (options.metric is None) != (options.value is None):
        raise BadInput("--metric and --value go together, such as --metric test_error --value 0.05")
    return None if options.metric is None else (options.metric, options.value)


def _rule(options: argparse.Namespace) -> "Rule":
    from results.rules.answers import MINIMUM, Rule

    for flag, count in (("--k", options.k), ("--best-of", options.best_of)):
        if count is not None and options.rule != "median":
            raise BadInput(f"{flag} goes with --rule median, not {options.rule}")
        if count is not None and count < 1:
            raise BadInput(f"{flag} must be at least 1, not {count}")
    if options.first is not None and options.rule != "released":
        alternative = {"median": "--k says how many trials count", "minimum": "all trials count"}[options.rule]
        raise BadInput(f"--first goes with --rule released; by the rule {options.rule} {alternative}")
    if options.k and options.best_of and options.best_of > options.k:
        raise BadInput(f"--best-of {options.best_of} needs at least {options.best_of} trials; --k gives {options.k}")
    if options.rule != "released":
        return MINIMUM  # for the median, too: a trial is at a target in the same way
    if options.metric is None:
        raise BadInput("--rule released needs --metric and --value: published studies have no targets of their own")
    first = 100 if options.first is None else options.first
    if first < 1:
        raise BadInput(f"--first must be at least 1, not {first}")
    return Rule("released", first)


def _steps(options: argparse.Namespace) -> None:
    from analysis import workload_studies
    from analysis.fitting import confirmations
    from analysis.trials import steps

    request, rule = _request(options), _rule(options)
    overview, target = steps.load(options.store, request, rule)
    if options.rule == "median":
        from analysis.trials import medians  # takes longer to import than most answers take

        table, notes = medians.answer(overview, target, medians.TrialCounts(options.k, options.best_of))
        names, as_text = columns.MEDIAN_COLUMNS, medians.as_text
    else:
        notes = []
        if options.rule != "minimum":
            overview, notes = steps.without_pruned(overview, target, f"--rule {options.rule}")
        table = steps.table(overview, target)
        notes += steps.notes(overview, table, target)
        names = columns.STEPS | columns.CONFIRMED | columns.BEST
        table = steps.add_best(table, overview)
        table = confirmations.add_confirmed(table, overview if options.rule == "minimum" else None)
        as_text = functools.partial(steps.as_text, rule=rule)
    table = workload_studies.add_distinctions(table, overview)
    for note in notes:
        say(f"note: {note}")
    asked = f" --metric {options.metric} --value {decimal(options.value)}" if options.metric else ""
    then = f"fit --store {quoted(options.store)}{asked}"
    _print(table[[*names, *columns.DIFFERS]], lambda: f"{as_text(table)}\n\nnext: python -m analysis {then}")


def _fit(options: argparse.Namespace) -> None:
    from analysis.fitting import curve_fits, fits

    target = _request(options)
    if options.points and target:
        raise BadInput("--metric and --value go with --store; a file of points has its target in it")
    if options.points and options.best_of:
        raise BadInput("--best-of goes with --store; a file of points has no trials in it")
    if options.points:
        named_fits = fits.of_file(options.points)
    elif options.best_of:
        fitted = curve_fits.of_store(options.store, target)
        named_fits = curve_fits.rows_by_k(fitted, options.best_of)
        for note in curve_fits.notes_by_k(fitted, options.best_of):
            say(f"note: {note}")
    else:
        named_fits = curve_fits.rows(curve_fits.of_store(options.store, target))
    table = fits.checks(*named_fits) if options.checks else fits.table(*named_fits)
    then = f"\nnext: python -m analysis figures --store {quoted(options.store)} --out figures" if options.store else ""
    _print(
        table,
        lambda: (fits.checks_as_text(*named_fits) if options.checks else fits.as_text(table)) + then,
    )


def _coverage(options: argparse.Namespace) -> None:
    from analysis.cores import coverage as of_cores
    from analysis.fitting import coverage

    for name, least in (("datasets", 1), ("seed", 0)):
        if (number := getattr(options, name)) < least:
            raise BadInput(f"--{name} must be at least {least}, not {number}")

    tables = {"fits": coverage, "cores": of_cores}
    if cli.is_data():  # one table has one header
        _print(tables[options.of or "fits"].run(options.datasets, options.seed, say), str)
        return
    for i, name in enumerate([options.of] if options.of else tables):
        began = time.monotonic()
        table = tables[name].run(options.datasets, options.seed, say)
        answer("\n" * (i > 0) + tables[name].as_text(table, options.seed, time.monotonic() - began))


def _epochs(options: argparse.Namespace) -> None:
    from analysis.cores import core_counts, factorizations

    measured = factorizations.load(options.store)
    if not measured:
        raise factorizations.no_factorization(options.store)
    table = factorizations.table(measured)
    for note in factorizations.notes(measured, factorizations.waiting_names(options.store, measured)):
        say(f"note: {note}")
    core_fits = [core_counts.of_curve(curve) for curve in core_counts.curves(measured)] if options.fit else []
    folder = quoted(options.store)
    then = f"figures --store {folder} --out figures" if options.fit else f"epochs --store {folder} --fit"
    shown_table = core_counts.table(core_fits) if options.fit else table
    words = core_counts.as_text(core_fits) if options.fit else factorizations.as_text(table)
    _print(shown_table, lambda: f"{words}\n\nnext: python -m analysis {then}")


def _layouts(options: argparse.Namespace) -> None:
    from analysis import measured_layouts

    found = measured_layouts.load(options.store)
    if not found:
        raise measured_layouts.no_layout(options.store)
    for note in measured_layouts.notes(found):
        say(f"note: {note}")
    then = f"figures --store {quoted(options.store)} --out figures"
    if any(one.refused for one in found):
        say("note: --csv has the explanation of each refusal")
    _print(
        measured_layouts.table(found), lambda: f"{measured_layouts.as_text(found)}\n\nnext: python -m analysis {then}"
    )


def _payoff(options: argparse.Namespace) -> None:
    from analysis.payoff import answers

    request = _request(options)
    for flag, given in (("--metric and --value go", request), ("--where goes", options.where)):
        if given and not options.store:
            raise BadInput(f"{flag} with --store; points have their target in them")
    if options.price and not options.times:
        raise BadInput("--price goes with --times, which has what every number of devices costs")
    if options.store:
        subjects = answers.of_store(options.store, request, options.where)
    else:
        subjects = answers.of_file(options.points) if options.points else answers.of_paper(options.paper)
    files = options.measured, options.predicted
    found = answers.answers(subjects, options.gain, *files, choosable=bool(options.store))
    prices = answers.prices(options.price, sorted({one.device_kind for one in found if one.device_kind}))
    if options.times:
        _print(answers.times_table(found, prices), lambda: answers.times_as_text(found, prices))
    else:
        timed = any(one.measured or one.predicted for one in found)
        words = f"\n\nnext: python -m analysis payoff {_asked_of_payoff(options, timed=timed)}"
        _print(answers.table(found), lambda: answers.as_text(found) + words)


def _asked_of_payoff(options: argparse.Namespace, *, timed: bool) -> str:
    """The command that goes on from a pay-off with all that was given, but for files that ``timed`` nothing."""
    from analysis.payoff.answers import GAIN

    words: list[object] = []
    for name in ("store", "points", "paper", "metric", "value"):
        value = getattr(options, name)
        words += [] if value is None else [f"--{name}", decimal(value) if name == "value" else value]
    words += [word for where in options.where for word in ("--where", where)]
    words += [] if options.gain == GAIN else ["--gain", f"{100 * options.gain:g}"]
    files = [
        word for name in ("measured", "predicted") if (file := getattr(options, name)) for word in (f"--{name}", file)
    ]
    words += [*files, "--times"] if timed else ["--predicted", "FILE"]
    return " ".join(map(quoted, words))


def _compare(options: argparse.Namespace) -> int:
    from analysis import compare

    table = compare.table(options.a, options.b, _request(options))
    _print(table, lambda: compare.as_text(table, options.a, options.b))
    return int(compare.differs(table))


def _figures(options: argparse.Namespace) -> None:
    from analysis.figures import registry

    if options.list:
        cli.show(("figure", "shows"), registry.listed(), registry.listing)
        return
    if cli.is_data():
        raise BadInput("--csv and --json go with figures --list; figures themselves are PNG and SVG")
    if options.store is None or options.out is None:
        raise BadInput("figures needs --store DIR and --out DIR, or --list")
    from analysis.figures import requests

    if options.kind is not None:
        registry.write_kind(options.store, options.out, _tell_of_figure, requests.from_options(options))
        return
    requests.check_unused(options)
    target = (options.metric, options.value[0]) if options.value else None
    registry.write_all(options.store, options.out, _tell_of_figure, options.name, target)


def _report(options: argparse.Namespace) -> None:
    from analysis.report import page

    size = page.write(options.store, options.out, _request(options), say)
    answer(f"{options.out} ({size / 1e6:.1f} MB); open it in a browser")


def _all(options: argparse.Namespace) -> None:
    from analysis import kind_views
    from results import store

    kinds = {commit.kind for commit in store.catalogue(options.store)}
    drawn = {source for kind in kinds for source in kind_views.PRESENTATIONS[kind].figures}
    names = ["epochs"] if kind_views.CORES in drawn else []
    names += ["layouts"] if kind_views.LAYOUTS in drawn else []
    names += ["steps", "fit"] if kind_views.BATCH in drawn or not drawn else []
    for name in (*names, "figures"):
        own = ["--out", str(options.out)] if name == "figures" else []
        COMMANDS[name](arguments.parser().parse_args([name, "--store", str(options.store), *own]))


def _tell_of_figure(figure: object) -> None:
    if isinstance(figure, Path):
        answer(str(figure))
    else:
        say(f"not drawn: {figure}")


COMMANDS = {
    "steps": _steps,
    "fit": _fit,
    "coverage": _coverage,
    "epochs": _epochs,
    "layouts": _layouts,
    "payoff": _payoff,
    "compare": _compare,
    "figures": _figures,
    "report": _report,
    "all": _all,
}
