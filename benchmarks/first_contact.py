"""First contact with a GPU or TPU: are its results correct, and how fast is it? Takes at most ten minutes on one host.

    make first-contact [EXTRA=cuda|tpu]
    python benchmarks/first_contact.py [--json FILE] [--only CHECK ...] [--smoke]

Prints a line when a check begins, and a line for each of its numbers. The JSON file is rewritten after each check, so
results survive an interruption. Checks run one after another in separate processes, so if one crashes or hangs, the
others are not affected. The checks are:

- device: JAX computes on the machine's accelerator rather than its CPU.
- precision: float32 matmuls and convolutions have float32 accuracy, compared with float64 in NumPy, rather than the
  device's default of TF32 or bfloat16. With precision=bfloat16, a gradient is rounded as expected for bfloat16.
- release: a rerun of a published study does not contradict the published results, and its first losses agree up to
  rounding.
- lanes: 32 concurrent trials of digits compared with one at a time, measured alternately in one run.
- resume: a sweep stopped by SIGTERM ends with exit code 75, and the same command resumes it. On a CPU, the tables are
  then equal to those of an uninterrupted sweep. On other devices, losses agree within 0.1 %.
- speed:NETWORK: steps per second and fraction of the device's peak, as in benchmarks/training.py.

The outcome of a check is pass, fail, measured (without a goal), not measured, or error (it could not run). The exit
code is 1 if a check failed or could not run, 2 if JAX cannot use the accelerator, and 0 otherwise. With --smoke, checks
use tiny inputs and only errors count. docs/accelerators.md describes the JSON.
"""

import argparse
import contextlib
import json
import math
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contact_checks import CHECKS, ERROR, FAIL, NOT_MEASURED, Finding, Number, last_line
from report import ROOT

from results import durable
from results.bad_input import BadInput, number_of
from results.cli import guarded

ALL_SECONDS = 600.0  # limit for all checks together
LEAST_SECONDS = 10.0  # minimum remaining time to start another check


def environment(name: str) -> dict[str, str]:
    """Returns the environment of a check. If the check computes on a device, it is that of a worker with one device."""
    from sweeps.launchers import local

    slot = local.slots(1)[0][1] if CHECKS[name].on_device else {}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Disables traceback filtering, so that the last line of a traceback is the error.
    return os.environ | slot | {"PYTHONPATH": path, "JAX_TRACEBACK_FILTERING": "off"}


def measured(name: str, seconds: float, smoke: bool) -> dict[str, Any]:
    """Runs a check in separate processes, kills them after ``seconds``, and returns the outcome."""
    command = [sys.executable, str(Path(__file__).resolve()), "--check", name]
    if smoke:
        command.append("--smoke")
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        with in_group(command, output, errors, environment(name)) as process:
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
        took = round(time.perf_counter() - began, 1)
        output.seek(0)
        errors.seek(0)
        said, wrong = output.read(), errors.read()
    about: dict[str, Any] = {"name": name, "seconds": took, "numbers": []}
    if code == 0:
        return about | json.loads(said.splitlines()[-1])
    why = f"not done after {seconds:.0f} s" if code is None else f"exit code {code}: {last_line(wrong)}"
    return about | {"outcome": ERROR, "why": why}


@contextlib.contextmanager
def in_group(
    command: Sequence[str], output: Any, errors: Any, environment: dict[str, str]
) -> "Iterator[subprocess.Popen[Any]]":
    """Yields a process in a separate process group. The whole group is killed at the end."""
    process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=ROOT, env=environment, start_new_session=True)
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def write(path: Path | None, report: dict[str, Any]) -> None:
    """Rewrites the report if a path is given."""
    if path is not None:
        durable.replace(path, json.dumps(report, indent=1, ensure_ascii=False).encode())


