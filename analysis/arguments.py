"""Arguments and --help for every command of `python -m analysis`."""

import argparse
import functools
from typing import Any, NoReturn

from analysis import columns, help_text, kind_views
from analysis.help_text import meanings
from results import cli
from results.bad_input import BadInput
from results.cli import CommandParser, location, path
from results.plans.study import RERUNS, TargetRequest
from results.rules.answers import RULES

# Each command is the function ``run`` in the analysis.commands module of the same name, or, for tables of a kind, in
# ``of_kind``.
COMMANDS = (
    "steps",
    "fit",
    "coverage",
    *kind_views.commands(),
    "payoff",
    "suggest",
    "compare",
    "figures",
    "report",
    "all",
)


def parser() -> CommandParser:
    """Returns the parser for all commands."""
    top = CommandParser(prog="python -m analysis", description=help_text.TOP)
    store, target, csv = (CommandParser(add_help=False) for _ in range(3))
    _add_store(store, required=True)
    target.add_argument("--metric", help="use this metric instead of the studies' own targets (needs --value)")
    target.add_argument("--value", type=float, help="the value to reach (needs --metric)")
    _add_target(target)
    cli.add_output_arguments(csv)
    commands = top.add_subparsers(
        dest="command",
        required=True,
        metavar=" | ".join(COMMANDS),
    )

    listed = _columns()

    def command(name: str, summary: str, description: str, *shared: CommandParser) -> CommandParser:
        sub: CommandParser = commands.add_parser(name, help=summary, description=description, parents=shared)
        sub.usage = "%(prog)s [-h] [OPTIONS]"
        if name in listed:
            sub.add_argument(
                "--help-columns", action="version", version=listed[name], help="list the columns, and exit"
            )
        return sub

    _add_steps(command("steps", "steps to target of every study", help_text.STEPS, store, target, csv))
    description = help_text.FIT + help_text.FIT_LIMITS
    _add_fit(command("fit", "how far larger batches pay off, and critical batch sizes", description, target, csv))
    description = help_text.COVERAGE + help_text.COVERAGE_OF_CORES
    _add_coverage(command("coverage", "how often fits of simulated data are right", description, csv))
    for name, (view, _) in kind_views.commands().items():
        shared = [csv] if view.published else [store, csv]
        table = command(name, view.summary, view.help + view.fit_help, *shared)
        table.set_defaults(fit=False, published=False, anchor=None)
        if view.published:
            _add_published(table)
        if view.fits:
            table.add_argument("--fit", action="store_true", help="how far more cores pay off, a row per curve")
    _add_payoff(command("payoff", "how far more devices pay off, and what they cost", help_text.PAYOFF, target, csv))
    summary = "further runs that narrow an answer most for their cost"
    _add_suggest(command("suggest", summary, help_text.SUGGEST, store, target, csv))
    compare = command("compare", "two stores or releases side by side", help_text.COMPARE, target, csv)
    compare.usage = "%(prog)s [-h] [OPTIONS] A B"
    for name in ("A", "B"):
        compare.add_argument(name.lower(), type=location, metavar=name, help="folder of a store or a release")
    _add_figures(command("figures", "figures as PNG and SVG", help_text.FIGURES, csv))
    report = command("report", "a store as one page for a browser", help_text.REPORT, store, target)
    report.add_argument("--out", type=path, required=True, metavar="FILE", help="the page, which replaces an old one")
    all_tables = command("all", "epochs, layouts, steps, fit and figures of a store", help_text.ALL, store)
    all_tables.add_argument(
        "--out", type=path, required=True, metavar="DIR", help="folder of figures, created if missing"
    )
    return top


