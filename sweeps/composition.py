"""Composition: from a command line to the configuration of every study it asks for; errors are one line."""

import dataclasses
import functools
import itertools
import re
import shlex
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from results.bad_input import BadInput, check_choice, first_line, nearest
from sweeps import kind_configs, overrides
from sweeps.kind_configs import READERS
from sweeps.overrides import GROUPS, CommandLine
from workloads import registry

_SHOWN = 5  # tasks of a kind that a message names
_TYPES = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false", "String": "a word"}
_TARGETS = "'task.targets=[{metric: validation_error, value: 0.1}]', in quotes"
_OPEN = ("ratings", "task.model")  # sections whose keys depend on a name among them
_ANY_KEY = re.compile(r"launcher\.(sbatch|resources)\b")  # dicts that take any key, and start without one
_OF_PAIRS = ("mesh", "layout")  # texts in which Mesh-TensorFlow has commas
_REFUSALS = (HydraException, OmegaConfBaseException, ValueError, AttributeError, AssertionError)


class _Base(NamedTuple):
    """The result of choices from groups: the configuration, the name of the task, and the axes of a preset."""

    config: DictConfig
    task: str
    axes: Mapping[str, Any]

    @property
    def kind(self) -> str:
        kind: str = self.config.kind
        check_choice("kind", kind, READERS)
        return kind


