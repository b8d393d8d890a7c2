"""Is the engine worth it? Compares it with a loop that an experienced user would write, and with unpruned studies.

    python benchmarks/engine.py [--json FILE] [--smoke]

1. Steps per second, including evaluations: one process of the engine, with lanes split across the physical cores,
   alternating with a hand-written flax/optax loop. The loop trains one trial after another with a jitted step that
   donates its arguments and is not recompiled. It uses NumPy batches and blocks only at evaluations. Evaluations are
   the same as in the engine. A second loop keeps its data on the device. Both loops use Flax's convolutions and
   pooling.
2. The fraction of a Transformer's time spent on training, with capped evaluations.
3. Trial-steps of the quickstart's studies with exact pruning, relative to the same studies if each trial stops at its
   last target. The answers must be identical.
"""

import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from harness.processes import processors

jax.config.update("jax_num_cpu_devices", len(processors.physical_cores()))

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import linen as nn  # noqa: E402
from report import BenchmarkReport, in_turn, median_ratio, open_report, seconds, study_of  # noqa: E402
from tqdm import tqdm  # noqa: E402

from harness.compiled import compile_cache  # noqa: E402
from harness.run import Record, Settings  # noqa: E402
from harness.runners import engine  # noqa: E402
from harness.trials import search  # noqa: E402
from results.plans.batch_study import BatchStudy  # noqa: E402
from sweeps import overrides, planning  # noqa: E402
from workloads import registry  # noqa: E402
from workloads.models.options import flax_model  # noqa: E402
from workloads.workload import Examples, Model  # noqa: E402

ROUNDS = 7
LOOP_TRIALS = 2


class TimedTask(NamedTuple):
    """A task to time: its name, batch size, steps per trial, our number of trials, and the target for the ratio."""

    task: str
    batch_size: int
    steps: int
    trials: int
    target: float


CASES = (
    TimedTask("digits_fc", 1, 3000, 32, 5.0),
    TimedTask("digits_fc", 16, 1500, 32, 2.5),
    TimedTask("digits_fc", 256, 300, 32, 1.2),
    TimedTask("digits_cnn", 1, 1000, 8, 3.0),
    TimedTask("digits_cnn", 16, 300, 8, 2.0),
    TimedTask("digits_cnn", 256, 120, 8, 1.8),
    TimedTask("pydoc_transformer", 1, 400, 4, 1.0),
    TimedTask("pydoc_transformer", 16, 60, 4, 1.0),
)
EVALUATED_MOST = TimedTask("pydoc_transformer", 1, 2000, 2, 0.5)
PRUNED = ("+experiment=quickstart", "-m")
SMOKE_CASES = (TimedTask("digits_fc", 64, 20, 2, 1.0), TimedTask("digits_cnn", 64, 4, 2, 1.0))
SMOKE_PRUNED = ("optimizer=nesterov", "batch_size=64", "trials=2", "task.budget.steps=20")


def native_cnn(channels: Sequence[int], width: int) -> Model:
    """Returns the network of digits_cnn in the style of the Flax documentation."""

    class NativeCNN(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for features in channels:
                x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), strides=(2, 2))
            return nn.Dense(10)(nn.relu(nn.Dense(width)(x.reshape(len(x), -1))))

    network = NativeCNN()
    return flax_model(lambda: network)


def ours(plan: BatchStudy) -> Callable[[], float]:
    """Returns a function that measures steps per second of the engine, after a warm-up."""
    trials = search.draw(plan, range(plan.trials))

    def rate() -> float:
        record = engine.run(plan, trials, Settings())
        return record.trial_steps / record.run_seconds

    rate()
    return rate


