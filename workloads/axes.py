"""Named axes of parameters and activations, and how they are sharded while a program is traced.

Models name the axes of parameters with ``named`` and the axes of activations with ``activation``. Names only have an
effect when a program is traced in the ``sharded`` context.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from flax.core import meta
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

from workloads.workload import DATA, STACKED, Array, Names, Params

T = TypeVar("T")
LAYERS = "layers"  # axis of stacked layers
GATHERED = "gathered"  # name of parameters that are gathered again in the backward pass
ATTENTION = "attention"  # name of the output of attention, for ``kept``


class Named(meta.Partitioned[Any]):
    """A parameter with the names of its axes. Unlike in Flax, the names do not shard it."""

    def unbox(self, apply_constraint: bool = False) -> Any:
        return self.value


class Sharding(NamedTuple):
    """How named axes are sharded over a mesh.

    Attributes:
      layout: mesh axis of each tensor axis that the partitioner shards.
      specs: pytree of ``PartitionSpec`` over mesh axes, with the structure of the parameters. Parameters sharded over
        DATA are gathered before use.
      precision: dtype that these parameters are rounded to before they are gathered.
      gathers: whether the step is mapped over DATA. Otherwise, the partitioner splits the batch and parameters.
      rematerialized: whether stacked layers are computed again in the backward pass.
      kept: names of the tensors in these layers that are stored instead. See ``kept``.
    """

    layout: Mapping[str, str]
    specs: Params
    precision: str
    gathers: bool = True
    rematerialized: bool = False
    kept: Names = ()


_SHARDING: ContextVar[Sharding | None] = ContextVar("sharding", default=None)
_SEEN: ContextVar[list[tuple[Names, tuple[int, ...]]] | None] = ContextVar("seen", default=None)
_NAMES: ContextVar[list[str] | None] = ContextVar("names", default=None)


def named(init: Callable[..., Array], *names: str) -> Callable[..., Named]:
    """Returns an initializer of a parameter with named axes. An empty name leaves an axis unnamed."""
    return lambda *arguments: Named(init(*arguments), names)


def of_parameters(init: Callable[[Array, Array], Any], inputs: Array) -> Any:
    """Returns the names of the axes of each parameter as a ``PartitionSpec``.

    Args:
      init: ``(key, inputs) -> variables`` of a Flax network.
      inputs: example inputs, or a ``jax.ShapeDtypeStruct``.
    """

    def names(leaf: Any) -> P:
        return P(*leaf.names) if isinstance(leaf, Named) else P()

    boxed = jax.eval_shape(lambda inputs: {"params": init(jax.random.key(0), inputs)["params"]}, inputs)
    return jax.tree.map(names, boxed, is_leaf=lambda leaf: isinstance(leaf, Named))


def activation(x: Array, *names: str) -> Array:
    """Names the axes of an activation. In a sharded program, only its named axes are sharded.

    Args:
      x: array of any dtype.
      names: name of each axis, or an empty string.
    """
    seen = _SEEN.get()
    if seen is not None:
        seen.append((names, x.shape))
    sharding = _SHARDING.get()
    if sharding is None or not sharding.layout:
        return x
    return jax.lax.with_sharding_constraint(x, P(*map(sharding.layout.get, names)))


def are_divided() -> bool:
    """Returns whether the partitioner shards named axes of the program being traced. ``activations`` sees such axes."""
    sharding = _SHARDING.get()
    return _SEEN.get() is not None or (sharding is not None and bool(sharding.layout))


def batch_parts() -> int:
    """Returns the number of parts into which the partitioner splits the batch of the program being traced."""
    sharding = _SHARDING.get()
    axis = sharding and sharding.layout.get("batch")
    return jax.sharding.get_abstract_mesh().shape[axis] if axis else 1


def rematerialized(layer: Any) -> Any:
    """Returns a Flax layer. If the program being traced is rematerialized, its backward pass recomputes the layer."""
    from flax import linen as nn

    sharding = _SHARDING.get()
    if sharding is None or not sharding.rematerialized:
        return layer
    policy = jax.checkpoint_policies.save_only_these_names(*sharding.kept) if sharding.kept else None
    return nn.remat(layer, policy=policy)


def kept(x: Array, name: str) -> Array:
    """Names a tensor of a stacked layer. A rematerialized program can store it instead of recomputing it."""
    names = _NAMES.get()
    if names is not None:
        names.append(name)
    sharding = _SHARDING.get()
    return x if sharding is None or name not in sharding.kept else checkpoint_name(x, name)


@contextlib.contextmanager
def set_to(variable: ContextVar[T], content: T) -> Iterator[T]:
    """Sets a variable within a context, and yields its content."""
    token = variable.set(content)
    try:
        yield content
    finally:
        variable.reset(token)


def sharded(sharding: Sharding | None) -> contextlib.AbstractContextManager[Sharding | None]:
    """Shards the named axes of programs traced in this context."""
    return set_to(_SHARDING, sharding)


def kept_names(function: Callable[..., Any], *arguments: Any) -> Names:
    """Returns the names that a function gives to tensors by calling ``kept``."""
    names: list[str] = []
    with set_to(_NAMES, names):
        _traced(function, *arguments)
    return tuple(dict.fromkeys(names))


def activations(function: Callable[..., Any], *arguments: Any) -> list[tuple[Names, tuple[int, ...]]]:
    """Returns the names and sizes of the axes of all activations that a function names."""
    seen: list[tuple[Names, tuple[int, ...]]] = []
    with set_to(_SEEN, seen):
        _traced(function, *arguments)
    return seen


def _traced(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls a function with tracers. JAX would not call the same function again, so it gets a new one."""
    jax.eval_shape(lambda *arguments: function(*arguments), *arguments)


