"""Exit codes of all commands: one for each cause, so that whoever started a command knows whether to start it again."""

import signal
from typing import NamedTuple

DONE, FAILED, INVALID = 0, 1, 2
PREEMPTED, PEER_LOST = 75, 76  # 75 is EX_TEMPFAIL of sysexits.h
INTERRUPTED, TERMINATED, UNREAD = 128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGPIPE


class Cause(NamedTuple):
    """The cause of an exit code, what has become of the results, and what to do."""

    cause: str
    results: str
    then: str


_KEPT = "finished trials are stored"
CAUSES: dict[int, Cause] = {
    DONE: Cause("done, or stopped by its limit of time", "stored; what was under way is saved", "nothing"),
    FAILED: Cause("a study failed, or a check or a comparison found something", _KEPT, "read what was printed"),
    INVALID: Cause(
        "invalid input, or a disk or a network that failed", "nothing is changed", "mend what the line says"
    ),
    PREEMPTED: Cause("SIGTERM while training", f"{_KEPT}, and those under way saved", "run it again: it goes on"),
    PEER_LOST: Cause(
        "another of the processes that ran the study together is gone",
        f"{_KEPT}; those under way as of the last time they were saved",
        "run it again, on all hosts",
    ),
    INTERRUPTED: Cause("Ctrl-C", f"{_KEPT}, and those under way saved", "run it again when you like"),
    TERMINATED: Cause("SIGTERM where nothing was under way that could be saved", _KEPT, "run it again"),
    UNREAD: Cause("the reader of the output, such as head, has gone", _KEPT, "nothing"),
}