def by_hand(plan: BatchStudy, *, resident: bool) -> Callable[[], float]:
    """Like ``ours``, but for a hand-written loop over trials. If ``resident`` is True, the data stay on the device."""
    row = registry.DATASETS[plan.dataset]
    splits = row.load()
    model = registry.MODELS[plan.model](classes=row.classes, **plan.model_options)
    if plan.model == "simple_cnn":
        model = native_cnn(**plan.model_options)
    optimizer = optax.inject_hyperparams(optax.sgd)(learning_rate=0.1, momentum=0.9, nesterov=True)
    cut = [Examples(*(a[: row.evaluation_examples] for a in e)) for e in (splits.train, splits.validation)]
    evaluated = jax.device_put(cut)
    data = jax.device_put(splits.train) if resident else splits.train
    evaluations = set(plan.evaluations.tolist())
    per_epoch = len(data.labels) // plan.batch_size

    def loss(params: Any, batch: Examples) -> jax.Array:
        logits, _ = model.apply(params, {}, batch.inputs, None, True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch.labels).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, state: Any, batch: Examples) -> tuple[Any, Any]:
        updates, state = optimizer.update(jax.grad(loss)(params, batch), state, params)
        return optax.apply_updates(params, updates), state

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step_resident(params: Any, state: Any, data: Examples, rows: jax.Array) -> tuple[Any, Any]:
        return step(params, state, Examples(data.inputs[rows], data.labels[rows]))

    @jax.jit
    def evaluate(params: Any) -> list[tuple[jax.Array, jax.Array]]:
        logits = [model.apply(params, {}, e.inputs, None, False)[0] for e in evaluated]
        return [
            (loss(params, e), jnp.mean((jnp.argmax(z, -1) != e.labels).astype(jnp.float32)))
            for z, e in zip(logits, evaluated, strict=True)
        ]

    def train(trial: Any) -> None:
        rng = np.random.default_rng(trial.seed)
        params, _ = model.init(jax.random.key(trial.seed), splits.train.inputs[:1])
        state = optimizer.init(params)
        state.hyperparams["learning_rate"] = jnp.float32(trial.metaparameters["learning_rate"])
        state.hyperparams["momentum"] = jnp.float32(trial.metaparameters["momentum"])
        for step_number in range(plan.budget_steps):
            if step_number % per_epoch == 0:
                order = rng.permutation(len(data.labels))
            rows = order[(step_number % per_epoch) * plan.batch_size :][: plan.batch_size]
            if resident:
                params, state = step_resident(params, state, data, rows)
            else:
                params, state = step(params, state, Examples(data.inputs[rows], data.labels[rows]))
            if step_number + 1 in evaluations:
                jax.device_get(evaluate(params))

    trials = search.draw(plan, range(LOOP_TRIALS))

    def rate() -> float:
        return LOOP_TRIALS * plan.budget_steps / seconds(lambda: [train(trial) for trial in trials])

    rate()
    return rate


def speed(report: BenchmarkReport) -> None:
    """Adds the rates of the three loops for every case. Measurements alternate between the loops."""
    cases, rounds = (SMOKE_CASES, 1) if report.smoke else (CASES, ROUNDS)
    for case in cases:
        plan = study_of(*gentle(case))
        loops = {"ours": ours(plan), "NumPy": by_hand(plan, resident=False), "resident": by_hand(plan, resident=True)}
        what = f"{case.task}, batch {case.batch_size}"
        rates = in_turn(loops, rounds, what)
        report.add(f"{what}: steps per second", statistics.median(rates["ours"]), "1/s")
        for name, target in (("NumPy", case.target), ("resident", None)):
            ratio = median_ratio(rates["ours"], rates[name])
            report.add(f"{what}: ours / hand-written loop on {name} data", ratio, "×", target)


def gentle(case: TimedTask) -> list[str]:
    """Returns a case as overrides, with metaparameters for which no trial diverges."""
    return [
        f"task={case.task}",
        "optimizer=nesterov",
        f"batch_size={case.batch_size}",
        f"trials={case.trials}",
        f"task.budget.steps={case.steps}",
        "pruning=off",
        "task.targets=[]",
        "optimizer.space.learning_rate={scale: LOG, low: 1e-3, high: 1e-2}",
    ]


def training_share(report: BenchmarkReport) -> None:
    """Adds the fraction of a Transformer's time spent on training, at the batch size with the most evaluations."""
    case = SMOKE_CASES[0] if report.smoke else EVALUATED_MOST
    plan = study_of(*gentle(case))
    record = run_all(plan)
    share = 1 - record.evaluate_seconds / record.run_seconds
    what = f"{case.task}, batch {case.batch_size}: share of time not spent on evaluation"
    report.add(what, share, "of 1", case.target)


def run_all(plan: BatchStudy) -> Record:
    """Runs all trials of a study."""
    return engine.run(plan, search.draw(plan, range(plan.trials)), Settings())


def answers(plan: BatchStudy, record: Record) -> list[tuple[int, int] | None]:
    """Returns the fewest steps to each target, and the trial that needed them."""
    rows = [np.flatnonzero(target.reached(record.metrics[target.metric])) for target in plan.targets]
    return [
        min(((int(record.step[i]), int(record.trial[i])) for i in reached_rows), default=None) for reached_rows in rows
    ]


def pruning(report: BenchmarkReport) -> None:
    """Adds the savings from pruning for all studies of the quickstart."""
    words = SMOKE_PRUNED if report.smoke else PRUNED
    line = [*words, "store=results/local"]
    equal, steps = True, np.zeros(2, int)
    plans = (planning.request(overrides.command_line([*line, f"pruning={how}"])).studies for how in ("off", "exact"))
    for pair in tqdm(list(zip(*plans, strict=True)), desc="pruning", disable=None):
        unpruned, pruned = records = [run_all(plan) for plan in pair]
        steps += [record.trial_steps for record in records]
        equal &= answers(pair[0], unpruned) == answers(pair[1], pruned)
    report.add("answers of pruned studies equal to unpruned", float(equal), "1 = all", 1.0)
    report.add("trial-steps, unpruned / exactly pruned", steps[0] / steps[1], "×", 8.0)


if __name__ == "__main__":
    compile_cache.enable()
    with open_report(__doc__) as report:
        speed(report)
        training_share(report)
        pruning(report)
