"""scaling-limits COMMAND …: every command of this software under one name, from any folder.

The program imports a command's package once it is asked for, and none from the working folder: unlike `python -m`,
an installed program does not search it.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from results import cli
from results.bad_input import BadInput, nearest
from results.cli import answer, answer_help


class Command(NamedTuple):
    """A command: the module whose ``main`` it is, the words it takes before those of a user, and what it does."""

    module: str
    words: tuple[str, ...]
    purpose: str


COMMANDS = {
    "sweep": Command("sweeps.__main__", (), "run one study, or with -m a sweep; what is stored is not run again"),
    "plan": Command("sweeps.plan", (), "what a sweep would run, what it would cost, what is stored"),
    "status": Command("sweeps.status", (), "what is done, running, missing and failed in a store"),
    "probe": Command("harness.probe", (), "measure how fast a device is, for what `plan` predicts"),
    "prepare": Command("workloads.prepare", (), "download a data set, once; most need none of that"),
    "steps": Command("analysis.__main__", ("steps",), "steps to target, study by study"),
    "fit": Command("analysis.__main__", ("fit",), "critical batch sizes with intervals and verdicts"),
    "epochs": Command("analysis.__main__", ("epochs",), "seconds per epoch and recall of factorizations over cores"),
    "payoff": Command("analysis.__main__", ("payoff",), "how far more devices pay off, and what they cost"),
    "figures": Command("analysis.__main__", ("figures",), "figures as PNG and SVG"),
    "report": Command("analysis.__main__", ("report",), "all of a store as one page for a browser"),
    "layouts": Command("analysis.__main__", ("layouts",), "what each layout of a step on a mesh costs"),
    "all": Command("analysis.__main__", ("all",), "epochs, steps, fit and figures of a store, one after the other"),
    "compare": Command("analysis.__main__", ("compare",), "two stores or releases side by side"),
    "coverage": Command("analysis.__main__", ("coverage",), "how often fits of simulated searches are right"),
    "verify": Command("results.__main__", ("verify",), "check hashes, tables and totals of a store or a release"),
    "repair": Command("results.__main__", ("repair",), "rebuild or drop torn files"),
    "import": Command("results.__main__", ("import",), "published data of others into a store"),
    "export": Command("results.__main__", ("export",), "a release of a store: Parquet, dataset card, hashes"),
    "merge": Command("results.__main__", ("merge",), "join stores and releases into a store"),
}
# What texts call these commands, and what they are called here.
NAMES = {
    "python -m sweeps": "scaling-limits sweep",
    "python -m sweeps.plan": "scaling-limits plan",
    "python -m sweeps.status": "scaling-limits status",
    "python -m harness.probe": "scaling-limits probe",
    "python -m workloads.prepare": "scaling-limits prepare",
    "python -m analysis": "scaling-limits",
    "python -m results": "scaling-limits",
}
_HELP = """\
usage: scaling-limits COMMAND [OPTIONS]

How far does adding parallelism keep paying off? Scaling studies in JAX that anyone can run again.

{commands}

examples:
  scaling-limits sweep optimizer=sgd,nesterov batch_size=1,16,256 trials=8 store=first -m
  scaling-limits status --store first
  scaling-limits fit --store first
  scaling-limits report --store first --out first.html

scaling-limits COMMAND --help explains a command. In all of them --store DIR and store=DIR mean the same, and so it is
with every other option. scaling-limits --version says which software this is. In a checkout, `python -m sweeps`,
`python -m analysis` and `python -m results` are the same commands, and docs/start.md begins the manual."""


def main() -> NoReturn:
    """The program: runs the command that the words of this process name, and ends with its exit code."""
    words = sys.argv[1:]
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        sys.exit(_without_command(words))
    cli.rename(NAMES)
    cli.run(command.module, [*command.words, *words[1:]])


@cli.guarded
def _without_command(words: Sequence[str]) -> int:
    """Help, the version, or BadInput for a command that does not exist."""
    if not words or words[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS)) + 2
        answer_help(
            _HELP.format(commands="\n".join(f"  {name:<{width}}{one.purpose}" for name, one in COMMANDS.items()))
        )
        return 0
    if words[0] == "--version":
        import importlib.metadata

        answer(f"scaling-limits {importlib.metadata.version('scaling-limits')}")
        return 0
    if "=" in words[0] or words[0].startswith("-"):
        raise BadInput(f"{words[0]} comes after a command, such as `scaling-limits sweep {words[0]}`; see --help")
    raise BadInput(f"unknown command {words[0]!r}; {nearest(words[0], COMMANDS)}")


if __name__ == "__main__":
    main()
