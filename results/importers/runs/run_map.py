"""Maps: a map is a YAML file that specifies how logged runs become studies.

    format: tensorboard
    files: bs{batch_size}-lr{learning_rate}-seed{seed}/events.out.tfevents.*
    dataset: my_corpus
    model: my_net
    optimizer: adamw
    batch_size: path:batch_size
    seed: path:seed
    metaparameters: {learning_rate: path:learning_rate}
    metrics: {validation_loss: eval/loss, validation_error: 1 - eval/accuracy}

A value is given directly, or looked up for each run: ``path:NAME`` is the part of the path that matched ``{NAME}``,
``config:a.b`` is an entry of the run's config file, and ``column:NAME`` is a column that is constant within a run. The
values in a list are multiplied, for example the batch size per device and the number of devices.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from results import bounds
from results.aliases import Strings
from results.bad_input import BadInput, check_choice, first_line, meaning, nearest
from results.importers import untrusted
from results.importers.recording import may_be_column
from results.importers.runs import plain_yaml, text_lines
from results.importers.runs.vocabulary import kind
from results.plans.recorded import UNITS
from results.plans.study import METRICS, Target

TENSORBOARD, TRAINER, WANDB, TEXT, RAY, MLFLOW = "tensorboard", "trainer", "wandb", "text", "ray", "mlflow"
CHART = "wandb_chart"
FORMATS = ("csv", "jsonl", "parquet", TEXT, TENSORBOARD, TRAINER, WANDB, CHART, RAY, MLFLOW)
TAGGED = (TENSORBOARD, MLFLOW)  # formats whose tags have steps of their own, without rows
WITH_CONFIG = (*TAGGED, TRAINER, RAY)  # formats whose logs hold a config
MOST_BYTES = 64 << 10
UNSTATED = "???"  # marks a value that a suggested map could not find
# Column with the step, if the map does not state one.
STEPS = {TENSORBOARD: "step", TRAINER: "step", WANDB: "_step", RAY: "training_iteration", MLFLOW: "step", CHART: "Step"}
TIMES = {TENSORBOARD: "wall_time", WANDB: "_timestamp", RAY: "time_total_s"}  # in seconds
MILLISECONDS = " / 1000"  # after the column of the key seconds
REFERENCES = ("path", "config", "column")
_REFERENCE = re.compile(rf"({'|'.join(REFERENCES)}):(.+)")
KERAS = re.compile(r"(.*/)?epoch_")  # tags of metrics by epoch
PER_BATCH = "/ batch_size"  # last factor of steps per epoch that are stated as examples per epoch
_METRIC = re.compile(r"(?P<complement>1 - )?(?P<tag>.+?)(?P<percent> / 100)?")


class Reference(NamedTuple):
    """A value to look up for each run: ``origin`` is path, config or column."""

    origin: str
    name: str

    def __str__(self) -> str:
        return f"{self.origin}:{self.name}"


Field: TypeAlias = str | float | Reference
Factors: TypeAlias = tuple[Field, ...]


class Metric(NamedTuple):
    """A metric, and the logged tag from which it is computed.

    Attributes:
      name: name of the metric, which is an error.
      tag: tag or column in the log.
      complement: whether the error is 1 minus the value.
      percent: whether the value is a percentage.
    """

    name: str
    tag: str
    complement: bool
    percent: bool

    def __str__(self) -> str:
        return f"{'1 - ' if self.complement else ''}{self.tag}{' / 100' if self.percent else ''}"


class Counter(NamedTuple):
    """A column with the step of each row, or another counter from which the step is computed.

    Attributes:
      column: column of a table, or tag of an event file. There, ``step`` is the event's own step.
      plus: 1 if the counter starts at 0 and a row is logged at the end of that epoch, otherwise 0.
    """

    column: str
    plus: int = 0


class RunMap(NamedTuple):
    """A parsed map from logged runs to studies.

    Attributes:
      format: one of ``FORMATS``.
      files: pattern of the files, relative to the imported folder.
      dataset, model, optimizer: names.
      batch_size: values whose product is the global batch size.
      metrics: metrics to import.
      run: value that identifies a run, or several columns. By default, each file is one run (for TensorBoard, each
        folder).
      config: name of the config file, which is in the run's folder or above. If there is no config file, ``config:``
        refers to the hyperparameters in TensorBoard's log, or to the entries of a trainer_state.json file.
      unit: unit of the batch size, one of ``UNITS``.
      sequence_length: tokens per sequence.
      seed: seed of the run.
      metaparameters: other values that were tuned, by name.
      budget: planned number of steps. A shorter run is INCOMPLETE.
      targets: targets of the studies.
      step: counter with the step, by metric. The entry "" is for all other metrics.
      steps_per_epoch: values whose product is the number of steps per epoch, or examples per epoch and ``PER_BATCH``,
        by metric. The entry "" is for all other metrics whose counter counts epochs.
      examples_seen: column that contains the examples so far, in the unit of the batch size, instead of a step.
      line: patterns of the lines of a text log.
      seconds: column that contains the time in seconds, or in milliseconds if `` / 1000`` follows. Empty if there are
        no times.
      device_kind, device_count: devices of the run.
      licence: SPDX identifier of the data's licence.
      citation: source to cite.
    """

    format: str
    files: str
    dataset: Field
    model: Field
    optimizer: Field
    batch_size: Factors
    metrics: tuple[Metric, ...]
    run: Factors = ()
    config: str = ""
    unit: str = UNITS[0]
    sequence_length: Field | None = None
    seed: Field | None = None
    metaparameters: Mapping[str, Field] = {}
    budget: Field | None = None
    targets: tuple[Target, ...] = ()
    step: Mapping[str, Counter] = {}
    steps_per_epoch: Mapping[str, Factors] = {}
    examples_seen: str = ""
    line: Strings = ()
    seconds: str = ""
    device_kind: Field | None = None
    device_count: Factors = ()
    licence: str = ""
    citation: str = ""

    def run_columns(self) -> list[str]:
        """Returns the columns that identify a run in a file with several runs."""
        return [field.name for field in self.run if isinstance(field, Reference) and field.origin == "column"]

    def references(self, origin: str) -> list[str]:
        """Returns the names in all values that are looked up in the path, the config or a column."""
        return [field.name for _, field in fields(self) if isinstance(field, Reference) and field.origin == origin]

    def names_by_tag(self) -> dict[str, str]:
        """Returns the names of the metrics by their tags."""
        return {metric.tag: metric.name for metric in self.metrics}

    def counter(self, metric: str = "") -> Counter:
        """Returns the counter of a metric, or of all columns that are not metrics."""
        default = Counter(self.examples_seen or STEPS.get(self.format, "step"))
        return self.step.get(metric, self.step.get("", default))

    def factors(self, metric: str = "") -> Factors:
        """Returns the values whose product is the number of steps per count. It is empty if steps are counted."""
        if metric and metric in self.steps_per_epoch:
            return self.steps_per_epoch[metric]
        return self.steps_per_epoch.get("", ()) if self.in_epochs(metric) else ()

    def in_epochs(self, metric: str = "") -> bool:
        """Returns whether a metric is logged by epoch, according to the name of its counter or, in Keras, its tag."""
        by_keras = any(row.name == metric and KERAS.match(row.tag) for row in self.metrics)
        if by_keras and self.format == TENSORBOARD and metric not in self.step:
            return True
        return kind(self.counter(metric).column) == "epochs"


_REQUIRED: Strings = ("format", "files", "dataset", "model", "optimizer", "batch_size", "metrics")
_TEXTS = ("files", "config", "examples_seen", "seconds", "licence", "citation")
_MAPPINGS = {  # keys that map names, and their contents
    "metrics": "our names to tags of the log, such as {validation_loss: eval/loss}",
    "metaparameters": "names to values, such as {learning_rate: config:lr}",
    "targets": "metrics to values, such as {validation_loss: 2.5}",
}
_CHOICES = {"format": FORMATS, "unit": UNITS}
_LISTS = ("batch_size", "device_count", "run")  # keys with one or several values


def read(path: Path) -> RunMap:
    """Reads a map. Raises BadInput with the name of the wrong key."""
    try:
        text = bounds.text(path, MOST_BYTES)
    except OSError as error:
        raise BadInput(f"cannot read --map {path} ({error.strerror}){meaning(path)}") from None
    except bounds.TooLarge as error:
        raise BadInput(f"--map {path}: {error}") from None
    return parse(text.decode("utf-8", "replace"), f"--map {path}")


def parse(text: str, where: str) -> RunMap:
    """Parses a map from YAML text. Error messages start with ``where``."""
    try:
        content = plain_yaml.load(text.encode())
    except ValueError as error:
        hint = " A value that starts with * or { needs quotes."
        raise BadInput(f"{where} is not YAML ({first_line(error)}).{hint}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{where} must have keys such as format and files. `import runs PATH --suggest-map` writes one.")
    for key, value in content.items():
        if key not in RunMap._fields:
            raise BadInput(f"{where} has the unknown key {str(key)[:40]!r}; {nearest(key, RunMap._fields)}")
        if UNSTATED in str(value):
            raise BadInput(f"{where}: {key} is still {UNSTATED}. State a value, path:NAME, config:NAME or column:NAME.")
    for key in _REQUIRED:
        if content.get(key) in (None, "", {}, []):
            raise BadInput(f"{where} lacks the key {key}. `import runs PATH --suggest-map` writes a map to start from.")
    try:
        return _check(RunMap(**{key: _value(key, value) for key, value in content.items() if value is not None}))
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _value(key: str, value: Any) -> Any:
    if key in _MAPPINGS and not isinstance(value, dict):
        raise BadInput(f"{key} must map {_MAPPINGS[key]}")
    if key == "metrics":
        return tuple(_metric(name, tag) for name, tag in value.items())
    if key == "metaparameters":
        return {str(name): _metaparameter(str(name), field) for name, field in value.items()}
    if key == "targets":
        return tuple(Target(str(name), _number(f"targets.{name}", number)) for name, number in value.items())
    if key in _LISTS:
        factors = value if isinstance(value, list) else [value]
        return tuple(_field(key, factor) for factor in factors)
    if key == "step":
        return {name: _counter(column) for name, column in _by_metric(key, value).items()}
    if key == "steps_per_epoch":
        return {name: _epoch_factors(length) for name, length in _by_metric(key, value).items()}
    if key == "line":
        patterns = tuple(map(str, value if isinstance(value, list) else [value]))
        for pattern in patterns:
            text_lines.compile_pattern(pattern)
        return patterns
    if key in _CHOICES:
        check_choice(key, value, _CHOICES[key])
        return value
    if key not in _TEXTS:
        return _field(key, value)
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise BadInput(f"{key} must be a text, not {value!r:.60}")
    return str(value)


def _by_metric(key: str, value: Any) -> dict[str, Any]:
    """Returns the values of a key by metric. A single value has the name ""."""
    if not isinstance(value, dict):
        return {"": value}
    for name in value:
        check_choice(f"metric in {key}", name, METRICS)
    return value


def _epoch_factors(value: Any) -> Factors:
    """Returns the factors of steps per epoch. The last one is ``PER_BATCH`` for a value such as 50000 / batch_size."""
    if isinstance(value, str) and value.endswith(f" {PER_BATCH}"):
        return (_field("steps_per_epoch", value.removesuffix(PER_BATCH).strip()), PER_BATCH)
    return _value("batch_size", value)


def _counter(value: Any) -> Counter:
    column = str(value).removesuffix(" + 1")
    if not column:
        raise BadInput(f"step must be a column, or a column by metric, not {value!r:.60}")
    return Counter(column.strip(), int(column != str(value)))


def _number(key: str, value: Any) -> float:
    number = untrusted.number(value)
    if number is None:
        raise BadInput(f"{key} must be a number, not {value!r:.60}")
    return number


def _field(key: str, value: Any) -> Field:
    """Returns a value or a reference."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{key} must be a value or a reference such as path:{key}, not {value!r:.60}")
    if isinstance(value, str):
        match = _REFERENCE.fullmatch(value)
        return Reference(match[1], match[2].strip()) if match else value
    return value


