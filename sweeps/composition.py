"""Composes the configuration of every study on a command line. Each error is a single line."""

import copy
import dataclasses
import itertools
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hydra import compose, initialize_config_module
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import ChoiceSweep, Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from results.bad_input import BadInput, check_choice, first_line, nearest
from sweeps import choices, kind_configs, overrides, schema_keys, tuning_protocol
from sweeps.configured_study import Config
from sweeps.kind_configs import READERS
from sweeps.overrides import CommandLine
from sweeps.quoting import GROUPS, Words, key_of
from workloads import registry

Plain = dict[str, Any]  # a configuration as plain data
Overrides = Sequence[Override]
_TYPES = {"Integer": "an integer", "Float": "a number", "Boolean": "true or false", "String": "a word"}
_TARGETS = "'task.targets=[{metric: validation_error, value: 0.1}]', in quotes"
_ANY_KEY = re.compile(r"launcher\.(sbatch|resources)\b")  # dicts that accept any key
_REFUSALS = (HydraException, OmegaConfBaseException, ValueError, AttributeError, AssertionError)
_MISSING = "???"  # OmegaConf's marker


class Point(NamedTuple):
    """A point of a sweep: its configuration, and the command-line words that select only this point."""

    config: Plain
    words: Words


@dataclasses.dataclass(frozen=True)
class _Base:
    """The configuration of some choices in groups, and values that overrides set in it.

    Attributes:
      config: configuration before overrides.
      scratch: copy in which scalars are set, to convert them to the types of the schema.
      plain: configuration as plain data.
      task: name of the task.
      axes: axes of the preset.
      values: converted values by override.
    """

    config: DictConfig
    scratch: DictConfig
    plain: Plain
    task: str
    axes: Config
    values: Plain = dataclasses.field(default_factory=dict)

    @property
    def kind(self) -> str:
        return str(self.plain["kind"])

    def takes(self, override: Override) -> bool:
        """Returns whether studies of this kind have the key of an override."""
        return kind_configs.takes(self.kind, override.key_or_group)

    def with_values(self, point: Overrides) -> Plain:
        """Returns the configuration of a point as plain data. Raises BadInput for a wrong value."""
        values = [override for override in point if override.key_or_group not in GROUPS]
        keys = [override.key_or_group for override in values]
        is_nested = any(key.startswith(f"{section}.") for key in keys for section in keys)
        sections = {key: _section(self.plain, key) for key in keys}
        if is_nested or None in sections.values() or any("$" in str(override.input_line) for override in values):
            config = self.config.copy()
            for override in values:
                _set(config, override, self.task)
            plain = _plain(config)
        else:
            plain = copy.deepcopy(self.plain)
            for override, key in zip(values, keys, strict=True):
                section = _section(plain, key)
                assert section is not None
                section[key.rpartition(".")[2]] = copy.deepcopy(self._value(override))
        for key in READERS[self.kind].sections:
            if plain[key] is None:
                raise BadInput(f"{key}=null: a value is needed")
        if missing := _missing(plain):
            raise BadInput(f"Missing mandatory value: {missing}")
        return plain

    def _value(self, override: Override) -> Any:
        """Returns the value that an override sets, as plain data of the schema's type."""
        text, key, value = str(override.input_line), override.key_or_group, override.value()
        if text not in self.values:
            is_scalar = not _adds(override) and not isinstance(value, dict | list)
            config = self.scratch if is_scalar else self.config.copy()
            _set(config, override, self.task)
            if not is_scalar:
                schema_keys.check(config)
            node = OmegaConf.select(config, key)
            self.values[text] = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
        return self.values[text]


def compose_all(line: CommandLine) -> list[Plain]:
    """Returns the configuration of every study on a command line. See ``compose_points``."""
    return [point.config for point in compose_points(line)]


def compose_points(line: CommandLine) -> list[Point]:
    """Composes the configuration of every study on a command line.

    Returns:
      One point per study. Its configuration is plain data in the shape of ``sweeps.kind_configs.config()``, in which
      sections of other kinds are None. Its words exclude the store and the launcher's settings.

    Raises:
      BadInput: the command line is invalid.
    """
    tuning_protocol.check_words(line.overrides)
    store = ConfigStore.instance()
    store.store("schema", kind_configs.config())
    for group, files in choices.own_files.items():
        for name in files:
            content, is_whole = choices.content(group, name)
            store.store(name, content, group, "_global_" if is_whole else group)
    with initialize_config_module("conf", version_base="1.3"):
        points = [point for part in _parts(line) for point in _points(line, part)]
    return [Point(*tuning_protocol.with_numbers(*point)) for point in points]


