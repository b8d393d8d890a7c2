"""Every model of Shallue et al. 2018 at its size, on its data set, at a batch size in the middle of the paper's."""

from typing import Any, NamedTuple


class Size(NamedTuple):
    """What is lowered of a model.

    Attributes:
      dataset: of the registry.
      batch_size: examples.
      microbatches: of each core of v5e:2x2; of v3:8x16 there is one.
    """

    dataset: str
    batch_size: int
    microbatches: int


SIZES: dict[str, Size] = {
    "fc_1024": Size("mnist", 1024, 1),
    "fc_1024_1024": Size("mnist", 1024, 1),
    "fc_64_64_64": Size("mnist", 1024, 1),
    "fc_128_128_128": Size("mnist", 1024, 1),
    "fc_256_256_256": Size("mnist", 1024, 1),
    "fc_512_512_512": Size("mnist", 1024, 1),
    "fc_1024_1024_1024": Size("mnist", 1024, 1),
    "fc_2048_2048_2048": Size("mnist", 1024, 1),
    "simple_cnn_narrow": Size("mnist", 1024, 1),
    "simple_cnn_base": Size("mnist", 1024, 1),
    "simple_cnn_wide": Size("mnist", 1024, 1),
    "resnet_8": Size("cifar10", 1024, 1),
    "resnet_50": Size("imagenet", 4096, 32),
    "vgg_11": Size("imagenet", 4096, 32),
    "lstm_base": Size("lm1b", 4096, 8),
    "transformer_base": Size("lm1b", 4096, 8),
    "transformer_narrow_and_shallow": Size("lm1b", 4096, 4),
    "transformer_shallow": Size("lm1b", 4096, 4),
    "transformer_wide": Size("lm1b", 4096, 16),
}


def workload(name: str, precision: str) -> Any:
    """A model on the shapes of its data, which need not be there."""
    from workloads import registry

    return registry.workload(registry.DATASETS[SIZES[name].dataset], name, {}, "nesterov", precision)
