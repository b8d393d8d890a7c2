"""A program: memory of a step under the layouts that are named if a trial does not fit, on eight emulated devices.

    python -m tests.harness.fitting SHARE TASK [KEY=VALUE ...]

Prints the error of a study whose devices have SHARE of the memory that one lane needs, and for each layout that it
names, the bytes of its program relative to that memory.
"""

import json
import re
import sys
from unittest import mock

from harness.run import Settings
from harness.runners import engine
from harness.step import mesh, programs
from harness.step.batch_partition import Division, requested
from harness.step.programs_key import programs_key
from harness.trials import search
from results.bad_input import BadInput
from sweeps import overrides, planning

BATCH = 64
DEVICES = 8


def main(share: float, task: str, words: list[str]) -> None:
    """Prints the error, and the share of the memory that each layout needs."""
    line = [f"task={task}", "optimizer=adam", f"batch_size={BATCH}", "pruning=off", "store=none", *words]
    (study,) = planning.request(overrides.command_line(line)).studies
    key = programs_key(study)
    free = int(share * programs.programs_for(key, DEVICES, "map", Division())[0].bytes)
    told = ""
    with mock.patch.object(mesh, "device_bytes", return_value=free):
        try:
            engine.run(study, search.draw(study, [0]), Settings(lanes=DEVICES, shards=1))
        except BadInput as error:
            told = str(error)
    needed = {}
    for text in re.findall(r"'mesh=(\S+?)' 'layout=(\S+?)'", told):
        least = requested(None, None, *text).least
        division = least._replace(microbatches=BATCH // least.shards)  # as the engine does when memory is short
        if division.devices <= DEVICES:
            built, _ = programs.programs_for(key, DEVICES // division.devices, "map", division)
            needed["/".join(text)] = built.bytes / free
    print(json.dumps({"told": told, "needed": needed}))


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3:])