def _parts(line: CommandLine) -> list[Overrides]:
    """Returns the parsed overrides of a command line, once for each preset that it combines.

    Raises:
      BadInput: -m is missing although there are several presets or a preset is a sweep.
    """
    parsed = overrides.parse(line.overrides)
    overrides.check_once(line.overrides)
    experiments = [override for override in parsed if override.key_or_group == "experiment"]
    if not experiments:
        return [parsed]
    remaining = [override for override in parsed if override not in experiments]
    given = {override.key_or_group for override in remaining}
    names = [text.split("=", 1)[1] for text in overrides.values(experiments[0])]
    united = list(dict.fromkeys(member for name in names for member in choices.united(name)))
    if len(united) > 1 and not line.multirun:
        raise BadInput(f"{experiments[0].input_line} combines {len(united)} presets. Add -m to run them all.")
    parts: list[Overrides] = []
    for name in united:
        words = choices.presets()[name].words
        if "protocol" in given:
            words += tuning_protocol.workload_words(name)
        preset = overrides.parse([word for word in words if key_of(word) not in given])
        if not line.multirun:
            _check_not_swept(line, [override.key_or_group for override in preset if override.is_sweep_override()])
        parts.append([*preset, *remaining])
    return parts


def _points(line: CommandLine, parsed: Overrides) -> list[Point]:
    """Returns the points of a part of a command line."""
    swept = [override for override in parsed if override.is_sweep_override()]
    fixed = [override for override in parsed if not override.is_sweep_override()]
    _check_commas(parsed)
    if swept and not line.multirun:
        raise BadInput(f"{swept[0].input_line} is a sweep. Add -m to run it.")
    chosen = _choices(fixed)
    base = _base(chosen)
    given = {override.key_or_group for override in parsed}
    axes = {key: value for key, value in base.axes.items() if key not in given}
    if not line.multirun:
        _check_not_swept(line, axes)
    preset = overrides.parse([f"{key}={value}" for key, value in axes.items()])
    texts = [list(overrides.values(override)) for override in (*preset, *swept)]
    singles = {text: overrides.parse([text])[0] for text in itertools.chain(*texts)}
    points = [[*fixed, *(singles[text] for text in point)] for point in itertools.product(*texts)]
    bases = {words: base if words == chosen else _base(words) for words in dict.fromkeys(map(_choices, points))}
    for override in parsed:
        if not any(base.takes(override) for base in bases.values()):
            first = next(iter(bases.values()))
            raise schema_keys.misplaced(override.key_or_group, first.task, first.kind, first.config)
    composed = []
    for point in points:
        base = bases[_choices(point)]
        taken = [override for override in point if base.takes(override)]
        composed.append(Point(base.with_values(taken), _words(taken)))
    return composed


def _choices(point: Overrides) -> Words:
    return tuple(str(o.input_line) for o in point if o.key_or_group in GROUPS)


def _base(chosen: Words) -> _Base:
    """Composes the files of choices in groups with Hydra."""
    try:
        config = compose("config", list(chosen), return_hydra_config=True)
    except _REFUSALS as error:
        raise _reworded(error, " ".join(chosen)) from None
    task, axes = config.hydra.runtime.choices.task, dict(config.hydra.sweeper.params or {})
    OmegaConf.set_struct(config, False)
    del config["hydra"]
    check_choice("kind", config.kind, READERS)
    for key in (key for reader in READERS.values() for key in reader.sections):
        if key not in READERS[config.kind].sections:
            config[key] = None
    OmegaConf.set_struct(config, True)
    return _Base(config, config.copy(), _plain(config), task, axes)


