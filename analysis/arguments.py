"""Arguments of every command of python -m analysis, and its --help."""

from collections.abc import Callable

from analysis import columns, help_text
from results import cli
from results.cli import CommandParser, location, path
from results.rules.answers import RULES


def parser() -> CommandParser:
    """All commands with their help."""
    top = CommandParser(prog="python -m analysis", description=help_text.TOP)
    store, target, csv = (CommandParser(add_help=False) for _ in range(3))
    store.add_argument("--store", type=location, required=True, metavar="DIR", help="folder of the store")
    target.add_argument("--metric", help="ask for this metric instead of the studies' own targets; needs --value")
    target.add_argument("--value", type=float, help="the value to reach; needs --metric")
    cli.add_output_arguments(csv)
    commands = top.add_subparsers(
        dest="command",
        required=True,
        metavar="steps | fit | coverage | epochs | layouts | payoff | compare | figures | report | all",
    )

    def command(name: str, summary: str, fill: Callable[[CommandParser], None], *shared: CommandParser) -> None:
        fill(commands.add_parser(name, help=summary, parents=shared))

    command("steps", "steps to target of every study", _steps_arguments, store, target, csv)
    command("fit", "critical batch sizes with intervals", _fit_arguments, target, csv)
    command(
        "coverage", "how often fits of simulated searches and of epochs over cores are right", _coverage_arguments, csv
    )
    command("epochs", "seconds per epoch and recall of factorizations over cores", _epochs_arguments, store, csv)
    command("layouts", "what each layout of a step on a mesh costs", _layouts_arguments, store, csv)
    command("payoff", "how far more devices pay off, and what they cost", _payoff_arguments, target, csv)
    command("compare", "two stores or releases side by side", _compare_arguments, target, csv)
    command("figures", "figures as PNG and SVG", _figures_arguments, csv)
    command("report", "all of a store as one page for a browser", _report_arguments, store, target)
    command("all", "epochs, steps, fit and figures of a store", _all_arguments, store)
    return top


def _steps_arguments(sub: CommandParser) -> None:
    steps = columns.STEPS | columns.CONFIRMED | columns.BEST | columns.DIFFERS
    answers, medians = (help_text.meanings(each) for each in (steps, columns.MEDIANS | columns.DIFFERS))
    sub.description = help_text.STEPS + answers + help_text.MEDIANS + medians
    sub.add_argument(
        "--rule",
        choices=(*RULES, "median"),
        default="minimum",
        metavar="RULE",
        help="minimum, released or median: how an answer is taken from the trials (minimum)",
    )
    sub.add_argument(
        "--first", type=int, metavar="N", help="COMPLETE trials that count; goes with --rule released (100)"
    )
    sub.add_argument("--k", type=int, metavar="N", help="trials of each study that count; goes with --rule median")
    sub.add_argument("--best-of", type=int, metavar="N", help="trials of one search; goes with --rule median")


def _counts(words: str) -> list[int]:
    """Numbers of trials, such as 8,16,32."""
    counts = [int(word) for word in words.split(",")]
    if min(counts) < 1:
        raise ValueError
    return counts


_counts.__name__ = "numbers of trials, such as 8,16,32,"  # as argparse calls it: invalid … value


def _fit_arguments(sub: CommandParser) -> None:
    sub.description = help_text.FIT + help_text.meanings(columns.PAIRS | columns.FITS) + help_text.FIT_LIMITS
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--store", type=location, metavar="DIR", help="folder of the store")
    source.add_argument("--points", type=path, metavar="FILE", help="CSV file of points instead of a store")
    sub.add_argument(
        "--best-of", type=_counts, metavar="K,...", help="fit the best of the first K trials instead, a row for each K"
    )
    sub.add_argument("--checks", action="store_true", help="list what each fit assumes, and what was seen of it")


def _coverage_arguments(sub: CommandParser) -> None:
    of_cores = help_text.COVERAGE_OF_CORES + help_text.meanings(columns.COVERAGE_OF_CORES)
    sub.description = help_text.COVERAGE + help_text.meanings(columns.COVERAGE) + of_cores
    sub.add_argument(
        "--of", choices=("fits", "cores"), help="this table alone; both are printed unless told (CSV: fits)"
    )
    sub.add_argument("--datasets", type=int, default=300, metavar="N", help="simulated per scenario (300)")
    sub.add_argument("--seed", type=int, default=0, metavar="N", help="of everything that is drawn (0)")


