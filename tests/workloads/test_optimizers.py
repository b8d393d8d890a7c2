import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from workloads import schedules
from workloads.optimizers import averaged, heavy_ball, schedule_free


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_heavy_ball_is_optax_sgd(momentum: float, nesterov: bool) -> None:
    ours = heavy_ball(jnp.float32(0.1), jnp.float32(momentum), jnp.float32(nesterov), jnp.float32(0.01))
    sgd = optax.sgd(0.1, momentum=momentum or None, nesterov=nesterov)
    theirs = optax.chain(optax.add_decayed_weights(0.01), sgd)
    params = {"w": jnp.arange(6, dtype=jnp.float32), "b": jnp.ones(2)}
    state, their_state, their_params = ours.init(params), theirs.init(params), params
    for key in jax.random.split(jax.random.key(0), 20):
        grads = jax.tree.map(lambda p, key=key: jax.random.normal(key, p.shape), params)
        updates, state = ours.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        their_updates, their_state = theirs.update(grads, their_state, their_params)
        their_params = optax.apply_updates(their_params, their_updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), params, their_params)


def test_schedule_free_is_evaluated_at_its_average() -> None:
    rule = schedule_free(jnp.float32(0.5), jnp.float32(0.9), jnp.float32(0.0))
    params = {"w": jnp.ones(3)}
    state = rule.init(params)
    history = []
    for _ in range(5):
        updates, state = rule.update(params, state, params)
        params = optax.apply_updates(params, updates)
        history.append(averaged(params, state)["w"][0])
    # y = 0.9 x + 0.1 z, with x the average of z so far: z = (y - 0.9 x) / 0.1.
    x, z = [1.0], [1.0]
    y = 1.0
    for t in range(5):
        z.append(z[-1] - 0.5 * y)
        x.append(x[-1] + (z[-1] - x[-1]) / (t + 1))
        y = 0.9 * x[-1] + 0.1 * z[-1]
    np.testing.assert_allclose(history, x[1:], rtol=1e-5)


@pytest.mark.parametrize("kind", list(schedules.SCHEDULES))
def test_schedules_are_optax_schedules(kind: str) -> None:
    theirs = {
        "constant": optax.constant_schedule(1.0),
        "linear": optax.linear_schedule(1.0, 0.1, 80),
        "cosine": optax.cosine_decay_schedule(1.0, 80, alpha=0.1),
    }[kind]
    number = jnp.int32(schedules.SCHEDULES[kind])
    for step in (0, 1, 40, 79, 80, 200):
        ours = schedules.factor(number, jnp.int32(step), jnp.float32(80), jnp.float32(0.1))
        assert float(ours) == pytest.approx(float(theirs(step)), rel=1e-5)
