"""Composes the configuration of every study on a command line. Each error is a single line."""

import dataclasses
import functools
import itertools
import re
import shlex
import types
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from results.bad_input import BadInput, check_choice, first_line, nearest
from sweeps import archived, kind_configs, overrides
from sweeps.configured_study import Config
from sweeps.kind_configs import READERS
from sweeps.overrides import GROUPS, CommandLine, Words
from workloads import registry

Plain = dict[str, Any]  # a configuration as plain data
Overrides = Sequence[Override]
_SHORT = {"lr": "learning_rate", "wd": "weight_decay"}  # usual names of metaparameters
_SHOWN = 5  # maximum number of tasks named in a message
_TYPES = {"Integer": "an integer", "Float": "a number", "Boolean": "true or false", "String": "a word"}
_TARGETS = "'task.targets=[{metric: validation_error, value: 0.1}]', in quotes"
_OPEN = ("ratings", "task.model")  # sections whose keys depend on their `name`
_ANY_KEY = re.compile(r"launcher\.(sbatch|resources)\b")  # dicts that accept any key
_REFUSALS = (HydraException, OmegaConfBaseException, ValueError, AttributeError, AssertionError)


class _Base(NamedTuple):
    """A configuration that Hydra composed from choices in groups, with the name of the task and the preset's axes."""

    config: DictConfig
    task: str
    axes: Config

    @property
    def kind(self) -> str:
        kind = self.config.kind
        check_choice("kind", kind, READERS)
        return kind


@dataclasses.dataclass
class _Model:
    """A composed point. Points that differ from it only in scalar values are derived from copies.

    Attributes:
      config: configuration of the point, on which new values are tried.
      plain: configuration as plain data.
      texts: overrides of the point, by key.
      known: values by override, converted to the schema's types.
    """

    config: DictConfig
    plain: Plain
    texts: dict[str, str]
    known: Plain = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, config: DictConfig, plain: Plain, point: Overrides) -> "_Model | None":
        """Returns the model of a point, or None if an override could change several values through interpolation."""
        texts = {o.key_or_group: str(o.input_line) for o in point if o.key_or_group not in GROUPS}
        within = any(one.startswith(f"{other}.") for one in texts for other in texts)
        return None if within or "${" in OmegaConf.to_yaml(config) else cls(config, plain, texts)

    def values(self, point: Overrides) -> Plain | None:
        """Returns the values in which another point differs, by key. Returns None if Hydra must compose one of them."""
        changed = [o for o in point if self.texts.get(o.key_or_group, str(o.input_line)) != str(o.input_line)]
        for override in changed:
            if str(override.input_line) not in self.known and not self._learn(override):
                return None
        return {override.key_or_group: self.known[str(override.input_line)] for override in changed}

    def with_values(self, values: Config) -> Plain:
        """Returns the plain data of the point, with some values replaced."""
        plain = _copied(self.plain)
        for key, value in values.items():
            *sections, name = key.split(".")
            functools.reduce(dict.__getitem__, sections, plain)[name] = value
        return plain

    def _learn(self, override: Override) -> bool:
        """Tries to replace an existing scalar. Returns False if Hydra must compose the override instead."""
        key = override.key_or_group
        value = override.value()
        if _adds(override) or override.package is not None or not isinstance(value, str | int | float):
            return False
        if isinstance(value, str) and ("$" in value or "?" in value):
            return False
        before = OmegaConf.select(self.config, key)
        if before is None or OmegaConf.is_config(before):
            return False
        try:
            OmegaConf.update(self.config, key, value, merge=True)
        except _REFUSALS:
            return False
        self.known[str(override.input_line)] = OmegaConf.select(self.config, key)
        return True


class Point(NamedTuple):
    """A point of a sweep: its configuration, and the command-line words that select only this point."""

    config: Plain
    words: Words


def compose_all(line: CommandLine) -> list[Plain]:
    """Returns the configuration of every study on a command line. See ``compose_points``."""
    return [point.config for point in compose_points(line)]


def compose_points(line: CommandLine) -> list[Point]:
    """Composes the configuration of every study on a command line.

    Hydra composes each distinct choice of groups once. Values are then set on copies of the result.

    Returns:
      One point per study. Its configuration is plain data in the shape of ``sweeps.kind_configs.config()``, in which
      sections of other kinds are None. Its words exclude the store and the launcher's settings.

    Raises:
      BadInput: the command line is invalid.
    """
    archived.check_words(line.overrides)
    return [Point(*archived.with_numbers(*point)) for point in _composed(line)]


