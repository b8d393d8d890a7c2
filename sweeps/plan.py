"""python -m sweeps.plan …: shows what `python -m sweeps …` would run, how much is stored, and what it would cost.

Runs nothing. Of each study it predicts FLOPs, memory, seconds of a step and device-hours, from shapes alone: data need
not be there. All that is predicted is in columns that say so, as a range that 90 % are in.

  topology=v5e:4x4   compiles for TPUs that need not be there, and says whether a study fits (extra `plan`)
  timeout=SECONDS    that compiling may take; what has not ended by then is not known
  step_times=FILE    writes predicted seconds of a step as a table, which `python -m analysis payoff` takes
  --calibration      prints predictions without any measurement beside what the store has measured, and no plan

Exit code 1: something does not fit, or holds more than this machine has.
"""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results import cli, printing
from results.bad_input import BadInput, number_of

if __name__ == "__main__":  # before all other imports, so that these are guarded, too
    cli.run("sweeps.plan")

from results import exit_codes
from sweeps import help_text, overrides

if TYPE_CHECKING:
    from results.plans.plan import Plan
    from sweeps.costs import StudyCost
    from sweeps.overrides import CommandLine
    from sweeps.planning import Request

CALIBRATION = "--calibration"
OWN = ("topology", "timeout", "step_times")
GIB = 2**30
TOO_LARGE = "more than this machine has"
DEFAULT_STORE = "results/local"  # as of conf/config.yaml


@cli.guarded
def main(argv: list[str]) -> int:
    """Prints the studies of a command line and what they would cost; runs nothing."""
    given, rest = own_words(argv)
    line = help_text.read([word for word in rest if word != CALIBRATION], __doc__ or "")
    from sweeps import planning
    from sweeps.configured_study import DATA, DEVICES

    topology, seconds = _topology(given.get("topology")), _seconds(given.get("timeout"))
    if CALIBRATION in rest:
        return _calibration(line)
    request = planning.request(line, absent=(DATA,) if topology is None else (DATA, DEVICES), written=False)
    studies = sorted(request.studies, key=lambda study: printing.numbered(study.name))
    progress = _to_run(request, studies)
    costs = _costs(request, progress, topology, seconds)
    if given.get("step_times"):
        from sweeps import step_times

        step_times.write(given["step_times"], list(costs.values()))
    if printing.is_data():
        _show_data(studies, progress, costs)
    else:
        _show_text(request, studies, progress, costs, seconds)
    unfit = [cost for cost in costs.values() if cost.fits is False]
    return exit_codes.FAILED if unfit else exit_codes.DONE


def _to_run(request: "Request", studies: Sequence["Plan"]) -> dict[str, int]:
    """Trials that a store, or a release, lacks of each study, by name."""
    from results import store

    released = store.released_commits(request.store) if request.store.is_dir() else None
    if released is None:
        return {study.name: store.progress(request.store, study).to_run for study in studies}
    stored = {commit.study.plan_json: commit.request.planned for commit in released}
    return {study.name: max(0, study.request.planned - stored.get(study.plan_json, 0)) for study in studies}


def _calibration(line: "CommandLine") -> int:
    from results import durable
    from sweeps import calibration

    if line.overrides:
        raise BadInput(f"{CALIBRATION} is about a whole store and takes store=DIR alone, not {line.overrides[0]}")
    return calibration.show(durable.local(line.store or DEFAULT_STORE))


