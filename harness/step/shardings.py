"""Shards the parameters and the optimizer state of a study across a mesh.

Modules of layouts are imported inside functions, because most studies have no layout.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import PartitionSpec as P

from harness.step import mesh
from harness.step.batch_partition import Division
from results.bad_input import BadInput
from workloads import axes, optimizers
from workloads.axes import Sharding
from workloads.workload import DATA, Params, Workload

if TYPE_CHECKING:
    from workloads.layouts.notation import Tensors

# Axes of parameters only, and the axes of activations that they are multiplied with.
CONTRACTED = {"embed": "act_embed", "inputs": "act_inputs", "qkv": "heads"}


def tensors(workload: Workload, batch_size: int) -> "Tensors":
    """Returns all named axes of a workload's model. An axis with several sizes gets their greatest common divisor.

    Raises:
      BadInput: the model does not name its axes.
    """
    from workloads.layouts.notation import Tensors

    named = None if workload.axes is None else workload.axes()
    if named is None or not any(jax.tree.leaves(named)):
        raise BadInput(
            "the model does not name the axes of its parameters, so it has no layouts. See docs/add/axes.md."
        )
    params, state = workload.variable_shapes
    inputs = workload.shapes.validation.inputs
    examples = jax.ShapeDtypeStruct((batch_size, *inputs.shape[1:]), inputs.dtype)
    seen = axes.activations(workload.predict, params, state, examples)
    of_params = jax.tree_util.tree_leaves_with_path(named)
    shapes = [leaf.shape for leaf in jax.tree.leaves(params)]
    sizes: dict[str, int] = {}
    for names, shape in [*seen, *zip((tuple(spec) for _, spec in of_params), shapes, strict=True)]:
        for name, size in zip(names, shape, strict=False):
            if name:  # an axis without a name is "" or None
                sizes[name] = math.gcd(sizes.get(name, 0), size)
    sizes["batch"] = batch_size
    of_activations = {f"activation {i + 1}": ("batch", *names) for i, names in enumerate(dict(seen))}
    by_name = {jax.tree_util.keystr(path, simple=True, separator="/"): tuple(spec) for path, spec in of_params}
    operations = {
        name: ("batch", *(CONTRACTED.get(axis, axis) for axis in names))
        for name, names in by_name.items()
        if len(names) > 1
    }
    return Tensors(sizes, _without_blanks(by_name | of_activations), _without_blanks(operations))


def _without_blanks(groups: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(dict.fromkeys(axis for axis in names if axis)) for name, names in groups.items()}


def check(workload: Workload, division: Division, batch_size: int) -> None:
    """Raises Refused unless a workload can be trained with the layout of a partition."""
    if division.layout:
        from workloads.layouts.notation import Mesh, read_layout

        size = division.examples(batch_size) * division.shards
        sizes = Mesh({DATA: division.shards, **dict(division.mesh)})
        read_layout(f"{division.layout_text};batch:{DATA}", sizes, tensors(workload, size))


def of_step(workload: Workload, division: Division) -> Sharding | None:
    """Returns the sharding of named axes in a training step, or None if the step shards only the batch."""
    if not division.layout:
        return None
    assert workload.axes is not None  # see ``check``
    # A single shard has whole parameters.
    over = {name: axis for name, axis in division.layout if axis != DATA or division.shards > 1}
    specs = jax.tree.map(lambda names: P(*map(over.get, names)), workload.axes())
    return Sharding({name: axis for name, axis in over.items() if axis != DATA}, specs, workload.precision)


def gathering(function: Callable[..., Any], sharding: Sharding | None) -> Callable[..., Any]:
    """Wraps a function of parameters for use in a step that is mapped over shards.

    Parameters that are split across shards are gathered before each use, and again in the backward pass.
    """
    if sharding is None:
        return function

    def in_context(*arguments: Any) -> Any:
        with axes.sharded(sharding):
            return function(*arguments)

    if not (sharding.gathers and any(DATA in spec for spec in jax.tree.leaves(sharding.specs))):
        return in_context
    policy = jax.checkpoint_policies.save_anything_except_these_names(axes.GATHERED)
    return jax.checkpoint(in_context, policy=policy)


def summed(grads: Params, division: Division, sharding: Sharding | None) -> Params:
    """Returns gradients summed over shards. Gathers already sum the gradients of sharded parameters."""
    if sharding is None or division.shards == 1:
        return mesh.summed(grads, division.shards)
    return jax.tree.map(lambda g, spec: g if DATA in spec else mesh.summed(g, division.shards), grads, sharding.specs)


def constrained(carry: Any, sharding: Sharding | None) -> Any:
    """Returns the state of a trial (a ``TrainState``), sharded as specified by ``of_carry``."""
    if sharding is None:
        return carry
    return jax.tree.map(jax.lax.with_sharding_constraint, carry, of_carry(carry, sharding))


def of_carry(carry: Any, sharding: Sharding | None) -> Any:
    """Returns the specs of a trial's state: its parameters and the optimizer state of each parameter."""
    if sharding is None:
        return jax.tree.map(lambda leaf: P(), carry)
    optimizer = like_parameters(carry.params, sharding.specs, carry.optimizer)
    return carry._replace(params=sharding.specs, state=jax.tree.map(lambda leaf: P(), carry.state), optimizer=optimizer)


def by_hand(specs: Params) -> Params:
    """Returns only the parts of specs over DATA, which the step gathers explicitly."""
    return jax.tree.map(lambda spec: P(*(axis if axis == DATA else None for axis in spec)), specs)


def like_parameters(params: Params, specs: Params, state: Any) -> Any:
    """Returns the specs of a state, such as an optimizer's. Arrays that belong to a parameter have its spec.

    An array belongs to a parameter if its path ends with the parameter's path and it has the parameter's shape, or the
    shape of one of its stacked layers. Other arrays are replicated.
    """
    specs_by_name = {
        names(path): (leaf.shape, spec)
        for (path, leaf), spec in zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(specs), strict=True)
    }

    def spec_of(path: Any, leaf: Any) -> P:
        keys = names(path)
        for start in range(len(keys) + 1):
            shape, spec = specs_by_name.get(keys[start:], (None, P()))
            if shape == leaf.shape:
                return spec
            if shape is not None and shape[1:] == leaf.shape:
                return P(*spec[1:])
        return P()

    return jax.tree_util.tree_map_with_path(spec_of, state)


def names(path: Any) -> tuple[str, ...]:
    """Returns the keys of a path, without the index of a stacked layer (see ``workloads.optimizers``)."""
    keys = list(map(str, path))
    if optimizers.LAYERS in keys:
        place = keys.index(optimizers.LAYERS)
        del keys[place : place + 2]
    return tuple(keys)
