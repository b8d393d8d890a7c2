"""First contact with a GPU or TPU: does it compute what it should, and how fast? At most ten minutes, on one host.

    make first-contact [EXTRA=cuda|tpu]
    python benchmarks/first_contact.py [--json FILE] [--only CHECK ...] [--smoke]

Prints a line for each check when it begins and one for each of its numbers, and writes everything as JSON, after every
check anew, so that nothing is lost where it is interrupted. Checks run one after the other, each in processes of its
own, so that one that crashes or hangs costs no other. The checks:

- device: JAX computes on the accelerator that the machine has, and not on its CPU.
- precision: products and convolutions of float32 are float32, compared with float64 of NumPy, and not the TF32 or
  bfloat16 that a device takes by default; with precision=bfloat16 a gradient is rounded as bfloat16 is.
- release: a study of the published release, measured again here, does not contradict what was published, and its first
  losses are the same within rounding.
- lanes: 32 trials of digits side by side against one at a time, in turn, in one run.
- resume: a sweep that is told to stop (SIGTERM) ends with exit code 75, and the same command goes on from there, to the
  tables of a sweep that was never stopped: equal on a CPU, losses within 0.1 % elsewhere.
- speed:NETWORK: steps per second, and the share of the device's peak, as benchmarks/training.py has them.

The outcome of a check is pass, fail, measured (there is no goal for it), not measured, or error: it could not be run.
The exit code is 1 if any check failed or is an error, 2 if JAX cannot use the accelerator at all, else 0; with --smoke,
which takes tiny input and measures nothing, only errors count. docs/accelerators.md says how to read the JSON.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from contact_checks import CHECKS, ERROR, FAIL, NOT_MEASURED, ROOT, Finding, Number, last_line

from results import durable
from results.bad_input import BadInput, number_of
from results.cli import guarded

ALL_SECONDS = 600.0  # that all checks may take
LEAST_SECONDS = 10.0  # below which no further check begins


def environment(name: str) -> dict[str, str]:
    """The environment of a check: that of a worker, which has one device to itself, if it computes on one."""
    from sweeps.launchers import local

    own = local.slots(1)[0][1] if CHECKS[name].on_device else {}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # Unfiltered, the last line of what goes wrong is the error.
    return os.environ | own | {"PYTHONPATH": path, "JAX_TRACEBACK_FILTERING": "off"}


def measured(name: str, seconds: float, smoke: bool) -> dict[str, Any]:
    """The outcome of a check, run in processes of its own that are ended after so many seconds."""
    command = [sys.executable, str(Path(__file__).resolve()), "--check", name, *(["--smoke"] if smoke else [])]
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
    """A process in a group of its own, which is killed with all that it started when this ends."""
    process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=ROOT, env=environment, start_new_session=True)
    with process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def write(path: Path | None, report: dict[str, Any]) -> None:
    """Replaces the report, if it is to be written."""
    if path is not None:
        durable.replace(path, json.dumps(report, indent=1, ensure_ascii=False).encode())


def told(check: dict[str, Any]) -> str:
    """The outcome of a check in lines."""
    lines = [f"  {check['outcome']}, {check['seconds']:.0f} s{': ' if check['why'] else ''}{check['why']}"]
    for number in map(Number._make, check["numbers"]):
        value = "not finite" if number.value is None else f"{number.value:,.4g}"
        goal = f"  (goal {number.goal}: {'met' if number.met else 'MISSED'})" if number.goal else ""
        lines.append(f"    {number.name}: {value} {number.unit}".rstrip() + goal)
    return "\n".join(lines)


@guarded
def main() -> int:
    """Runs the checks, and prints and writes what they find."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write device, versions and all checks here")
    parser.add_argument("--only", nargs="+", choices=CHECKS, metavar="CHECK", help=f"of {', '.join(CHECKS)}")
    parser.add_argument("--smoke", action="store_true", help="take tiny input: does it run? measures nothing")
    parser.add_argument("--check", choices=CHECKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check:
        finding = child(options.check, options.smoke)
        finite = [one._replace(value=one.value if math.isfinite(one.value) else None) for one in finding.numbers]
        print(json.dumps({"outcome": finding.judged(), "why": finding.why, "numbers": finite}))
        return 0
    from harness import processors

    kind, count = processors.accelerators()  # or the one line that says what to install
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
            check = none | {"why": f"{ALL_SECONDS / 60:.0f} minutes are over; --only '{name}' measures it alone"}
        else:
            check = measured(name, min(CHECKS[name].seconds, left), options.smoke)
        print(told(check), flush=True)
        check["numbers"] = [Number._make(number)._asdict() for number in check["numbers"]]
        report["checks"].append(check)
        report["seconds"] = round(time.perf_counter() - began, 1)
        write(options.json, report)
    outcomes = [check["outcome"] for check in report["checks"]]
    counts = {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}
    print(f"{', '.join(f'{number} {outcome}' for outcome, number in counts.items())}; {report['seconds']:.0f} s")
    return int(ERROR in outcomes or (FAIL in outcomes and not options.smoke))


def child(name: str, smoke: bool) -> Finding:
    """What a check finds, in this process."""
    if CHECKS[name].on_device:
        from harness import compile_cache

        compile_cache.enable()
    return CHECKS[name].run(smoke)


def about(kind: str, count: int) -> dict[str, Any]:
    """Where the numbers are from: software, and the device as JAX names it, which another process asks.

    Raises:
      BadInput: JAX does not start, or not on the accelerators that are there, such as with a driver that is too old.
    """
    code = "import json; from harness import provenance as p; print(json.dumps(p.software() | p.device()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment("device"), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BadInput(last_line(done.stderr))
    found = json.loads(done.stdout.splitlines()[-1])
    if found["backend"] != kind:
        there = number_of(count, kind.upper())
        raise BadInput(f"this machine has {there}, and JAX computes on {found['backend']}: {last_line(done.stderr)}")
    versions = json.loads(found.pop("package_versions"))
    return {"accelerators": kind, "accelerator_count": count} | found | {"package_versions": versions}


if __name__ == "__main__":
    sys.exit(main())
