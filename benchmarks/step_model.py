"""Fits the constants of the cost model to published step times, and compares the model forms that were tried.

    python benchmarks/step_model.py

The constants belong in ``results/costs/step_constants.py``, and the tables in ``docs/predictions.md``. Errors are
log₂(predicted / published seconds). The median and the 90 % quantile of their absolute values are printed.
"""

import numpy as np
import step_errors
from step_errors import Fitting, Form, summary

from analysis.published_steps import DENSE, GPU, MIXTURE, PublishedStep, load
from results.costs.step_model import Terms


def matmuls(c: np.ndarray, t: Terms) -> np.ndarray:
    """Returns the seconds of matmuls and attention. Constant 0 is the fraction of the peak, 1 the cost of attention."""
    return np.asarray((t.products + c[1] * t.attention) / c[0])


def combined(power: float, weights: float, *, joined: bool = False) -> Form:
    """Returns the form that combines the seconds of matmuls, memory and links in a sum with an exponent.

    Args:
      power: the exponent.
      weights: number of times that weights pass through memory, or 0 if weights count like activations.
      joined: whether memory and links take turns, in which case their seconds are added first.
    """

    def seconds(c: np.ndarray, t: Terms) -> np.ndarray:
        memory = c[2] * t.activations + (weights or c[2]) * t.weights
        transfers = (memory + t.links) ** power if joined else memory**power + t.links**power
        return np.asarray((matmuls(c, t) ** power + transfers) ** (1 / power) * (1 + c[3] * t.doublings))

    return seconds


def longest(c: np.ndarray, t: Terms) -> np.ndarray:
    """Returns the form that takes the longest of matmuls, memory and links instead of a sum."""
    memory = c[2] * t.activations + 2 * t.weights
    return np.asarray(np.maximum(np.maximum(matmuls(c, t), memory), t.links) * (1 + c[3] * t.doublings))


def fitted_exponent(c: np.ndarray, t: Terms) -> np.ndarray:
    """Returns the form with a fitted exponent as constant 4."""
    return combined(float(c[4]), 2)(c, t)


def fitted_links(c: np.ndarray, t: Terms) -> np.ndarray:
    """Returns the form in which constant 4 scales the links."""
    return combined(1.5, 2)(c, t._replace(links=c[4] * t.links))


def fitted_weights(c: np.ndarray, t: Terms) -> np.ndarray:
    """Returns the form in which constant 4 is the number of times that weights pass through memory."""
    return combined(1.5, float(c[4]))(c, t)


def without_slices(c: np.ndarray, t: Terms) -> np.ndarray:
    """Returns the form that has no loss between slices."""
    return combined(1.5, 2)(np.array([*c, 0.0]), t)


START = step_errors.START
FORMS: dict[str, tuple[Form, tuple[float, ...]]] = {
    "exponent 1.5, weights twice (used)": (combined(1.5, 2), START),
    "exponent 1: no overlap": (combined(1, 2), START),
    "exponent 1.3": (combined(1.3, 2), START),
    "exponent 1.7": (combined(1.7, 2), START),
    "exponent 2": (combined(2, 2), START),
    "exponent 3": (combined(3, 2), START),
    "longest only: full overlap": (longest, START),
    "exponent fitted": (fitted_exponent, (*START, 1.5)),
    "weights once": (combined(1.5, 1), START),
    "weights three times": (combined(1.5, 3), START),
    "weights like activations": (combined(1.5, 0), START),
    "weights like activations, exponent 2": (combined(2, 0), START),
    "weights fitted": (fitted_weights, (*START, 2.0)),
    "memory and links in turn": (combined(1.5, 2, joined=True), START),
    "memory and links in turn, exponent 2": (combined(2, 1, joined=True), START),
    "links fitted": (fitted_links, (*START, 1.0)),
    "no loss between slices": (without_slices, START[:3]),
}


def row(name: str, cells: dict[str, object]) -> str:
    """Formats a row of a table in Markdown."""
    return f"| {name} | " + " | ".join(map(str, cells.values())) + " |"


def of_predictor(predictor: Fitting, steps: list[PublishedStep]) -> dict[str, object]:
    """Returns the held-out errors of a predictor."""
    by_generation = step_errors.left_out(steps, step_errors.generation, predictor)
    by_family = step_errors.left_out(steps, step_errors.family, predictor)
    return {
        "generation": summary(by_generation),
        "family": summary(by_family),
        "anchored": summary(step_errors.anchored(steps, by_generation)),
        "ratios": summary(step_errors.ratios(steps, by_generation).predicted),
    }


def main() -> None:
    """Prints the constants, and the errors of all forms and baselines."""
    steps = [step for step in load()[0] if not step.validation]
    dense = [step for step in steps if step.subset == DENSE]
    gpus = [step for step in steps if step.subset == GPU]
    on_tpus = [step for step in steps if step.subset in (DENSE, MIXTURE)]
    fitted_constants = step_errors.constants(steps, lambda step: step.subset == DENSE)
    print(f"constants: {fitted_constants}\n")
    print("| dense steps on TPUs | generation left out | family left out | one anchor | chip counts |")
    for name, (form, start) in FORMS.items():
        print(row(name, of_predictor(step_errors.by_form(form, start), dense)))
    baselines = {"peak × 0.5": step_errors.half_of_peak, "one efficiency": step_errors.one_efficiency}
    for name, predictor in baselines.items():
        print(row(name, of_predictor(predictor, dense)))
    print("\n| other sets | generation left out | family left out | one anchor | chip counts |")
    print(row("GPUs", of_predictor(step_errors.of_gpus(fitted_constants.attention), gpus)))
    for name, predictor in baselines.items():
        print(row(f"GPUs, {name}", of_predictor(predictor, gpus)))
    trained = step_errors.by_form(trained=lambda step: step.subset == DENSE)
    print(row("dense and mixtures on TPUs", of_predictor(trained, on_tpus)))
    for name, predictor in baselines.items():
        print(row(f"dense and mixtures, {name}", of_predictor(predictor, on_tpus)))


if __name__ == "__main__":
    main()
