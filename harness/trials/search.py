"""Draws each trial's metaparameters from a scrambled Halton sequence over the study's search space."""

import hashlib
from collections.abc import Iterable

import numpy as np

from results.plans.plan import Plan
from results.plans.study import Trial
from results.rules.confirmation import original


def draw(study: Plan, ids: Iterable[int]) -> list[Trial]:
    """Returns the trials of a study with these ids. They depend only on the ids and the study's ``stream``.

    A longer search starts with the trials of a shorter one. The scrambling is seeded by the study's ``stream``, so two
    studies of networks do not share points (quasi-random search: Bousquet et al. 2017, arXiv 1706.03200).
    Factorizations of the same data do share points. A repeat of a trial has the same metaparameters but a different
    seed.

    Args:
      study: study whose ``stream`` seeds all randomness.
      ids: zero-based ids of trials, and ids of repeats (see ``results.rules.confirmation``).

    Returns:
      The trials in the order of ``ids``.
    """
    originals = list(ids)
    if not originals:
        return []
    from scipy.stats import qmc  # slow to import, and not needed by commands that do not draw trials

    space = study.search.space
    scramble = np.random.default_rng(int(study.stream[:32], 16))
    points = qmc.Halton(d=len(space), scramble=True, rng=scramble).random(max(map(original, originals)) + 1)
    return [
        Trial(
            id=i,
            seed=int(hashlib.sha256(f"{study.stream}/{i}".encode()).hexdigest()[:8], 16),
            metaparameters={
                name: ranged.at(u) for (name, ranged), u in zip(space.items(), points[original(i)], strict=True)
            },
        )
        for i in originals
    ]
