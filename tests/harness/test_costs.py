"""Asking what studies cost: of a process of its own, once, within a limit of time."""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.compiled import ahead_of_time
from harness.costs import network_costs, questions
from harness.costs.questions import Question, Unanswered
from harness.processes.provenance import ROOT
from harness.run import Settings
from results.bad_input import BadInput
from results.costs import collectives, hardware, predictions
from results.plans.batch_study import BatchStudy
from workloads import registry

WORK = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
ANSWER = {
    "step": WORK,
    "evaluation": WORK,
    "parameters": 5,
    "held_bytes": 6.0,
    "equations": 7,
    "devices": 1,
    "precision": "float32",
    "least_bytes": 6.0,
}


@pytest.fixture
def question(make_study: Callable[..., BatchStudy], tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Question:
    monkeypatch.setenv("SCALING_LIMITS_CACHE", str(tmp_path))
    study = make_study()
    return Question(json.loads(json.dumps(study.plan())), study.trials, None, Settings())


def test_a_process_answers_and_a_second_call_reads(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    (answer,) = questions.ask([question])
    assert answer is not None
    counts = questions.counts_of(answer)
    # 64 examples through 64 × 16 and 16 × 10: three passes, but no gradient of the inputs.
    assert counts.step.flops == pytest.approx(2 * 64 * (2 * 64 * 16 + 3 * 16 * 10))
    assert counts.parameters == 64 * 16 + 16 + 16 * 10 + 10
    monkeypatch.setattr(questions, "_process", lambda *_: pytest.fail("a process was started for a known answer"))
    assert questions.ask([question]) == [answer]
    # Another version of jax is another question, as is another plan, setting or topology, or flag of a compiler.
    keys = {question.key()}
    keys.add(dataclasses.replace(question, settings=Settings(shards=2)).key())
    keys.add(dataclasses.replace(question, topology="v3:2x2").key())
    for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, "--xla_tpu_scoped_vmem_limit_kib=65536")
            keys.add(question.key())
    monkeypatch.setattr(questions, "versions", lambda with_compiler: {"jax": "0"})
    keys.add(question.key())
    assert len(keys) == 6


def test_untied_read_out_adds_parameters_and_no_products(
    make_study: Callable[..., BatchStudy],
) -> None:
    """D = 16 and V = 256. Adam has two means of each parameter."""
    options = {"layers": 1, "d_model": 16, "heads": 2, "d_ff": 16, "dropout": 0.0}
    tied, untied = (
        network_costs.counts(
            make_study(
                dataset="pydoc",
                model="transformer_decoder",
                model_options=options | form,
                optimizer="adam",
                batch_size=4,
            ),
            None,
            Settings(),
        )
        for form in ({}, {"read_out": "untied"})
    )
    assert untied.parameters - tied.parameters == 16 * 256
    assert untied.held_bytes - tied.held_bytes == 3 * 4 * 16 * 256
    assert untied.step.flops == tied.step.flops


def test_cached_cost_depends_on_the_code_that_computes_it() -> None:
    computes = (ahead_of_time, collectives, hardware, predictions, network_costs, registry)
    folders = [ROOT / folder for folder in questions.OURS]
    assert all(any(Path(module.__file__).is_relative_to(folder) for folder in folders) for module in computes)


def test_what_did_not_end_in_time_is_not_known(question: Question) -> None:
    assert questions.ask([question], timeout_seconds=0.01) == [None]


def test_what_cannot_be_is_an_error_or_is_told(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    def process(asked: Sequence[Question], *_: Any) -> list[dict[str, Any]]:
        return [{questions.REFUSED: "there is no such thing"} for _ in asked]

    monkeypatch.setattr(questions, "_process", process)
    with pytest.raises(BadInput, match="there is no such thing"):
        questions.ask([question])
    assert questions.ask([question], refuses=False) == [{questions.REFUSED: "there is no such thing"}]
    monkeypatch.setattr(questions, "_process", lambda *_: [ANSWER])
    assert questions.ask([question]) == [ANSWER]  # and was not kept


def test_what_takes_long_says_how_far_it_is(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    def process(
        questions: Sequence[Question], timeout: float | None, told: Callable[[int], None]
    ) -> list[dict[str, Any]]:
        for count in range(len(questions)):
            told(count + 1)
        return [ANSWER] * len(questions)

    monkeypatch.setattr(questions, "_process", process)
    monkeypatch.setattr(questions, "QUIET_SECONDS", -1.0)
    said: list[str] = []
    questions.ask(
        [dataclasses.replace(question, settings=Settings(lanes=lanes)) for lanes in (1, 2, 3)], say=said.append
    )
    assert said[0] == "counting operations in 3 programs"
    assert [re.sub(r"\d+ s left", "N s left", line) for line in said[1:]] == [
        "1 of 3 programs counted",
        "2 of 3 programs counted",
    ]
    questions.ask([dataclasses.replace(question, topology="v3:2x2")], say=said.append)
    assert said[3:] == ["compiling 1 program for v3:2x2, which may take minutes"]


def test_a_process_that_dies_says_why(question: Question) -> None:
    broken = dataclasses.replace(question, plan={**question.plan, "model": "none_such"})
    with pytest.raises(Unanswered, match="KeyError: 'none_such'"):
        questions.ask([broken])


def test_the_environment_of_others_is_left_alone(question: Question) -> None:
    before = dict(os.environ)
    questions.ask([question], timeout_seconds=0.01)
    assert dict(os.environ) == before
