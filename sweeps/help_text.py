"""The text of --help and --help-keys for `python -m sweeps`, `sweeps.plan` and `sweeps.manifest`."""

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import conf
from results import cli, printing
from results.printing import answer_help
from sweeps import choices, overrides
from sweeps.quoting import GROUPS

_CONF = Path(conf.__path__[0])
EXAMPLES = (
    "task=digits_fc optimizer=nesterov batch_size=64",
    "optimizer=sgd,momentum,nesterov batch_size=1,16,256 trials=16 -m",
    "task=webgraph_synthetic als.dim=64 cores=1,2 -m",
    "task=table table.path=FILE table.label=COLUMN batch_size=1,4,16 -m",
    "task=ratings ratings.path=FILE ratings.heldout=FILE2 als.dim=128 cores=1,2 -m",
    "+experiment=quickstart -m",
)
_OPTIONS = """\
options:
  KEY=VALUE    sets a key. --KEY VALUE and --KEY=VALUE mean the same
  -m           a sweep: a study for each combination of values that are separated by commas
  --csv        prints only the table, as CSV
  --json       prints only the table, as JSON
  --wide       prints all columns on a terminal
  --help-keys  lists all keys with their defaults, and explains every task, optimizer and preset"""
_DRY_RUN = "  --dry-run    lists the folder and the command of each study that would run"
_KEYS = """\
keys, which --help-keys explains:
  task.KEY, table.KEY, optimizer.KEY, ratings.KEY, als.KEY, cores, mesh, layout"""


def read(argv: Sequence[str], about: str, examples: Sequence[str] = EXAMPLES) -> overrides.CommandLine:
    """Parses a command line. With ``--help`` or ``--help-keys``, prints text and exits.

    Args:
      argv: words of the command line.
      about: docstring of the command. It starts with ``python -m MODULE``.
      examples: words of example commands.
    """
    line = overrides.command_line(argv)
    printing.set_output(**{flag[2:]: flag in argv for flag in cli.OUTPUT_FLAGS})
    if overrides.HELP_KEYS in argv:
        answer_help("\n".join([*_choices(shorten=False), *_all_keys()]))
        sys.exit()
    if {"-h", "--help"} & set(argv):
        answer_help(_help(about, examples))
        sys.exit()
    return line


def _help(about: str, examples: Sequence[str]) -> str:
    """Returns the text of --help: purpose, examples, options, and the names of choices and keys."""
    purpose, _, details = about.strip().partition("\n\n")
    command = " ".join(purpose.split()[:3]).rstrip(":")
    lines = [purpose, "", "examples:", *(f"  {command} {words}" for words in examples), "", _OPTIONS]
    if details:
        return "\n".join(
            [*lines, "", details, "", "`python -m sweeps --help` lists tasks, optimizers, presets and keys."]
        )
    keys = [line.partition(":")[0].strip('"') for line in _defaults() if line[:1] not in ("", " ", "#")]
    return "\n".join([*lines, _DRY_RUN, "", *_choices(shorten=True), f"{_KEYS}, {', '.join(keys)}"])


def _choices(*, shorten: bool) -> list[str]:
    """Returns a line for each task, optimizer, launcher and preset, or one for each family of them."""
    lines = []
    for group in GROUPS:
        listed: dict[str, list[str]] = {}
        for name in choices.options(group):
            family, slash, member = name.partition("/")
            if not (shorten and slash):
                listed[name] = [_about(group, name)]
            elif "/" not in member:  # deeper ones are combined by these
                listed.setdefault(f"{family}/…", []).append(member)
        width = max(map(len, listed)) + 2
        lines.append("+experiment=NAME" if group == "experiment" else f"{group}=NAME")
        lines += [*(f"  {name:<{width}}{', '.join(texts)}" for name, texts in listed.items()), ""]
    return lines


def _all_keys() -> list[str]:
    """Returns all keys with their defaults and comments, as in the configuration files."""
    lines = []
    for title, section in {
        "keys and their defaults (KEY=VALUE; sweep with commas and -m)": _defaults(),
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
        lines += [f"{title}:", *(f"  {line}" for line in without_head), ""]
    return lines[:-1]


def _defaults() -> list[str]:
    return (_CONF / "config.yaml").read_text().split("- _self_\n")[1].strip().splitlines()


def _about(group: str, name: str) -> str:
    """Returns the first comment line of a choice: that of its file or, for a preset in a table, of its entry."""
    place = choices.presets()[name].table if group == "experiment" else None
    if place is None:
        heads = (line for line in _lines(group, name) if line.startswith("#") and not line.startswith("# @"))
        return next(heads, "")[2:]
    lines = place[0].read_text().splitlines()
    before = list(itertools.takewhile(lambda line: not line.startswith(f"  {place[1]}:"), lines))
    comment = list(itertools.takewhile(lambda line: line.startswith("  # "), reversed(before)))
    return comment[-1].removeprefix("  # ") if comment else ""


def _lines(group: str, name: str) -> list[str]:
    return choices.file_of(group, name).read_text().strip().splitlines()
