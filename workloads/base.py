"""The functions of results that workloads use: errors, files, printing and progress. This is the only door to results.

``results.bounds``, which reads Parquet files of others, is imported where it is used, because it needs PyArrow.
"""

from results import cli as cli, durable as durable
from results.als import Als as Als
from results.bad_input import (
    BadInput as BadInput,
    check_choice as check_choice,
    first_line as first_line,
    meaning as meaning,
    nearest as nearest,
    number_of as number_of,
    printable as printable,
)
from results.lazy import lazy as lazy
from results.printing import Report as Report, say as say
from results.progress import FIRST_SECONDS as FIRST_SECONDS, show_progress as show_progress, track as track
