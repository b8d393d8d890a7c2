"""Options of networks for images, and of fully connected networks."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated

from workloads.models.options import Check, ModelOptions, Share, Whole, is_whole_list, one_of, whole_list


def _is_list_of_lists(value: object) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    return len(value) > 0 and all(map(is_whole_list, value))


@dataclasses.dataclass(frozen=True)
class FullyConnected(ModelOptions):
    """A network with hidden layers of sizes ``widths`` (a model family of Shallue et al. 2018).

    The model maps inputs float32[B, ...], flattened to [B, D], to logits float32[B, classes]. Hidden weights are
    He-initialized, the output layer is LeCun-initialized, and biases are zero. The number of parameters is the sum over
    layers of (inputs + 1) × outputs.

    Attributes:
      widths: size of each hidden layer. An empty list gives a linear classifier.
    """

    network = "fully_connected.FullyConnectedNetwork"
    widths: Annotated[Sequence[int], whole_list("[64]", may_be_empty=True)]


@dataclasses.dataclass(frozen=True)
class SimpleCNN(ModelOptions):
    """A network with convolutions, a fully connected layer of size ``width`` and a linear output layer.

    It generalizes the "Simple CNN" of Shallue et al. (2018), which has two convolutions and one hidden layer. The model
    maps inputs float32[B, H, W, C] to logits float32[B, classes]. Weights are He-initialized, except for the
    LeCun-initialized output layer, and biases are zero. Convolutions have (K² × channels in + 1) × channels out
    parameters each. The dense layers have (P + 1) × width + (width + 1) × classes, where P is the size of the last
    pooled image, (H >> n) × (W >> n) × channels for n convolutions. ``init`` raises ValueError if the images are too
    small for this number of pooling layers.

    Attributes:
      channels: number of filters in each convolution. Convolutions use SAME padding and are followed by 2×2
        max-pooling.
      width: size of the fully connected layer.
      kernel: size K of each filter, which has K rows and K columns.
      dropout: probability of dropping an output of the fully connected layer during training, in [0, 1).
    """

    network = "simple_cnn.SimpleCNNNetwork"
    channels: Annotated[Sequence[int], whole_list("[8, 16]")]
    width: Whole
    kernel: Whole = 3
    dropout: Share = 0.0

    @property
    def in_training(self) -> bool:  # type: ignore[override]
        return self.dropout > 0


@dataclasses.dataclass(frozen=True)
class ResNet(ModelOptions):
    """A ResNet (He et al. 2016, arXiv 1512.03385). ``blocks=[3, 4, 6, 3]`` with ``width=64`` is ResNet-50.

    A 7×7 convolution with stride 2 and 3×3 max-pooling with stride 2 are followed by stages of bottleneck blocks,
    global average pooling, and a linear output layer. A block has a shortcut and three convolutions, 1×1, 3×3 and 1×1,
    with F, F and 4 F filters, each followed by normalization. F is ``width`` in the first stage and doubles with each
    stage. The first block of each stage has a 1×1 convolution as its shortcut. In all stages but the first, its 3×3
    convolution also has stride 2. (He et al. use stride 2 in the first 1×1 convolution instead. This variant is called
    v1.5.)

    The scale of the last norm in each block is initialized to 0, so each block initially equals its shortcut. The
    output layer is initialized with standard deviation 0.01 (Goyal et al. 2017, arXiv 1706.02677).

    The model maps inputs float32[B, H, W, C] to logits float32[B, classes]. Convolutions are He-initialized and have no
    biases. The state holds running means and variances, float32. ResNet-50 with three channels and 1,000 classes has
    25,557,032 parameters, or 25,549,352 if it is pre-activated. In general, there are 49 × C × width + 2 × width
    parameters before the blocks and (P + 1) × classes in the output layer, with P = 4 × F of the last stage. A block
    with X input channels has X × F + 9 × F² + 4 × F² + 12 × F, and the first block of a stage has an additional X × 4 ×
    F + 8 × F. Pre-activated networks have 49 × C × width before the blocks, 2 × P more at the end, and X × F + 9 × F² +
    4 × F² + 2 × X + 4 × F in a block. The first block of a stage has an additional X × 4 × F.

    Attributes:
      blocks: number of blocks in each stage. All blocks of a stage except the first are compiled as a single block.
      width: filters of the first stage.
      norm: ``ghost`` for ``layers.GhostNorm``, or ``group`` for ``layers.GroupNorm``.
      group: number of adjacent examples in a batch that ``ghost`` normalizes together, at least 2. It must divide all
        batch sizes. Goyal et al. always use groups of 32. With ``norm=group``, it must be 1.
      form: ``post_activated``, or ``pre_activated`` if a norm and ReLU precede each convolution of a block instead of
        following it (He et al. 2016, arXiv 1603.05027). In that case, the shortcuts and the first convolution have no
        norm, the last block is followed by a norm and ReLU, and all scales start at 1.
    """

    network = "resnet.ResNetNetwork"
    in_training = True
    blocks: Annotated[Sequence[int], whole_list("[3, 4, 6, 3]")]
    width: Whole
    norm: Annotated[str, one_of("ghost", "group")]
    group: int
    form: Annotated[str, one_of("post_activated", "pre_activated")] = "post_activated"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm == "ghost" and (not isinstance(self.group, int) or self.group < 2):
            raise ValueError(f"group must be an integer of at least 2 with norm=ghost, not {self.group!r}")
        if self.norm == "group" and self.group != 1:
            raise ValueError(
                f"group must be 1 with norm=group, which normalizes examples separately, not {self.group!r}"
            )

    @property
    def pre_activated(self) -> bool:
        return self.form == "pre_activated"


@dataclasses.dataclass(frozen=True)
class ResNetBasic(ModelOptions):
    """A ResNet with two 3×3 convolutions per block, like those for CIFAR-10 by He et al.

    ``blocks=[1, 1, 1]`` with ``width=16`` is ResNet-8. A 3×3 convolution and stages of blocks are followed by global
    average pooling and a linear output layer (He et al. 2016, arXiv 1512.03385, section 4.2). Blocks are pre-activated
    (arXiv 1603.05027): ReLU comes before each of their convolutions, and once more before the pooling. Filters double
    with each stage. The first block of every stage but the first has stride 2. Its shortcut subsamples every second
    position and pads the new channels with zeros.

    The model maps inputs float32[B, H, W, C] to logits float32[B, classes]. Weights are He-initialized, except for the
    LeCun-initialized output layer, and biases are zero. Without norms, the second convolution of a block is also
    initialized to zero, so a block initially equals its shortcut. Without norms, a convolution has (9 × channels in +
    1) × channels out parameters, and the output layer has (channels + 1) × classes. ResNet-8 with three channels and
    ten classes has 75,050 parameters.

    Attributes:
      blocks: number of blocks in each stage.
      width: filters of the first stage.
      norm: ``none``, or ``group`` for ``layers.GroupNorm`` before each ReLU. With either, an example's outputs do not
        depend on the other examples.
    """

    network = "resnet.ResNetBasicNetwork"
    blocks: Annotated[Sequence[int], whole_list("[1, 1, 1]")]
    width: Whole
    norm: Annotated[str, one_of("none", "group")]


@dataclasses.dataclass(frozen=True)
class VGG(ModelOptions):
    """A VGG network without normalization (Simonyan & Zisserman 2015, arXiv 1409.1556).

    Stages [[64], [128], [256, 256], [512, 512], [512, 512]] and widths [4096, 4096] give configuration A, VGG-11. The
    model maps inputs float32[B, H, W, C] to logits float32[B, classes]. Weights are He-initialized, except for the
    LeCun-initialized output layer, and biases are zero. Convolutions have (9 × channels in + 1) × channels out
    parameters each, and fully connected layers have (inputs + 1) × outputs. VGG-11 on 224×224 pixels with three
    channels and 1,000 classes has 132,863,336 parameters. ``init`` raises ValueError if the images are too small for
    this number of pooling layers.

    Attributes:
      stages: number of filters of each 3×3 convolution with SAME padding, by stage. Each stage ends with 2×2
        max-pooling.
      widths: size of each hidden fully connected layer.
      dropout: probability of dropping an output of a fully connected layer during training, in [0, 1).
    """

    network = "vgg.VGGNetwork"
    in_training = True
    stages: Annotated[
        Sequence[Sequence[int]], Check(_is_list_of_lists, "lists of integers of at least 1, such as [[8], [16, 16]]")
    ]
    widths: Annotated[Sequence[int], whole_list("[64]", may_be_empty=True)]
    dropout: Share
