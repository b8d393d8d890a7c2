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

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from results import bounds
from results.aliases import Strings
from results.bad_input import BadInput, check_choice, first_line, meaning, nearest
from results.durable import check_depth
from results.importers.recording import may_be_column
from results.importers.untrusted import MOST_DEPTH
from results.plans.recorded import UNITS
from results.plans.study import METRICS, Target

TENSORBOARD, TRAINER, WANDB = "tensorboard", "trainer", "wandb"
FORMATS = ("csv", "jsonl", "parquet", TENSORBOARD, TRAINER, WANDB)
MOST_BYTES = 64 << 10
UNSTATED = "???"  # marks a value that a suggested map could not find
STEPS = {TENSORBOARD: "step", TRAINER: "step", WANDB: "_step"}  # column with the step, if the map does not state one
TIMES = {TENSORBOARD: "wall_time", WANDB: "_timestamp"}  # column with the time in seconds
REFERENCES = ("path", "config", "column")
_REFERENCE = re.compile(rf"({'|'.join(REFERENCES)}):(.+)")
_METRIC = re.compile(r"(?P<complement>1 - )?(?P<tag>.+?)(?P<percent> / 100)?")


class Reference(NamedTuple):
    """A value to look up for each run: ``origin`` is path, config or column."""

    origin: str
    name: str

    def __str__(self) -> str:
        return f"{self.origin}:{self.name}"


Field: TypeAlias = str | float | Reference


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


class RunMap(NamedTuple):
    """A parsed map from logged runs to studies.

    Attributes:
      format: one of ``FORMATS``.
      files: pattern of the files, relative to the imported folder.
      dataset, model, optimizer: names.
      batch_size: values whose product is the global batch size.
      metrics: metrics to import.
      run: value that identifies a run. By default, each file is one run (for TensorBoard, each folder).
      config: name of the config file, which is in the run's folder or above. If there is no config file, ``config:``
        refers to the hyperparameters in TensorBoard's log, or to the entries of a trainer_state.json file.
      unit: unit of the batch size, one of ``UNITS``.
      sequence_length: tokens per sequence.
      seed: seed of the run.
      metaparameters: other values that were tuned, by name.
      budget: planned number of steps. A shorter run is INCOMPLETE.
      targets: targets of the studies.
      step: column that contains the step.
      seconds: column that contains the time in seconds, or empty if there are no times.
      device_kind, device_count: devices of the run.
      licence: SPDX identifier of the data's licence.
      citation: source to cite.
    """

    format: str
    files: str
    dataset: Field
    model: Field
    optimizer: Field
    batch_size: tuple[Field, ...]
    metrics: tuple[Metric, ...]
    run: Field | None = None
    config: str = ""
    unit: str = UNITS[0]
    sequence_length: Field | None = None
    seed: Field | None = None
    metaparameters: Mapping[str, Field] = {}
    budget: Field | None = None
    targets: tuple[Target, ...] = ()
    step: str = "step"
    seconds: str = ""
    device_kind: Field | None = None
    device_count: tuple[Field, ...] = ()
    licence: str = ""
    citation: str = ""


_REQUIRED: Strings = ("format", "files", "dataset", "model", "optimizer", "batch_size", "metrics")
_TEXTS = ("files", "config", "step", "seconds", "licence", "citation")
_PRODUCTS = ("batch_size", "device_count")


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
        content = load_plain(text.encode())
    except ValueError as error:
        hint = " A value that starts with * or { needs quotes."
        raise BadInput(f"{where} is not YAML ({first_line(error)}).{hint}") from None
    if not isinstance(content, dict):
        raise BadInput(f"{where} must have keys such as format and files. `import runs PATH --suggest-map` writes one.")
    for key in content:
        if key not in RunMap._fields:
            raise BadInput(f"{where} has the unknown key {str(key)[:40]!r}; {nearest(key, RunMap._fields)}")
    open_keys = [key for key, value in content.items() if UNSTATED in str(value)]
    if open_keys:
        raise BadInput(
            f"{where}: {open_keys[0]} is still {UNSTATED}. State a value, path:NAME, config:NAME or column:NAME."
        )
    for key in _REQUIRED:
        if content.get(key) in (None, "", {}, []):
            raise BadInput(f"{where} lacks the key {key}. `import runs PATH --suggest-map` writes a map to start from.")
    try:
        return _check(RunMap(**{key: _value(key, value) for key, value in content.items() if value is not None}))
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