def _metric(name: str, tag: Any) -> Metric:
    check_choice("metric", name, METRICS)
    match = _METRIC.fullmatch(str(tag))
    if match is None:
        raise BadInput(f"metrics.{name} must be a tag of the log, not {tag!r:.60}")
    return Metric(name, match["tag"].strip(), match["complement"] is not None, match["percent"] is not None)


def _metaparameter(name: str, value: Any) -> Field:
    if not may_be_column(name):
        raise BadInput(f"metaparameters has {name[:40]!r}, which cannot be the name of a column")
    return _field(f"metaparameters.{name}", value)


def _check(run_map: RunMap) -> RunMap:
    """Returns the map with the defaults for its format filled in. Raises BadInput for contradictory keys."""
    if run_map.format == CHART and not (run_map.run and isinstance(run_map.run[0], str)):
        raise BadInput(
            "format: wandb_chart needs the key run, a pattern of the names of runs, such as bs{batch_size}-*"
        )
    if len(run_map.run) > 1 and len(run_map.run_columns()) < len(run_map.run):
        raise BadInput("run must be one value, or a list of columns such as [column:batch_size, column:seed]")
    places = set(re.findall(r"\{(\w+)\}", f"{run_map.files}{run_map.run}"))
    for key, field in fields(run_map):
        if isinstance(field, Reference):
            if field.origin == "path" and field.name not in places:
                names = ", ".join(sorted(places)) or "none"
                raise BadInput(f"{key} is {field}, but files has no {{{field.name}}}. It has: {names}.")
            if field.origin == "config" and not run_map.config and run_map.format not in WITH_CONFIG:
                raise BadInput(f"{key} is {field}, but the key config does not name a file")
            if field.origin == "column" and run_map.format in TAGGED:
                format = "TensorBoard" if run_map.format == TENSORBOARD else "MLflow"
                raise BadInput(f"{key} is {field}, but {format} logs have no columns. Use path: or config:.")
    if run_map.unit == "tokens" and run_map.sequence_length is None:
        raise BadInput("unit: tokens needs the key sequence_length, in tokens")
    if run_map.unit == "examples" and run_map.sequence_length is not None:
        raise BadInput("sequence_length needs unit: sequences or unit: tokens")
    _check_counters(run_map)
    config = run_map.config or ("params.json" if run_map.format == RAY else "")
    return run_map._replace(seconds=run_map.seconds or TIMES.get(run_map.format, ""), config=config)