def rounded(tree: Any, precision: str) -> Any:
    """Returns arrays with float32 values rounded to a precision, float32 or bfloat16."""
    if precision == "float32":
        return tree
    return jax.tree.map(lambda a: a.astype(precision) if a.dtype == jnp.float32 else a, tree)


def gathered(params: Params, precision: str) -> Params:
    """Rounds parameters, and gathers those that are sharded over DATA.

    Parameters of stacked layers are instead gathered and rounded by ``stacked``, one layer at a time.

    Args:
      params: parameters, float32.
      precision: precision of the network, float32 or bfloat16.
    """
    sharding = _SHARDING.get()
    if sharding is None or not sharding.gathers:
        return rounded(params, precision)

    def whole(path: tuple[Any, ...], array: Array, spec: P) -> Array:
        if DATA not in spec:
            return rounded(array, precision)
        return array if _stack(path) and spec[0] != DATA else _whole(array, spec, sharding.precision)

    return jax.tree_util.tree_map_with_path(whole, params, sharding.specs)


def stacked(groups: tuple[Any, ...], rngs: Any, *, name: str) -> tuple[Any, Any]:
    """Returns the variables of one of several stacked layers, gathered over DATA. An argument of ``nn.scan``."""
    sharding = _SHARDING.get()
    if sharding is None or not sharding.gathers:
        return groups, rngs
    specs = sharding.specs["params"][name]

    def of_layer(array: Array, spec: P) -> Array:
        return _whole(array, P(*spec[1:]), sharding.precision)

    def whole(collections: dict[str, Any]) -> dict[str, Any]:
        if "params" not in collections:
            return collections
        return collections | {"params": jax.tree.map(of_layer, collections["params"], specs)}

    return tuple(tuple(map(whole, group)) for group in groups), rngs


def _stack(path: tuple[Any, ...]) -> bool:
    return any(str(getattr(key, "key", "")).startswith(STACKED) for key in path)


def _whole(array: Array, spec: P, precision: str) -> Array:
    """Rounds and gathers an array that is sharded over DATA. The backward pass gathers it again."""
    return checkpoint_name(_gather(array, tuple(spec), precision), GATHERED) if DATA in spec else array


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _gather(array: Array, spec: tuple[str | None, ...], precision: str) -> Array:
    gather = functools.partial(jax.lax.all_gather, axis_name=DATA, axis=spec.index(DATA), tiled=True)
    return _of_parts(gather, array.astype(precision), spec)


def _forward(array: Array, spec: tuple[str | None, ...], precision: str) -> tuple[Array, None]:
    return _gather(array, spec, precision), None


def _backward(spec: tuple[str | None, ...], precision: str, nothing: None, gradient: Array) -> tuple[Array]:
    # Sums are float32, even if the gradient of each shard is bfloat16.
    scatter = functools.partial(jax.lax.psum_scatter, axis_name=DATA, scatter_dimension=spec.index(DATA), tiled=True)
    return (_of_parts(scatter, gradient.astype(jnp.float32), spec),)


_gather.defvjp(_forward, _backward)


def _of_parts(exchange: Callable[[Array], Array], array: Array, spec: tuple[str | None, ...]) -> Array:
    """Calls a function on shards of an array over axes other than DATA. The partitioner would gather them first."""
    sharded_spec = P(*(None if axis == DATA else axis for axis in spec))
    axis_names = {axis for axis in sharded_spec if axis is not None}
    if not axis_names:
        return exchange(array)
    return jax.shard_map(
        exchange, in_specs=sharded_spec, out_specs=sharded_spec, axis_names=axis_names, check_vma=False
    )(array)
