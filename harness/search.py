"""Search: the metaparameters of each trial, from a scrambled Halton sequence through the study's search space."""

import hashlib
from collections.abc import Iterable

import numpy as np

from results.plans.plan import Plan
from results.plans.study import Trial
from results.rules.confirmation import original


def draw(study: Plan, ids: Iterable[int]) -> list[Trial]:
    """The trials of a study with these ids: a pure function of (stream of the study, id).

    The first trials of a longer search are those of a shorter one, and no two studies of networks share points: the
    scrambling derives from the study's stream (quasi-random search: Bousquet et al. 2017, arXiv 1706.03200).
    Factorizations of the same data share them. A trial that repeats another has that one's metaparameters, and a seed
    of its own.

    Args:
      study: whose ``stream`` all randomness derives from.
      ids: of trials, from 0, and of those that repeat them; see ``results.rules.confirmation``.

    Returns:
      Trials in the order of ``ids``.
    """
    originals = list(ids)
    if not originals:
        return []
    from scipy.stats import qmc

    scramble = np.random.default_rng(int(study.stream[:32], 16))
    points = qmc.Halton(d=len(study.space), scramble=True, rng=scramble).random(max(map(original, originals)) + 1)
    return [
        Trial(
            id=i,
            seed=int(hashlib.sha256(f"{study.stream}/{i}".encode()).hexdigest()[:8], 16),
            metaparameters={
                name: ranged.at(u) for (name, ranged), u in zip(study.space.items(), points[original(i)], strict=True)
            },
        )
        for i in originals
    ]
