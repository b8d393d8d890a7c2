"""Toys, asked for: the keys of their configuration, and the plan these come to."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from omegaconf import MISSING
from toy_plan import ToyStudy

from results.plans.search_space import SearchSpace
from results.plans.study import Target
from sweeps.configured_study import ConfiguredStudy, ranges


@dataclasses.dataclass
class ToyConfig:
    width: int = MISSING
    learning_rate: Any = MISSING
    loss: float = MISSING
    plays: int = MISSING


@dataclasses.dataclass
class Keys:
    """What a toy takes beside what every study does."""

    toy: ToyConfig | None = None
    batch_size: int = MISSING


def read(config: Mapping[str, Any]) -> ConfiguredStudy[ToyStudy]:
    """The toy that a configuration asks for."""
    toy = config["toy"]
    return ConfiguredStudy(
        ToyStudy(
            dataset="noise",
            batch_size=config["batch_size"],
            width=toy["width"],
            space=SearchSpace.from_plan(ranges({"learning_rate": toy["learning_rate"]})),
            targets=(Target("validation_loss", toy["loss"]),),
            budget_steps=toy["plays"],
            seed=config["seed"],
            trials=config["trials"] or 2,
        )
    )
