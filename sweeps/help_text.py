"""The text of --help for `python -m sweeps` and `python -m sweeps.plan`."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import conf
from results import cli, printing
from results.printing import answer_help
from sweeps import overrides

_CONF = Path(conf.__path__[0])
DEEP = 2  # choices in deeper folders are not listed, because other choices combine them


def read(argv: Sequence[str], about: str) -> overrides.CommandLine:
    """Parses a command line. With ``--help``, prints ``about``, all keys and all choices, and exits."""
    line = overrides.command_line(argv)
    printing.set_output(**{flag[2:]: flag in argv for flag in cli.OUTPUT_FLAGS})
    if {"-h", "--help"} & set(argv):
        answer_help(_help(about))
        sys.exit()
    return line


def _help(about: str) -> str:
    """Returns the text of --help."""
    lines = [
        about.strip(),
        "",
        "--csv and --json print only the table, as CSV or JSON. --wide prints all columns on a terminal.",
        "",
        "examples:",
        "  python -m sweeps task=digits_fc optimizer=nesterov batch_size=64",
        "  python -m sweeps optimizer=sgd,momentum,nesterov batch_size=1,16,256 trials=16 -m",
        "  python -m sweeps task=webgraph_synthetic als.dim=64 cores=1,2 -m",
        "  python -m sweeps task=table table.path=FILE table.label=COLUMN batch_size=1,4,16 -m",
        "  python -m sweeps task=ratings ratings.path=FILE ratings.heldout=FILE2 als.dim=128 cores=1,2 -m",
        "  python -m sweeps.plan +experiment=quickstart -m",
    ]
    for group in overrides.GROUPS:
        key = "+experiment" if group == "experiment" else group
        names = overrides.options(group)
        listed = {name: _about(group, name) for name in names if name.count("/") < DEEP}
        width = max(map(len, listed)) + 2
        lines += ["", f"{key}=NAME", *(f"  {name:<{width}}{text}" for name, text in listed.items())]
        if deeper := [name for name in names if name not in listed]:
            lines.append(f"  and the {len(deeper)} presets that these combine, such as {min(deeper, key=len)}")
    values = (_CONF / "config.yaml").read_text().split("- _self_\n")[1].strip().splitlines()
    for title, section in {
        "keys and their defaults (KEY=VALUE; sweep with commas and -m)": values,
        "keys of a task (task.KEY=VALUE), with the values of digits_fc": _lines("task", "digits_fc"),
        "keys of a table (table.KEY=VALUE), with the values of table": itertools.takewhile(
            bool, _lines("task", "table")
        ),
        "keys of an optimizer (optimizer.KEY=VALUE), with the values of momentum": _lines("optimizer", "momentum"),
        "keys of a factorization (ratings.KEY=VALUE, als.KEY=VALUE, cores=N), with the values of webgraph_synthetic": (
            _lines("task", "webgraph_synthetic")
        ),
    }.items():
        without_head = itertools.dropwhile(lambda line: line.startswith("#"), section)
        lines += ["", f"{title}:", *(f"  {line}" for line in without_head)]
    return "\n".join(lines)


def _about(group: str, name: str) -> str:
    """Returns the first comment line of a choice: that of its file or, for a preset in a table, of its entry."""
    place = overrides.place_in_table(name) if group == "experiment" else None
    if place is None:
        heads = (line for line in _lines(group, name) if line.startswith("#") and not line.startswith("# @"))
        return next(heads, "")[2:]
    lines = place[0].read_text().splitlines()
    before = list(itertools.takewhile(lambda line: not line.startswith(f"  {place[1]}:"), lines))
    above = list(itertools.takewhile(lambda line: line.startswith("  # "), reversed(before)))
    return above[-1].removeprefix("  # ") if above else ""


def _lines(group: str, name: str) -> list[str]:
    return overrides.file_of(group, name).read_text().strip().splitlines()
