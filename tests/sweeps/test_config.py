from pathlib import Path

import pytest

from sweeps import config, overrides
from sweeps.config import Request


def request(*words: str, store: Path | str = "results/local") -> Request:
    return config.request(overrides.command_line([*words, f"store={store}"]))


@pytest.mark.parametrize(
    ("budget", "batch_size", "steps"),
    [
        ("{steps: 50, epochs: null, at_least_steps: null}", 64, 50),
        ("{steps: null, epochs: 2, at_least_steps: null}", 1, 2874),
        ("{steps: null, epochs: 2, at_least_steps: null}", 1000, 3),
        ("{steps: null, epochs: 2, at_least_steps: 10}", 1000, 10),
        ("{steps: 7, epochs: 2, at_least_steps: 10}", 1000, 7),
        ("{steps: null, epochs: null, examples: 640, at_least_steps: null}", 64, 10),
        ("{steps: null, epochs: 1, examples: 640, at_least_steps: null}", 64, 10),
    ],
)
def test_budgets(budget: str, batch_size: int, steps: int) -> None:
    (study,) = request(f"batch_size={batch_size}", f"task.budget={budget}").studies
    assert study.budget_steps == steps


def test_axes_are_every_combination_and_the_command_line_wins_over_a_preset() -> None:
    studies = request("optimizer=sgd,nesterov", "batch_size=1,2", "trials=3", "-m").studies
    assert [(s.optimizer, s.batch_size) for s in studies] == [("sgd", 1), ("sgd", 2), ("nesterov", 1), ("nesterov", 2)]
    assert {s.trials for s in studies} == {3}
    assert len(request("+experiment=quickstart", "-m").studies) == 33
    assert len(request("+experiment=quickstart", "batch_size=64", "-m").studies) == 3
    assert len(request("+experiment=quickstart", "batch_size=64,128", "optimizer=glob(*)", "-m").studies) == 6
    (single,) = request("+experiment=quickstart", "batch_size=64", "optimizer=sgd").studies
    assert (single.pruning, single.optimizer) == ("off", "sgd")


def test_a_study_asked_for_twice_is_one_with_the_most_trials() -> None:
    studies = request("trials=4,16,8", "-m").studies
    assert [s.trials for s in studies] == [16]


def test_a_task_may_replace_ranges_and_fix_a_metaparameter() -> None:
    (study,) = request("+task.space.momentum=0.9", "+task.space.learning_rate={scale: LINEAR, low: 0, high: 1}").studies
    assert study.space["momentum"].values == (0.9,)
    assert study.space["learning_rate"].scale == "LINEAR"
    decaying = "{decay_fraction: {scale: LINEAR, low: 0.5, high: 1}, end_learning_rate_factor: 0.01}"
    (study,) = request("task.schedule=linear", f"+task.space={decaying}").studies
    assert set(study.space) == {"learning_rate", "momentum", "decay_fraction", "end_learning_rate_factor"}


def test_several_targets_and_whole_runs() -> None:
    targets = "[{metric: validation_loss, value: 0.5}, {metric: validation_error, value: 0.1}]"
    (study,) = request(f"task.targets={targets}").studies
    assert [target.metric for target in study.targets] == ["validation_loss", "validation_error"]
    assert request("task.targets=[]", "pruning=off").studies[0].targets == ()


@pytest.mark.parametrize("task", overrides.options("task"))
@pytest.mark.parametrize("optimizer", overrides.options("optimizer"))
def test_every_task_goes_with_every_optimizer(task: str, optimizer: str) -> None:
    (study,) = request(f"task={task}", f"optimizer={optimizer}", "batch_size=8").studies
    assert study.optimizer == optimizer


@pytest.mark.parametrize("preset", overrides.options("experiment"))
def test_every_preset_is_a_valid_sweep(preset: str) -> None:
    assert len(request(f"+experiment={preset}", "-m").studies) > 1
