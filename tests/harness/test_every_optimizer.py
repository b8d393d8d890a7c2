"""What the engine promises, for every optimizer of the registry."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from harness.run import Settings
from harness.runners import engine
from harness.step import programs, rng
from harness.step.programs_key import programs_key
from harness.trials import search
from results.plans.batch_study import BatchStudy
from results.plans.search_space import Range, SearchSpace
from sweeps import overrides, planning
from workloads import registry
from workloads.losses import softmax_cross_entropy
from workloads.workload import Examples, Optimizer

M = Mapping[str, float]

FEW = ("momentum",)  # the others are slow tests, and tests/replay checks each
OPTIMIZERS = [
    name if name in FEW else pytest.param(name, marks=pytest.mark.slow, id=name) for name in registry.OPTIMIZERS
]


def _sgd(m: M, **kinds: Any) -> Any:
    return optax.chain(optax.add_decayed_weights(m["weight_decay"]), optax.sgd(m["learning_rate"], **kinds))


def _kernels(params: Any) -> Any:
    """What is no bias, in a fully connected network."""
    return jax.tree.map(lambda p: p.ndim == 2, params)


# Update rules from optax alone, of metaparameters that are plain numbers; a rule that is not here is taken as it is.
WITH_OPTAX: dict[str, Callable[[M], Any]] = {
    "sgd": _sgd,
    "momentum": lambda m: _sgd(m, momentum=m["momentum"]),
    "nesterov": lambda m: _sgd(m, momentum=m["momentum"], nesterov=True),
    "adam": lambda m: optax.chain(
        optax.add_decayed_weights(m["weight_decay"]), optax.adam(m["learning_rate"], m["b1"], m["b2"], m["eps"])
    ),
    "adamw": lambda m: optax.adamw(m["learning_rate"], m["b1"], m["b2"], m["eps"], weight_decay=m["weight_decay"]),
    "lars": lambda m: optax.lars(
        m["learning_rate"], m["weight_decay"], _kernels, m["trust_coefficient"], 0.0, _kernels, m["momentum"]
    ),
    "lamb": lambda m: optax.chain(
        optax.scale_by_adam(m["b1"], m["b2"], m["eps"]),
        optax.add_decayed_weights(m["weight_decay"], _kernels),
        optax.masked(optax.scale_by_trust_ratio(), _kernels),
        optax.scale(-m["learning_rate"]),
    ),
    "muon": lambda m: contrib.muon(
        m["learning_rate"], beta=m["beta"], weight_decay=m["weight_decay"], adam_weight_decay=m["weight_decay"]
    ),
    "schedule_free": lambda m: contrib.schedule_free(
        optax.chain(optax.add_decayed_weights(m["weight_decay"]), optax.sgd(m["learning_rate"])),
        m["learning_rate"],
        m["b1"],
    ),
}
# Where optax evaluates a rule at other parameters than it trains.
EVALUATED_WITH_OPTAX = {"schedule_free": contrib.schedule_free_eval_params}
# No metaparameter is near another of its rule, or near a number that a program could have made up.
FAR = {"momentum": 0.85, "b1": 0.85, "beta": 0.85, "b2": 0.97, "eps": 1e-3, "weight_decay": 0.03}
FAR |= {"trust_coefficient": 0.3, "learning_rate": 0.2}
SMALL_RATE = {"learning_rate": 0.02}


def _with_metaparameters(study: BatchStudy, values: M, **changes: Any) -> BatchStudy:
    space = SearchSpace({name: Range("DISCRETE", values=(value,)) for name, value in values.items()})
    return dataclasses.replace(study, space=space, targets=(), evaluation_ratio=1.6, **changes)


def _validation_losses_with_optax(study: BatchStudy, seed: int, values: M, steps: Collection[int]) -> list[float]:
    """Of a trial within its first epoch, after so many ``steps``."""
    workload = registry.workload(registry.dataset(study.dataset), study.model, study.model_options, study.optimizer)
    row = registry.OPTIMIZERS[study.optimizer]
    rule = WITH_OPTAX.get(study.optimizer, lambda m: row.update_rule(**row.defaults | m))(values)
    evaluated = EVALUATED_WITH_OPTAX.get(study.optimizer, lambda state, params: row.evaluated(params, state))
    init_key, data_key = rng.keys(jnp.uint32(seed))
    params, stateless = workload.init(init_key)
    state = rule.init(params)
    loaded = registry.dataset(study.dataset).load()

    def loss(params: Any, batch: Examples) -> Any:
        keys = jax.random.split(init_key, len(batch.labels))
        total, _ = workload.loss(params, stateless, batch, None, keys, jnp.float32(0))
        return total / np.float32(batch.labels.size)

    @jax.jit
    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any]:
        grads = jax.grad(loss)(params, batch)
        updates, state = rule.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    @jax.jit
    def evaluate(params: Any, state: Any) -> Any:
        inputs, labels = loaded.validation
        predicted = workload.predict(evaluated(state, params), stateless, inputs)
        return jnp.mean(softmax_cross_entropy(predicted, labels))

    train = loaded.train
    assert train is not None
    order = np.asarray(rng.epoch_order(data_key, jnp.int32(0), len(train.labels)))
    losses = []
    with jax.numpy_dtype_promotion("standard"):
        for taken, rows in enumerate(order[: max(steps) * study.batch_size].reshape(-1, study.batch_size), 1):
            batch = jax.tree.map(lambda a, rows=rows: a[rows], train)
            params, state = step(params, state, batch)
            if taken in steps:
                losses.append(float(evaluate(params, state)))
    return losses


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_measurements_are_those_of_plain_optax(make_study: Callable[..., BatchStudy], optimizer: str) -> None:
    values = {
        name: FAR[name] for name in registry.tunable(registry.dataset("digits"), optimizer, "constant") if name in FAR
    }
    values |= SMALL_RATE if optimizer in ("adam", "adamw", "lamb", "muon") else {}
    row = registry.OPTIMIZERS[optimizer]
    assert {*row.tuned, *row.defaults} <= {
        *values,
        "momentum",
        "nesterov",
    }  # these two tell the kinds of gradient descent
    study = _with_metaparameters(make_study(), values, optimizer=optimizer, budget_steps=20)
    (trial,) = search.draw(study, [0])
    record = engine.run(study, [trial], Settings(lanes=3))  # whose programs the test above has built
    expected = _validation_losses_with_optax(study, trial.seed, values, set(record.step.tolist()))
    assert len(expected) > 5 and min(expected) < 0.95 * expected[0]
    np.testing.assert_allclose(record.metrics["validation_loss"], expected, rtol=1e-4)


def test_state_starts_with_metaparameters_of_the_first_update(
    make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that only remembers what it is told, when it starts and at its first step, and is evaluated at that."""

    def remembering(learning_rate: Any, weight_decay: Any) -> Any:
        now = jnp.stack([learning_rate, weight_decay])

        def update(grads: Any, state: Any, params: Any) -> tuple[Any, Any]:
            first = jnp.where(state["steps"] == 0, now, state["first"])
            return jnp.zeros_like(grads), state | {"first": first, "steps": state["steps"] + 1}

        nothing = {"first": jnp.zeros(2), "steps": jnp.int32(0)}
        return optax.GradientTransformation(lambda params: nothing | {"at_init": now}, update)

    def difference(params: Any, state: Any) -> Any:
        return jnp.zeros_like(params).at[:2].set(state["at_init"] / state["first"])

    monkeypatch.setitem(
        registry.OPTIMIZERS,
        "remembering",
        Optimizer(remembering, ("learning_rate",), {"weight_decay": 0.7}, difference),
    )
    about = {"dataset": "noise", "dataset_version": registry.DATASETS["noise"].version(), "schedule": "cosine"}
    about |= {"model": "quadratic", "model_options": {"noise": 0.0}}
    values = {"learning_rate": 0.02, "decay_fraction": 1.0, "end_learning_rate_factor": 0.3, "weight_decay": 0.7}
    study = _with_metaparameters(make_study(), values, optimizer="remembering", budget_steps=9, **about)
    losses = engine.run(study, search.draw(study, [0]), Settings(lanes=2)).metrics["validation_loss"]
    # ½ Σ hᵢ θᵢ² with h = (1, ½) where the two agree.
    assert len(losses) > 3 and set(losses.tolist()) == {0.75}