def _epochs_arguments(sub: CommandParser) -> None:
    of_fit = help_text.EPOCHS_FIT + help_text.meanings(columns.CORE_COUNTS)
    sub.description = help_text.EPOCHS + help_text.meanings(columns.EPOCHS) + of_fit
    sub.add_argument("--fit", action="store_true", help="how far more cores pay off, a row per curve")


def _layouts_arguments(sub: CommandParser) -> None:
    sub.description = help_text.LAYOUTS + help_text.meanings(columns.LAYOUTS)


def _percent(words: str) -> float:
    """A share as a percentage, above 0 and below 100."""
    if not 0 < (percent := float(words)) < 100:
        raise ValueError
    return percent / 100


_percent.__name__ = "percentage above 0 and below 100"  # as argparse calls it: invalid … value


def _payoff_arguments(sub: CommandParser) -> None:
    of_times = help_text.PAYOFF_TIMES + help_text.meanings(columns.PAYOFF_TIMES)
    sub.description = help_text.PAYOFF + help_text.meanings(columns.PAYOFF) + of_times
    source = sub.add_mutually_exclusive_group(required=True)
    source.add_argument("--store", type=location, metavar="DIR", help="folder of the store")
    source.add_argument("--points", type=path, metavar="FILE", help="CSV file of points instead of a store")
    source.add_argument("--paper", metavar="NAME", help="curves that a paper published instead: shallue2018")
    sub.add_argument("--where", action="append", default=[], metavar="FIELD=VALUE,...", help="goes with --store")
    sub.add_argument(
        "--gain", type=_percent, default=0.2, metavar="PERCENT", help="that a doubling has to make it faster by (20)"
    )
    sub.add_argument("--times", action="store_true", help="time and device-hours for every number of devices")
    sub.add_argument("--price", action="append", default=[], metavar="[KIND=]PRICE", help="of a device-hour")
    sub.add_argument("--measured", type=path, metavar="FILE", help="step times that were measured elsewhere")
    sub.add_argument("--predicted", type=path, metavar="FILE", help="step times that were predicted")


def _compare_arguments(sub: CommandParser) -> None:
    sub.description = help_text.COMPARE + help_text.meanings(columns.COMPARE)
    for name in ("A", "B"):
        sub.add_argument(name.lower(), type=location, metavar=name, help="folder of a store or a release")


def _figures_arguments(sub: CommandParser) -> None:
    sub.description = help_text.FIGURES
    sub.add_argument("--list", action="store_true", help="name the figures and stop")
    sub.add_argument("--store", type=location, metavar="DIR", help="folder of the store")
    sub.add_argument("--out", type=path, metavar="DIR", help="folder to write to; made if it is not there")
    sub.add_argument("--name", metavar="NAME", help="draw this figure only, or those of this paper")
    sub.add_argument("--kind", metavar="KIND", help="draw a kind of figure of the studies that --where asks for")
    sub.add_argument("--where", action="append", default=[], metavar="FIELD=VALUE,...", help="goes with --kind")
    sub.add_argument("--by", metavar="NAME", help="what --kind compare, split or scatter tells apart")
    sub.add_argument(
        "--steps", type=int, action="append", default=[], metavar="N", help="budget, of --kind budget or scatter"
    )
    sub.add_argument("--best-of", type=_counts, default=[], metavar="K,...", help="trials of --kind searches")
    sub.add_argument("--rule", choices=("minimum", "released"), help="which trials count for --kind (minimum)")
    sub.add_argument("--first", type=int, metavar="N", help="COMPLETE trials that count; with --rule released (100)")
    sub.add_argument("--metric", help="ask for this metric instead of the studies' own targets")
    sub.add_argument("--value", type=float, action="append", default=[], help="the value to reach; several with --kind")


def _report_arguments(sub: CommandParser) -> None:
    sub.description = help_text.REPORT
    sub.add_argument("--out", type=path, required=True, metavar="FILE", help="the page; what is there is replaced")


def _all_arguments(sub: CommandParser) -> None:
    sub.description = help_text.ALL
    sub.add_argument("--out", type=path, required=True, metavar="DIR", help="folder of figures; made if missing")