def _columns() -> dict[str, str]:
    """Returns the text of ``--help-columns`` by command."""
    h, c = help_text, columns
    tables = {
        "steps": [(h.STEPS_COLUMNS, c.STEPS | c.CONFIRMED | c.BEST | c.UNIT | c.DIFFERS)],
        "fit": [(h.FIT_COLUMNS, c.UNIT | c.PAIRS | c.FITS)],
        "coverage": [
            (h.COVERAGE_OF_FITS, c.COVERAGE),
            (h.COVERAGE_OF_EXTENTS, c.EXTENT_COVERAGE),
            (h.COVERAGE_OF_NARROWING, c.NARROWING),
            (h.COVERAGE_OF_CORES_COLUMNS, c.COVERAGE_OF_CORES),
            (h.COVERAGE_OF_SUGGESTIONS, c.SUGGESTED),
        ],
        "payoff": [(h.PAYOFF_FILES, c.PAYOFF), (h.PAYOFF_TIMES, c.PAYOFF_TIMES)],
        "suggest": [(h.SUGGEST_COLUMNS, c.SUGGESTIONS)],
        "compare": [(h.COMPARE_COLUMNS, c.COMPARE)],
    }
    texts = {name: "".join(head + meanings(table) for head, table in pairs) for name, pairs in tables.items()}
    for name, (view, row) in kind_views.commands().items():
        texts[name] = h.KIND_COLUMNS + meanings(row.columns) + view.further_columns
    return texts


def module(options: argparse.Namespace) -> str:
    """Returns the module of ``analysis.commands`` that runs the command."""
    return "of_kind" if options.command in kind_views.commands() else str(options.command)


def requested_target(options: argparse.Namespace) -> TargetRequest:
    """Returns the metric and value given by ``--metric`` and ``--value``, or ``reruns``. None if neither is given."""
    if options.target == RERUNS and (options.metric is not None or options.value is not None):
        raise BadInput("--target reruns excludes --metric and --value: it reads the target from the reruns")
    if options.target == RERUNS:
        return RERUNS
    if (options.metric is None) != (options.value is None):
        raise BadInput("--metric and --value need each other, such as --metric test_error --value 0.05")
    return None if options.metric is None else (options.metric, options.value)


def _add_target(sub: CommandParser) -> None:
    sub.add_argument(
        "--target",
        choices=("own", RERUNS),
        default="own",
        metavar="TARGET",
        help="own: the studies' targets. reruns: easier ones, which reruns of the best trials reach (own)",
    )


def _removed(option: str, _: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"{option} was removed. fit and payoff use the expected best of k trials")


def _rule(name: str) -> str:
    return _removed("--rule median", name) if name == "median" else name


def _add_steps(sub: CommandParser) -> None:
    sub.add_argument(
        "--rule",
        type=_rule,
        choices=RULES,
        default="minimum",
        metavar="RULE",
        help="how trials give an answer: minimum or released (minimum)",
    )
    _add_first(sub)
    for flag in ("--k", "--best-of"):
        sub.add_argument(flag, type=functools.partial(_removed, "--rule median"), help=argparse.SUPPRESS)


def _add_first(sub: CommandParser) -> None:
    sub.add_argument("--first", type=int, metavar="N", help="COMPLETE trials that count with --rule released (100)")


def _counts(words: str) -> list[int]:
    """Parses trial counts, such as 8,16,32."""
    counts = [int(word) for word in words.split(",")]
    if min(counts) < 1:
        raise ValueError
    return counts


_counts.__name__ = "numbers of trials, such as 8,16,32,"  # argparse prints it: invalid … value


def _add_store(sub: Any, **options: Any) -> None:
    sub.add_argument("--store", type=location, metavar="DIR", help="folder of the store", **options)


def _add_published(sub: CommandParser) -> None:
    """Adds --store and --published, one of which is required, and the options of --published."""
    source = sub.add_mutually_exclusive_group(required=True)
    _add_store(source)
    source.add_argument("--published", action="store_true", help="published steps next to their predictions")
    sub.add_argument("--anchor", metavar="ROW", help="published row that scales its generation (with --published)")


def _add_source(sub: CommandParser, *, required: bool = True) -> Any:
    """Adds --store and --points, which are mutually exclusive, and returns their group."""
    source = sub.add_mutually_exclusive_group(required=required)
    _add_store(source)
    source.add_argument("--points", type=path, metavar="FILE", help="CSV file of points instead of a store")
    return source