def _composed(line: CommandLine) -> list[Point]:
    """Like ``compose_points``, but keeps ``protocol=archive``."""
    parsed = overrides.parse(line.overrides)
    for override in parsed:
        overrides.check(override)
    overrides.check_once(str(override.input_line) for override in parsed)
    if parts := _parts(line, parsed):
        return [point for part in parts for point in _composed(part)]
    swept = [o for o in parsed if o.is_sweep_override()]
    fixed = [o for o in parsed if not o.is_sweep_override()]
    _check_commas(parsed)
    if swept and not line.multirun:
        raise BadInput(f"{swept[0].input_line} is a sweep. Add -m to run it.")
    ConfigStore.instance().store("schema", kind_configs.config())
    for group, files in overrides.own_files.items():
        for name, path in files.items():
            whole = path.read_text().startswith("# @package _global_")
            ConfigStore.instance().store(name, OmegaConf.load(path), group, "_global_" if whole else group)
    with initialize_config_module("conf", version_base="1.3"):
        given = {o.key_or_group for o in parsed}
        choices = _choices(fixed)
        bases = {choices: _base(choices)}
        axes = {k: v for k, v in bases[choices].axes.items() if k not in given}
        if not line.multirun:
            _check_not_swept(line, axes)
        preset = overrides.parse([f"{key}={value}" for key, value in axes.items()])
        for override in preset:
            overrides.check(override)
        values = [list(overrides.values(o)) for o in (*preset, *swept)]
        read = {text: overrides.parse([text])[0] for text in itertools.chain(*values)}
        points = [[*fixed, *(read[text] for text in point)] for point in itertools.product(*values)]
        return list(_points(points, parsed, bases))


def _parts(line: CommandLine, parsed: Overrides) -> list[CommandLine]:
    """Splits a command line into one for each preset that it combines. Empty for a single preset with its own file.

    Raises:
      BadInput: -m is missing although there are several presets or a preset is a sweep.
    """
    named = [override for override in parsed if override.key_or_group == "experiment"]
    if not named:
        return []
    names = [value.split("=", 1)[1] for value in overrides.values(named[-1])]
    united = list(dict.fromkeys(each for name in names for each in overrides.united(name)))
    others = tuple(text for text, override in zip(line.overrides, parsed, strict=True) if override not in named)
    given = {override.key_or_group for override in parsed} - {"experiment"}
    words = {each: overrides.words_of(each) for each in united}
    if "protocol" in given:
        words = {each: (*own, *archived.workload_words(each)) for each, own in words.items()}
    parts = [tuple(word for word in words[each] if overrides.key_of(word) not in given) for each in united]
    if len(names) == 1 and parts == [(f"+experiment={names[0]}",)]:
        return []
    if len(parts) > 1 and not line.multirun:
        raise BadInput(f"{named[-1].input_line} combines {len(united)} presets. Add -m to run them all.")
    if not line.multirun:
        _check_not_swept(line, [o.key_or_group for o in overrides.parse(parts[0]) if o.is_sweep_override()])
    return [line._replace(overrides=(*words, *others)) for words in parts]


def _check_commas(parsed: Overrides) -> None:
    """Raises BadInput if commas in Mesh-TensorFlow's notation of a mesh or layout would be parsed as a sweep."""
    if not any(override.key_or_group == "strict" and override.value() is False for override in parsed):
        return
    for override in parsed:
        swept = override.value() if override.key_or_group in overrides.OF_PAIRS else None
        if isinstance(swept, ChoiceSweep) and any(isinstance(pair, str) and ":" in pair for pair in swept.list):
            key, _, text = str(override.input_line).partition("=")
            raise BadInput(f"{key}={text} would sweep over single pairs. Put it in quotes: {key}=\"'{text}'\"")


def _check_not_swept(line: CommandLine, axes: Iterable[str]) -> None:
    """Raises BadInput if -m is missing although a preset has axes."""
    if swept := ", ".join(axes):
        store = () if line.store is None else (f"store={line.store}",)
        command = shlex.join((*line.overrides, *store))
        raise BadInput(f"this preset is a sweep over {swept}. Run `python -m sweeps {command} -m`.")


def _points(points: Sequence[Overrides], parsed: Overrides, bases: dict[Words, _Base]) -> Iterator[Point]:
    """Yields each point with its configuration. Missing choices are added to ``bases``.

    Raises:
      BadInput: an override on the command line does not apply to any point.
    """
    at = []
    for point in points:
        choices = _choices(point)
        if choices not in bases:
            bases[choices] = _base(choices)
        at.append(bases[choices])
    for override in parsed:
        if not any(kind_configs.takes(base.kind, override.key_or_group) for base in bases.values()):
            raise BadInput(_misplaced(override.key_or_group, at[0]))
    models: dict[tuple[Words, ...], _Model | None] = {}
    for point, base in zip(points, at, strict=True):
        own = [o for o in point if kind_configs.takes(base.kind, o.key_or_group)]
        like = _choices(point), tuple(o.key_or_group for o in own)
        model = models.get(like)
        values = model.values(own) if model else None
        if model and values is not None:
            yield Point(model.with_values(values), _words(own))
        else:
            config = _with(base, own)
            plain = _plain(config, base.kind)
            models.setdefault(like, _Model.of(config, plain, own))
            yield Point(_copied(plain), _words(own))


