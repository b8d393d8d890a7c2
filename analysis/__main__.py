"""The door: python -m analysis steps | fit | epochs | figures."""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from analysis import manual
from results import durable
from results.bad_input import BadInput

if TYPE_CHECKING:
    from results.answers import Rule


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the manual is a --help away.

    ``fill`` adds a command's arguments and manual once that command is asked for: to import what all of them are about
    takes longer than most of them do.
    """

    fill: "Callable[[Parser], None] | None" = None

    def parse_known_args(self, *arguments: Any, **named: Any) -> Any:
        self._filled()
        return super().parse_known_args(*arguments, **named)

    def format_help(self) -> str:
        self._filled()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see `{self.prog} --help`\n")

    def _filled(self) -> None:
        fill, self.fill = self.fill, None
        if fill:
            fill(self)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code; a user's mistake is one line and 2."""
    options = parser().parse_args(arguments)
    try:
        code = options.command(options)
        sys.stdout.flush()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough; Python's own flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code or 0


def parser() -> Parser:
    """All commands with their help."""
    as_written = argparse.RawDescriptionHelpFormatter
    top = Parser(prog="python -m analysis", description=manual.TOP, formatter_class=as_written)
    commands = top.add_subparsers(required=True, metavar="steps | fit | coverage | epochs | compare | figures")

    def command(name: str, summary: str, fill: Callable[[Parser], None]) -> None:
        commands.add_parser(name, help=summary, formatter_class=as_written).fill = fill

    command("steps", "steps to target of every study", _steps_arguments)
    command("fit", "critical batch sizes with intervals", _fit_arguments)
    command("coverage", "how often fits of simulated searches are right", _coverage_arguments)
    command("epochs", "seconds per epoch and recall of factorizations over cores", _epochs_arguments)
    command("compare", "two stores or releases side by side", _compare_arguments)
    command("figures", "figures as PNG and SVG", _figures_arguments)
    return top


def _steps_arguments(sub: Parser) -> None:
    from analysis import steps
    from results.answers import RULES

    sub.description = manual.STEPS + manual.meanings(steps.COLUMNS) + manual.MEDIANS + manual.meanings(steps.MEDIANS)
    sub.add_argument("--store", type=durable.location, required=True, metavar="DIR", help="folder of the store")
    _add_target(sub)
    sub.add_argument(
        "--rule", choices=(*RULES, "median"), default="minimum", help="how an answer is taken from the trials"
    )
    sub.add_argument(
        "--first", type=int, metavar="N", help="COMPLETE trials that count; goes with --rule released (100)"
    )
    sub.add_argument("--k", type=int, metavar="N", help="trials of each study that count; goes with --rule median")
    sub.add_argument("--best-of", type=int, metavar="N", help="trials of one search; goes with --rule median")
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_steps)


def _fit_arguments(sub: Parser) -> None:
    from analysis import fits

    sub.description = manual.FIT + manual.meanings(fits.COLUMNS) + manual.FIT_LIMITS
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--store", type=durable.location, metavar="DIR", help="folder of the store")
    source.add_argument("--points", type=Path, metavar="FILE", help="CSV file of points instead of a store")
    _add_target(sub)
    sub.add_argument("--checks", action="store_true", help="list what each fit assumes, and what was seen of it")
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_fit)


def _coverage_arguments(sub: Parser) -> None:
    from analysis import coverage

    sub.description = manual.COVERAGE + manual.meanings(coverage.COLUMNS)
    sub.add_argument("--datasets", type=int, default=300, metavar="N", help="simulated per scenario (300)")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="of everything that is drawn (0)")
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_coverage)


def _epochs_arguments(sub: Parser) -> None:
    from analysis import core_counts, epochs

    meanings = manual.meanings(epochs.COLUMNS) + manual.EPOCHS_FIT + manual.meanings(core_counts.COLUMNS)
    sub.description = manual.EPOCHS + meanings
    sub.add_argument("--store", type=durable.location, required=True, metavar="DIR", help="folder of the store")
    sub.add_argument("--fit", action="store_true", help="how far more cores pay off, a row per curve")
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_epochs)


def _compare_arguments(sub: Parser) -> None:
    from analysis import compare

    sub.description = manual.COMPARE + manual.meanings(compare.COLUMNS)
    for name in ("A", "B"):
        sub.add_argument(name.lower(), type=durable.location, metavar=name, help="folder of a store or a release")
    _add_target(sub)
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_compare)


def _figures_arguments(sub: Parser) -> None:
    sub.description = manual.FIGURES
    sub.add_argument("--list", action="store_true", help="name the figures and stop")
    sub.add_argument("--store", type=durable.location, metavar="DIR", help="folder of the store")
    sub.add_argument("--out", type=Path, metavar="DIR", help="folder to write to; made if it is not there")
    sub.add_argument("--name", metavar="NAME", help="draw this figure only, or those of this paper")
    sub.add_argument("--kind", metavar="KIND", help="draw a kind of figure of the studies that --where asks for")
    sub.add_argument("--where", action="append", default=[], metavar="FIELD=VALUE,...", help="goes with --kind")
    sub.add_argument("--by", metavar="NAME", help="what --kind compare, split or scatter tells apart")
    sub.add_argument(
        "--steps", type=int, action="append", default=[], metavar="N", help="budget, of --kind budget or scatter"
    )
    sub.add_argument("--rule", choices=("minimum", "released"), help="which trials count for --kind (minimum)")
    sub.add_argument("--first", type=int, metavar="N", help="COMPLETE trials that count; with --rule released (100)")
    sub.add_argument("--metric", help="ask for this metric instead of the studies' own targets")
    sub.add_argument("--value", type=float, action="append", default=[], help="the value to reach; several with --kind")
    sub.set_defaults(command=_figures)


