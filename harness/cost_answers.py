"""Answers questions about costs in a subprocess, which imports JAX. ``harness.costs.questions`` asks them."""

import gc
import json
import sys
from collections.abc import Hashable, Sequence

from harness.costs.questions import REFUSED, Answer, Question
from harness.kinds import RUNNERS
from harness.run import Settings
from results.bad_input import BadInput
from results.grouping import grouped
from results.plans.kinds import from_plan

# Number of new objects after which Python looks for garbage. Programs consist of many objects, and looking for garbage
# more often takes a fifth of the time of counting.
GARBAGE = 200_000


def answer_all() -> None:
    """Reads questions of ``harness.costs.questions`` from standard input (one JSON line each), and answers them.

    Prints one line per question: the fields of ``Counts``, the fields of ``Verdict`` if the question has a topology, or
    ``refused``. All studies of a family are counted together when the first of them is answered.
    """
    gc.set_threshold(GARBAGE)
    questions = [_question(line) for line in sys.stdin]
    families = grouped(range(len(questions)), lambda i: _family(questions[i]))
    answers: dict[int, Answer] = {}
    for i, question in enumerate(questions):
        if i not in answers:
            family = families[_family(question)]
            answers |= zip(family, _answers([questions[member] for member in family]), strict=True)
        print(json.dumps(answers.pop(i)), flush=True)


def _question(line: str) -> Question:
    fields = json.loads(line)
    return Question(**fields | {"settings": Settings(**fields["settings"])})


def _family(question: Question) -> Hashable:
    """Returns a key. Questions with equal keys are answered together. Those that compile have distinct keys."""
    study = from_plan(question.plan, question.trials)
    runner = RUNNERS[study.kind]
    source = json.dumps(question.source, sort_keys=True)
    if question.topology is not None or runner.counts_of_sizes is None:
        return question.topology, study.name, question.trials, source, question.settings
    return study.kind, runner.family(study), source, question.settings


def _answers(questions: Sequence[Question]) -> list[Answer]:
    """Returns the answers to the questions of a family as plain data."""
    studies = [from_plan(question.plan, question.trials) for question in questions]
    study, runner = studies[0], RUNNERS[studies[0].kind]
    question = questions[0]
    arguments = study, question.source, question.settings
    assert runner.counts is not None and runner.verdict is not None  # checked by callers
    try:
        if question.topology is None and runner.counts_of_sizes is not None:
            sizes = [runner.examples(study) for study in studies]
            counts = runner.counts_of_sizes(*arguments, sizes)
            return [counts[size]._asdict() for size in sizes]
        if question.topology is None:
            return [runner.counts(*arguments)._asdict() for _ in questions]
        return [runner.verdict(*arguments, question.topology)._asdict() for _ in questions]
    except BadInput as error:  # perhaps of one size only
        if len(questions) > 1:
            return [answer for question in questions for answer in _answers([question])]
        return [{REFUSED: str(error)}]