def _words(point: Iterable[Override]) -> Words:
    words = tuple(str(o.input_line) for o in point if not re.match(r"launcher\b|limits\.sweep\b", o.key_or_group))
    return (*words, "-m") if any(o.key_or_group == "experiment" for o in point) else words


def _copied(plain: Any) -> Any:
    """Copies plain data. This is faster than ``copy.deepcopy``."""
    if isinstance(plain, dict):
        return {key: _copied(value) for key, value in plain.items()}
    return [_copied(value) for value in plain] if isinstance(plain, list) else plain


def _choices(point: Iterable[Override]) -> Words:
    return tuple(str(o.input_line) for o in point if o.key_or_group in GROUPS)


def _base(choices: Sequence[str]) -> _Base:
    config = _compose(choices, with_hydra=True)
    task = config.hydra.runtime.choices.task
    axes = dict(config.hydra.sweeper.params or {})
    with open_dict(config):
        del config["hydra"]
    return _Base(config, task, axes)


def _misplaced(key: str, base: _Base) -> str:
    for kind, reader in READERS.items():
        if kind_configs.takes(kind, key):
            tasks = [f"task={name}" for name in overrides.tasks(kind)]
            examples = f"{', '.join(tasks[:_SHOWN])}{', …' if len(tasks) > _SHOWN else ''}"
            other = f"task={base.task}, a {READERS[base.kind].noun}"
            return f"{key} does not apply to {other}. It is for a {reader.noun}: {examples}"
    return f"unknown key {key!r}; {_searched(key, base.config) or nearest(key, _keys())}"


def _adds(override: Override) -> bool:
    return override.is_add() or override.is_force_add()


def _searched(key: str, config: DictConfig) -> str:
    """Returns the end of an error message if the key is a metaparameter that is searched, otherwise an empty string."""
    name = key.rpartition(".")[2]
    name = _SHORT.get(name, name)
    for section in ("task.space", "optimizer.space"):
        ranges = OmegaConf.select(config, section) or {}
        if name in ranges:
            ends = [f"{section}.{name}.{end}" for end in ("low", "high") if end in ranges[name]]
            return f"{name} is searched; its range is {' and '.join(ends or [f'{section}.{name}.values'])}"
    return ""


def _with(base: _Base, point: Overrides) -> DictConfig:
    """Returns a base with the values of a point, as Hydra would compose it. Raises the same errors as Hydra."""
    config = base.config.copy()
    try:
        for override in point:
            if override.key_or_group in GROUPS:
                continue
            key = override.key_or_group
            value = override.value()
            adds = _adds(override) or bool(_ANY_KEY.match(key))
            _check_within(config, key, base.task)
            section, _, name = key.rpartition(".")
            options = (OmegaConf.select(config, section) or {}) if section in _OPEN and not adds else None
            if options is not None and name not in options:
                known = [f"{section}.{each}" for each in options if each != "name"]
                raise BadInput(f"unknown key {key!r}; {nearest(key, known)}")
            if (
                override.package is None
                and not OmegaConf.is_dict(OmegaConf.select(config, key, throw_on_missing=False))
                and section in ("", "task", "optimizer")
                and key not in _keys()
                and (hint := _searched(key, config))
            ):
                raise BadInput(f"unknown key {key!r}; {hint}")
            is_new = not override.is_add() or isinstance(value, dict | list) or OmegaConf.select(config, key) is None
            if override.package is not None or not is_new:
                return _compose([str(o.input_line) for o in point])
            OmegaConf.update(config, key, value, merge=True, force_add=adds)
    except BadInput:
        raise
    except _REFUSALS:
        return _compose([str(o.input_line) for o in point])
    return config


def _check_within(config: DictConfig, key: str, task: str) -> None:
    """Raises BadInput for a key in a section that is null, because it belongs to another task or holds the targets."""
    parts = key.split(".")
    for parent in (".".join(parts[:count]) for count in range(1, len(parts))):
        if parent in registry.OWN_DATASETS and OmegaConf.select(config, parent) is None:
            raise BadInput(f"{key} does not apply to task={task}. Use task={parent}.")
        if parent == "task.targets" and not OmegaConf.select(config, parent):
            raise BadInput(f"{key}: the list of targets is empty. Give a whole list, such as {_TARGETS}.")


