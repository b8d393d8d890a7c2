"""Costs: what is known of a study before it runs, as plain numbers; and the processes that find them out.

Nothing here imports JAX: runners do, in a process of their own (``runners.answer_all``), and what it said is kept in a
cache by plan, settings, topology, the compiler's flags, and versions of this code, of jax and of libtpu.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.run import Settings
from results import durable
from results.bad_input import BadInput, number_of
from workloads import caches

ROOT = Path(__file__).parents[1]
# What that process runs; nothing else of the working folder is.
PROGRAM = "from harness import runners; runners.answer_all()"
REFUSED = "refused"  # the key of why there is no answer
OURS = ("harness", "workloads")  # whose code decides what a study costs
FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")  # variables of the environment that change what a compiler answers
QUIET_SECONDS = 5.0  # between lines that say how far a process is


class Work(NamedTuple):
    """The work of a program.

    Attributes:
      flops: of matrix products and convolutions, two for each product of two numbers.
      fused_bytes: to and from memory of operations that no compiler makes a part of others.
      most_bytes: of all operations, as if each read its operands from memory and wrote its result there.
      operations: how many there are, those in loops as often as they turn.
    """

    flops: float = 0.0
    fused_bytes: float = 0.0
    most_bytes: float = 0.0
    operations: float = 0.0


class Counts(NamedTuple):
    """What is counted of a study from shapes alone: always of one device's share, of so many that share a step.

    Attributes:
      step: work of a step of one trial, the share of one device.
      evaluation: likewise, of an evaluation.
      parameters: numbers that are trained, of all devices.
      held_bytes: that a device holds at most, about: one trial's share of a batch with everything that is kept.
      equations: operations in the text of all programs, which decides how long they compile.
      devices: that share a step. Nothing here is to be divided by them once more.
      precision: of its products, float32 or bfloat16.
      least_bytes: that a device holds, about, where it takes its share in as many parts as there can be.
      sums: whether devices that share a step sum the gradients of all parameters.
      streamed: whether each lane has a stream of data of its own, so that there is one unless told.
    """

    step: Work
    evaluation: Work
    parameters: int
    held_bytes: float
    equations: int
    devices: int
    precision: str
    least_bytes: float
    sums: bool = False
    streamed: bool = False


class Exchange(NamedTuple):
    """The collectives of one operation over axes of a mesh, in a step: how many, of whole arrays, and on the wire."""

    operation: str
    axes: str
    times: float
    bytes: float
    wire_bytes: float


class Verdict(NamedTuple):
    """What the compiler for a topology says of a study.

    Attributes:
      fits: whether it does; None: not known, as the compiler did not end.
      needed_bytes, device_bytes: of a device, with all arguments; the latter is all that the compiler may use.
      seconds: predicted, of a step: least and most.
      exchanges: of a step.
      unknown_loops: whose turns the compiler does not know, counted once: those over steps.
      cycles: of a step by the compiler's schedule, weighted by the turns of loops; None where it tells none.
      lanes: trials that a device takes along.
      shards: devices that share a step, as the engine would divide it.
      microbatches: parts in which a device takes its share, one by one.
      device_kind: as JAX calls it.
      devices: of the slice.
      how: the lanes and the division that this is of, in words.
      processor_seconds: that compiling took.
      why: what the compiler says where it does not fit, or why it is not known.
    """

    fits: bool | None
    needed_bytes: float | None = None
    device_bytes: float | None = None
    flops: float | None = None
    exchanges: tuple[Exchange, ...] = ()
    exchange_seconds: float | None = None
    unknown_loops: int = 0
    cycles: float | None = None
    lanes: int = 1
    shards: int = 1
    microbatches: int = 1
    device_kind: str = ""
    devices: int = 0
    how: str = ""
    processor_seconds: float = 0.0
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Question:
    """A study whose costs are asked for.

    Attributes:
      plan, trials: of it, plain data.
      source: of its data, likewise; None where the plan says it.
      settings: of the run.
      topology: of TPUs that need not be there, to be compiled for; None: counts alone.
    """

    plan: Mapping[str, Any]
    trials: int
    source: Mapping[str, Any] | None
    settings: Settings
    topology: str | None = None

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)

    def key(self) -> str:
        """The hash of it that its answer is kept under."""
        flags = {name: os.environ.get(name) for name in FLAGS}
        text = json.dumps([self.json(), versions(self.topology is not None), flags], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Unanswered(Exception):
    """A process that was asked ended without an answer; the text says why."""


def versions(with_compiler: bool) -> dict[str, str]:
    """The versions that an answer depends on: of jax, of libtpu where it compiles, and of the code that is asked."""
    names = ("jax", "jaxlib", "flax", "optax", *(("libtpu",) if with_compiler else ()))
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found | {"code": code_hash(OURS)}  # whose code decides what a study costs


def code_hash(folders: Sequence[str]) -> str:
    """The hash of the code in some of our folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def ask(
    questions: Sequence[Question],
    timeout_seconds: float | None = None,
    say: Callable[[str], None] = lambda line: None,
    *,
    refuses: bool = True,
) -> list[dict[str, Any] | None]:
    """The answers to questions, plain data; None to those that the process did not come to by its timeout.

    All go to one process, which answers one after the other; answers that are known already are read.

    Args:
      questions: of one topology.
      timeout_seconds: of all together; None: no limit.
      say: takes lines for the user: when a process is started that may take long, and how far it is.
      refuses: whether what cannot be is an error; else the answer to it is ``REFUSED`` and why.

    Raises:
      BadInput: what a question asks for cannot be.
      Unanswered: the process failed.
    """
    cache = _cache()
    answers: dict[str, dict[str, Any] | None] = {}
    keys = [question.key() for question in questions]
    asked = {}
    for key, question in zip(keys, questions, strict=True):
        known = _read(cache, key)
        if known is None:
            asked[key] = question
        else:
            answers[key] = known
    if asked:
        told = _told(asked.values(), say)
        for key, own in zip(asked, _process(list(asked.values()), timeout_seconds, told), strict=False):
            answers[key] = own
            if REFUSED not in own:  # which may be mended without a change of ours
                _write(cache, key, own)
    for answer in answers.values() if refuses else ():
        if answer is not None and REFUSED in answer:
            raise BadInput(answer[REFUSED])
    return [answers.get(key) for key in keys]


