"""The door: python -m analysis steps | fit | epochs | figures."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from analysis import manual, steps
from results import durable
from results.answers import MINIMUM, RULES, Rule
from results.bad_input import BadInput


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the manual is a --help away."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see `{self.prog} --help`\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit code; a user's mistake is one line and 2."""
    options = parser().parse_args(arguments)
    try:
        options.command(options)
        sys.stdout.flush()
    except BadInput as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, such as head, has seen enough; Python's own flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def parser() -> Parser:
    """All commands with their help."""
    from analysis import core_counts, epochs, fits

    as_written = argparse.RawDescriptionHelpFormatter
    top = Parser(prog="python -m analysis", description=manual.TOP, formatter_class=as_written)
    commands = top.add_subparsers(required=True, metavar="steps | fit | epochs | figures")

    def command(name: str, summary: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=text, formatter_class=as_written)

    sub = command("steps", "steps to target of every study", manual.STEPS + manual.meanings(steps.COLUMNS))
    sub.add_argument("--store", type=durable.location, required=True, metavar="DIR", help="folder of the store")
    _add_target(sub)
    sub.add_argument(
        "--rule", choices=RULES, default="minimum", help="which trials count, and when they are at a target"
    )
    sub.add_argument(
        "--first", type=int, metavar="N", help="COMPLETE trials that count; goes with --rule released (100)"
    )
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_steps)

    sub = command(
        "fit", "critical batch sizes with intervals", manual.FIT + manual.meanings(fits.COLUMNS) + manual.FIT_LIMITS
    )
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--store", type=durable.location, metavar="DIR", help="folder of the store")
    source.add_argument("--points", type=Path, metavar="FILE", help="CSV file of points instead of a store")
    _add_target(sub)
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_fit)

    meanings = manual.meanings(epochs.COLUMNS) + manual.EPOCHS_FIT + manual.meanings(core_counts.COLUMNS)
    sub = command("epochs", "seconds per epoch and recall of factorizations over cores", manual.EPOCHS + meanings)
    sub.add_argument("--store", type=durable.location, required=True, metavar="DIR", help="folder of the store")
    sub.add_argument("--fit", action="store_true", help="how far more cores pay off, a row per curve")
    sub.add_argument("--csv", action="store_true", help="write CSV")
    sub.set_defaults(command=_epochs)

    sub = command("figures", "figures as PNG and SVG", manual.FIGURES)
    sub.add_argument("--list", action="store_true", help="name the figures and stop")
    sub.add_argument("--store", type=durable.location, metavar="DIR", help="folder of the store")
    sub.add_argument("--out", type=Path, metavar="DIR", help="folder to write to; made if it is not there")
    sub.add_argument("--name", metavar="NAME", help="draw this figure only")
    _add_target(sub)
    sub.set_defaults(command=_figures)
    return top


def _add_target(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--metric", help="ask for this metric instead of the studies' own targets; needs --value")
    sub.add_argument("--value", type=float, help="the value to reach; needs --metric")


def _asked(options: argparse.Namespace) -> tuple[str, float] | None:
    if (options.metric is None) != (options.value is None):
        raise BadInput("--metric and --value go together, such as --metric test_error --value 0.05")
    return None if options.metric is None else (options.metric, options.value)


def _rule(options: argparse.Namespace) -> Rule:
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
    asked, rule = _asked(options), _rule(options)
    held, target = steps.load(options.store, asked, rule)
    table = steps.table(held, target)
    for note in steps.notes(held, table, target):
        print(f"note: {note}", file=sys.stderr)
    if options.csv:
        table[list(steps.COLUMNS)].to_csv(sys.stdout, index=False)
        return
    print(steps.readable(table, rule))
    print(f"\nnext: python -m analysis fit --store {options.store}")


def _fit(options: argparse.Namespace) -> None:
    from analysis import fits

    asked = _asked(options)
    if options.points and asked:
        raise BadInput("--metric and --value go with --store; a file of points has its target in it")
    table = fits.of_points(options.points) if options.points else fits.of_store(options.store, asked)
    if options.csv:
        table.to_csv(sys.stdout, index=False)
        return
    print(fits.readable(table))
    if options.store:
        print(f"next: python -m analysis figures --store {options.store} --out figures")


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


def _figures(options: argparse.Namespace) -> None:
    from analysis import figures

    if options.list:
        print(figures.listing())
        return
    if options.store is None or options.out is None:
        raise BadInput("figures needs --store DIR and --out DIR, or --list")
    figures.write_all(options.store, options.out, _report, options.name, _asked(options))


def _report(made: object) -> None:
    if isinstance(made, Path):
        print(made, flush=True)
    else:
        print(f"not drawn: {made}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
