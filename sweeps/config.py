"""From a composed configuration to plans: the only place that reads it, and hands on plain data."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.engine import Settings
from harness.lanes import STRATEGIES
from results import store
from results.asked import most
from results.bad_input import BadInput, check_choice, nearest
from results.batch_study import SCHEDULES, BatchStudy
from results.choice import check_chooses
from results.factorization import Factorization
from results.schema import RESERVED
from results.search_space import SearchSpace
from results.study import Target
from sweeps import composition, factorizations, overrides, ranges
from workloads import registry
from workloads.workload import DataAbsent

DEFAULT_TRIALS = 32  # per study
DEFAULT_CANDIDATES = 5  # among which repeats choose


@dataclasses.dataclass(frozen=True)
class Request:
    """What a command line asks for, checked as far as it can be without compiling anything.

    Attributes:
      studies: with distinct names, in the order asked for.
      ratings: of every factorization among them, by its name: what its data are built from. See
        ``workloads.registry.ratings``.
      settings: how each is run.
      store: the folder results go to.
      workers: of the local launcher; None leaves it to the machine.
    """

    studies: tuple[BatchStudy | Factorization, ...]
    ratings: Mapping[str, Mapping[str, Any]]
    settings: Settings
    store: Path
    workers: int | None


def request(line: overrides.CommandLine) -> Request:
    """Reads a command line into plans.

    Raises:
      BadInput: for the first thing wrong with any study of the sweep.
    """
    configs = composition.compose_all(line)
    first = configs[0]
    for key in ("store", "launcher", "lanes", "lane_strategy", "part_seconds", "time_limit_seconds"):
        if any(config[key] != first[key] for config in configs):
            raise BadInput(f"{key} is one for the whole sweep; it cannot be swept over")
    studies: dict[str, BatchStudy | Factorization] = {}  # by their plans
    ratings: dict[str, Mapping[str, Any]] = {}
    for config in configs:
        study: BatchStudy | Factorization
        if config["ratings"] is None:
            study = _study(config)
        else:
            study, of_study = factorizations.asked(config)
            ratings[study.plan_json] = of_study
        kept = studies.get(study.plan_json)
        studies[study.plan_json] = study if kept is None else _more(kept, study)
    folder = Path(first["store"]).expanduser()
    store.check_writable(folder)
    store.check_readable(folder)
    called = {plan: store.called(folder, study) for plan, study in studies.items()}
    for study in called.values():
        store.check_same_plan(folder, study)
    workers = _positive("launcher.workers", first["launcher"])
    of_name = {called[plan].name: of_study for plan, of_study in ratings.items()}
    return Request(tuple(called.values()), of_name, _settings(first), folder, workers)


def _settings(config: Mapping[str, Any]) -> Settings:
    check_choice("lane_strategy", config["lane_strategy"], ("auto", *STRATEGIES))
    limit = config["time_limit_seconds"]
    if limit is not None and not limit > 0:
        raise BadInput(f"time_limit_seconds must be above 0, not {limit:g}")
    if config["part_seconds"] < 0:
        raise BadInput(f"part_seconds must be at least 0, not {config['part_seconds']:g}")
    return Settings(_positive("lanes", config), config["lane_strategy"], limit, config["part_seconds"])


def _positive(key: str, config: Mapping[str, Any]) -> int | None:
    value = config[key.rsplit(".", 1)[-1]]
    if value is not None and value < 1:
        raise BadInput(f"{key} must be at least 1, not {value}")
    return value


def _study(config: Mapping[str, Any]) -> BatchStudy:
    task, optimizer = config["task"], config["optimizer"]
    check_choice("dataset", task["dataset"], registry.DATASETS)
    check_choice("optimizer", optimizer["name"], registry.OPTIMIZERS)
    dataset = registry.DATASETS[task["dataset"]]
    options = {key: value for key, value in task["model"].items() if key != "name"}
    _check_model(task["model"].get("name"), options, dataset.classes)
    targets = tuple(Target(target["metric"], target["value"]) for target in task["targets"])
    for target in targets:
        measured = registry.metrics(task["dataset"])
        if target.metric not in measured:
            raise BadInput(f"{task['dataset']} has no {target.metric}; {nearest(target.metric, measured)}")
        check_chooses(target.metric, measured)
    examples = dataset.train_examples
    if examples is not None and config["batch_size"] > examples:
        raise BadInput(
            f"batch_size={config['batch_size']} is larger than the training set of {task['dataset']}: "
            f"at most {examples}"
        )
    try:
        dataset.check()
    except DataAbsent as error:
        raise BadInput(str(error)) from None
    check_choice("schedule", task["schedule"], SCHEDULES)
    space = optimizer["space"] | task["space"]
    _check_space(space, task["dataset"], optimizer["name"], task["schedule"])
    return BatchStudy(
        dataset=task["dataset"],
        dataset_version=dataset.version(),
        model=task["model"]["name"],
        model_options=options,
        optimizer=optimizer["name"],
        schedule=task["schedule"],
        batch_size=config["batch_size"],
        space=SearchSpace.from_plan(ranges.plan(space)),
        targets=targets,
        budget_steps=_budget_steps(task, max(config["batch_size"], 1)),
        evaluation_ratio=task["evaluation_ratio"],
        evaluation_spacing=_evaluation_spacing(task, max(config["batch_size"], 1)),
        seed=config["seed"],
        pruning=config["pruning"],
        trials=DEFAULT_TRIALS if config["trials"] is None else config["trials"],
        stop=config["stop"],
        confirm=config["confirm"],
        confirm_top=_confirm_top(config),
    )


def _confirm_top(config: Mapping[str, Any]) -> int:
    """As it is asked; where nothing is said, several candidates if whole curves tell them, and the winner if not."""
    if config["confirm_top"] is not None:
        return int(config["confirm_top"])
    return DEFAULT_CANDIDATES if config["confirm"] and config["pruning"] == "off" else 1


def _more(one: BatchStudy | Factorization, other: BatchStudy | Factorization) -> BatchStudy | Factorization:
    """Of a study that is asked for twice, the most trials and the most repeats of the best."""
    trials, repeats = most([one.asked, other.asked])
    if isinstance(one, BatchStudy):
        return dataclasses.replace(one, trials=trials, confirm=repeats.confirm, confirm_top=repeats.top)
    return dataclasses.replace(one, trials=trials)


def _check_model(name: Any, options: Mapping[str, Any], classes: int) -> None:
    check_choice("model", name, registry.MODELS)
    known = registry.model_options(name)
    for key in options:
        if key not in known:
            raise BadInput(f"task.model.{key}: {name} takes no such option; {nearest(key, known)}")
    for key in known:
        if key not in options:
            raise BadInput(f"task.model.{key} is missing; {name} takes {', '.join(known)}")
    try:
        registry.MODELS[name](classes=classes, **options)
    except (TypeError, ValueError) as error:
        raise BadInput(f"task.model: {error}") from None


def _check_space(space: Mapping[str, Any], dataset: str, optimizer: str, schedule: str) -> None:
    """Raises BadInput for a metaparameter that nothing takes, or that lacks a range."""
    needed = registry.tuned(optimizer, schedule)
    taken = registry.tunable(dataset, optimizer, schedule)
    for name in space:
        if name not in taken or name in RESERVED:
            with_schedule = "" if schedule == "constant" else f" with schedule={schedule}"
            raise BadInput(f"{optimizer}{with_schedule} takes no metaparameter {name!r}; {nearest(name, taken)}")
    for name in needed:
        if name not in space:
            raise BadInput(
                f"no range for {name}; add +optimizer.space.{name}='{{scale: LINEAR, low: 0.1, high: 1}}' or the like"
            )


def _budget_steps(task: Mapping[str, Any], batch_size: int) -> int:
    """The most steps of a trial: passes or examples over the batch size, but ``at_least_steps``; ``steps`` caps all."""
    budget, examples = task["budget"], registry.DATASETS[task["dataset"]].train_examples
    for key, value in budget.items():
        if value is not None and not value > 0:
            raise BadInput(f"task.budget.{key} must be above 0, not {value}")
    if budget["epochs"] is not None and examples is None:
        raise BadInput(f"task.budget.epochs: {task['dataset']} is an endless stream; give steps or examples")
    data = [budget["examples"], budget["epochs"] and budget["epochs"] * examples]
    seen = [amount for amount in data if amount is not None]
    steps = [max(budget["at_least_steps"] or 1, math.ceil(min(seen) / batch_size))] if seen else []
    steps += [budget["steps"]] if budget["steps"] is not None else []
    if not steps:
        raise BadInput("task.budget is empty; give steps, examples or epochs, such as task.budget.epochs=25")
    return min(steps)


def _evaluation_spacing(task: Mapping[str, Any], batch_size: int) -> float:
    """Steps per evaluation that keep evaluations within ``evaluation_share`` of a trial's work.

    An example evaluated counts as much as an example trained, though it takes a pass forward and none back: large
    evaluation batches lose some of that in caches. Work is counted, not timed, so that the grid is the same on every
    machine.
    """
    share = task["evaluation_share"]
    if not 0 < share <= 1:
        raise BadInput(f"task.evaluation_share must be above 0 and at most 1, not {share:g}")
    dataset = registry.DATASETS[task["dataset"]]
    evaluated = dataset.evaluation_examples * len(dataset.splits)
    return round(evaluated / batch_size * (1 - share) / share, 6)
