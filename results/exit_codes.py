"""Exit codes of all commands: one per cause, so that callers can decide whether to retry. See docs/stopping.md."""

import signal

DONE = 0  # done, or stopped at the time limit
FAILED = 1  # a study failed, or a check or a comparison found a fault
INVALID = 2  # invalid input, or a failing disk or network
PREEMPTED = 75  # SIGTERM after a step, which was saved; EX_TEMPFAIL in sysexits.h
PEER_LOST = 76  # another process of a multi-host study is gone, and this command had saved steps
NO_PROGRESS = 77  # like 75 or 76, but without saved steps since the command started
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM  # without a running trial to save
UNREAD = 128 + signal.SIGPIPE  # the reader of the output, such as head, has ended

# Restarts after these codes are free: steps were saved, so restarting ends. All others count against a limit.
free_restarts = (PREEMPTED, PEER_LOST)