def _percent(words: str) -> float:
    """Converts a percentage above 0 and below 100 to a fraction."""
    percent = float(words)
    if not 0 < percent < 100:
        raise ValueError
    return percent / 100


_percent.__name__ = "percentage above 0 and below 100"  # argparse prints it: invalid … value


def _add_extents(sub: CommandParser) -> None:
    """Adds the options for computing *pays up to* and *efficient up to*."""
    _add_gain(sub)
    meaning = "`curves` averages over plausible curves, `nothing` allows for every convex curve (curves)"
    sub.add_argument("--assume", choices=("curves", "nothing"), default="curves", help=meaning)


def _add_gain(sub: CommandParser) -> None:
    sub.add_argument(
        "--gain", type=_percent, default=0.2, metavar="PERCENT", help="speed-up required of a doubling (20)"
    )


def _paper_of_fit(name: str) -> None:
    raise argparse.ArgumentTypeError(f"fit needs --store or --points. Use `payoff --paper {name}`")


def _add_fit(sub: CommandParser) -> None:
    _add_source(sub).add_argument("--paper", type=_paper_of_fit, help=argparse.SUPPRESS)
    _add_extents(sub)
    sub.add_argument("--best-of", type=_counts, metavar="K,...", help="fit the best of the first K trials, a row per K")
    sub.add_argument("--checks", action="store_true", help="list the assumptions of each fit with the evidence")


def _add_coverage(sub: CommandParser) -> None:
    tables = ("extents", "fits", "narrowing", "cores", "suggestions")
    sub.add_argument("--of", choices=tables, help="print only this table (with --csv, extents)")
    sub.add_argument("--datasets", type=int, default=300, metavar="N", help="simulated data sets per scenario (300)")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the simulation (0)")


def _add_payoff(sub: CommandParser) -> None:
    paper = "published curves or runs instead of a store: shallue2018 or gpt3"
    _add_source(sub, required=False).add_argument("--paper", metavar="NAME", help=paper)
    _add_where(sub, "--store")
    _add_extents(sub)
    sub.add_argument("--times", action="store_true", help="time and device-hours for every number of devices")
    sub.add_argument("--price", action="append", default=[], metavar="[KIND=]PRICE", help="price of a device-hour")
    sub.add_argument("--measured", type=path, metavar="FILE", help="step times or runs measured elsewhere")
    sub.add_argument("--predicted", type=path, metavar="FILE", help="predicted step times")
    sub.add_argument("--published", type=path, metavar="FILE", help="step times or runs that others published")


def _add_suggest(sub: CommandParser) -> None:
    sub.add_argument("--budget", type=float, metavar="HOURS", help="most device-hours of one suggestion")
    _add_where(sub, "--store")
    _add_gain(sub)


def _add_where(sub: CommandParser, needs: str) -> None:
    sub.add_argument("--where", action="append", default=[], metavar="FIELD=VALUE,...", help=f"needs {needs}")


def _add_figures(sub: CommandParser) -> None:
    sub.add_argument("--list", action="store_true", help="list the figures and exit")
    _add_store(sub)
    sub.add_argument("--out", type=path, metavar="DIR", help="folder to write to, created if missing")
    sub.add_argument("--name", metavar="NAME", help="draw only this figure, or the figures of this paper")
    sub.add_argument("--kind", metavar="KIND", help="draw a kind of figure from the studies selected by --where")
    _add_where(sub, "--kind")
    sub.add_argument("--by", metavar="NAME", help="the field that separates lines of --kind compare, split, scatter")
    sub.add_argument(
        "--steps", type=int, action="append", default=[], metavar="N", help="budget of --kind budget or scatter"
    )
    sub.add_argument("--best-of", type=functools.partial(_removed, "--kind searches"), help=argparse.SUPPRESS)
    sub.add_argument("--rule", choices=("minimum", "released"), help="trials that count for --kind (minimum)")
    _add_first(sub)
    sub.add_argument("--metric", help="use this metric instead of the studies' own targets")
    sub.add_argument(
        "--value", type=float, action="append", default=[], help="the value to reach (several with --kind)"
    )
    _add_target(sub)
