"""Models at the sizes of Shallue et al. 2018 (arXiv 1811.03600), by name: a model of the registry and its options."""

from collections.abc import Mapping
from typing import Any

_BASE = {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "dropout": 0.1}
_WIDTHS = ([1024], [1024] * 2, *([width] * 3 for width in (64, 128, 256, 512, 1024, 2048)))

SIZES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    **{"_".join(map(str, ["fc", *widths])): ("fully_connected", {"widths": widths}) for widths in _WIDTHS},
    "simple_cnn_narrow": ("simple_cnn", {"channels": [16, 32], "width": 512}),
    "simple_cnn_base": ("simple_cnn", {"channels": [32, 64], "width": 1024}),
    "simple_cnn_wide": ("simple_cnn", {"channels": [64, 128], "width": 2048}),
    "resnet_8": ("resnet_basic", {"blocks": [1, 1, 1], "width": 16, "norm": "none"}),
    "resnet_50": ("resnet", {"blocks": [3, 4, 6, 3], "width": 64, "norm": "ghost", "group": 32}),
    "vgg_11": (
        "vgg",
        {"stages": [[64], [128], [256, 256], [512, 512], [512, 512]], "widths": [4096, 4096], "dropout": 0.5},
    ),
    "lstm_base": ("lstm_projected", {"d_model": 512, "width": 2048, "dropout": 0.0}),
    "transformer_base": ("transformer_decoder", _BASE),
    "transformer_narrow_and_shallow": (
        "transformer_decoder",
        _BASE | {"layers": 2, "d_model": 256, "heads": 4, "d_ff": 1024},
    ),
    "transformer_shallow": ("transformer_decoder", _BASE | {"layers": 2}),
    "transformer_wide": ("transformer_decoder", _BASE | {"d_model": 1024, "heads": 16, "d_ff": 4096}),
}