def own_words(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Words of this command alone, by key, and the others."""
    words = cli.as_pairs(argv, (*help_text.overrides.FLAGS, CALIBRATION))
    pairs = [word.partition("=") for word in words]
    overrides.check_once(word for word, (key, _, _) in zip(words, pairs, strict=True) if key in OWN)
    own = {key: value for key, _, value in pairs if key in OWN}
    for key, value in own.items():
        if not value:
            raise BadInput(f"{key}= is empty; give it a value, or leave it out")
    return own, [word for word, (key, _, _) in zip(words, pairs, strict=True) if key not in OWN]


def _topology(text: str | None) -> str | None:
    """A topology that there may be; BadInput for a word that names none."""
    from harness import topologies

    if text is not None:
        topologies.check(text)
    return text


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise BadInput(f"timeout={text} is not a number of seconds above 0")
    return seconds


def _costs(
    request: "Request", missing: dict[str, int], topology: str | None, seconds: float | None
) -> dict[str, "StudyCost"]:
    """The costs of all studies by name; none, and a line that says why, where they cannot be counted."""
    from harness.costs import Unanswered
    from sweeps import costs

    try:
        found = costs.of_request(request, missing, topology, seconds or costs.TIMEOUT_SECONDS, printing.say)
    except Unanswered as error:
        printing.say(f"costs are not known: {error}")
        return {}
    return {cost.study.name: cost for cost in found}


# What a table of data has beside the columns of a plan; "predicted" are of no measurement of these studies. FLOPs and
# bytes are of one device's share of a step of one trial, of so many shards; memory is of a device.
COLUMNS = (
    "flops_per_step",
    "bytes_per_step",
    "parameters",
    "memory_bytes",
    "memory_says",
    "device_memory_bytes",
    "fits",
    "too_large_by_bytes",
    "topology_says",
    "collectives",
    "device_kind",
    "devices",
    "lanes",
    "shards",
    "microbatches",
    "expected_steps",
    "expected_from",
    "predicted_seconds_per_step",
    "predicted_seconds_per_step_low",
    "predicted_seconds_per_step_high",
    "predicted_device_hours",
    "predicted_device_hours_low",
    "predicted_device_hours_high",
    "predicted_from",
    "predictor",
)
_PLAN_COLUMNS = ("study", "trials", "stored", "to_run", "budget_steps", "at_most_trial_steps")
_HEADER = ("study", "trials", "stored", "to run", "budget steps", "trial-steps at most")
_DIVISION = "lanes × shards × microbatches"
_NAME = re.compile(r"(.+)-([a-z]*\d+-[0-9a-f]{8,16})")  # of a study: of the workload, and of its batch size or cores


def _row(study: "Plan", missing: int) -> tuple[Any, ...]:
    planned = study.request.planned
    return study.name, planned, planned - missing, missing, study.budget_steps, missing * study.budget_steps


def _show_data(studies: Sequence["Plan"], missing: dict[str, int], costs: dict[str, "StudyCost"]) -> None:
    header = [*_PLAN_COLUMNS, *COLUMNS]
    rows = []
    for study in studies:
        cost = costs.get(study.name)
        rows.append((*_row(study, missing[study.name]), *(_cells(cost) if cost else [None] * len(COLUMNS))))
    printing.show(header, rows, str)


def _cells(cost: "StudyCost") -> list[Any]:
    import json

    from harness.predictions import PREDICTOR

    counts, verdict, step, total = cost.counts, cost.verdict, cost.step, cost.device_seconds
    exchanges = [dict(each._asdict()) for each in verdict.exchanges] if verdict else None
    return [
        counts.step.flops if counts else None,
        counts.step.fused_bytes if counts else None,
        counts.parameters if counts else None,
        verdict.needed_bytes if verdict else counts.held_bytes if counts else None,
        "compiler" if verdict else "about",
        verdict.device_bytes if verdict else cost.machine_bytes,
        cost.fits if cost.asked or cost.fits is False else None,  # that something about fits nobody knows for sure
        _excess(cost),
        _verdict_text(cost) if cost.asked else TOO_LARGE if cost.fits is False else None,
        None if exchanges is None else json.dumps(exchanges),
        cost.device.kind or None,
        cost.devices,
        cost.lanes,
        cost.shards,
        verdict.microbatches if verdict else None,
        cost.steps,
        "store" if cost.from_store else "budget",
        *(step or (None,) * 3),
        *((each / 3600 for each in total) if total else (None,) * 3),
        cost.by,
        PREDICTOR,
    ]


def _excess(cost: "StudyCost") -> float | None:
    """The bytes of a device that are lacking."""
    verdict = cost.verdict
    if cost.fits is not False:
        return None
    if verdict is None:
        return cost.counts.least_bytes - cost.machine_bytes if cost.counts and cost.machine_bytes else None
    if verdict.needed_bytes is None or verdict.device_bytes is None:
        return None
    return verdict.needed_bytes - verdict.device_bytes


def _verdict_text(cost: "StudyCost") -> str:
    """Whether a study fits, as a cell of a table."""
    verdict = cost.verdict
    if verdict is None or verdict.fits is None:
        return "not known"
    if verdict.fits:
        return "fits"
    excess = _excess(cost)
    return "does not fit" if excess is None else f"too large by {excess / GIB:.1f} GiB"


def _show_text(
    request: "Request",
    studies: Sequence["Plan"],
    missing: dict[str, int],
    costs: dict[str, "StudyCost"],
    seconds: float | None,
) -> None:
    from results.plans.kinds import of_kind
    from sweeps.configured_study import ConfiguredStudy
    from sweeps.kind_configs import READERS

    rows = [_row(study, missing[study.name]) for study in studies]
    asked = any(cost.asked for cost in costs.values())
    header = list(_HEADER)
    if costs:
        header += ["FLOPs a step of a device", "memory of a device", *(["verdict", _DIVISION] if asked else [])]
        header += ["expected steps", "predicted s a step", "predicted device-hours"]
        rows = [(*row, *_texts(costs.get(study.name), asked)) for row, study in zip(rows, studies, strict=True)]
    _show_table(header, rows)
    by_kind = {kind: of_kind(request.studies, kind) for kind in READERS}
    for kind, own in by_kind.items():
        for text in READERS[kind].data_lines([ConfiguredStudy(s, request.sources.get(s.name)) for s in own]):
            printing.answer(text)
    notes = [note for kind, own in by_kind.items() if own for note in READERS[kind].notes(own)]
    trials, steps = sum(missing.values()), sum(missing[study.name] * study.budget_steps for study in studies)
    to_run = f"{number_of(trials, 'trial')} to run, at most {number_of(steps, 'trial-step')}"
    printing.answer(f"{number_of(len(rows), 'study')}; {to_run} ({'; '.join(notes)})")
    for text in _summary(list(costs.values()), seconds):
        printing.answer(text)


def _show_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints the table; in a terminal what studies have in common is a column that may become a heading."""
    import sys

    names = [_NAME.fullmatch(row[0]) for row in rows]
    if printing.width(sys.stdout) is not None and all(names):
        header = ["workload", *header]
        rows = [(*name.groups(), *row[1:]) for name, row in zip(names, rows, strict=True) if name]
    least = (
        "trial-steps at most",
        "budget steps",
        "FLOPs a step of a device",
        "stored",
        "trials",
        "memory of a device",
    )
    left = ("workload", "study", "verdict", _DIVISION)
    printing.answer(printing.table(header, rows, left, least=least))


def _texts(cost: "StudyCost | None", asked: bool) -> list[str]:
    if cost is None:
        return [""] * (7 if asked else 5)
    from sweeps.costs import span

    counts, verdict = cost.counts, cost.verdict
    memory = _size(verdict.needed_bytes) if verdict and verdict.needed_bytes else ""
    if not asked and counts:
        memory = f"about {_size(counts.held_bytes)}"
    step = cost.step
    division = f"{cost.lanes} × {verdict.shards} × {verdict.microbatches}" if verdict else ""
    return [
        f"{counts.step.flops:.3g}" if counts else "",
        memory,
        *([_verdict_text(cost), division] if asked else []),
        f"{'' if cost.from_store else '≤ '}{cost.steps:,.0f}",
        span(step) if step else "",
        span(cost.device_seconds, 3600) if cost.device_seconds else "",
    ]


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if count >= GIB / 10 else f"{count / 2**20:.1f} MiB"


def _summary(costs: Sequence["StudyCost"], seconds: float | None) -> list[str]:
    """Lines about the whole sweep, for which the compiler had so many seconds."""
    from harness.predictions import NOTHING
    from sweeps.costs import ENDED, TIMEOUT_SECONDS, span

    lines = []
    known = [cost for cost in costs if cost.device_seconds is not None]
    if known:
        total = NOTHING
        for cost in known:
            assert cost.device_seconds is not None
            total = total.plus(cost.device_seconds)
        lengths = "at most, as trials are taken to go on to their budgets"
        if any(cost.from_store for cost in known):
            lengths = "by how far the store's trials came" + (
                "" if all(c.from_store for c in known) else ", or budgets"
            )
        devices = sorted({cost.device.kind for cost in known})
        lines.append(f"predicted: {span(total, 3600)} device-hours of {', '.join(devices)} ({lengths})")
        lines += [f"predicted from {by}" for by in dict.fromkeys(cost.by for cost in known if cost.missing)]
    reasons: dict[str, int] = {}
    for cost in costs:
        if cost.device_seconds is None:
            why = f"{cost.by}, and was ended after {seconds or TIMEOUT_SECONDS:g} s" if cost.by == ENDED else cost.by
            reasons[why] = reasons.get(why, 0) + 1
    lines += [f"of {number_of(count, 'study')} no time is predicted: {why}" for why, count in reasons.items()]
    return [*lines, *_idle(costs), *_too_large(costs)]


def _idle(costs: Sequence["StudyCost"]) -> list[str]:
    """A line about devices that are paid for and have nothing to do."""
    idle = [cost for cost in costs if cost.idle]
    if not idle:
        return []
    most = max(idle, key=lambda cost: cost.idle)
    what = f"{most.idle:,} of {most.devices:,} devices have nothing to do in {most.study.name}"
    others = f", and some in {number_of(len(idle) - 1, 'other study')}" if len(idle) > 1 else ""
    if most.study.batch_size is None:
        return [f"{what}{others}: it has {number_of(most.shards, 'core')}"]
    instead = f"lanes=1 shards={most.devices} divides each batch over all of them"
    return [f"{what}{others}, as trials are fewer than groups of devices: {instead}"]


def _too_large(costs: Sequence["StudyCost"]) -> list[str]:
    """Lines about studies that do not fit, and about those that fit in parts alone."""
    lines = []
    for cost in costs:
        verdict, counts, excess = cost.verdict, cost.counts, _excess(cost)
        if cost.fits is False and verdict is not None:
            why = verdict.why.rstrip(".") or _verdict_text(cost)
            if excess is not None and verdict.needed_bytes and verdict.device_bytes:
                needed, there = _size(verdict.needed_bytes), _size(verdict.device_bytes)
                why += f"; with its arguments it needs {needed}, and {there} are there"
            lines.append(f"{cost.study.name} does not fit ({verdict.how}): {why}")
        elif cost.fits is False and counts is not None and cost.machine_bytes:
            there = _size(cost.machine_bytes)
            lines.append(
                f"{cost.study.name} holds about {_size(counts.least_bytes)}, {TOO_LARGE}: {there} for each device"
            )
    parted = [
        cost
        for cost in costs
        if cost.asked is None
        and cost.fits
        and cost.counts
        and cost.counts.held_bytes > (cost.machine_bytes or math.inf)
    ]
    if parted:
        lines.append(
            f"{number_of(len(parted), 'study')} would hold more than this machine has; a run takes batches in parts, "
            "as with microbatches=, until they fit"
        )
    return lines
