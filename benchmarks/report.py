"""What every benchmark prints and writes: figures with units and targets, and an exit code that tells.

With --smoke it takes tiny input and seconds: that shows that it runs, and measures nothing, so no target counts.
"""

import argparse
import json
import sys
from pathlib import Path
from types import TracebackType

from harness import provenance
from results import durable


class Report:
    """Collects figures; at the end says where they are from, writes --json, exits 1 if a target is missed.

    Attributes:
      smoke: whether the input is to be tiny.
    """

    def __init__(self, about: str):
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--json", type=Path, help="write an array of {name, value, unit, target, met} here")
        parser.add_argument("--smoke", action="store_true", help="take tiny input: does it run? measures nothing")
        options = parser.parse_args()
        self._path: Path | None = options.json
        self.smoke: bool = options.smoke
        self._rows: list[dict] = []

    def add(self, name: str, value: float, unit: str, target: float | None = None) -> None:
        """Adds a figure; a target is the least value that will do."""
        target = None if self.smoke else target
        met = target is None or value >= target
        self._rows.append({"name": name, "value": value, "unit": unit, "target": target, "met": met})
        against = "" if target is None else f"  (target {target:g}: {'met' if met else 'MISSED'})"
        print(f"{name:<64} {value:>12,.2f} {unit}{against}", flush=True)

    def __enter__(self) -> "Report":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        about = provenance.software() | provenance.device()
        print(f"measured on {about['device_kind']} × {about['device_count']}, {about['physical_cores']} cores, "
              f"python {about['python_version']}, {about['package_versions']}")  # fmt: skip
        if self._path is not None:
            durable.replace(self._path, json.dumps(self._rows, indent=1).encode())
        sys.exit(0 if all(row["met"] for row in self._rows) else 1)
