"""Choice: trials are chosen by validation; test is reported, and chooses none."""

from collections.abc import Collection

from results.bad_input import BadInput


def check_chooses(metric: str, measured: Collection[str]) -> None:
    """Raises BadInput for a metric of test, which a target would choose trials by, where validation has the same.

    Args:
      measured: names of the metrics that the same study measures.
    """
    split, _, kind = metric.partition("_")
    if split == "test" and f"validation_{kind}" in measured:
        raise BadInput(f"{metric} is only reported and cannot choose trials; use validation_{kind}")
