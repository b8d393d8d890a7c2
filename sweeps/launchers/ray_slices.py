"""TPU slices of a Ray cluster. Ray is imported inside functions because it is optional."""

import time
from typing import Any

from results.bad_input import BadInput, first_line
from results.plans.plan import Plan
from results.printing import say

RESERVE_SECONDS = 10.0  # timeout for reserving a free slice
RETRY_SECONDS = 60.0  # interval between attempts to reserve a slice, unless a slice is released
NAMES = {"v5e": "v5litepod"}  # Ray's names for TPU versions, if they differ


class Slices:
    """Reserves TPU slices for studies, and holds the reservations until all hosts are ready.

    Args:
      ray: the ``ray`` module.
      asked: VERSION:TOPOLOGY of the slices, if slices are used.

    Attributes:
      coming: studies and their reserved slices, by a reference that becomes ready once all hosts of the slice are
        ready.
    """

    def __init__(self, ray: Any, asked: str | None):
        self._ray = ray
        self._asked = asked
        self._next = 0.0  # time of the next attempt
        self._reported = False
        self.coming: dict[Any, tuple[Plan, Any]] = {}

    def reserve(self, study: Plan) -> bool:
        """Reserves a slice for a study if a slice is free. Tries at most once per ``RETRY_SECONDS``."""
        from ray.util.tpu import slice_placement_group

        if time.monotonic() < self._next:
            return False
        version, _, topology = str(self._asked).partition(":")
        try:
            group = slice_placement_group(
                topology, NAMES.get(version, version), head_reservation_timeout_s=RESERVE_SECONDS
            )
        except TimeoutError:
            self._next = time.monotonic() + RETRY_SECONDS
            if not self._reported:
                say(f"{study.name} waits for a free slice {self._asked}")
            self._reported = True
            return False
        except (RuntimeError, ValueError) as error:
            raise BadInput(
                f"launcher.tpu_slice={self._asked}: Ray cannot reserve it ({first_line(error)[:200]})"
            ) from None
        self.coming[group.placement_group.ready()] = study, group
        return True

    def retry(self) -> None:
        """Makes the next ``reserve`` try immediately. Call it when a slice may have been released."""
        self._next = 0.0

    def release(self) -> None:
        """Releases slices that are not ready."""
        while self.coming:
            self.coming.popitem()[1][1].shutdown()