def _check_counters(run_map: RunMap) -> None:
    """Raises BadInput if the keys about steps do not determine the step of each metric."""
    names = [metric.name for metric in run_map.metrics]
    for key in ("step", "steps_per_epoch"):
        for name in getattr(run_map, key):
            if name and name not in names:
                raise BadInput(f"{key} names {name}, which is not among the metrics: {', '.join(names)}")
    if run_map.examples_seen and "" in run_map.step:
        raise BadInput("step and examples_seen both state the step. Keep one of them, or state step by metric.")
    for name in names:
        column = run_map.counter(name).column
        if kind(column) in ("examples", "tokens", "seconds") and column != run_map.examples_seen:
            raise BadInput(f"the step of {name} counts {kind(column)} ({column}): state examples_seen or another step")
        if run_map.in_epochs(name) and not run_map.factors(name):
            raise BadInput(
                f"the step of {name} counts epochs ({column}): state steps_per_epoch, such as "
                f"{{{name}: 391}}, config:NAME, or 1 if it counts training steps"
            )
    if "" in run_map.steps_per_epoch and not any(run_map.in_epochs(name) for name in names):
        raise BadInput(f"no step is named epoch. Name the metrics: steps_per_epoch: {{{names[0]}: 391}}")
    if (run_map.format == TEXT) != bool(run_map.line):
        raise BadInput('format: text and the key line need each other: line: "step {step} loss {loss}"')


def fields(run_map: RunMap) -> list[tuple[str, Field]]:
    """Returns every value or reference in a map, with its key."""
    single = ("dataset", "model", "optimizer", "sequence_length", "seed", "budget", "device_kind")
    pairs = [(key, getattr(run_map, key)) for key in single if getattr(run_map, key) is not None]
    pairs += [(key, factor) for key in _LISTS for factor in getattr(run_map, key)]
    pairs += [("steps_per_epoch", factor) for factors in run_map.steps_per_epoch.values() for factor in factors]
    return pairs + [(f"metaparameters.{name}", factor) for name, factor in run_map.metaparameters.items()]