@dataclasses.dataclass
class _Model:
    """A composed point, of which others are made that differ from it in lone values alone.

    Attributes:
      config: of the point, on which values are tried.
      plain: the same as plain data.
      texts: its overrides, by their keys.
      known: values by key and override, as the shape of the configuration takes them.
    """

    config: DictConfig
    plain: dict[str, Any]
    texts: dict[str, str]
    known: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, config: DictConfig, plain: dict[str, Any], point: Sequence[Override]) -> "_Model | None":
        """A point as a model; None where a value could be in two places, by interpolation or as part of another."""
        texts = {o.key_or_group: str(o.input_line) for o in point if o.key_or_group not in GROUPS}
        within = any(one.startswith(f"{other}.") for one in texts for other in texts)
        return None if within or "${" in OmegaConf.to_yaml(config) else cls(config, plain, texts)

    def values(self, point: Sequence[Override]) -> dict[str, Any] | None:
        """The values in which another point differs, by key; None if one of them has to be composed."""
        changed = [o for o in point if self.texts.get(o.key_or_group, str(o.input_line)) != str(o.input_line)]
        for override in changed:
            if str(override.input_line) not in self.known and not self._learn(override):
                return None
        return {override.key_or_group: self.known[str(override.input_line)] for override in changed}

    def with_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The point with other values."""
        plain = _copied(self.plain)
        for key, value in values.items():
            *sections, name = key.split(".")
            functools.reduce(dict.__getitem__, sections, plain)[name] = value
        return plain

    def _learn(self, override: Override) -> bool:
        """Whether a lone value takes the place of another as it is: no text that refers to others, and nothing new."""
        key, value = override.key_or_group, override.value()
        adds = override.is_add() or override.is_force_add() or override.package is not None
        if (
            adds
            or not isinstance(value, str | int | float)
            or (isinstance(value, str) and ("$" in value or "?" in value))
        ):
            return False
        if OmegaConf.select(self.config, key) is None or OmegaConf.is_config(OmegaConf.select(self.config, key)):
            return False
        try:
            OmegaConf.update(self.config, key, value, merge=True)
        except _REFUSALS:
            return False
        self.known[str(override.input_line)] = OmegaConf.select(self.config, key)
        return True


class Point(NamedTuple):
    """A point of a sweep: its configuration, and the words of a command line that asks for it alone."""

    config: dict[str, Any]
    words: tuple[str, ...]


def compose_all(line: CommandLine) -> list[dict[str, Any]]:
    """The configuration of every study that a command line asks for; see ``compose_points``."""
    return [point.config for point in compose_points(line)]


def compose_points(line: CommandLine) -> list[Point]:
    """Composes the configuration of every study that a command line asks for.

    Hydra composes once for every distinct choice from groups; values are then set on copies of that.

    Returns:
      Plain data in the shape of ``sweeps.kind_configs.config()``, one per point of the sweep. Sections of other kinds are
      None. The words exclude the store and the launcher's settings.

    Raises:
      BadInput: for anything wrong with it, before any study is returned.
    """
    parsed = overrides.parse(line.overrides)
    for override in parsed:
        overrides.check(override)
    overrides.check_once(str(override.input_line) for override in parsed)
    if parts := _parts(line, parsed):
        return [point for part in parts for point in compose_points(part)]
    swept = [o for o in parsed if o.is_sweep_override()]
    fixed = [o for o in parsed if not o.is_sweep_override()]
    _refuse_commas(parsed)
    if swept and not line.multirun:
        raise BadInput(f"{swept[0].input_line} is a sweep; add -m to run all of it")
    ConfigStore.instance().store("schema", kind_configs.config())
    with initialize_config_module("conf", version_base="1.3"):
        spoken_for = {o.key_or_group for o in parsed}
        bases = {_choices(fixed): _base(_choices(fixed))}
        axes = {k: v for k, v in bases[_choices(fixed)].axes.items() if k not in spoken_for}
        if not line.multirun:
            _refuse_axes(line, axes)
        preset = overrides.parse([f"{key}={value}" for key, value in axes.items()])
        for override in preset:
            overrides.check(override)
        values = [list(overrides.values(o)) for o in (*preset, *swept)]
        read = {text: overrides.parse([text])[0] for text in itertools.chain(*values)}
        points = [[*fixed, *(read[text] for text in point)] for point in itertools.product(*values)]
        return list(_points(points, parsed, bases))


def _parts(line: CommandLine, parsed: Sequence[Override]) -> list[CommandLine]:
    """The command lines of the presets that a preset unites, or several; empty where there is but one, in a file.

    Raises:
      BadInput: it is not said that all of them are to run.
    """
    named = [override for override in parsed if override.key_or_group == "experiment"]
    if not named:
        return []
    names = [value.split("=", 1)[1] for value in overrides.values(named[-1])]
    united = list(dict.fromkeys(each for name in names for each in overrides.united(name)))
    others = tuple(text for text, override in zip(line.overrides, parsed, strict=True) if override not in named)
    spoken_for = {override.key_or_group for override in parsed} - {"experiment"}
    parts = [
        tuple(word for word in overrides.words_of(each) if overrides.key_of(word) not in spoken_for) for each in united
    ]
    if len(names) == 1 and parts == [(f"+experiment={names[0]}",)]:
        return []
    if len(parts) > 1 and not line.multirun:
        raise BadInput(f"{named[-1].input_line} unites {len(united)} presets; add -m to run all of them")
    if not line.multirun:
        _refuse_axes(line, [o.key_or_group for o in overrides.parse(parts[0]) if o.is_sweep_override()])
    return [line._replace(overrides=(*words, *others)) for words in parts]


def _refuse_commas(parsed: Sequence[Override]) -> None:
    """Raises BadInput if commas of Mesh-TensorFlow, between the pairs of one text, make a sweep of bare pairs."""
    loose = any(override.key_or_group == "strict" and override.value() is False for override in parsed)
    for override in parsed:
        if loose and override.key_or_group in _OF_PAIRS and override.is_sweep_override():
            key, _, text = str(override.input_line).partition("=")
            swept = override.value()
            if isinstance(swept, ChoiceSweep) and any(isinstance(pair, str) and ":" in pair for pair in swept.list):
                raise BadInput(f"{key}={text} would be a {key} for each pair; put it in quotes: {key}=\"'{text}'\"")


def _refuse_axes(line: CommandLine, axes: Iterable[str]) -> None:
    """Raises BadInput if a preset has axes and all of it was not asked for."""
    if swept := ", ".join(axes):
        command = shlex.join((*line.overrides, *([] if line.store is None else [f"store={line.store}"])))
        raise BadInput(f"this preset is a sweep over {swept}; run `python -m sweeps {command} -m`")


def _points(
    points: Sequence[Sequence[Override]], parsed: Sequence[Override], bases: dict[tuple[str, ...], _Base]
) -> Iterator[Point]:
    """Each point, its configuration from ``bases`` by their choices, to which it adds those that are not there yet.

    Raises:
      BadInput: none of the points takes an override of the command line.
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
    models: dict[tuple[tuple[str, ...], ...], _Model | None] = {}
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


