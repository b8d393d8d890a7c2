"""Archives with known answers, made by the generator that the benchmarks use."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def archives() -> ModuleType:
    """The module benchmarks/archives.py, which is no package's."""
    spec = importlib.util.spec_from_file_location("archives", Path(__file__).parents[3] / "benchmarks" / "archives.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["archives"] = module
    spec.loader.exec_module(module)
    return module