def _told(asked: Collection[Question], say: Callable[[str], None]) -> Callable[[int], None]:
    """Says what a process is asked; gives what takes how many answers there are, and says so now and then."""
    what = number_of(len(asked), "program")
    topologies = ", ".join(sorted({question.topology for question in asked if question.topology is not None}))
    each = " each" if len(asked) > 1 else ""
    counting = f"counting {what}"
    say(f"compiling {what} for {topologies}, which may take minutes{each}" if topologies else counting)
    began = last = time.monotonic()

    def told(count: int) -> None:
        nonlocal last
        if count < len(asked) and time.monotonic() - last > QUIET_SECONDS:
            last = time.monotonic()
            left = math.ceil((last - began) / count * (len(asked) - count))
            say(f"{count:,} of {what} {'compiled' if topologies else 'counted'}, about {left:,} s left")

    return told


def _cache() -> Path | None:
    """The folder of answers; None where there can be none."""
    try:
        folder = caches.folder("costs")
        folder.mkdir(parents=True, exist_ok=True)
    except (BadInput, OSError):
        return None
    return folder


def _read(cache: Path | None, key: str) -> dict[str, Any] | None:
    if cache is None:
        return None
    try:
        answer = json.loads(durable.read(cache / f"{key}.json", durable.RECORD_BYTES))
    except (BadInput, OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def _write(cache: Path | None, key: str, answer: Mapping[str, Any]) -> None:
    if cache is not None:
        with contextlib.suppress(OSError):
            durable.create(cache / f"{key}.json", json.dumps(answer).encode())


def _process(
    questions: Sequence[Question], timeout_seconds: float | None, told: Callable[[int], None]
) -> list[dict[str, Any]]:
    """What a process answers, in order; fewer than there are questions where it did not end in time.

    ``told`` is called with the number of answers after each.
    """
    late = threading.Event()
    answers = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",  # devices are none of its business
            "TMPDIR": name,  # where libtpu keeps a lock
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        (folder / "asked").write_text("".join(f"{json.dumps(question.json())}\n" for question in questions))
        with (folder / "asked").open() as asked, (folder / "errors").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *(f"-W{each}" for each in sys.warnoptions), "-P", "-c", PROGRAM],
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
                        told(len(answers))
            process.wait()
        except BaseException:
            _end(process)
            process.wait()
            raise
        finally:
            timer.cancel()
        last = ((folder / "errors").read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
    if not late.is_set() and len(answers) < len(questions):
        raise Unanswered(f"the process that counts ended with {process.returncode}: {last[:300]}")
    return answers


def _end(process: subprocess.Popen[str]) -> None:
    """Ends a process with everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def counts_of(answer: Mapping[str, Any]) -> Counts:
    """Counts from plain data."""
    return Counts(**{**answer, **{name: Work(*answer[name]) for name in ("step", "evaluation")}})


def verdict_of(answer: Mapping[str, Any]) -> Verdict:
    """A verdict from plain data."""
    return Verdict(**{**answer, "exchanges": tuple(Exchange(*each) for each in answer["exchanges"])})