def _words(point: Iterable[Override]) -> tuple[str, ...]:
    words = tuple(
        str(o.input_line) for o in point if not re.match(r"launcher\b|limits\.sweep\b|notify$", o.key_or_group)
    )
    is_preset = any(o.key_or_group == "experiment" for o in point)
    return (*words, "-m") if is_preset else words


def _copied(plain: Any) -> Any:
    """A copy of plain data, in less time than ``copy.deepcopy`` takes, which allows for anything."""
    if isinstance(plain, dict):
        return {key: _copied(value) for key, value in plain.items()}
    return [_copied(value) for value in plain] if isinstance(plain, list) else plain


def _choices(point: Iterable[Override]) -> tuple[str, ...]:
    return tuple(str(o.input_line) for o in point if o.key_or_group in GROUPS)


def _base(choices: Sequence[str]) -> _Base:
    config = _compose(choices, with_hydra=True)
    task, axes = config.hydra.runtime.choices.task, dict(config.hydra.sweeper.params or {})
    with open_dict(config):
        del config["hydra"]
    return _Base(config, task, axes)


def _misplaced(key: str, base: _Base) -> str:
    for kind, reader in READERS.items():
        if kind_configs.takes(kind, key):
            tasks = [f"task={name}" for name in overrides.tasks(kind)]
            examples = f"{', '.join(tasks[:_SHOWN])}{', …' if len(tasks) > _SHOWN else ''}"
            other = f"task={base.task}, which is a {READERS[base.kind].noun}"
            return f"{key} does not go with {other}; it is for a {reader.noun}: {examples}"
    return f"unknown key {key!r}; {_searched(key, base.config) or nearest(key, _keys())}"


def _searched(key: str, config: DictConfig) -> str:
    """The end of an error line about the name of a metaparameter that is searched; empty for any other key."""
    name = key.rpartition(".")[2]
    for section in ("task.space", "optimizer.space"):
        ranges = OmegaConf.select(config, section) or {}
        if name in ranges:
            ends = [f"{section}.{name}.{end}" for end in ("low", "high") if end in ranges[name]]
            return f"{name} is searched; its range is {' and '.join(ends or [f'{section}.{name}.values'])}"
    return ""


def _with(base: _Base, point: Sequence[Override]) -> DictConfig:
    """A base with the values of a point set, as Hydra would compose it; raises what Hydra would raise."""
    config = base.config.copy()
    try:
        for override in point:
            if override.key_or_group in GROUPS:
                continue
            key, value, adds = override.key_or_group, override.value(), override.is_add() or override.is_force_add()
            adds |= bool(_ANY_KEY.match(key))
            twice = (
                override.is_add() and not isinstance(value, dict | list) and OmegaConf.select(config, key) is not None
            )
            _check_within(config, key, base.task)
            section, _, name = key.rpartition(".")
            if section in _OPEN and not adds and name not in (options := OmegaConf.select(config, section) or {}):
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
            if override.package is not None or twice:
                return _compose([str(o.input_line) for o in point])
            OmegaConf.update(config, key, value, merge=True, force_add=adds)
    except BadInput:
        raise
    except _REFUSALS:
        return _compose([str(o.input_line) for o in point])
    return config


