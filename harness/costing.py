"""Costing: the process that answers questions of ``harness.costs``, a line of JSON each, from standard input.

Prints a line for each: the fields of ``Counts``, of ``Verdict`` where it asks for a topology, or ``refused``.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from harness.costs import REFUSED, Question
from harness.run import Settings
from harness.runners import RUNNERS
from results.bad_input import BadInput
from results.plans.kinds import from_plan


def answer(question: Question) -> dict[str, Any]:
    """The answer to a question, plain data."""
    study = from_plan(question.plan, question.trials)
    runner = RUNNERS[study.kind]
    assert runner.counts is not None and runner.verdict is not None  # nobody asks otherwise
    try:
        if question.topology is None:
            return dict(runner.counts(study, question.source, question.settings)._asdict())
        return dict(runner.verdict(study, question.source, question.settings, question.topology)._asdict())
    except BadInput as error:
        return {REFUSED: str(error)}


def _question(given: Mapping[str, Any]) -> Question:
    return Question(**{**given, "settings": Settings(**given["settings"])})


def main() -> None:
    """Answers until there are no more questions."""
    for line in sys.stdin:
        print(json.dumps(answer(_question(json.loads(line)))), flush=True)
