"""scaling-limits COMMAND …: all commands of this package under one name, from any folder.

Only the package of the command is imported. Unlike `python -m`, it does not import from the working folder.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from results import cli, printing
from results.bad_input import BadInput, nearest
from results.printing import answer, answer_help


class Command(NamedTuple):
    """A command: the module with its ``main``, words inserted before the user's words, and its purpose."""

    module: str
    words: tuple[str, ...]
    purpose: str


COMMANDS = {
    "sweep": Command("sweeps.__main__", (), "run one study, or with -m a sweep; stored trials are not repeated"),
    "plan": Command("sweeps.plan", (), "list the studies of a sweep, their cost and their stored trials"),
    "manifest": Command("sweeps.manifest", (), "write the studies of a sweep as JobSets for Kubernetes"),
    "status": Command("sweeps.status", (), "show finished, running, missing and failed trials of a store"),
    "probe": Command("harness.costs.probe", (), "measure the speed of a device for the predictions of `plan`"),
    "prepare": Command("workloads.prepare", (), "download and prepare a data set (most data sets need no download)"),
    "steps": Command("analysis.__main__", ("steps",), "steps to target of each study"),
    "fit": Command("analysis.__main__", ("fit",), "critical batch sizes with intervals and verdicts"),
    "epochs": Command("analysis.__main__", ("epochs",), "seconds per epoch and recall of factorizations by cores"),
    "payoff": Command("analysis.__main__", ("payoff",), "how far more devices pay off, and their cost"),
    "suggest": Command("analysis.__main__", ("suggest",), "further runs that narrow an answer most for their cost"),
    "figures": Command("analysis.__main__", ("figures",), "figures as PNG and SVG"),
    "report": Command("analysis.__main__", ("report",), "a whole store as one page for a browser"),
    "layouts": Command("analysis.__main__", ("layouts",), "cost of each layout of a step on a mesh"),
    "all": Command("analysis.__main__", ("all",), "epochs, steps, fit and figures of a store"),
    "compare": Command("analysis.__main__", ("compare",), "compare two stores or releases"),
    "coverage": Command("analysis.__main__", ("coverage",), "how often fits of simulated searches are right"),
    "verify": Command("results.__main__", ("verify",), "check hashes, tables and totals of a store or a release"),
    "repair": Command("results.__main__", ("repair",), "rebuild or drop torn files"),
    "import": Command("results.__main__", ("import",), "import your own runs, or published data, into a store"),
    "export": Command("results.__main__", ("export",), "write a release of a store: Parquet, dataset card, hashes"),
    "merge": Command("results.__main__", ("merge",), "merge stores and releases into one store"),
}
# Names of modules in texts, and the corresponding commands.
NAMES = {
    "python -m sweeps": "scaling-limits sweep",
    "python -m sweeps.plan": "scaling-limits plan",
    "python -m sweeps.manifest": "scaling-limits manifest",
    "python -m sweeps.status": "scaling-limits status",
    "python -m harness.costs.probe": "scaling-limits probe",
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

scaling-limits COMMAND --help explains a command. --store DIR and store=DIR mean the same in all commands, as do both
forms of every other option. scaling-limits --version prints the version. In a checkout, `python -m sweeps`,
`python -m analysis` and `python -m results` are the same commands. The manual starts at docs/start.md."""


def main() -> NoReturn:
    """Runs the command given on the command line, and exits with its exit code."""
    words = sys.argv[1:]
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        sys.exit(_without_command(words))
    printing.rename(NAMES)
    cli.run(command.module, [*command.words, *words[1:]])


@cli.guarded
def _without_command(words: Sequence[str]) -> int:
    """Prints help or the version. Raises BadInput for an unknown command."""
    if not words or words[0] in ("-h", "--help", "help"):
        width = max(map(len, COMMANDS)) + 2
        answer_help(
            _HELP.format(commands="\n".join(f"  {name:<{width}}{entry.purpose}" for name, entry in COMMANDS.items()))
        )
        return 0
    if words[0] == "--version":
        import importlib.metadata

        answer(f"scaling-limits {importlib.metadata.version('scaling-limits')}")
        return 0
    if "=" in words[0] or words[0].startswith("-"):
        raise BadInput(f"{words[0]} must follow a command, as in `scaling-limits sweep {words[0]}`. See --help.")
    if words[0] == "watch":
        from sweeps.status import REPEAT

        raise BadInput(f"watch was removed. {REPEAT}")
    raise BadInput(f"unknown command {words[0]!r}; {nearest(words[0], COMMANDS)}")


if __name__ == "__main__":
    main()
