"""LayoutStudy: the plan of a ``layout`` study, which runs one training step on a device mesh."""

import dataclasses
import re
from typing import ClassVar

from results.aliases import Fields
from results.bad_input import BadInput, check_choice
from results.plans.plan import Labels, Plan
from results.plans.schema import read_columns
from results.plans.search_space import SearchSpace
from results.plans.study import COMPARABLE, DIGITS, MOST_STEPS, check_int
from results.plans.trial_request import MOST_TRIALS

PRECISIONS = ("float32", "bfloat16")
REMATERIALIZATIONS = ("none", "full")
# Uses of the compiled step. ``tpu-aot`` is followed by a colon and a topology.
COUNTING = "counting"  # the tokens of ``workloads.layouts.shapes``
EMULATED, DEVICE, AHEAD = "cpu-emulated", "device", "tpu-aot"
ENGINES = (EMULATED, DEVICE, AHEAD)
_OWN_NAME = 60  # maximum letters of mesh and layout in a study's name

# Layout measurements have these columns after the loss: the reason for a rejection, counts from the compiled step,
# predictions, and measurements.
COLUMNS = read_columns("layout")


@dataclasses.dataclass(frozen=True)
class LayoutStudy(Plan):
    """One training step of a model on one mesh, in one layout. The fields are exactly those that determine the results.

    Mesh and layout are strings in Mesh-TensorFlow's notation (arXiv 1811.02084). They may be invalid: the rejection of
    a layout, with the reason, is a result.

    Attributes:
      model: name of a model shape, or of the model in a task.
      model_options: options of the model.
      batch_size: global batch size, in sequences or other examples.
      length: tokens per sequence, or 1.
      mesh: axes and their sizes, such as ``data:2;model:4``.
      layout: tensor axes, each with the mesh axis across which it is split, such as ``batch:data;heads:model``.
      strict: whether pairs with unknown axes are errors. If not, they are ignored, as in Mesh-TensorFlow.
      device_count: required number of devices in the mesh.
      engine: ``cpu-emulated`` (run on CPU-emulated devices, without timing), ``device`` (run and timed) or
        ``tpu-aot:TOPOLOGY`` (compiled for a TPU slice but not run, so a TPU is not needed).
      hardware: device assumed when predicting costs.
      precision: precision of activations and matmuls.
      rematerialization: ``full`` recomputes layers in the backward pass, and ``none`` keeps their activations. A list
        of tensor names joined by ``+``, such as ``attention+out``, keeps only these tensors.
      budget_steps: number of steps to run.
      space: empty, because layouts have no metaparameters.
      seed: seed of the parameters and the data.
      trials: number of trials. Each has its own seed. Not part of the identity.
      dataset, dataset_version: data set of a task, or ``counting`` for a model shape. The data set determines the
        shapes of a batch of random numbers. Like the following fields, these are omitted from the plan if they have
        their defaults.
      optimizer: name in the registry of ``workloads``.
      attention_block: number of tokens per block in blocked attention, or 0 to store all scores.
      packages: see ``BatchStudy``.
      comparable: Major.Minor version of the software. Results from different versions are not comparable.
      digits: number of hex digits of the plan's hash in the study's name. Not part of the identity.
    """

    model: str
    model_options: Fields
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
    dataset: str = COUNTING
    dataset_version: str = ""
    optimizer: str = "adam"
    attention_block: int = 0
    packages: Fields = dataclasses.field(default_factory=dict)
    comparable: str = COMPARABLE
    digits: int = DIGITS[-1]

    kind = "layout"
    # The stream depends only on the model, batch and seed: all layouts train the same parameters on the same data.
    NOT_IN_STREAM = frozenset(
        {
            "mesh",
            "layout",
            "strict",
            "device_count",
            "engine",
            "hardware",
            "precision",
            "rematerialization",
            "attention_block",
            "budget_steps",
        }
    )
    OMITTED_AT: ClassVar = {
        "dataset": COUNTING,
        "dataset_version": "",
        "optimizer": "adam",
        "attention_block": 0,
        "packages": {},
    }

    def __post_init__(self) -> None:
        for field in ("batch_size", "length", "device_count", "budget_steps"):
            check_int(field, getattr(self, field), 1, MOST_STEPS)
        check_int("trials", self.trials, 1, MOST_TRIALS)
        check_int("seed", self.seed, 0)
        check_choice("engine", self.engine_name, ENGINES)
        if (self.engine_name == AHEAD) != bool(self.topology):
            raise BadInput(
                f"engine={self.engine}: {AHEAD} needs a topology, and other engines take none. Use {AHEAD}:v5e:4x4."
            )
        check_choice("precision", self.precision, PRECISIONS)
        check_int("attention_block", self.attention_block, 0, MOST_STEPS)
        if not re.fullmatch(r"[a-z]+(\+[a-z]+)*", self.rematerialization):
            check_choice("rematerialization", self.rematerialization, REMATERIALIZATIONS)
        if self.space:
            raise BadInput("a layout has no metaparameters to tune. Leave out the search space.")

    @property
    def engine_name(self) -> str:
        """The name of the engine, without the topology."""
        return self.engine.partition(":")[0]

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the tensors that are kept if layers are recomputed."""
        return () if self.rematerialization in REMATERIALIZATIONS else tuple(self.rematerialization.split("+"))

    @property
    def step_options(self) -> dict[str, int]:
        """The model options that the training step sets."""
        return {"attention_block": self.attention_block} if self.attention_block else {}

    @property
    def topology(self) -> str:
        """The TPU slice to compile for. Empty for other engines."""
        return self.engine.partition(":")[2]

    @property
    def chips(self) -> list[int] | None:
        """The number of chips along each direction of the topology, if there is one."""
        sizes = self.topology.partition(":")[2]
        return [int(size) for size in sizes.split("x")] if sizes else None

    @property
    def layout_label(self) -> str:
        """The layout as shown in tables."""
        return self.layout or "replicated"

    @property
    def slug(self) -> str:
        """The readable part of the study's name."""
        mesh, layout = (
            re.sub(r"[^a-z0-9]+", "_", notation.lower()).strip("_") for notation in (self.mesh, self.layout)
        )
        where = f"{mesh or 'none'}-{layout or 'replicated'}"[:_OWN_NAME].strip("_-")
        return f"{self.model}-{self.engine_name.replace('-', '_')}-{where}"

    @property
    def batch_unit(self) -> tuple[str, int | None]:
        """The unit of the batch size, and the tokens per sequence."""
        return ("sequences", self.length) if self.length > 1 else ("examples", None)

    @property
    def labels(self) -> Labels:
        """The study's names in tables. The model name includes the batch and any non-default precision or step form."""
        label = f"{self.model}_{self.batch_size}x{self.length}"
        if self.precision != PRECISIONS[0]:
            label += f"_{self.precision}"
        if self.rematerialization != REMATERIALIZATIONS[0]:
            label += "_".join(["_rematerialized", *(["keeping", *self.kept] if self.kept else [])])
        if self.attention_block:
            label += f"_blocks_of_{self.attention_block}"
        return Labels(self.dataset, label, self.optimizer)

    @property
    def devices(self) -> int:
        """The number of devices on which the study is measured. Ahead-of-time compilation needs only the CPU."""
        return 1 if self.engine_name == AHEAD else self.device_count
