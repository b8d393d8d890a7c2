"""Runs with a known answer: a loss with a closed form, which each logger writes in its own way.

After ``step`` updates with batch size B, the loss is 0.5 + 3 / (1 + step / (60 + 7680 / B)). So it reaches 1.5 after
120 + 15360 / B steps. Doubling the batch size from 256 to 512 saves exactly 1/6 of the steps, which makes training 20 %
faster, so doubling pays up to 512.
"""

import math

SIZES = (32, 64, 128, 256, 512, 1024, 2048)
EXAMPLES = 4096
TARGET, ANSWER = 1.5, 512


def loss(step: float, batch_size: int) -> float:
    """Returns the loss after ``step`` updates."""
    return 0.5 + 3 / (1 + step / (60 + 7680 / batch_size))


def steps_to_target(batch_size: int) -> float:
    """Returns the number of updates after which the loss is 1.5."""
    return 120 + 15360 / batch_size


def steps_per_epoch(batch_size: int) -> int:
    """Returns the number of updates in an epoch of ``EXAMPLES`` examples."""
    return math.ceil(EXAMPLES / batch_size)


def epochs(batch_size: int) -> int:
    """Returns the length of a run in epochs. Every run goes at least 20 % beyond the target."""
    return math.ceil(1.2 * steps_to_target(batch_size) / steps_per_epoch(batch_size)) + 1
