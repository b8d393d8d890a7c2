"""Every mistake a user can make is one line that names the offending word and the right one; nothing is stored."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from results.plans import schema
from sweeps import __main__ as sweeps_cli, plan, status

MISTAKES = [
    ("task=digts_fc", ["'digts_fc'", "'digits_fc'"]),
    ("optimizer=nestrov", ["'nestrov'", "'nesterov'"]),
    ("+experiment=quickstrat -m", ["'quickstrat'", "'quickstart'"]),
    ("experiment=ci -m", ["+experiment=ci"]),
    ("+experimnt=ci -m", ["'experimnt'", "'experiment'"]),
    ("+experiment=ci", ["+experiment=ci store={store} -m"]),
    ("batch_size=1,2", ["batch_size=1,2", "-m"]),
    ("batch_size=0", ["batch_size", "0"]),
    ("batch_size=-4", ["batch_size", "-4"]),
    ("batch_size=many", ["'many'", "an integer"]),
    ("batch_size=1.5", ["'1.5'", "an integer"]),
    ("batch_size=", ["batch_size="]),
    ("batch_size=null", ["batch_size"]),
    ("batch_size", ["'batch_size'", "batch_size=64"]),
    ("batch_size=2000", ["2000", "1411"]),
    ("batch_size=64,2000 -m", ["2000", "1411"]),
    ("trials=0", ["trials", "0"]),
    ("trials=-1", ["trials", "-1"]),
    ("seed=-1", ["seed", "-1"]),
    ("confirm=-1", ["confirm", "-1"]),
    ("confirm=2000", ["confirm", "1000", "2000"]),
    ("confirm=2 task.targets=[] pruning=off", ["confirm", "target"]),
    ("confirm=3 pruning=off", ["confirm", "even", "3"]),
    ("confirm=4 confirm_top=5", ["confirm_top=5", "exact pruning", "pruning=off"]),
    ("confirm=4 confirm_top=0", ["confirm_top", "0"]),
    ("stop=budget", ["pruning=exact", "stop=target", "pruning=off"]),
    ("stop=later", ["stop", "later", "target", "budget"]),
    ("task=webgraph_synthetic stop=budget", ["stop does not apply to task=webgraph_synthetic"]),
    ("task=webgraph_synthetic confirm=3", ["confirm does not apply to task=webgraph_synthetic"]),
    ("batch_sze=4", ["'batch_sze'", "'batch_size'"]),
    (
        "learning_rate=0.1",
        ["learning_rate is searched", "optimizer.space.learning_rate.low", "optimizer.space.learning_rate.high"],
    ),
    ("optimizer.learning_rate=0.1", ["learning_rate is searched", "optimizer.space.learning_rate.low"]),
    ("+momentum=0.9", ["momentum is searched", "optimizer.space.momentum.low"]),
    ("task.momentum=0.9 batch_size=1,2 -m", ["momentum is searched", "optimizer.space.momentum.low"]),
    ("task=mnist_fc optimizer.label_smoothing=0.1", ["'optimizer.label_smoothing'"]),
    ("batch_size=16 batch_size=16,64 -m", ["batch_size is given twice", "batch_size=16 and batch_size=16,64"]),
    ("batch_size=16,64 batch_size=32 -m", ["batch_size is given twice", "batch_size=16,64 and batch_size=32"]),
    ("trials=2 trials=3", ["trials is given twice", "trials=2 and trials=3"]),
    ("task.budget.steps=5 +task.budget.steps=6", ["task.budget.steps is given twice"]),
    ("optimizer=sgd optimizer=adam", ["optimizer is given twice", "optimizer=sgd and optimizer=adam"]),
    ("+experiment=ci seed=1,2 seed=3 -m", ["seed is given twice", "seed=1,2 and seed=3"]),
    ("+experiment=ci +experiment=quickstart -m", ["experiment is given twice"]),
    ("store=elsewhere store=there", ["store is given twice"]),
    (
        "task=layouts mesh=data:8,data:2;model:4 -m",
        ["mesh=data:8,data:2;model:4", "mesh=\"'data:8','data:2;model:4'\""],
    ),
    ("task=layouts layout=batch:data,d_ff:model;kv:model", ["commas and semicolons", "quotes"]),
    ("+batch_sze=4", ["'batch_sze'", "'batch_size'"]),
    ("task.budget.epoch=4", ["'task.budget.epoch'", "'task.budget.epochs'"]),
    ("+task.budget.epoch=4", ["'task.budget.epoch'", "'task.budget.epochs'"]),
    ("task.budget.epochs=0", ["task.budget.epochs", "0"]),
    ("task.budget={{epochs:null,at_least_steps:null}}", ["task.budget", "task.budget.epochs="]),
    ("task.targets.0.metric=validation_los", ["'validation_los'", "'validation_loss'"]),
    ("task.targets.0.metric=test_loss", ["test_loss", "validation_loss"]),
    ("task=mnist_fc task.targets.0.metric=test_error", ["test_error is only reported", "Use validation_error"]),
    ("task.targets.0.value=-0.1", ["task.targets: validation_loss is never below 0, so -0.1 cannot be reached"]),
    ("task=mnist_fc task.targets.0.value=-1", ["task.targets: validation_error is never below 0, so -1"]),
    (
        "task=mnist_fc task.targets.0.value=5",
        ["task.targets: validation_error is never above 1, so 5 is not a target", "0.05"],
    ),
    ("task.targets.0.value=nan", ["validation_loss", "nan"]),
    ("task.targets=[{{metrc:validation_loss,value:1}}]", ["'metrc'", "metric"]),
    ("task.targets=[]", ["pruning=off"]),
    ("task.evaluation_ratio=1", ["evaluation_ratio", "1"]),
    ("task.evaluation_share=0", ["task.evaluation_share", "0"]),
    ("optimizer=adam +task.space.momentum=0.5", ["adam", "'momentum'", "b1"]),
    ("task=noisy_quadratic +task.space.label_smoothing=0.1", ["'label_smoothing'"]),
    ("task=noisy_quadratic task.targets.0.metric=train_loss", ["train_loss", "'validation_loss'"]),
    ("task.schedule=cosin", ["'cosin'", "'cosine'"]),
    ("task.schedule=cosine", ["decay_fraction"]),
    ("task.dataset=digit", ["'digit'", "'digits'"]),
    ("task.model.name=fully_conected", ["'fully_conected'", "'fully_connected'"]),
    ("task.model.widths=[0]", ["widths", "[0]"]),
    ("+task.model.width=[3]", ["width", "'widths'"]),
    ("pruning=on", ["'on'", "off"]),
    ("lane_strategy=mpa", ["'mpa'", "'map'"]),
    ("lanes=0", ["lanes", "0"]),
    ("launcher=locl", ["'locl'", "'local'"]),
    ("launcher.workers=0", ["launcher.workers", "0"]),
    ("time_limit_seconds=0", ["time_limit_seconds", "0"]),
    ("checkpoint_seconds=-1", ["checkpoint_seconds", "-1"]),
    ("checkpoint_dir=/dev/null/here", ["checkpoint_dir", "/dev/null"]),
    ("checkpoint_dir=nosuch://bucket", ["nosuch://bucket"]),
    ("optimizer.space.learning_rate.low=100", ["learning_rate", "low=100", "high=10"]),
    ("optimizer.space.learning_rate.low=0", ["learning_rate", "LOG", "low=0"]),
    ("optimizer.space.learning_rate.low=abc", ["learning_rate", "'abc'"]),
    ("optimizer.space.learning_rate.scale=LGO", ["learning_rate", "'LGO'", "'LOG'"]),
    ("+optimizer.space.learning_rate.lwo=1", ["learning_rate", "'lwo'", "'low'"]),
    ("optimizer.space.momentum.high=1", ["momentum", "REVERSE_LOG", "high=1"]),
    ("optimizer=sgd +optimizer.space.momentum={{scale:LINEAR,low:0,high:1}}", ["sgd", "'momentum'", "learning_rate"]),
    ("+optimizer.space.momentun.low=0", ["'momentun'", "'momentum'"]),
    ("optimizer=sgd +optimizer.space.momentum.low=0", ["sgd", "'momentum'", "learning_rate"]),
    ("+optimizer.space.b2.low=0 optimizer=adam", ["b2", "scale"]),
    ("task.space={{momentum:0.5}}", ["'momentum'", "+task.space.momentum="]),
    ("+task.space.momentun=0.5", ["'momentun'", "'momentum'"]),
    ("~task", ["~task"]),
    ("hydra.run.dir=x", ["hydra.run.dir"]),
    ("-x", ["'-x'", "--multirun"]),
    ("lanes=1,2 -m", ["lanes"]),
    ("task=webgraph_synthetic batch_size=8", ["batch_size", "task=webgraph_synthetic, a factorization"]),
    ("task=webgraph_synthetic optimizer=sgd", ["optimizer", "factorization"]),
    ("task=webgraph_synthetic pruning=off", ["pruning", "factorization"]),
    ("task=webgraph_synthetic lanes=2", ["lanes", "factorization"]),
    ("task=webgraph_synthetic launcher.workers=2", ["launcher.workers", "factorization"]),
    ("task=webgraph_synthetic task.budget.steps=2", ["task.budget.steps", "factorization"]),
    ("+experiment=alx2022/quickstart batch_size=8 -m", ["batch_size", "factorization"]),
    ("als.dim=8", ["als.dim", "task=digits_fc", "task=webgraph_synthetic"]),
    ("cores=1,2 -m", ["cores", "task=digits_fc", "task=ratings"]),
    ("ratings.path=x task=pydoc_lstm", ["ratings.path", "task=pydoc_lstm"]),
    ("task=webgraph_synthetic als.dmi=8", ["'als.dmi'", "'als.dim'"]),
    ("task=webgraph_synthetic +als.dims=8", ["'als.dims'", "'als.dim'"]),
    ("task=webgraph_synthetic als=null", ["als=null", "needed"]),
    ("task=webgraph_synthetic als.dim=0", ["dim", "0"]),
    ("task=webgraph_synthetic als.dim=much", ["als.dim", "an integer"]),
    ("task=webgraph_synthetic als.epochs=0", ["epochs", "0"]),
    ("task=webgraph_synthetic als.solver=svd", ["'svd'", "rotated_cg"]),
    ("task=webgraph_synthetic als.kernel=cuda", ["'cuda'", "fused, xla"]),
    ("task=webgraph_synthetic als.kernel=fused als.solver=qr", ["kernel=fused supports only rotated_cg in float32"]),
    ("task=webgraph_synthetic als.norm_penalty=0", ["norm_penalty must be above 0, not 0"]),
    ("task=webgraph_synthetic als.unobserved_weight=-1", ["unobserved_weight must be above 0, not -1"]),
    ("task=webgraph_synthetic als.norm_penalty=little", ["norm_penalty", "'little'"]),
    ("task=webgraph_synthetic als.norm_penalty={{scale:LOG,low:0,high:1}}", ["norm_penalty", "low=0"]),
    ("task=webgraph_synthetic cores=0", ["cores", "0"]),
    ("task=webgraph_synthetic cores=1,null -m", ["cores=null: a value is needed"]),
    ("task=webgraph_synthetic ratings.row=100", ["'ratings.row'", "'ratings.rows'"]),
    ("task=webgraph_synthetic +ratings.row=100", ["ratings.row", "'rows'"]),
    ("task=webgraph_synthetic ratings.rows=some", ["ratings.rows must be a number, not 'some'"]),
    ("task=webgraph_synthetic ratings.name=webgraph", ["'webgraph'", "'web_graph'"]),
    ("task=webgraph_synthetic " + " ".join(f"ratings.{k}=2e9" for k in ("rows", "columns")), ["needs about", "GB"]),
    ("task=web_graph ratings.variant=dens", ["'dens'", "in-dense"]),
    ("lr=0.1", ["unknown key 'lr'; learning_rate is searched; its range is optimizer.space.learning_rate.low"]),
    ("zzz=0.1", ["unknown key 'zzz'; the nearest are "]),
    ("task=table", ["table.path is missing"]),
    ("task=table table=null", ["table.path is missing"]),
    ("task=table table.path={store}/x.csv", ["table.path: {store}/x.csv does not exist"]),
    ("table.path=x", ["table.path does not apply to task=digits_fc. Use task=table."]),
    ("task=table table.lable=y", ["'table.lable'", "'table.label'"]),
    ("task=table task.targets.0.value=3", ["the list of targets is empty", "task.targets=["]),
    ("task.targets=null", ["task.targets=null: a value is needed"]),
    ("task=ratings", ["ratings.path is missing"]),
    ("task=ratings ratings.path=5 ratings.heldout=x", ["ratings.path=5 is not a file name"]),
    ("task=ratings ratings.path={store}/x.npz ratings.heldout=x", ["{store}/x.npz does not exist"]),
]


# The command that would train gets every mistake; that of plans, which reads the same, every twentieth.
ASKED = [(sweeps_cli.main, *mistake) for mistake in MISTAKES] + [(plan.main, *mistake) for mistake in MISTAKES[::20]]


@pytest.mark.parametrize(("command", "line", "words"), ASKED, ids=[f"{m.__module__}-{line}" for m, line, _ in ASKED])
def test_a_mistake_is_one_line_and_exit_code_2(
    command: Callable[[list[str]], int],
    line: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "store"
    argv = line.format(store=folder).split()
    if not any(arg.startswith("store=") for arg in argv):
        argv.insert(1, f"store={folder}")
    assert command(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.strip().splitlines()) <= 2
    assert len(err) < 400 + 2 * len(str(folder))
    for word in words:
        assert word.format(store=folder) in err
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert sweeps_cli.main([f"store={tmp_path}/file"]) == 2
    assert "is a file" in capsys.readouterr().err
    assert sweeps_cli.main(["store=/proc/store"]) == 2
    assert "/proc/store cannot be written" in capsys.readouterr().err


def test_a_store_of_a_newer_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["optimizer=sgd", "trials=1", "task.budget.steps=2", f"store={tmp_path}"]
    assert sweeps_cli.main(line) == 0
    written = schema.SCHEMA_VERSION
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 0)
    capsys.readouterr()
    assert sweeps_cli.main([*line, "seed=1"]) == 2
    assert f"has schema {written}, but this software reads up to 0" in capsys.readouterr().err


def test_status_of_what_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.main([f"store={tmp_path}/none"]) == 2
    assert "no store at" in capsys.readouterr().err
    assert status.main(["stor=x"]) == 2
    assert "stor=x. See `python -m sweeps.status --help`" in capsys.readouterr().err


@pytest.mark.parametrize("command", [sweeps_cli.main, plan.main, status.main])
def test_every_command_has_help(command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--help"]) == 0
    out, err = capsys.readouterr()
    assert "python -m sweeps" in out
    assert err == ""


def test_the_real_command_says_it_too_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sweeps", "task=digts_fc", "store=here"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown task 'digts_fc'; did you mean 'digits_fc'?")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_reading_a_command_line_starts_no_jax(tmp_path: Path) -> None:
    # A platform that does not exist: whatever starts JAX here fails.
    environment = os.environ | {"JAX_PLATFORMS": "none_such"}
    command = [sys.executable, "-m", "sweeps.plan", "+experiment=quickstart", "-m", f"store={tmp_path}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "33 studies; 1,056 trials to run" in done.stdout


def test_status_of_a_release_is_that_of_its_studies(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parents[2] / "results" / "mlperf"
    assert status.main([f"store={folder}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 3 and all(" released " in line for line in lines[1:-1])