def _check_within(config: DictConfig, key: str, task: str) -> None:
    """Raises BadInput for a key within a section that has no value: that of another task, or targets."""
    parts = key.split(".")
    for parent in (".".join(parts[:count]) for count in range(1, len(parts))):
        if parent in registry.OWN_DATASETS and OmegaConf.select(config, parent) is None:
            raise BadInput(f"{key} does not go with task={task}; it is for task={parent}")
        if parent == "task.targets" and not OmegaConf.select(config, parent):
            raise BadInput(f"{key}: there is no list of targets to change; give one, such as {_TARGETS}")


def _compose(lines: Sequence[str], *, with_hydra: bool = False) -> DictConfig:
    try:
        return compose("config", list(lines), return_hydra_config=with_hydra)
    except _REFUSALS as error:
        raise BadInput(_reword(error, lines)) from None


def _reword(error: Exception, lines: Sequence[str]) -> str:
    """Hydra's page of text as one line that names the offending word."""
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
        return f"{added[1]!r} does not exist yet; add it with a plus sign: +{key}=… or the like"
    merging = re.search(r"Error merging override (\S+)", text)
    where = merging[1] if merging else " ".join(lines)
    kind = re.search(r"Value (.*) of type .* could not be converted to (\w+)", text)
    if kind:
        return f"{where}: {kind[1]} is not {_TYPES.get(kind[2], kind[2])}"
    if where.startswith("task.targets=") and ("is not a ListConfig" in text or "TargetConfig" in text):
        return f"{where}: targets are a list of metrics and values, such as {_TARGETS}"
    if re.search(r"Invalid type assigned|Cannot assign \w+ to Dict", text):
        section = where.partition("=")[0]
        keys = [key for key in _keys() if key.startswith(f"{section}.")]
        return f"{where}: {section} has keys of its own{': ' if keys else ''}{', '.join(keys)}"
    if "is not a ListConfig" in text:
        return f"{where}: a list is needed"
    if "is not Optional" in text:
        return f"{where}: a value is needed"
    return f"{where}: {first_line(error.__cause__ or error)}"


def _plain(config: DictConfig, kind: str) -> dict[str, Any]:
    """Plain data without the sections of a preset for studies of other kinds."""
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
    """Raises BadInput for a key that the schema does not have: Hydra takes any that is added with a plus sign."""
    fields = _fields(shape)
    for key in map(str, config):
        if key not in fields:
            raise BadInput(f"unknown key {f'{prefix}{key}'!r}; {nearest(f'{prefix}{key}', _keys())}")
        if dataclasses.is_dataclass(fields[key]) and config[key] is not None:
            _check_keys(config[key], fields[key], f"{prefix}{key}.")


def _keys(shape: Any = None, prefix: str = "") -> list[str]:
    """Every key an override may name, dotted, and `experiment`."""
    keys = ["experiment"] if not prefix else []
    for key, kind in _fields(shape or kind_configs.config()).items():
        if not prefix and key == "kind":  # which tasks say, and no override
            continue
        keys += _keys(kind, f"{prefix}{key}.") if dataclasses.is_dataclass(kind) else [f"{prefix}{key}"]
        keys += [key] if key in GROUPS else []
    return keys


def _shapes(shape: Any = None) -> dict[str, Any]:
    """All dataclasses that a shape is made of, by their names."""
    own = shape or kind_configs.config()
    kinds_of_fields = [each for kind in _fields(own).values() for each in (kind, *typing.get_args(kind))]
    nested = [kind for kind in kinds_of_fields if dataclasses.is_dataclass(kind)]
    return {own.__name__: own} | {name: kind for each in nested for name, kind in _shapes(each).items()}


def _fields(shape: Any) -> dict[str, Any]:
    """The types of a shape's fields, without ``| None``."""
    return {name: _unless_none(kind) for name, kind in typing.get_type_hints(shape).items()}


def _unless_none(kind: Any) -> Any:
    parts = [part for part in typing.get_args(kind) if part is not type(None)]
    return parts[0] if isinstance(kind, types.UnionType) and len(parts) == 1 else kind
