"""Reads configurations into plans of kind ``batch``."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from harness.step.batch_partition import Division, divisions, requested
from results.bad_input import BadInput, check_choice, nearest
from results.plans.batch_study import SCHEDULES, BatchStudy
from results.plans.kinds import reserved
from results.plans.search_space import SearchSpace
from results.plans.study import Target
from results.rules.answers import check_chooses
from sweeps import tuning_protocol
from sweeps.configured_study import Config, ConfiguredStudy, Say, ranges
from workloads import appendix, checks, registry
from workloads.packages import is_qualified
from workloads.workload import Dataset, Model

DEFAULT_TRIALS = 32  # per study
DEFAULT_CANDIDATES = 5  # for reruns
_OFF = "False"  # YAML reads a bare `pruning: off` as false


class Tuning(NamedTuple):
    """The part of a study that a protocol replaces: fields of ``BatchStudy``, with ranges given as in a configuration.

    Attributes:
      study: archive folder of the study that has this protocol, or empty if there is no such study.
    """

    schedule: str
    space: Config
    budget_steps: int
    evaluation_spacing: float
    evaluation_spacings: tuple[tuple[int, int], ...] = ()
    study: str = ""


def read(config: Config) -> ConfiguredStudy[BatchStudy]:
    """Returns the study of a configuration that trains a network. Raises BadInput if it is invalid."""
    task = config["task"] | ({} if config["model"] is None else {"model": _model(config["model"])})
    if config["appendix"] is not None:
        check_choice("appendix", config["appendix"], appendix.NAMES)
        task = appendix.remembered(task)
    optimizer = config["optimizer"]
    registry.check("optimizer", optimizer["name"])
    registry.check("dataset", task["dataset"])
    source = dict(config[task["dataset"]] or {}) if task["dataset"] in registry.OWN_DATASETS else None
    dataset = registry.dataset(task["dataset"], source)
    options, model = model_options(task, dataset)
    names = task["dataset"], task["model"]["name"], optimizer["name"]
    if any(map(is_qualified, names)):
        registry.check_own(*names, json.dumps(source), json.dumps(options))
    asked = requested(*(config[key] for key in ("shards", "microbatches", "mesh", "layout")))
    (division, *_) = divisions(max(config["batch_size"], 1), model.group, asked.shards or 1, asked)
    if division.layout:
        _check_layout(dataset, task["model"]["name"], options, config, division)
    targets = _targets(task, dataset)
    measured = registry.metrics(dataset)
    for target in targets:
        if target.metric not in measured:
            raise BadInput(f"{task['dataset']} has no {target.metric}; {nearest(target.metric, measured)}")
        check_chooses(target.metric, measured)
        target.check_possible("task.targets")
    examples = dataset.train_examples
    if examples is not None and config["batch_size"] > examples:
        raise BadInput(
            f"batch_size={config['batch_size']} is larger than the training set of {task['dataset']}. "
            f"Use at most {examples}."
        )
    check_choice("schedule", task["schedule"], SCHEDULES)
    tuning = _tuning(config, task, dataset)
    _check_space(tuning, dataset, optimizer["name"])
    study = BatchStudy(
        dataset=task["dataset"],
        dataset_version=dataset.version(),
        model=task["model"]["name"],
        model_options=options,
        optimizer=optimizer["name"],
        schedule=tuning.schedule,
        batch_size=config["batch_size"],
        space=SearchSpace.from_plan(ranges(tuning.space)),
        targets=targets,
        budget_steps=tuning.budget_steps,
        evaluation_ratio=task["evaluation_ratio"],
        evaluation_spacing=tuning.evaluation_spacing,
        seed=config["seed"],
        pruning=_pruning(config),
        trials=DEFAULT_TRIALS if config["trials"] is None else config["trials"],
        stop=config["stop"],
        confirm=config["confirm"],
        confirm_top=_confirm_top(config),
        dataset_options=dict(dataset.options),
        precision=config["precision"],
        packages=registry.package_identities(task["dataset"], task["model"]["name"], optimizer["name"]),
        evaluation_spacings=tuning.evaluation_spacings,
    )
    return ConfiguredStudy(study, source)


def notes(studies: Sequence[BatchStudy]) -> list[str]:
    """Returns notes that explain when the trials of these studies end."""
    at_targets = [study for study in studies if study.search.ends_at]
    ends = []
    if at_targets:
        pruned = any(study.pruning == "exact" for study in at_targets)
        ends.append(f"a trial ends once it has reached all its targets{', or can no longer win' if pruned else ''}")
    if len(at_targets) < len(studies):
        which = f"in {len(studies) - len(at_targets)} of {len(studies)} studies it" if at_targets else "a trial"
        ends.append(f"{which} uses its whole budget")
    return ends


def data_lines(studies: Sequence[ConfiguredStudy[BatchStudy]]) -> list[str]:
    """Returns lines for the user about the data of these studies."""
    lines: list[str] = []
    for configured in studies:
        row = registry.dataset(configured.study.dataset, configured.source)
        lines += row.lines
        if row.targets_line and configured.study.targets == _default_targets(row):
            lines.append(row.targets_line)
    return list(dict.fromkeys(lines))


def make_ready(studies: Sequence[ConfiguredStudy[BatchStudy]], say: Say) -> None:
    """Raises BadInput unless the data of all studies are on this machine, and own data are valid."""
    rows = {
        configured.study.dataset: registry.dataset(configured.study.dataset, configured.source)
        for configured in studies
    }
    for name, row in rows.items():
        row.check()
        for note in checks.notes(row, row.load()) if is_qualified(name) else ():
            say(f"note: {name}: {note}")


def _tuning(config: Config, task: Config, dataset: Dataset) -> Tuning:
    """Returns the tuning of the protocol if one is given, otherwise that of the task."""
    batch_size = max(config["batch_size"], 1)
    budget_steps = _budget_steps(task, dataset, batch_size)
    spacing = _evaluation_spacing(task, dataset, batch_size)
    given = tuning_protocol.read(config["protocol"])
    if given is None:
        return Tuning(task["schedule"], config["optimizer"]["space"] | task["space"], budget_steps, spacing)
    budget_steps = given["train_steps"] or budget_steps
    schedule, space = tuning_protocol.schedule_and_space(given, budget_steps)
    spacings = tuning_protocol.spacings(given, budget_steps)
    return Tuning(schedule, space, budget_steps, 0.0 if spacings else spacing, spacings, given["study"])


def _targets(task: Config, dataset: Dataset) -> tuple[Target, ...]:
    if task["targets"] is not None:
        return tuple(Target(target["metric"], target["value"]) for target in task["targets"])
    if not dataset.targets:
        raise BadInput("task.targets=null: a value is needed")
    return _default_targets(dataset)


def _default_targets(dataset: Dataset) -> tuple[Target, ...]:
    return tuple(Target(metric, value) for metric, value in dataset.targets)


def _confirm_top(config: Config) -> int:
    """Returns the requested number of candidates. The default is several if curves are complete, otherwise one."""
    if config["confirm_top"] is not None:
        return int(config["confirm_top"])
    return DEFAULT_CANDIDATES if config["confirm"] and _pruning(config) == "off" else 1


def _pruning(config: Config) -> str:
    return "off" if config["pruning"] == _OFF else str(config["pruning"])


def _model(chosen: object) -> Config:
    """Returns the ``model`` key (a name, or a dict with a name and options) as a dict."""
    model = {"name": chosen} if isinstance(chosen, str) else chosen
    if not isinstance(model, Mapping) or not isinstance(model.get("name"), str):
        raise BadInput(f"model={chosen!r} is neither a name nor a dict with a name, such as {{name: vgg, width: 8}}")
    return model


def model_options(task: Config, dataset: Dataset) -> tuple[Config, Model]:
    """Returns the options of a task's model, as listed in its plan, and the model.

    Raises:
      BadInput: an option is wrong, or the model does not accept this data set.
    """
    name, dataset_name = task["model"].get("name"), task["dataset"]
    registry.check("model", name)
    if dataset.models is not None and name not in dataset.models:
        raise BadInput(f"task.model.name={name} does not take a {dataset_name}. Use {' or '.join(dataset.models)}.")
    names = registry.model_options(name)
    given = {key: option for key, option in task["model"].items() if key != "name"}
    for key in given:
        if key not in names:
            raise BadInput(f"task.model.{key}: {name} does not have this option; {nearest(key, names)}")
    for key in names:
        if key not in given and key not in registry.model_defaults(name):
            raise BadInput(f"task.model.{key} is missing. {name} takes {', '.join(names)}.")
    options = registry.plan_options(name, given)
    try:
        model = registry.get_model(name)(classes=dataset.classes, **options)
    except (TypeError, ValueError) as error:
        raise BadInput(f"task.model: {error}") from None
    if not isinstance(model, Model):
        raise BadInput(f"task.model: {name} returns {type(model).__name__}, not workloads.workload.Model")
    return options, model


def _check_layout(dataset: Dataset, model: str, options: Config, config: Config, division: Division) -> None:
    """Raises BadInput for a layout that the model does not support. The model is traced without using a device."""
    from harness.step import shardings

    workload = registry.workload(dataset, model, options, config["optimizer"]["name"])
    shardings.check(workload, division, config["batch_size"])


def _check_space(tuning: Tuning, dataset: Dataset, optimizer: str) -> None:
    """Raises BadInput if a metaparameter is unknown or has no range."""
    schedule = tuning.schedule
    needed = registry.tuned(optimizer, schedule)
    accepted = registry.tunable(dataset, optimizer, schedule)
    with_schedule = "" if schedule == "constant" else f" with schedule={schedule}"
    for name in tuning.space:
        if name not in accepted or name in reserved():
            searched = f"{tuning.study} in the archive searches {name}, but " if tuning.study else ""
            raise BadInput(
                f"{searched}{optimizer}{with_schedule} has no metaparameter {name!r}; {nearest(name, accepted)}"
            )
    for name in needed:
        if name not in tuning.space:
            if tuning.study:
                raise BadInput(f"{tuning.study} in the archive has no range of {name}, which {optimizer} needs")
            raise BadInput(
                f"{name} has no range. Add one, such as +optimizer.space.{name}='{{scale: LINEAR, low: 0.1, high: 1}}'."
            )


def _budget_steps(task: Config, dataset: Dataset, batch_size: int) -> int:
    """Returns the steps of a trial: epochs or examples / batch size, limited to [``at_least_steps``, ``steps``]."""
    budget = task["budget"]
    examples = dataset.train_examples
    for key, value in budget.items():
        if value is not None and not value > 0:
            raise BadInput(f"task.budget.{key} must be above 0, not {value}")
    if budget["epochs"] is not None and examples is None:
        raise BadInput(f"task.budget.epochs: {task['dataset']} is an endless stream. Set steps or examples.")
    data = [budget["examples"], budget["epochs"] and budget["epochs"] * examples]
    amounts = [amount for amount in data if amount is not None]
    steps = []
    if amounts:
        steps.append(max(budget["at_least_steps"] or 1, math.ceil(min(amounts) / batch_size)))
    if budget["steps"] is not None:
        steps.append(budget["steps"])
    if not steps:
        raise BadInput("task.budget is empty. Set steps, examples or epochs, such as task.budget.epochs=25.")
    return min(steps)


def _evaluation_spacing(task: Config, dataset: Dataset, batch_size: int) -> float:
    """Returns the steps per evaluation at which evaluations stay within ``evaluation_share`` of a trial's work.

    An evaluated example counts as much as a training example. It does not need a backward pass, but large evaluation
    batches use caches less efficiently. Work is counted instead of timed, so the grid is the same on every machine.
    """
    share = task["evaluation_share"]
    if not 0 < share <= 1:
        raise BadInput(f"task.evaluation_share must be above 0 and at most 1, not {share:g}")
    return round(dataset.evaluation_examples * len(dataset.splits) / batch_size * (1 - share) / share, 6)
