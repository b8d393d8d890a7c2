"""Exit codes of all commands: one per cause, so that a caller can decide whether to retry."""

import signal
from typing import NamedTuple

DONE, FAILED, INVALID = 0, 1, 2
PREEMPTED, PEER_LOST = 75, 76  # 75 is EX_TEMPFAIL in sysexits.h
INTERRUPTED, TERMINATED, UNREAD = 128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGPIPE


class Cause(NamedTuple):
    """The cause of an exit code, the state of the results, and the remedy."""

    cause: str
    results: str
    then: str


_KEPT = "finished trials are stored"
_SAVED = "finished trials are stored, running trials are saved"
CAUSES = {
    DONE: Cause("done, or stopped at the time limit", _SAVED, "nothing"),
    FAILED: Cause("a study failed, or a check or a comparison found a fault", _KEPT, "read the output"),
    INVALID: Cause("invalid input, or a failing disk or network", "unchanged", "fix the reported error"),
    PREEMPTED: Cause("SIGTERM while training", _SAVED, "run it again to resume"),
    PEER_LOST: Cause(
        "another process of a multi-host study is gone",
        "finished trials are stored, running trials as of their last checkpoint",
        "run it again, on all hosts",
    ),
    INTERRUPTED: Cause("Ctrl-C", _SAVED, "run it again at any time"),
    TERMINATED: Cause("SIGTERM without a running trial to save", _KEPT, "run it again"),
    UNREAD: Cause("the reader of the output, such as head, has ended", _KEPT, "nothing"),
}
