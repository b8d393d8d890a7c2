"""Search: draws each trial's metaparameters from a scrambled Halton sequence over the study's search space."""

import hashlib
from collections.abc import Iterable

import numpy as np

from results.plans.plan import Plan
from results.plans.study import Trial
from results.rules.confirmation import original


def draw(study: Plan, ids: Iterable[int]) -> list[Trial]:
    """The trials of a study with these ids, a pure function of (the study's stream, id).

    A longer search begins with the trials of a shorter one. The scrambling derives from the study's stream, so two
    studies of networks do not share points (quasi-random search: Bousquet et al. 2017, arXiv 1706.03200).
    Factorizations of the same data do share them. A trial that repeats another has the same metaparameters and its own
    seed.

    Args:
      study: its ``stream`` seeds all randomness.
      ids: ids of trials, from 0, and of their repeats. See ``results.rules.confirmation``.

    Returns:
      Trials in the order of ``ids``.
    """
    originals = list(ids)
    if not originals:
        return []
    from scipy.stats import qmc  # slow to import, and not needed by commands that draw no trials

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
