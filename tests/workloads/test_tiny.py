"""Every workload of Shallue et al. 2018 in its tiny form: it trains, in seconds on a CPU."""

from pathlib import Path

import numpy as np
import pytest

from harness import engine, search
from harness.run import Settings
from sweeps import overrides, planning

# One of each family of models; all workloads are slow.
FAMILIES = {
    "mnist/fc_64_64_64/sgd",
    "mnist/simple_cnn_base/momentum",
    "cifar_10/resnet_8/nesterov_momentum",
    "imagenet/resnet_50/nesterov_momentum",
    "imagenet/vgg_11/nesterov_momentum",
    "open_images_v4/resnet_50/nesterov_momentum",
    "lm1b/lstm/nesterov_momentum",
    "lm1b/transformer_shallow/nesterov_momentum",
}
TINY = [name.removeprefix("tiny/") for name in overrides.united("tiny/all")]


@pytest.mark.parametrize(
    "workload", [pytest.param(name, marks=[] if name in FAMILIES else [pytest.mark.slow]) for name in TINY]
)
def test_training_loss_falls(workload: str, tmp_path: Path) -> None:
    line = [f"+experiment=tiny/{workload}", "batch_size=16", "-m", f"store={tmp_path}"]
    (study,) = planning.request(overrides.command_line(line)).studies
    record = engine.run(study, search.draw(study, range(study.trials)), Settings())
    losses = record.metrics["train_loss"]
    first, last = (losses[record.step == at] for at in (record.step.min(), study.budget_steps))
    assert np.nanmin(last) < 0.8 * np.median(first), (first, last)


def test_every_family_is_trained_where_tests_are_quick() -> None:
    assert set(TINY) > FAMILIES
