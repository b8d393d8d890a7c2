"""LayoutStudy: the plan of a study of kind ``layout``, a step of training laid out on a mesh of devices."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa

from results.bad_input import BadInput, check_choice
from results.plans.plan import Plan
from results.plans.schema import PROVENANCE, TIMING, Column
from results.plans.search_space import SearchSpace
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, Target, check_int
from results.plans.trial_request import MOST_TRIALS

PRECISIONS = ("float32", "bfloat16")
REMATERIALIZATIONS = ("none", "full")
# What is done with the compiled step, before the topology that ``tpu-aot:`` is followed by.
EMULATED, DEVICE, AHEAD = "cpu-emulated", "device", "tpu-aot"
ENGINES = (EMULATED, DEVICE, AHEAD)
_OWN_NAME = 60  # letters of a mesh and a layout in the name of a study

_OF_A_DEVICE = "bytes of each device, as the compiler tells"
# Of measurements of layouts, after the loss: why there is none; then what was counted in the compiled step, what was
# predicted, and what was measured.
COLUMNS = (
    Column("refusal", pa.string(), "kind of the error for which the layout was refused; null where it was not"),
    Column("explanation", pa.string(), "of a refusal, in one line"),
    Column("ideal_flops", pa.float64(), "operations of the matrix products of a step, each done once"),
    Column("executed_flops", pa.float64(), "counted: those that the compiled step does, over all devices"),
    Column("redundancy", pa.float64(), "counted: executed over ideal operations; 1 where no device repeats another's"),
    Column("argument_bytes", pa.int64(), f"counted: parameters, optimizer and batch, {_OF_A_DEVICE}"),
    Column("temporary_bytes", pa.int64(), f"counted: all else that a step keeps at once, {_OF_A_DEVICE}"),
    Column("peak_bytes", pa.int64(), f"counted: both, and results that take no argument's place, {_OF_A_DEVICE}"),
    Column("wire_bytes", pa.float64(), "counted: bytes that a device sends in a step, by the best algorithm on a ring"),
    Column("collectives", pa.string(), "counted: operation, axes of the mesh, count, bytes and wire bytes, JSON"),
    Column("unknown_loops", pa.int32(), "counted: loops whose turns the compiler does not know, which count once"),
    Column("hardware", pa.string(), "the device that is predicted for"),
    Column("predicted_compute_seconds", pa.float64(), "predicted: matrix products of a step at the device's peak"),
    Column("predicted_memory_seconds", pa.float64(), "predicted: reading and writing the device's memory once a step"),
    Column("predicted_exchange_seconds", pa.float64(), "predicted: collectives of a step, latency and bytes"),
    Column("predicted_step_seconds", pa.float64(), "predicted: a step, with nothing done at the same time"),
    Column("predicted_fits", pa.bool_(), "predicted: whether peak_bytes are within the device's memory"),
    Column("scheduled_cycles", pa.float64(), "predicted: cycles of a step that the compiler of TPUs estimates"),
    Column(
        "gradient_difference", pa.float64(), "measured: largest of all parameters, relative to one device's gradient"
    ),
    Column(
        "step_seconds", pa.float64(), "measured: median seconds of a step; null where nothing is timed", says=TIMING
    ),
    Column("step_seconds_low", pa.float64(), "measured: lower quartile of seconds of a step", says=TIMING),
    Column("step_seconds_high", pa.float64(), "measured: upper quartile of seconds of a step", says=TIMING),
    Column("timed_steps", pa.int32(), "measured: steps that were timed, after those that warmed up", says=PROVENANCE),
)


@dataclasses.dataclass(frozen=True)
class LayoutStudy(Plan):
    """One step of training of one model on one mesh, laid out in one way: everything that decides a result.

    Mesh and layout are texts in Mesh-TensorFlow's notation (arXiv 1811.02084). They need not make sense: that a layout
    is refused, and why, is a result.

    Attributes:
      model: name of the shape.
      model_options: its numbers.
      batch_size: global, in sequences.
      length: of a sequence, in tokens.
      mesh: axes and their sizes, such as ``data:2;model:4``.
      layout: axes of tensors and those of the mesh that they are split over, such as ``batch:data;heads:model``.
      strict: whether pairs with axes that are not there are errors, or passed over as Mesh-TensorFlow does.
      device_count: devices that the mesh must have.
      engine: ``cpu-emulated`` (run for its results, on devices that a CPU emulates), ``device`` (run and timed) or
        ``tpu-aot:TOPOLOGY`` (compiled for a slice of TPUs that is not there, and not run).
      hardware: the device that costs are predicted for.
      precision: of activations and matrix products.
      rematerialization: ``full`` computes blocks again on the way back, ``none`` keeps what they computed.
      budget_steps: steps that are run.
      space: empty; nothing is tuned.
      seed: of parameters and data.
      trials: 1, or more with seeds of their own. Not part of the identity.
      comparable: Major.Minor of the software; results of different ones are not comparable.
      digits: how many hex digits of the plan's hash its name has. Not part of the identity.
    """

    model: str
    model_options: Mapping[str, Any]
    batch_size: int
    length: int
    mesh: str
    layout: str
    strict: bool
    device_count: int
    engine: str
    hardware: str
    precision: str
    rematerialization: str
    budget_steps: int
    space: SearchSpace
    seed: int
    trials: int
    comparable: str = COMPARABLE
    digits: int = DIGITS[-1]

    kind: ClassVar[str] = "layout"
    # Of the stream are model, batch and seed alone, so that all layouts train the same parameters on the same data.
    NOT_IN_STREAM: ClassVar[frozenset[str]] = frozenset(
        {"mesh", "layout", "strict", "device_count", "engine", "hardware", "precision", "rematerialization"}
        | {"budget_steps"}
    )
    dataset: ClassVar[str] = "counting"
    optimizer: ClassVar[str] = "adam"
    targets: ClassVar[tuple[Target, ...]] = ()
    ends_at: ClassVar[tuple[Target, ...]] = ()
    stop: ClassVar[str] = "budget"
    pruning: ClassVar[str] = "off"
    source: ClassVar[None] = None

    def __post_init__(self) -> None:
        for field in ("batch_size", "length", "device_count", "budget_steps"):
            check_int(field, getattr(self, field), 1, MOST_STEPS)
        check_int("trials", self.trials, 1, MOST_TRIALS)
        check_int("seed", self.seed, 0)
        check_choice("engine", self.engine_name, ENGINES)
        if (self.engine_name == AHEAD) != bool(self.topology):
            raise BadInput(
                f"engine={self.engine}: {AHEAD} names a topology, such as {AHEAD}:v5e:4x4, and no other does"
            )
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("rematerialization", self.rematerialization, REMATERIALIZATIONS)
        if self.space:
            raise BadInput("a layout tunes nothing")

    @property
    def engine_name(self) -> str:
        """The engine without a topology."""
        return self.engine.partition(":")[0]

    @property
    def topology(self) -> str:
        """The slice of TPUs that it is compiled for; empty for other engines."""
        return self.engine.partition(":")[2]

    @property
    def slug(self) -> str:
        """The readable part of its name."""
        mesh, layout = (re.sub(r"[^a-z0-9]+", "_", each.lower()).strip("_") for each in (self.mesh, self.layout))
        where = f"{mesh or 'none'}-{layout or 'replicated'}"[:_OWN_NAME].strip("_-")
        return f"{self.model}-{self.engine_name.replace('-', '_')}-{where}"

    @property
    def model_label(self) -> str:
        """The model's name, then its batch, and what else of it is not the usual, as tables show it."""
        usual = {"precision": (self.precision, PRECISIONS[0], self.precision)}
        usual["rematerialization"] = (self.rematerialization, REMATERIALIZATIONS[0], "rematerialized")
        others = [said for value, first, said in usual.values() if value != first]
        return "_".join([f"{self.model}_{self.batch_size}x{self.length}", *others])

    @property
    def devices(self) -> int:
        """The number of devices it is measured on; what is compiled ahead needs none but the processor."""
        return 1 if self.engine_name == AHEAD else self.device_count

    @property
    def most_evaluations(self) -> int:
        """The number of evaluations of a trial: one a step."""
        return self.budget_steps
