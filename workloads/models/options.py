"""The base of model options, which are checked without JAX, models of Flax networks, and the models in sizes.toml."""

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

from workloads.base import lazy
from workloads.workload import Array, Model, Params, Product, State, Variables

_TABLE = tomllib.loads(Path(__file__).with_name("sizes.toml").read_text())
SIZES: Mapping[str, tuple[str, Mapping[str, Any]]] = {name: (row.pop("model"), row) for name, row in _TABLE.items()}


class Check(NamedTuple):
    """A check of an option, as a function of its value, and the text that completes "must be"."""

    is_valid: Callable[[Any], bool]
    text: str


def is_whole_list(value: object) -> bool:
    """Returns whether a value is a non-empty list of positive integers."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in value)


def one_of(*choices: str) -> Check:
    """Returns a check for one of several texts."""
    return Check(choices.__contains__, " or ".join([", ".join(choices[:-1]), choices[-1]]))


def whole_list(example: str, *, may_be_empty: bool = False) -> Check:
    """Returns a check for lists of integers of at least 1. ``example`` is a valid list for the message."""

    def is_valid(option: object) -> bool:
        return is_whole_list(option) or (may_be_empty and isinstance(option, Sequence) and not option)

    return Check(is_valid, f"a list of integers of at least 1, such as {example}")


# Types of options with checks.
Whole = Annotated[int, Check(lambda value: is_whole_list([value]), "an integer of at least 1")]
Count = Annotated[int, Check(lambda value: type(value) is int and value >= 0, "an integer of at least 0")]
Bool = Annotated[bool, Check(lambda value: isinstance(value, bool), "true or false")]
Share = Annotated[float, Check(lambda value: type(value) in (int, float) and 0 <= value < 1, "at least 0 and below 1")]
# Read-outs of language models: the embedding, a matrix of their own, or a matrix and a bias.
READ_OUTS = ("tied", "untied", "untied_bias")
ReadOut = Annotated[str, one_of(*READ_OUTS)]


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """Options of a Flax network. The types of its fields have checks.

    Attributes:
      classes: size of the output.
      network: file in this folder and class of the network, which is called with the options.
      in_training: whether the network is called with (inputs, keys, train) instead of inputs only.

    Raises:
      ValueError: an option is invalid. The message is one line.
    """

    classes: int
    network: ClassVar[str]
    in_training = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            for check in getattr(field.type, "__metadata__", ()):
                option = getattr(self, field.name)
                if not check.is_valid(option):
                    raise ValueError(f"{field.name} must be {check.text}, not {option!r}")

    def model(self) -> Model:
        """Returns the model. The network is built on first use, so planning does not need Flax."""
        file, _, name = self.network.partition(".")
        network = functools.partial(lazy(f"workloads.models.{file}", name), self)
        return flax_model(network, getattr(self, "group", 1), in_training=self.in_training)


def flax_model(network: Callable[[], Any], group: int = 1, *, in_training: bool = False) -> Model:
    """Returns the model of a Flax network.

    Args:
      network: function that builds the network on first use, so planning does not need Flax. All collections other than
        ``params`` form the state.
      group: number of examples normalized together, as in Model.
      in_training: whether the network is called with (inputs, keys, train) instead of inputs only.
    """
    made = functools.cache(network)
    no_training = (None, False) if in_training else ()

    def created(key: Array, inputs: Array) -> Any:
        return made().init(key, inputs, *no_training)

    def init(key: Array, inputs: Array) -> Variables:
        from flax.core import meta

        variables = meta.unbox(dict(created(key, inputs)))
        return {"params": variables.pop("params")}, variables

    def apply(
        params: Params, state: State, inputs: Array, keys: Array | None, train: bool
    ) -> tuple[Array | Product, State]:
        training = (keys, train) if in_training else ()
        outputs, changed = made().apply({**params, **state}, inputs, *training, mutable=[*state] if train else [])
        return outputs, {**state, **changed}

    def names(inputs: Array) -> Any:
        from workloads import axes

        return axes.of_parameters(created, inputs)

    return Model(init, apply, group, names)


def check_heads(d_model: int, heads: int) -> None:
    """Raises ValueError unless attention heads divide the width evenly."""
    if d_model % heads:
        raise ValueError(f"heads={heads} does not divide d_model={d_model}")