class PlainLoader(yaml.SafeLoader):
    """A YAML loader for untrusted text. It loads only plain data without aliases, which could expand without bound."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.constructor.ConstructorError(None, None, "it has an alias", self.peek_event().start_mark)
        return super().compose_node(parent, index)


# YAML 1.1 reads 1e-3 as text. Numbers in a map or a config are often written that way.
PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"),
    list("-+.0123456789"),
)


def load_plain(data: bytes) -> Any:
    """Parses YAML or JSON text. Raises ValueError with a one-line message if it is neither or is nested too deeply."""
    try:
        content = yaml.load(data.decode("utf-8-sig"), PlainLoader)
        check_depth(content, MOST_DEPTH)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or first_line(error))
        raise ValueError(f"line {mark.line + 1}: {problem}" if mark else problem) from None
    except (RecursionError, TypeError) as error:
        raise ValueError(first_line(error)) from None
    return content


def _value(key: str, value: Any) -> Any:
    if key == "metrics":
        return _metrics(value)
    if key == "metaparameters":
        return _metaparameters(value)
    if key == "targets":
        if not isinstance(value, dict):
            raise BadInput("targets must map metrics to values, such as {validation_loss: 2.5}")
        return tuple(Target(str(name), _number(f"targets.{name}", each)) for name, each in value.items())
    if key in _PRODUCTS:
        factors = value if isinstance(value, list) else [value]
        return tuple(_field(key, each) for each in factors)
    if key == "format":
        check_choice("format", value, FORMATS)
    elif key == "unit":
        check_choice("unit", value, UNITS)
    elif key in _TEXTS:
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise BadInput(f"{key} must be a text, not {value!r:.60}")
        return str(value)
    else:
        return _field(key, value)
    return value


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInput(f"{key} must be a number, not {value!r:.60}")
    return float(value)


def _field(key: str, value: Any) -> Field:
    """Returns a value or a reference."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadInput(f"{key} must be a value or a reference such as path:{key}, not {value!r:.60}")
    if isinstance(value, str):
        match = _REFERENCE.fullmatch(value)
        return Reference(match[1], match[2].strip()) if match else value
    return value


def _metrics(value: Any) -> tuple[Metric, ...]:
    if not isinstance(value, dict):
        raise BadInput("metrics must map our names to tags of the log, such as {validation_loss: eval/loss}")
    found = []
    for name, tag in value.items():
        check_choice("metric", name, METRICS)
        match = _METRIC.fullmatch(str(tag))
        if match is None:
            raise BadInput(f"metrics.{name} must be a tag of the log, not {tag!r:.60}")
        found.append(Metric(name, match["tag"].strip(), match["complement"] is not None, match["percent"] is not None))
    return tuple(found)


def _metaparameters(value: Any) -> dict[str, Field]:
    if not isinstance(value, dict):
        raise BadInput("metaparameters must map names to values, such as {learning_rate: config:lr}")
    for name in value:
        if not may_be_column(str(name)):
            raise BadInput(f"metaparameters has {str(name)[:40]!r}, which cannot be the name of a column")
    return {str(name): _field(f"metaparameters.{name}", each) for name, each in value.items()}


def _check(run_map: RunMap) -> RunMap:
    """Returns the map with the defaults for its format filled in. Raises BadInput for contradictory keys."""
    places = set(re.findall(r"\{(\w+)\}", run_map.files))
    for key, field in fields(run_map):
        if isinstance(field, Reference):
            if field.origin == "path" and field.name not in places:
                known = ", ".join(sorted(places)) or "none"
                raise BadInput(f"{key} is {field}, but files has no {{{field.name}}}. It has: {known}.")
            if field.origin == "config" and not run_map.config and run_map.format not in (TRAINER, TENSORBOARD):
                raise BadInput(f"{key} is {field}, but the key config does not name a file")
            if field.origin == "column" and run_map.format == TENSORBOARD:
                raise BadInput(f"{key} is {field}, but TensorBoard logs have no columns. Use path: or config:.")
    if run_map.unit == "tokens" and run_map.sequence_length is None:
        raise BadInput("unit: tokens needs the key sequence_length, in tokens")
    if run_map.unit == "examples" and run_map.sequence_length is not None:
        raise BadInput("sequence_length needs unit: sequences or unit: tokens")
    step = STEPS.get(run_map.format, "step") if run_map.step == "step" else run_map.step
    return run_map._replace(step=step, seconds=run_map.seconds or TIMES.get(run_map.format, ""))


def fields(run_map: RunMap) -> list[tuple[str, Field]]:
    """Returns every value or reference in a map, with its key."""
    single = ("dataset", "model", "optimizer", "run", "sequence_length", "seed", "budget", "device_kind")
    found = [(key, getattr(run_map, key)) for key in single if getattr(run_map, key) is not None]
    found += [(key, each) for key in _PRODUCTS for each in getattr(run_map, key)]
    return found + [(f"metaparameters.{name}", each) for name, each in run_map.metaparameters.items()]
