"""What the engine promises, for every optimizer of the registry."""

from collections.abc import Callable

import numpy as np
import pytest

from harness import engine, search
from harness.engine import Settings
from results.study import Study
from sweeps import config, overrides
from workloads import registry


@pytest.mark.parametrize("optimizer", list(registry.OPTIMIZERS))
def test_it_learns_and_a_trial_alone_is_the_trial_in_company_to_the_bit(optimizer: str) -> None:
    line = [
        f"optimizer={optimizer}",
        "task.model.widths=[16]",
        "task.targets=[]",
        "pruning=off",
        "task.evaluation_share=1",
    ]
    extra = ["+optimizer.space.label_smoothing={scale: LINEAR, low: 0, high: 0.1}"]
    extra += [] if optimizer == "adamw" else ["+optimizer.space.weight_decay={scale: LOG, low: 1e-5, high: 1e-3}"]
    (study,) = config.request(overrides.command_line([*line, *extra, "task.budget.steps=60"])).studies
    trials = search.draw(study, range(6))
    company, alone = (engine.run(study, some, Settings(lanes=5)) for some in (trials, trials[4:5]))
    assert alone.ended[4] == company.ended[4]
    for name, values in alone.metrics.items():
        assert np.array_equal(values.view(np.int32), company.metrics[name][company.trial == 4].view(np.int32))
    first, last = (company.metrics["train_loss"][company.step == step] for step in (1, 60))
    assert np.nanmin(last) < 0.5 * np.min(first)


def test_label_smoothing_and_weight_decay_change_training(make_study: Callable[..., Study]) -> None:
    base = ["batch_size=64", "task.targets=[]", "pruning=off", "task.budget.steps=20", "trials=1"]
    base += ["+task.space.learning_rate=0.1", "+task.space.momentum=0.9"]
    losses = set()
    for name in ("label_smoothing", "weight_decay"):
        for value in (0.0, 0.1):
            (study,) = config.request(overrides.command_line([*base, f"+task.space.{name}={value}"])).studies
            trial = search.draw(make_study(trials=1), [0])[0]
            trial = type(trial)(0, 7, {"learning_rate": 0.1, "momentum": 0.9, name: value})
            losses.add(float(engine.run(study, [trial], Settings(lanes=1)).metrics["train_loss"][-1]))
    assert len(losses) == 3
