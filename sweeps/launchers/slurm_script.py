"""The batch script of an array of SLURM jobs."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

from results.store import LAUNCHERS
from sweeps.configured_study import Config, Studies
from sweeps.launchers import attempt
from sweeps.launchers.launcher import Launch

FOLDER = LAUNCHERS[0]  # folder in a store for the output of jobs that do not have logs yet


class Resources(NamedTuple):
    """The resources that a study needs. Studies that need the same resources share an array."""

    cpus: int
    gpus: int
    exclusive: bool


def batch_script(asked: Config, launch: Launch, need: Resources, studies: Studies) -> str:
    """Returns the batch script of an array with one element per study."""
    output = (launch.folder / FOLDER).absolute()
    options = {
        "job-name": "scaling-limits",
        "array": f"0-{len(studies) - 1}" + (f"%{asked['at_once']}" if asked["at_once"] else ""),
        "output": f"{str(output).replace('%', '%%')}/%A_%a.out",
        "open-mode": "append",
        "requeue": None,
        "signal": f"B:USR2@{asked['grace_seconds']}",
        "chdir": Path.cwd(),
        "cpus-per-task": need.cpus,
        "nodes": asked["nodes"],
        "ntasks-per-node": 1,
    }
    if need.gpus:
        options["gpus-per-node"] = need.gpus
    if need.exclusive:
        options["exclusive"] = None
    limits = {"mem": asked["mem"], "time": asked["minutes"], "partition": asked["partition"]}
    options |= {key: value for key, value in limits.items() if value is not None} | asked["sbatch"]
    lines = [f"#SBATCH --{key}" + ("" if value is None else f"={_word(value)}") for key, value in options.items()]
    python = [sys.executable, "-P", "-m", "sweeps.launchers.attempt", str(launch.folder.absolute())]
    failures = launch.limits.study.max_failures
    retries = asked["retries"] if failures is None else min(asked["retries"], failures - 1)
    about = [f"--retries={retries}", f"--nodes={asked['nodes']}"]
    if asked["silence_seconds"] is not None:
        about.append(f"--silence-seconds={asked['silence_seconds']}")
    elements = []
    for study in studies:
        port = f"--port={attempt.port_of(study.name)}"
        elements.append(shlex.join([*python, study.name, *about, port, "--", *launch.words[study.name]]))
    return "\n".join(
        [
            "#!/bin/bash",
            *lines,
            f"export PYTHONPATH={shlex.quote(str(attempt.ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}",
            f"export SCALING_LIMITS_OUTPUT={shlex.quote(str(output))}"
            "/${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}.out",
            "elements=(",
            *(f"  {shlex.quote(element)}" for element in elements),
            ")",
            'eval "exec ${elements[$SLURM_ARRAY_TASK_ID]}"',
            "",
        ]
    )


def _word(value: Any) -> str:
    """Quotes a value for an #SBATCH line."""
    text = str(value)
    return text if re.fullmatch(r"[\w@%+=:,./-]+", text) else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