def test_programs_are_shared_by_rule_and_evaluated_parameters(
    make_study: Callable[..., BatchStudy], monkeypatch: pytest.MonkeyPatch
) -> None:
    momentum = registry.OPTIMIZERS["momentum"]
    monkeypatch.setitem(registry.OPTIMIZERS, "zeros", momentum._replace(evaluated=lambda params, state: 0 * params))
    keys = {name: programs_key(make_study(optimizer=name)) for name in ("sgd", "momentum", "nesterov", "zeros")}
    assert keys["sgd"] == keys["momentum"] == keys["nesterov"]
    for name, key in keys.items():
        assert programs.workload_of(key).evaluated is registry.OPTIMIZERS[name].evaluated


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_trial_learns_and_is_the_same_alone_to_the_bit(optimizer: str) -> None:
    line = [
        f"optimizer={optimizer}",
        "task.model.widths=[16]",
        "task.targets=[]",
        "pruning=off",
        "task.evaluation_share=1",
    ]
    extra = ["+optimizer.space.label_smoothing={scale: LINEAR, low: 0, high: 0.1}"]
    extra += [] if optimizer == "adamw" else ["+optimizer.space.weight_decay={scale: LOG, low: 1e-5, high: 1e-3}"]
    (study,) = planning.request(overrides.command_line([*line, *extra, "task.budget.steps=100"])).studies
    trials = search.draw(study, range(8))
    company, alone = (engine.run(study, some, Settings(lanes=3)) for some in (trials, trials[4:5]))
    assert alone.outcomes[4] == company.outcomes[4]
    for name, values in alone.metrics.items():
        assert np.array_equal(values.view(np.int32), company.metrics[name][company.trial == 4].view(np.int32))
    first, last = (company.metrics["train_loss"][company.step == step] for step in (1, 100))
    assert np.nanmin(last) < 0.5 * np.min(first)


def test_label_smoothing_and_weight_decay_change_training(make_study: Callable[..., BatchStudy]) -> None:
    base = [
        "batch_size=64",
        "task.targets=[]",
        "pruning=off",
        "task.budget.steps=20",
        "trials=1",
        "task.model.widths=[16]",
    ]
    base += ["+task.space.learning_rate=0.1", "+task.space.momentum=0.9"]
    losses = set()
    for name in ("label_smoothing", "weight_decay"):
        for value in (0.0, 0.1):
            (study,) = planning.request(overrides.command_line([*base, f"+task.space.{name}={value}"])).studies
            trial = search.draw(make_study(trials=1), [0])[0]
            trial = type(trial)(0, 7, {"learning_rate": 0.1, "momentum": 0.9, name: value})
            losses.add(float(engine.run(study, [trial], Settings(lanes=3)).metrics["train_loss"][-1]))
    assert len(losses) == 3