def _compose(lines: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    try:
        return compose("config", list(lines), return_hydra_config=with_hydra)
    except _REFUSALS as error:
        raise BadInput(_reword(error, lines)) from None


def _reword(error: Exception, lines: Sequence[str]) -> str:
    """Shortens Hydra's error to one line that includes the invalid word."""
    text = f"{error}\n{error.__cause__ or ''}"
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown and unknown[1] not in _keys():
        return f"unknown key {unknown[1]!r}; {nearest(unknown[1], _keys())}"
    field = re.search(r"Key '([^']+)' not in '(\w+)'", text)
    if field:
        return f"unknown key {field[1]!r}; {nearest(field[1], _fields(_shapes()[field[2]]))}"
    added = re.search(r"Key '([^']+)' is not in struct", text)
    if added:
        whole = re.search(r"full_key: (\S+)", text)
        key = whole[1] if whole else f"task.space.{added[1]}"
        return f"{added[1]!r} does not exist yet. Add it with a plus sign: +{key}=…"
    merging = re.search(r"Error merging override (\S+)", text)
    where = merging[1] if merging else " ".join(lines)
    kind = re.search(r"Value (.*) of type .* could not be converted to (\w+)", text)
    if kind:
        return f"{where}: {kind[1]} is not {_TYPES.get(kind[2], kind[2])}"
    if where.startswith("task.targets=") and ("is not a ListConfig" in text or "TargetConfig" in text):
        return f"{where}: targets must be a list of metrics and values, such as {_TARGETS}"
    if re.search(r"Invalid type assigned|Cannot assign \w+ to Dict", text):
        section = where.partition("=")[0]
        keys = [key for key in _keys() if key.startswith(f"{section}.")]
        return f"{where}: set one of the keys of {section}{': ' if keys else ''}{', '.join(keys)}"
    if "is not a ListConfig" in text:
        return f"{where}: a list is needed"
    if "is not Optional" in text:
        return f"{where}: a value is needed"
    return f"{where}: {first_line(error.__cause__ or error)}"


def _plain(config: DictConfig, kind: str) -> Plain:
    """Converts a configuration to plain data, without the sections of other kinds."""
    own = READERS[kind].sections
    for key in (key for reader in READERS.values() for key in reader.sections if key not in own):
        config[key] = None
    _check_keys(config, kind_configs.config(), "")
    for key in own:
        if config[key] is None:
            raise BadInput(f"{key}=null: a value is needed")
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise BadInput(first_line(error)) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _check_keys(config: DictConfig, shape: Any, prefix: str) -> None:
    """Raises BadInput for a key that is not in the schema. Hydra itself would accept any key with a plus sign."""
    fields = _fields(shape)
    for key in map(str, config):
        if key not in fields:
            raise BadInput(f"unknown key {f'{prefix}{key}'!r}; {nearest(f'{prefix}{key}', _keys())}")
        if dataclasses.is_dataclass(fields[key]) and config[key] is not None:
            _check_keys(config[key], fields[key], f"{prefix}{key}.")


def _keys(shape: Any = None, prefix: str = "") -> list[str]:
    """Returns all dotted keys that an override may set, including `experiment`."""
    keys = ["experiment"] if not prefix else []
    for key, kind in _fields(shape or kind_configs.config()).items():
        if not prefix and key in ("kind", "tasks"):  # only a task's file sets kind, and tasks is read before
            continue
        keys += _keys(kind, f"{prefix}{key}.") if dataclasses.is_dataclass(kind) else [f"{prefix}{key}"]
        keys += [key] if key in GROUPS else []
    return keys


def _shapes(shape: Any = None) -> Plain:
    """Returns all dataclasses nested in a shape (itself a dataclass), by name."""
    own = shape or kind_configs.config()
    kinds_of_fields = [each for kind in _fields(own).values() for each in (kind, *typing.get_args(kind))]
    nested = [kind for kind in kinds_of_fields if dataclasses.is_dataclass(kind)]
    return {own.__name__: own} | {name: kind for each in nested for name, kind in _shapes(each).items()}


def _fields(shape: Any) -> Plain:
    """Returns the types of a shape's fields, without ``| None``."""
    fields = typing.get_type_hints(shape)
    for name, kind in fields.items():
        parts = [part for part in typing.get_args(kind) if part is not type(None)]
        if isinstance(kind, types.UnionType) and len(parts) == 1:
            fields[name] = parts[0]
    return fields
