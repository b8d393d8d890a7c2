"""The `payoff` command: shows how far adding devices pays off, and the cost of training."""

import argparse

from analysis import output
from analysis.arguments import requested_target
from analysis.fitting.extents import GAIN
from analysis.payoff import answer_tables, answers, subjects
from analysis.payoff.step_times import MEASURED, PUBLISHED
from analysis.payoff.subjects import Subject
from results.bad_input import BadInput
from results.plans.study import decimal
from results.printing import quoted, say


def run(options: argparse.Namespace) -> None:
    """Prints one row per curve and device kind or, with --times, one row per number of devices."""
    request = requested_target(options)
    if request and not options.store:
        raise BadInput("--metric and --value need --store: points contain their target")
    if options.where and not options.store:
        raise BadInput("--where needs --store: it selects studies of a store")
    if options.price and not options.times:
        raise BadInput("--price needs --times, which lists the cost of every number of devices")
    if options.store:
        selected = subjects.of_store(options.store, request, options.where, say)
    elif options.points:
        selected = subjects.of_file(options.points, say)
    elif options.paper:
        selected = subjects.of_paper(options.paper, say)
    else:
        selected = _of_runs(options)
    files = options.measured, options.predicted
    computed = answers.answers(
        selected,
        options.gain,
        *files,
        published=options.published,
        assume_nothing=options.assume == "nothing",
        choosable=bool(options.store),
        report=say,
    )
    prices = answer_tables.parse_prices(options.price, sorted({answer.device_kind for answer in computed} - {""}))
    if options.times:
        output.print_table(
            answer_tables.times_table(computed, prices), lambda: answer_tables.times_as_text(computed, prices)
        )
    else:
        timed = any(answer.pay_offs for answer in computed)
        next_command = f"next: python -m analysis payoff {_next_options(options, timed=timed)}"
        output.print_table(
            answer_tables.table(computed), lambda: f"{answer_tables.as_text(computed)}\n\n{next_command}"
        )


def _of_runs(options: argparse.Namespace) -> list[Subject]:
    """Returns the workloads in files of runs with given steps to target."""
    for basis in (MEASURED, PUBLISHED):
        file = getattr(options, basis)
        if file:
            return subjects.of_runs(file, basis)
    words = "payoff needs steps to a target. Give --store, --points or --paper, or --measured with a column steps."
    raise BadInput(words)


def _next_options(options: argparse.Namespace, *, timed: bool) -> str:
    """Returns the given options, for use in the next command. Includes step-time files only if ``timed`` is true."""
    words = []
    names = ["store", "points", "paper", "metric", "value", "where", "gain"]
    if timed:
        names += ["measured", "predicted", "published"]
    for name in names:
        value = getattr(options, name)
        if name == "value" and value is not None:
            value = decimal(value)
        elif name == "gain":
            value = None if value == GAIN else f"{100 * value:g}"
        for word in value if name == "where" else [value]:
            if word is not None:
                words += [f"--{name}", word]
    words += ["--times"] if timed else ["--predicted", "FILE"]
    return " ".join(map(quoted, words))
