"""What tests share: the CPU, strict dtype promotion for our own code, and a small study to vary, archives."""

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

os.environ["JAX_PLATFORMS"] = "cpu"  # whose promises the tests are about; worker processes inherit it

import jax
import pytest

from results.search_space import Range, SearchSpace
from results.study import Study, Target

jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="session")
def make_study() -> Callable[..., Study]:
    """Builds a study of a tiny network on digits that ends within a second; keywords replace its fields."""
    small = Study(
        dataset="digits",
        dataset_version="scikit-learn",
        model="fully_connected",
        model_options={"widths": [16]},
        optimizer="nesterov",
        schedule="constant",
        batch_size=64,
        space=SearchSpace({"learning_rate": Range("LOG", 1e-2, 3.0), "momentum": Range("REVERSE_LOG", 0.0, 0.99)}),
        targets=(Target("validation_loss", 0.6),),
        budget_steps=150,
        evaluation_ratio=1.2,
        evaluation_spacing=0.0,
        seed=0,
        pruning="off",
        trials=8,
    )

    def make(**changes: object) -> Study:
        return dataclasses.replace(small, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def archives() -> ModuleType:
    """The module benchmarks/archives.py, which is no package's: archives in the published format with known answers."""
    spec = importlib.util.spec_from_file_location("archives", Path(__file__).parents[1] / "benchmarks" / "archives.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["archives"] = module
    spec.loader.exec_module(module)
    return module
