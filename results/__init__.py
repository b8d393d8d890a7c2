"""Plans and results of studies: plain types, the schema and the store. This package does not import the others."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  (the other packages import this one first, and fail on an older Python)
    which = f"{sys.executable} is {'.'.join(map(str, sys.version_info[:3]))}"
    print(f"error: Python 3.11 or newer is needed; {which}", file=sys.stderr)
    raise SystemExit(2)