def _plain(config: DictConfig) -> Plain:
    """Converts a configuration to plain data. Raises BadInput for a key that is not in the schema."""
    schema_keys.check(config)
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise BadInput(first_line(error)) from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _set(config: DictConfig, override: Override, task: str) -> None:
    """Sets the value of an override in a configuration, like Hydra. Raises BadInput for a wrong key or value."""
    key, value, text = override.key_or_group, override.value(), str(override.input_line)
    adds = _adds(override) or bool(_ANY_KEY.match(key))
    try:
        _check_section(config, key, task)
        is_new = not override.is_add() or isinstance(value, dict | list) or OmegaConf.select(config, key) is None
        if not is_new:
            raise BadInput(f"{text}: {key} has a value already. Leave out the plus sign.")
        OmegaConf.update(config, key, value, merge=True, force_add=adds)
    except (ConfigAttributeError, ConfigKeyError) as error:
        raise _reworded(error, text) if key in schema_keys.dotted() else schema_keys.unknown(key, config) from None
    except BadInput:
        raise
    except _REFUSALS as error:
        raise _reworded(error, text) from None


def _check_section(config: DictConfig, key: str, task: str) -> None:
    """Raises BadInput for a key in a section that is null or an empty list."""
    parts = key.split(".")
    for parent in (".".join(parts[:count]) for count in range(1, len(parts))):
        if parent in registry.OWN_DATASETS and OmegaConf.select(config, parent) is None:
            raise BadInput(f"{key} does not apply to task={task}. Use task={parent}.")
        if parent == "task.targets" and not OmegaConf.select(config, parent):
            raise BadInput(f"{key}: the list of targets is empty. Give a whole list, such as {_TARGETS}.")


def _adds(override: Override) -> bool:
    return override.is_add() or override.is_force_add()


def _section(plain: Plain, key: str) -> Plain | None:
    """Returns the section of a dotted key in plain data, or None if there is no such section."""
    section: Any = plain
    for name in key.split(".")[:-1]:
        section = section.get(name) if isinstance(section, dict) else None
    return section if isinstance(section, dict) else None


def _missing(plain: Any, prefix: str = "") -> str:
    """Returns the first key of plain data that has no value, or an empty string."""
    if plain == _MISSING:
        return prefix
    items = plain.items() if isinstance(plain, dict) else ()
    return next(filter(None, (_missing(value, f"{prefix}.{key}".lstrip(".")) for key, value in items)), "")


def _words(point: Overrides) -> Words:
    words = tuple(str(o.input_line) for o in point if not re.match(r"launcher\b|limits\.sweep\b", o.key_or_group))
    return (*words, "-m") if any(o.key_or_group == "experiment" for o in point) else words


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
    """Raises BadInput for the axes of a preset without -m."""
    if swept := ", ".join(axes):
        store = () if line.store is None else (f"store={line.store}",)
        command = shlex.join((*line.overrides, *store))
        raise BadInput(f"this preset is a sweep over {swept}. Run `python -m sweeps {command} -m`.")


def _reworded(error: Exception, where: str) -> BadInput:
    """Returns an error of OmegaConf as one line that includes the invalid word."""
    text = f"{error}\n{error.__cause__ or ''}"
    if field := re.search(r"Key '([^']+)' not in '(\w+)'", text):
        shape = schema_keys.shapes(kind_configs.config())[field[2]]
        return BadInput(f"unknown key {field[1]!r}; {nearest(field[1], schema_keys.fields(shape))}")
    if added := re.search(r"Key '([^']+)' is not in struct\s+full_key: (\S+)", text):
        return BadInput(f"{added[1]!r} does not exist yet. Add it with a plus sign: +{added[2]}=…")
    if kind := re.search(r"Value (.*) of type .* could not be converted to (\w+)", text):
        return BadInput(f"{where}: {kind[1]} is not {_TYPES.get(kind[2], kind[2])}")
    if where.startswith("task.targets=") and ("is not a ListConfig" in text or "TargetConfig" in text):
        return BadInput(f"{where}: targets must be a list of metrics and values, such as {_TARGETS}")
    if re.search(r"Invalid type assigned|Cannot assign \w+ to Dict", text):
        section = where.partition("=")[0]
        keys = [key for key in schema_keys.dotted() if key.startswith(f"{section}.")]
        return BadInput(f"{where}: set one of the keys of {section}{': ' if keys else ''}{', '.join(keys)}")
    if "is not a ListConfig" in text:
        return BadInput(f"{where}: a list is needed")
    if "is not Optional" in text:
        return BadInput(f"{where}: a value is needed")
    return BadInput(f"{where}: {first_line(error.__cause__ or error)}")
