"""Estimates the costs of a study before it runs. Subprocesses count operations or compile programs.

Only the subprocess imports JAX (``harness.cost_answers``). Answers are cached by plan, settings, topology, compiler
flags, and the versions of this code, jax and libtpu.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from harness.processes.provenance import code_hash, installed
from harness.run import Settings, Source
from results import durable
from results.aliases import Fields, Json, OnCount
from results.bad_input import BadInput, number_of
from results.costs.counts import Counts, Exchange, Verdict, Work
from results.printing import Report
from workloads import caches

Answer = Json  # plain data
# The subprocess's program.
PROGRAM = "from harness import cost_answers; cost_answers.answer_all()"
REFUSED = "refused"  # key of the reason why a question has no answer
OURS = ("harness", "workloads", "results/costs")  # folders whose code determines the costs
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")  # environment variables that affect the compiler's output
QUIET_SECONDS = 5.0  # between lines of progress


@dataclasses.dataclass(frozen=True)
class Question:
    """A request for the costs of a study.

    Attributes:
      plan, trials: the study's plan as plain data, and its number of trials.
      source: source of the study's data, as plain data, or None if the plan specifies it.
      settings: settings of the run.
      topology: TPU topology to compile for. The TPUs do not need to be attached. With None, costs are only counted.
    """

    plan: Fields
    trials: int
    source: Source
    settings: Settings
    topology: str | None = None

    def key(self, by: dict[str, str] | None = None) -> str:
        """Returns the cache key of the answer, given the result of ``versions``, which is slow to compute."""
        by = by or versions(self.topology is not None)
        flags = {name: os.environ.get(name) for name in FLAGS}
        text = json.dumps([dataclasses.asdict(self), by, flags], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Unanswered(Exception):
    """A subprocess ended without an answer. The message contains the reason."""


def versions(with_compiler: bool) -> dict[str, str]:
    """Returns the versions that an answer depends on: jax, this code, and libtpu if programs are compiled."""
    names = ["jax", "jaxlib", "flax", "optax"]
    if with_compiler:
        names.append("libtpu")
    return installed(names) | {"code": code_hash(OURS)}


def ask(
    questions: Sequence[Question],
    timeout_seconds: float | None = None,
    say: Report = lambda line: None,
    *,
    refuses: bool = True,
) -> list[Answer | None]:
    """Returns the answers to questions as plain data. Questions that are not answered before the timeout get None.

    A single subprocess answers all questions that have no cached answer, in order.

    Args:
      questions: questions about one topology.
      timeout_seconds: time limit for all questions together. With None, there is no limit.
      say: called with messages for the user about the start and the progress of a slow subprocess.
      refuses: whether to raise an error for an unanswerable question. If False, its answer is ``REFUSED`` with the
        reason.

    Raises:
      BadInput: a question cannot be answered, and ``refuses`` is True.
      Unanswered: the subprocess failed.
    """
    cache = _cache()
    current_versions = {
        compiles: versions(compiles) for compiles in {question.topology is not None for question in questions}
    }
    keys = [question.key(current_versions[question.topology is not None]) for question in questions]
    answers = {key: _read(cache, key) for key in keys}
    asked = {key: question for key, question in zip(keys, questions, strict=True) if answers[key] is None}
    if asked:
        on_answer = _progress(list(asked.values()), say)
        for key, reply in zip(asked, _process(list(asked.values()), timeout_seconds, on_answer), strict=False):
            answers[key] = reply
            if REFUSED not in reply:  # refusals are not cached, because they may have external causes
                _write(cache, key, reply)
    for answer in answers.values():
        if refuses and answer is not None and REFUSED in answer:
            raise BadInput(answer[REFUSED])
    return [answers[key] for key in keys]


def _progress(asked: Sequence[Question], say: Report) -> OnCount:
    """Announces the questions. Returns a callback that occasionally reports the number of answers passed to it."""
    programs = number_of(len(asked), "program")
    topologies = ", ".join(sorted({question.topology for question in asked if question.topology is not None}))
    suffix = " each" if len(asked) > 1 else ""
    done = "compiled" if topologies else "counted"
    if topologies:
        say(f"compiling {programs} for {topologies}, which may take minutes{suffix}")
    else:
        say(f"counting operations in {programs}")
    began = last = time.monotonic()

    def told(count: int) -> None:
        nonlocal last
        if count < len(asked) and time.monotonic() - last > QUIET_SECONDS:
            last = time.monotonic()
            left = math.ceil((last - began) / count * (len(asked) - count))
            # Batch sizes are counted together, so the rest may take much less time per program.
            say(f"{count:,} of {programs} {done}{f', about {left:,} s left' if topologies else ''}")

    return told


def _cache() -> Path | None:
    """Returns the folder of cached answers, or None if it cannot be created."""
    try:
        folder = caches.folder("costs")
        folder.mkdir(parents=True, exist_ok=True)
    except (BadInput, OSError):
        return None
    return folder


def _read(cache: Path | None, key: str) -> Answer | None:
    return None if cache is None else read_json(cache / f"{key}.json")


def read_json(file: Path) -> Answer | None:
    """Returns the object in a cached file, or None if it is invalid. The file is untrusted."""
    try:
        content = json.loads(durable.read(file, durable.RECORD_BYTES))
    except (BadInput, OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _write(cache: Path | None, key: str, answer: Fields) -> None:
    if cache is not None:
        with contextlib.suppress(OSError):
            durable.create(cache / f"{key}.json", json.dumps(answer).encode())


def _process(questions: Sequence[Question], timeout_seconds: float | None, on_answer: OnCount) -> list[Answer]:
    """Returns the subprocess's answers in order. If it times out, the last questions have no answers.

    Calls ``on_answer`` with the number of answers after each one.
    """
    late = threading.Event()
    answers = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {
            "JAX_TRACEBACK_FILTERING": "off",  # keeps the error in the last line
            "JAX_PLATFORMS": "cpu",  # keeps the subprocess from occupying a device
            "TMPDIR": name,  # libtpu keeps a lock there
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        (folder / "asked").write_text(
            "".join(f"{json.dumps(dataclasses.asdict(question))}\n" for question in questions)
        )
        with (folder / "asked").open() as asked, (folder / "errors").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *(f"-W{option}" for option in sys.warnoptions), "-P", "-c", PROGRAM],
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,
            )

        def end() -> None:
            late.set()
            _end(process)

        timer = threading.Timer(timeout_seconds or 0.0, end)
        timer.daemon = True
        if timeout_seconds is not None:
            timer.start()
        try:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    if line.startswith("{") and line.endswith("}\n"):
                        answers.append(json.loads(line))
                        on_answer(len(answers))
            process.wait()
        except BaseException:
            _end(process)
            process.wait()
            raise
        finally:
            timer.cancel()
        last = ((folder / "errors").read_text(errors="replace").strip().splitlines() or ["no output"])[-1]
    if not late.is_set() and len(answers) < len(questions):
        raise Unanswered(f"the subprocess that counts ended with exit code {process.returncode}: {last[:300]}")
    return answers


def _end(process: subprocess.Popen[str]) -> None:
    """Kills a process and all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def counts_of(answer: Fields) -> Counts:
    """Converts plain data to counts."""
    works = {name: Work(*answer[name]) for name in ("step", "evaluation")}
    exchanges = answer.get("exchanges")
    exchanged = None if exchanges is None else tuple(Exchange(*fields) for fields in exchanges)
    return Counts(**{**answer, **works, "exchanges": exchanged})


def verdict_of(answer: Fields) -> Verdict:
    """Converts plain data to a verdict."""
    return Verdict(**{**answer, "exchanges": tuple(Exchange(*fields) for fields in answer["exchanges"])})
