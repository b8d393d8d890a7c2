"""Updates: what a launcher tells of the studies that it runs."""

from typing import NamedTuple

from harness.run import RunProgress
from results.plans.plan import Plan
from sweeps.run import RunSummary


class StudyOutcome(NamedTuple):
    """The outcome of one study: its summary, and if it failed the cause, in one line, and its place in our code."""

    summary: RunSummary
    failure: str | None = None
    places: tuple[str, ...] = ()


class StudyUpdate(NamedTuple):
    """An update on a study: its progress, None if it has to wait again; ``outcome`` is set once it has ended."""

    study: Plan
    progress: RunProgress | None
    outcome: StudyOutcome | None = None
