"""Simulated seconds per epoch over cores, of laws that are fitted and of others; their critical cores are known."""

import itertools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from analysis.cores import scaling
from analysis.cores.regions import MOST


class Law(NamedTuple):
    """Seconds of an epoch whose terms are those of the fit, and others.

    Attributes:
      serial, parallel, communication: as in ``scaling``.
      rounds: for each of log2 c rounds.
      exchange: times (c − 1) / c: what moves all but its own part of a table into every core.
      slower: by this factor an epoch takes longer beyond half of the cores, on a second memory.
      step: seconds that are added there.
    """

    serial: float
    parallel: float
    communication: float = 0.0
    rounds: float = 0.0
    exchange: float = 0.0
    slower: float = 0.0
    step: float = 0.0

    @property
    def is_inside(self) -> bool:
        """True if it is one of the laws that are fitted, as it is written."""
        return not any(self[3:])

    @property
    def times(self) -> tuple[float, float, float]:
        """Serial, parallel and communication as they are counted: exchange is serial, taken off parallel.

        Of two memories they are the times of the first, and rounds are none of them.
        """
        return self.serial + self.exchange, self.parallel - self.exchange, self.communication

    def seconds(self, cores: np.ndarray, most: float) -> np.ndarray:
        """Seconds of an epoch on ``cores`` [n] of a machine that has ``most``, float64[n]."""
        smooth = self.serial + self.parallel / cores + self.communication * (cores - 1)
        smooth = smooth + self.rounds * np.log2(cores) + self.exchange * (cores - 1) / cores
        return np.where(cores > most / 2, smooth * (1 + self.slower) + self.step, smooth)

    def critical(self, most: float) -> float:
        """Cores by which half of their time is lost; infinite where it never is. Of a step, where that is."""

        def lost(ln_cores: float) -> float:
            cores = np.array([1.0, math.exp(ln_cores)])
            alone, own = self.seconds(cores, most).tolist()
            return float(cores[1] * own - 2 * alone)

        farthest = math.log(MOST)
        return math.exp(brentq(lost, 0.0, farthest)) if lost(farthest) > 0 else math.inf


LAWS: Mapping[str, Law] = {
    "parallel alone": Law(0.0, 1.0),
    "serial alone": Law(1.0, 0.0),
    "4 % serial": Law(0.04, 0.96),
    "25 % serial": Law(0.25, 0.75),
    "with communication 0.3 %": Law(0.0, 1.0, 0.003),
    "with communication 3 %": Law(0.0, 1.0, 0.03),
    "all three": Law(0.08, 0.92, 0.004),
    "log2 c, 2 %": Law(0.0, 1.0, rounds=0.02),
    "log2 c, 6 %, 10 % serial": Law(0.1, 0.9, rounds=0.06),
    "two nodes, 20 % slower": Law(0.1, 0.9, slower=0.2),
    "two nodes, 50 % slower": Law(0.04, 0.96, 0.001, slower=0.5),
    "two nodes, twice as slow": Law(0.15, 0.85, slower=1.0),
    "two nodes, 2 % added": Law(0.02, 0.98, step=0.02),
    "(c − 1) / c, 5 %": Law(0.02, 0.98, exchange=0.05),
    "(c − 1) / c, 30 %": Law(0.05, 0.95, exchange=0.3),
}
COUNTS: Mapping[str, tuple[int, ...]] = {
    "1, 2, 4": (1, 2, 4),
    "1 … 8": (1, 2, 4, 8),
    "1 … 64": (1, 2, 4, 8, 16, 32, 64),
}
SPREADS = (0.01, 0.04, 0.10)  # of epochs
EPOCHS = 8  # that were timed on each number of cores


class CoreScenario(NamedTuple):
    """A simulated case: keys of the tables above, and a spread of epochs."""

    law: str
    core_counts: str
    spread: float

    @property
    def cores(self) -> np.ndarray:
        """float64[n], sorted; the machine has no more than the most of them."""
        return np.array(COUNTS[self.core_counts], np.float64)

    @property
    def most(self) -> float:
        return float(COUNTS[self.core_counts][-1])


class Times(NamedTuple):
    """Data sets of a scenario: median seconds per epoch, float64[d, n], and how far epochs scattered, float64[d]."""

    seconds: np.ndarray
    spread: np.ndarray


def scenarios() -> list[CoreScenario]:
    """All of them."""
    return [CoreScenario(*one) for one in itertools.product(LAWS, COUNTS, SPREADS)]


def draw(scenario: CoreScenario, datasets: int, rng: np.random.Generator) -> Times:
    """Simulates ``datasets`` curves with the noise that the fit assumes.

    What slows an epoch down lasts for all epochs on a number of cores, so that their median is off by as much as a
    single one, and by ``BETWEEN_RUNS``. The fit is told how far the epochs around it scatter, as it is of real ones.
    """
    cores = scenario.cores
    noise = math.hypot(scenario.spread, scaling.BETWEEN_RUNS)
    lasting = noise * rng.standard_normal((datasets, len(cores)))
    each = np.exp(scenario.spread * rng.standard_normal((datasets, len(cores), EPOCHS)))
    seconds = LAWS[scenario.law].seconds(cores, scenario.most) * np.exp(lasting)
    return Times(seconds, np.array([scaling.spread(list(epochs)) for epochs in each]))
