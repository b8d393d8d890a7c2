"""The configuration schema: names and types of all keys in YAML files and overrides."""

import dataclasses
from typing import Any

from omegaconf import MISSING

from results.als import Als
from results.plans.factorization import METAPARAMETERS

Section = dict[str, Any]


@dataclasses.dataclass
class TargetConfig:
    metric: str = MISSING
    value: float = MISSING


@dataclasses.dataclass
class BudgetConfig:
    steps: int | None = None
    examples: int | None = None
    epochs: float | None = None
    at_least_steps: int | None = None


@dataclasses.dataclass
class TaskConfig:
    dataset: str = MISSING
    model: Section = MISSING  # name and options
    schedule: str = "constant"
    targets: list[TargetConfig] | None = MISSING  # null selects the targets of the data set
    budget: BudgetConfig = dataclasses.field(default_factory=BudgetConfig)
    evaluation_ratio: float = 1.1
    evaluation_share: float = 0.5
    space: Section = dataclasses.field(default_factory=dict)  # fields of results.plans.study.Range by metaparameter


@dataclasses.dataclass
class OptimizerConfig:
    name: str = MISSING
    space: Section = MISSING


# The options of ``results.als`` and the metaparameters: a number or the fields of a results.plans.study.Range.
AlsConfig = dataclasses.make_dataclass(
    "AlsConfig",
    [(option.name, option.type, dataclasses.field(default=option.default)) for option in dataclasses.fields(Als)]
    + [(name, Any, dataclasses.field(default=MISSING)) for name in METAPARAMETERS],
    kw_only=True,
)


@dataclasses.dataclass
class LauncherConfig:
    """The types of all launchers' keys. Each file in conf/launcher lists the keys and defaults of one launcher."""

    name: str = "local"
    workers: int | None = None
    retries: int = 1
    silence_seconds: float | None = None
    coordinator: str | None = None
    hosts: int | None = None
    host: int | None = None
    heartbeat_seconds: int = 30
    connect_seconds: int = 30
    cpus: int | None = None
    gpus: int | None = 0
    mem: str | None = None
    minutes: int | None = None
    partition: str | None = None
    nodes: int = 1
    sbatch: Section = dataclasses.field(default_factory=dict)
    grace_seconds: int = 60
    at_once: int | None = None
    poll_seconds: float = 5.0
    wait: bool = True
    address: str | None = None
    resources: dict[str, float] = dataclasses.field(default_factory=dict)
    tpu_slice: str | None = None


@dataclasses.dataclass
class Bounds:
    """The limits of a sweep, or of each of its studies. By default, there are no limits.

    Attributes:
      max_hours: hours since the start, counting only this run of the command.
      max_device_hours: device-hours, counted while studies run. A device is a core, a GPU or a TPU core.
      max_failures: failed studies of a sweep, or failed attempts at a study, including those of earlier runs.
    """

    max_hours: float | None = None
    max_device_hours: float | None = None
    max_failures: int | None = None


@dataclasses.dataclass
class LimitsConfig:
    sweep: Bounds = dataclasses.field(default_factory=Bounds)
    study: Bounds = dataclasses.field(default_factory=Bounds)


@dataclasses.dataclass
class StudyConfig:
    """Keys of studies of all kinds."""

    launcher: LauncherConfig = MISSING
    limits: LimitsConfig = dataclasses.field(default_factory=LimitsConfig)
    kind: str = "batch"  # a key of ``sweeps.kind_configs.READERS``, set in task files
    trials: int | None = None
    seed: int = MISSING
    store: str = MISSING
    mixed_backends: bool = False
    yes: bool = False
    ask_above_device_hours: float | None = None
    time_limit_seconds: float | None = None
    checkpoint_seconds: float | None = None
    checkpoint_dir: str | None = None
    tasks: str | None = None  # folder of tasks of your own


@dataclasses.dataclass
class TableConfig:
    """Arguments of ``workloads.datasets.tables.dataset``."""

    path: str | None = None
    label: str | None = None
    task: str | None = None
    drop: list[str] = dataclasses.field(default_factory=list)
    text: list[str] = dataclasses.field(default_factory=list)
    validation: float = 0.2
    test: float = 0.2
    seed: int = 0


@dataclasses.dataclass
class ArchiveConfig:
    """The imported archive of Shallue et al. (2018), and the folder of a workload in the archive."""

    store: str = MISSING
    workload: str | None = None


@dataclasses.dataclass
class NetworkConfig:
    """Additional keys of studies of kind ``batch``."""

    task: TaskConfig | None = None
    model: Any = None  # a name, or a dict of a name and options, that replaces the task's model
    appendix: str | None = None  # one of ``workloads.appendix.NAMES``
    table: TableConfig | None = None
    protocol: Any = None  # archive, or a dict of numbers: see ``sweeps.tuning_protocol``
    archive: ArchiveConfig = dataclasses.field(default_factory=ArchiveConfig)
    optimizer: OptimizerConfig = MISSING
    batch_size: int = MISSING
    confirm: int = 0
    confirm_top: int | None = None
    pruning: str = MISSING
    stop: str = MISSING
    lanes: int | None = None
    lane_strategy: str = MISSING
    precision: str = MISSING
    shards: int | None = None
    microbatches: int | None = None
    mesh: str | None = None
    layout: str | None = None
    flush_seconds: float = MISSING


@dataclasses.dataclass
class FactorizationConfig:
    """Additional keys of studies of kind ``cores``."""

    ratings: Section | None = None  # name of a data set and its options
    als: AlsConfig | None = None  # type: ignore[valid-type]
    cores: int | None = None


@dataclasses.dataclass
class StepConfig:
    task: str | None = None  # a task that trains a network, or a Transformer of the following shape
    model: str = MISSING  # a key of ``workloads.layouts.shapes.SHAPES``
    shape: dict[str, Any] = dataclasses.field(default_factory=dict)  # overridden sizes of the shape
    optimizer: str = "adam"
    batch_size: int = MISSING
    length: int = MISSING
    steps: int = 3
    precision: str = "float32"
    rematerialization: str = "none"
    attention_block: int = 0


@dataclasses.dataclass
class LayoutConfig:
    """Additional keys of studies of kind ``layout``."""

    step: StepConfig | None = None
    mesh: str | None = None
    layout: str | None = None
    devices: int | None = None
    strict: bool = True
    on_invalid: str = "error"
    engine: str = "cpu-emulated"  # ``results.plans.layout.EMULATED``, whose module imports PyArrow
    hardware: str | None = None