def _add_target(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--metric", help="ask for this metric instead of the studies' own targets; needs --value")
    sub.add_argument("--value", type=float, help="the value to reach; needs --metric")


def _asked(options: argparse.Namespace) -> tuple[str, float] | None:
    if (options.metric is None) != (options.value is None):
        raise BadInput("--metric and --value go together, such as --metric test_error --value 0.05")
    return None if options.metric is None else (options.metric, options.value)


def _rule(options: argparse.Namespace) -> "Rule":
    from results.answers import MINIMUM, Rule

    for flag, count in (("--k", options.k), ("--best-of", options.best_of)):
        if count is not None and options.rule != "median":
            raise BadInput(f"{flag} goes with --rule median, not {options.rule}")
        if count is not None and count < 1:
            raise BadInput(f"{flag} must be at least 1, not {count}")
    if options.rule == "median":
        if options.first is not None:
            raise BadInput("--first goes with --rule released; by the rule median --k says how many trials count")
        if options.k and options.best_of and options.best_of > options.k:
            raise BadInput(f"--best-of {options.best_of} needs as many trials; --k {options.k} are fewer")
        return MINIMUM  # when a trial is at a target
    if options.rule == "minimum":
        if options.first is not None:
            raise BadInput("--first goes with --rule released; by the rule minimum all trials count")
        return MINIMUM
    if options.metric is None:
        raise BadInput("--rule released needs --metric and --value: published studies have no targets of their own")
    first = 100 if options.first is None else options.first
    if first < 1:
        raise BadInput(f"--first must be at least 1, not {first}")
    return Rule("released", first)


def _steps(options: argparse.Namespace) -> None:
    from analysis import steps

    asked, rule = _asked(options), _rule(options)
    held, target = steps.load(options.store, asked, rule)
    if options.rule == "median":
        from analysis import medians  # takes longer to import than most answers take

        table, notes = medians.answer(held, target, medians.Counts(options.k, options.best_of))
        columns, readable = steps.MEDIAN_COLUMNS, medians.readable
    else:
        notes = []
        if options.rule != "minimum":
            held, notes = steps.unpruned(held, target, f"--rule {options.rule}")
        table = steps.table(held, target)
        notes, columns = notes + steps.notes(held, table, target), steps.COLUMNS
        readable = functools.partial(steps.readable, rule=rule)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if options.csv:
        table[list(columns)].to_csv(sys.stdout, index=False)
        return
    print(readable(table))
    print(f"\nnext: python -m analysis fit --store {options.store}")


def _fit(options: argparse.Namespace) -> None:
    from analysis import fits

    asked = _asked(options)
    if options.points and asked:
        raise BadInput("--metric and --value go with --store; a file of points has its target in it")
    found = fits.judged_points(options.points) if options.points else fits.judged_store(options.store, asked)
    table = fits.checks(*found) if options.checks else fits.table(*found)
    if options.csv:
        table.to_csv(sys.stdout, index=False)
        return
    print(fits.readable_checks(*found) if options.checks else fits.readable(table))
    if options.store:
        print(f"next: python -m analysis figures --store {options.store} --out figures")


def _coverage(options: argparse.Namespace) -> None:
    from analysis import coverage

    for name, least in (("datasets", 1), ("seed", 0)):
        if (given := getattr(options, name)) < least:
            raise BadInput(f"--{name} must be at least {least}, not {given}")
    began = time.monotonic()
    table = coverage.run(options.datasets, options.seed, lambda line: print(line, file=sys.stderr, flush=True))
    if options.csv:
        table.to_csv(sys.stdout, index=False)
    else:
        print(coverage.readable(table, options.seed, time.monotonic() - began))


def _epochs(options: argparse.Namespace) -> None:
    from analysis import core_counts, epochs, factorizations

    held = factorizations.load(options.store)
    if not held:
        raise factorizations.nothing_there(options.store)
    table = epochs.table(held)
    for note in epochs.notes(held, factorizations.waiting(options.store, held)):
        print(f"note: {note}", file=sys.stderr)
    judged = [core_counts.judge(curve) for curve in core_counts.of(held)] if options.fit else []
    if options.csv:
        (core_counts.table(judged) if options.fit else table).to_csv(sys.stdout, index=False)
        return
    print(core_counts.readable(judged) if options.fit else epochs.readable(table))
    then = f"figures --store {options.store} --out figures" if options.fit else f"epochs --store {options.store} --fit"
    print(f"\nnext: python -m analysis {then}")


def _compare(options: argparse.Namespace) -> int:
    from analysis import compare

    table = compare.table(options.a, options.b, _asked(options))
    if options.csv:
        table.to_csv(sys.stdout, index=False)
    else:
        print(compare.readable(table, options.a, options.b))
    return int(compare.differs(table))


def _figures(options: argparse.Namespace) -> None:
    from analysis import figures
    from analysis.kinds import options as options_of_kinds

    if options.list:
        print(figures.listing())
        return
    if options.store is None or options.out is None:
        raise BadInput("figures needs --store DIR and --out DIR, or --list")
    if options.kind is not None:
        figures.write_kind(options.store, options.out, _report, options_of_kinds.asked(options))
        return
    options_of_kinds.check_unused(options)
    asked = (options.metric, options.value[0]) if options.value else None
    figures.write_all(options.store, options.out, _report, options.name, asked)


def _report(made: object) -> None:
    if isinstance(made, Path):
        print(made, flush=True)
    else:
        print(f"not drawn: {made}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
