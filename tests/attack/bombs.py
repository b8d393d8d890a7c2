"""Calls of readers, each in a process of its own: how much memory it took, how it ended and what it printed.

python bombs.py FILE

FILE has a line of JSON per call: a name, a function as module:name, and its arguments. Prints a line of JSON for each.
It forks, so it imports all modules before it does, and calls nothing that starts threads.
"""

import importlib
import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import moments

from results.bad_input import BadInput

IMPORTED = (
    "analysis.fitting.fits",
    "analysis.trials.steps_to_target",
    "results.checks.verify",
    "results.release.merge",
)
SECONDS = 60
MOST_BYTES = 6 << 30  # of address space beyond what is mapped at the start: a bomb harms nobody else


def table(path: str) -> int:
    from workloads.datasets import table_files

    table_files.read(Path(path))
    return 0


def ratings(path: str) -> int:
    from workloads.datasets import link_files

    link_files.header(Path(path))
    return sum(0 for _ in link_files.blocks(Path(path)))


def heartbeat(path: str) -> int:
    from results.storage import heartbeat as beats

    return 2 if beats.seen(Path(path)) is None else 0


def checkpoint(path: str) -> int:
    from harness.trials import checkpoints

    return 2 if checkpoints.Checkpoints(Path(path)).load(0, "key", (0, 1)) is None else 0


def probe(path: str) -> int:
    from harness.costs import microbenchmarks

    os.environ["SCALING_LIMITS_CACHE"] = path
    large(microbenchmarks.place("kind"))
    return 2 if microbenchmarks.read("kind") is None else 0


def cost(path: str) -> int:
    from harness.costs import questions

    large(Path(path, "key.json"))
    return 2 if questions._read(Path(path), "key") is None else 0


def step_times(path: str) -> int:
    from sweeps.costs import step_times as tables

    large(Path(path, "steps.csv"))
    tables._check(Path(path, "steps.csv"), "steps.csv")
    return 0


def large(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb") as opened:
        opened.truncate(1 << 30)


def peak() -> int:
    """The most bytes that this process held, and those it holds."""
    told = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(told["VmHWM"].split()[0]) << 10


def bounded(function: Any, arguments: list[Any], told: Path) -> int:
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    Path("/proc/self/clear_refs").write_text("5")  # the most that it held is what it holds
    before = peak()
    try:
        return int(function(*arguments) or 0)
    except BadInput as error:
        print(f"error: {error}")
        return 2
    finally:
        told.write_text(str(peak() - before))


def main(file: Path) -> None:
    calls = [json.loads(line) for line in file.read_text().splitlines()]
    functions = {}
    for _, called, _ in calls:
        module, _, name = called.partition(":")
        functions[called] = getattr(importlib.import_module(module) if module else sys.modules[__name__], name)
    for module in IMPORTED:  # which is no memory that a file takes
        if any(called.partition(".")[0] == module.partition(".")[0] for called in functions):
            importlib.import_module(module)
    if any(arguments[0][0] == "report" for _, _, arguments in calls):
        importlib.import_module("analysis.report.page")
    with tempfile.TemporaryDirectory() as place:
        for i, (name, called, arguments) in enumerate(calls):
            said, told = Path(place, f"{i}.said"), Path(place, f"{i}.bytes")
            pid = moments.fork(lambda c=called, a=arguments, t=told: bounded(functions[c], a, t), said)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            grown = int(told.read_text()) if told.exists() else None
            print(json.dumps([name, grown, code, said.read_text(errors="replace")]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
