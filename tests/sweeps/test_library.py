"""The library: studies by plain arguments are those of a command line, and scripts need no guard."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sweeps
from harness.run import Settings
from results import store
from results.bad_input import BadInput
from sweeps import overrides, planning, quoting

ROOT = Path(__file__).parents[2]
TINY = {"trials": 2, "task.budget.steps": 20, "task.model.widths": [8]}
# Without a guard, and with a folder of any letters.
SCRIPT = """
import sys
import sweeps
assert not {"jax", "hydra", "pandas", "pyarrow"} & set(sys.modules)
print("script")
studies = sweeps.sweep(optimizer="sgd", batch_size=[16, 64], trials=2, **{"task.budget.steps": 20})
assert "jax" not in sys.modules
tables = sweeps.measure(studies, "a (1), x=y;'ü", workers=2)
print(len(tables.studies), len(tables.trials), *sorted(set(tables.trials["status"])))
again = sweeps.measure(studies, "a (1), x=y;'ü")
assert again.measurements.equals(tables.measurements)
"""


def names(line: str, folder: Path) -> list[str]:
    """Names of the studies of a command line."""
    request = planning.request(overrides.command_line([*line.split(), f"store={folder}"]))
    return [study.name for study in request.studies]


def test_arguments_ask_for_what_a_command_line_asks_for(tmp_path: Path) -> None:
    one = sweeps.study(task="digits_fc", optimizer="sgd", batch_size=np.int64(16), pruning="off", **TINY)
    line = "task=digits_fc optimizer=sgd batch_size=16 pruning=off"
    tiny = "trials=2 task.budget.steps=20 task.model.widths=[8]"
    assert [one.study.name] == names(f"{line} {tiny}", tmp_path)
    swept = sweeps.sweep(optimizer=["sgd", "nesterov"], batch_size=(16, 64), **TINY | {"task.model.widths": [[8], [4]]})
    line = "optimizer=sgd,nesterov batch_size=16,64 trials=2 task.budget.steps=20 task.model.widths=[8],[4] -m"
    assert [each.study.name for each in swept] == names(line, tmp_path)
    assert len(swept) == 8
    preset = sweeps.sweep(experiment="quickstart", trials=3)
    assert [each.study.name for each in preset] == names("+experiment=quickstart trials=3 -m", tmp_path)
    targets = [{"metric": "validation_error", "value": 0.2}]
    ranged = {"scale": "LINEAR", "low": 0, "high": 0.9}
    chosen = sweeps.study(**{"task.targets": targets, "optimizer.space.momentum": ranged})
    assert chosen.study.targets[0].value == 0.2
    assert chosen.study.space["momentum"].high == 0.9
    as_dict = sweeps.study(
        **{"task.targets": targets, "optimizer": {"name": "momentum", "space": {"momentum": ranged}}}
    )
    line = sweeps.study(**{"task.targets": targets, "optimizer": "momentum", "optimizer.space.momentum": ranged})
    assert as_dict == line
    space = {"b1": 0.5, "learning_rate": {"scale": "DISCRETE", "values": [0.1, 0.2]}}
    further = sweeps.study(optimizer={"name": "adamw", "space": space}).study
    assert (further.space["b1"].values, further.space["learning_rate"].values) == ((0.5,), (0.1, 0.2))


@pytest.mark.parametrize("text", ["a b", "it's", "back\\", "\\'", "${x}", "~/x,y=z(1)", "", 'ü"n', "{a: 1}", "null"])
def test_a_text_stays_as_it_is(text: str) -> None:
    (override,) = overrides.parse([f"ratings.path={quoting.as_text(text)}"])
    assert override.value() == text.replace("${", "\\${")  # which the configuration reads as it was


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"taks": "digits_fc"}, "unknown key 'taks'; did you mean 'task'?"),
        ({"optimizer": "adm"}, "unknown optimizer 'adm'; did you mean 'adam'"),
        ({"optimizer": {"name": "adm"}}, "unknown optimizer 'adm'; did you mean 'adam'"),
        (
            {"optimizer": {"nam": "adam"}},
            "is not a dict of a name and a space, such as {'name': 'adam', 'space'",
        ),
        ({"optimizer": {"name": "adam", "space": {"b3": 1}}}, "adam has no metaparameter 'b3'"),
        ({"batch_size": "1,2"}, "'1,2' is not an integer"),
        ({"batch_size": [1, 2]}, "'[1, 2]' is not an integer"),
        ({"store": "x"}, "store is a setting of runs, not of studies. Pass it to measure()."),
        ({"launcher.workers": 2}, "launcher is a setting of runs"),
        ({"experiment": "quickstart"}, "experiment is the name of a sweep. Pass it to sweep()."),
        ({"seed": object()}, "is not a number, text, list or dict"),
    ],
)
def test_a_mistake_is_one_line(values: dict[str, object], line: str) -> None:
    with pytest.raises(BadInput, match=re.escape(line)) as raised:
        sweeps.study(**values)
    assert "\n" not in str(raised.value)


def test_empty_or_invalid_measurements_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="axis needs at least one value"):
        sweeps.sweep(batch_size=[])
    with pytest.raises(BadInput, match="needs at least one study"):
        sweeps.measure([], tmp_path / "store")
    one = sweeps.study(**TINY)
    with pytest.raises(BadInput, match="workers must be at least 1"):
        sweeps.measure(one, tmp_path / "store", workers=0)
    with pytest.raises(BadInput, match="lanes must be at least 1"):
        sweeps.measure(one, str(tmp_path / "store"), settings=Settings(lanes=0))
    assert not list(tmp_path.iterdir())


def test_failed_studies_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(RuntimeError, match=r"1 of 1 study failed: .*cuda"):
        sweeps.measure(sweeps.study(**TINY), tmp_path / "store", workers=1)


def test_a_script_without_a_guard(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (0, "script\n2 4 COMPLETE\n"), done.stderr
    by_text, by_path = (store.read(folder) for folder in (f"{tmp_path}/a (1), x=y;'ü", tmp_path / "a (1), x=y;'ü"))
    for one, other in zip(by_text, by_path, strict=True):
        pd.testing.assert_frame_equal(one, other)