def described(check: dict[str, Any]) -> str:
    """Returns the lines that describe the outcome of a check."""
    lines = [f"  {check['outcome']}, {check['seconds']:.0f} s{': ' if check['why'] else ''}{check['why']}"]
    for number in map(Number._make, check["numbers"]):
        value = "not finite" if number.value is None else f"{number.value:,.4g}"
        goal = f"  (goal {number.goal}: {'met' if number.met else 'MISSED'})" if number.goal else ""
        lines.append(f"    {number.name}: {value} {number.unit}".rstrip() + goal)
    return "\n".join(lines)


@guarded
def main() -> int:
    """Runs the checks, then prints and writes their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write device, versions and all checks here")
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=f"any of {', '.join(CHECKS)}")
    parser.add_argument("--smoke", action="store_true", help="take tiny input, only to check that it runs")
    parser.add_argument("--check", choices=CHECKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        finding = child(options.check, options.smoke)
        finite = [
            number._replace(value=number.value if math.isfinite(number.value) else None) for number in finding.numbers
        ]
        print(json.dumps({"outcome": finding.judged(), "why": finding.why, "numbers": finite}))
        return 0
    from harness.processes import processors

    kind, count = processors.accelerators()  # or an error of one line that names the packages to install
    began = time.perf_counter()
    report = about(kind, count) | {"smoke": options.smoke, "seconds": 0.0, "checks": []}
    versions = ", ".join(f"{name} {version}" for name, version in report["package_versions"].items())
    what = number_of(count, kind.upper()) if count else "no accelerator"
    print(f"{what}; {report['device_kind']}; Python {report['python_version']}, {versions}", flush=True)
    names = options.only or list(CHECKS)
    for i, name in enumerate(names, 1):
        print(f"[{i}/{len(names)}] {name}, at most {CHECKS[name].seconds:.0f} s", flush=True)
        left = ALL_SECONDS - (time.perf_counter() - began)
        none = {"name": name, "outcome": NOT_MEASURED, "seconds": 0.0, "numbers": []}
        if CHECKS[name].accelerator and not count:
            check = none | {"why": "no accelerator"}
        elif left < LEAST_SECONDS:
            check = none | {"why": f"{ALL_SECONDS / 60:.0f} minutes are over. Use --only '{name}' to run it."}
        else:
            check = measured(name, min(CHECKS[name].seconds, left), options.smoke)
        print(described(check), flush=True)
        check["numbers"] = [Number._make(number)._asdict() for number in check["numbers"]]
        report["checks"].append(check)
        report["seconds"] = round(time.perf_counter() - began, 1)
        write(options.json, report)
    outcomes = [check["outcome"] for check in report["checks"]]
    counts = {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}
    print(f"{', '.join(f'{number} {outcome}' for outcome, number in counts.items())}; {report['seconds']:.0f} s")
    return int(ERROR in outcomes or (FAIL in outcomes and not options.smoke))


def child(name: str, smoke: bool) -> Finding:
    """Runs a check in this process."""
    if CHECKS[name].on_device:
        from harness.compiled import compile_cache

        compile_cache.enable()
    finding: Finding = pkgutil.resolve_name(CHECKS[name].run)(smoke, *CHECKS[name].arguments)
    return finding


def about(kind: str, count: int) -> dict[str, Any]:
    """Returns the software's versions and JAX's name for the device, which is determined in a separate process.

    Raises:
      BadInput: JAX does not start or does not use the accelerators, for example because the driver is too old.
    """
    code = "import json; from harness.processes import provenance as p; print(json.dumps(p.software() | p.device()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment("device"), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BadInput(last_line(done.stderr))
    device = json.loads(done.stdout.splitlines()[-1])
    if device["backend"] != kind:
        accelerators = number_of(count, kind.upper())
        raise BadInput(
            f"this machine has {accelerators}, and JAX computes on {device['backend']}: {last_line(done.stderr)}"
        )
    versions = json.loads(device.pop("package_versions"))
    return {"accelerators": kind, "accelerator_count": count} | device | {"package_versions": versions}


if __name__ == "__main__":
    sys.exit(main())
