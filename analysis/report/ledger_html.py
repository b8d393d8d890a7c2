"""The sections on the ledger, provenance and licences."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from analysis import kind_views
from analysis.report.contents import FilterGroup, PageContents, Run
from analysis.report.markup import Cell, Html, definitions, number, row, section, table, tag
from results.aliases import Json
from results.catalog import licences
from results.grouping import grouped
from results.plans import schema
from results.plans.kinds import KINDS
from results.plans.recorded import RUNS as IMPORTED
from results.rules.ledger import Ledger, total as of_all
from results.store import Commit

LEDGER = (
    "Planned = complete + infeasible + incomplete (by reason) + missing. A diverged trial is infeasible, which is a "
    "result rather than a gap."
)
MEANINGS = {
    "complete": "reached every target, or used up its budget",
    "infeasible": "diverged: a loss or a parameter was not finite",
    "pruned": "stopped early because it could no longer be the first to reach any target",
    "time_limit": "stopped by the time limit",
    "lost": "its machine was lost",
    "failed": "the software failed",
    "unstated": "ended for a reason that its source does not state",
    "missing": "planned but not run yet",
}
RUNS = ("code", "device", "software", "studies#", "runs#", "first", "last", "hours#")
FILES = ("study", "started", "device", "code", "tables, sha256")
COMPUTING = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy")


def ledger(groups: Sequence[FilterGroup]) -> Html:
    """Returns the ledgers of all workloads, and their sum."""
    total = of_all(group.ledger for group in groups)
    shown = [field for field in Ledger._fields if field in ("planned", "complete", "missing") or getattr(total, field)]
    words = ["workload", "studies", *(field.replace("_", " ") for field in shown)]
    heads = [words[0], *(f"{word}#" for word in words[1:])]
    rows = [_ledger_row(str(i), group, shown) for i, group in enumerate(groups)]
    studies = sum(len(group.commits) + len(group.waiting) for group in groups)
    counts = [number(getattr(total, field)) for field in shown]
    foot = [
        row([Cell("all"), number(studies), *counts], class_="total"),
        row([Cell("shown"), *(number(0) for _ in heads[1:])], class_="shown", hidden=""),
    ]
    never = [field.replace("_", " ") for field in Ledger._fields if field not in shown]
    notes = [tag("p", _sum(total), class_="sum"), _meanings(shown)]
    if never:
        notes.append(tag("p", f"No trials are {_or(never)}.", class_="note"))
    return section("ledger", "Ledger", *notes, table("Ledger", heads, rows, foot, look="ledger"), about=LEDGER)


def _ledger_row(group_number: str, group: FilterGroup, shown: Sequence[str]) -> Html:
    name = tag("span", tag("b", group.optimizer), tag("span", f"{group.dataset} · {group.model}"), class_="name")
    if group.waiting:
        name = Html(name + tag("small", f"{len(group.waiting):,} requested, not run yet"))
    counts = group.ledger
    cells = [Cell(name, group.key, "title"), number(len(group.commits) + len(group.waiting))]
    cells += [number(getattr(counts, field)) for field in shown]
    return row(cells, data_groups=group_number)


def _sum(total: Ledger) -> str:
    """Writes the ledger as a sum, and reports whether the sum is correct."""
    parts = [
        f"{count:,} {field.replace('_', ' ')}"
        for field, count in zip(total._fields[1:], total[1:], strict=True)
        if count
    ]
    verdict = "It adds up." if total.adds_up else "It does not add up. Run python -m results verify."
    return f"{total.planned:,} planned = {' + '.join(parts) or '0'}. {verdict}"


def _meanings(shown: Sequence[str]) -> Html:
    pairs = [(field.replace("_", " "), MEANINGS[field]) for field in shown if field in MEANINGS]
    return definitions(pairs, "meanings")


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def provenance(contents: PageContents) -> Html:
    """Returns the section with the code, devices and software of all studies, and the hashes of their tables."""
    recorded = {commit.name for commit in contents.commits if KINDS[commit.kind].recorded}
    measured = [run for run in contents.runs if run["study"] not in recorded]
    groups = grouped(measured, lambda run: (_code(run), _device(run), _software(run)))
    rows = [_runs_row(key, imported) for key, imported in sorted(groups.items())]
    comparable = sorted({str(c.plan["comparable"]) for c in contents.commits if "comparable" in c.plan})
    words = [f"Table schema: {schema.SCHEMA_VERSION}."]
    if comparable:
        words.append(f"Comparable version: {', '.join(comparable)}.")
    if len(comparable) > 1:
        words.append("Do not combine results of different comparable versions in one curve.")
    imported = [commit for commit in contents.commits if commit.name in recorded and commit.plan["source"] == IMPORTED]
    if len(recorded) > len(imported):
        words.append(f"{len(recorded) - len(imported):,} studies were published by others.")
    if imported:
        words.append(f"{len(imported):,} studies were imported from logs of runs.")
    runs = table("Runs", RUNS, rows) if rows else ""
    return section("provenance", "Provenance", tag("p", " ".join(words)), runs, _files(contents))


def _runs_row(key: tuple[str, str, str], runs: Sequence[Run]) -> Html:
    days = sorted(str(run["started_at"])[:16].replace("T", " ") for run in runs if run["started_at"])
    first, last = (Cell(days[i], None, "when") if days else "" for i in (0, -1))
    seconds = sum((run["run_seconds"] or 0.0) + (run["compile_seconds"] or 0.0) for run in runs)
    cells = [
        Cell(key[0], None, "hash"),
        *key[1:],
        number(len({run["study"] for run in runs})),
        number(len(runs)),
        first,
        last,
        number(seconds / 3600, f"{seconds / 3600:.2f}" if seconds else ""),
    ]
    return row(cells)


def _code(run: Run) -> str:
    version = f"scaling-limits {run['code_version']}" if run["code_version"] else "not recorded"
    return f"{version}, commit {run['git_commit']}" if run["git_commit"] else version


def _device(run: Run) -> str:
    if not run["backend"] and not run["device_kind"]:
        return "not recorded"
    count = f"{run['device_count']} × " if (run["device_count"] or 1) > 1 else ""
    emulated = ", emulated" if run["emulated"] else ""
    return f"{count}{run['device_kind'] or 'unknown'} ({run['backend'] or 'unknown'}){emulated}"


def _software(run: Run) -> str:
    packages = _packages(run["package_versions"] or "{}")
    named = [f"Python {run['python_version']}"] if run["python_version"] else []
    named += [f"{name} {packages[name]}" for name in COMPUTING if name in packages]
    return ", ".join(named) or "not recorded"


def _packages(text: str) -> Json:
    """Returns package versions by name. The text is untrusted and ignored unless it is a JSON object."""
    try:
        versions = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return versions if isinstance(versions, dict) else {}


def _files(contents: PageContents) -> Html:
    """Returns the list of studies with the hashes of their tables."""
    newest = {str(run["study"]): run for run in contents.runs}
    rows = [
        _file_row(str(group_number), commit, newest.get(commit.name, {}))
        for group_number, group in enumerate(contents.groups)
        for commit in group.commits
    ]
    summary = tag("summary", f"Every study with the sha256 of its tables ({len(rows):,})")
    return tag("details", summary, table("Studies with hashes", FILES, rows, look="files"))


def _file_row(group_number: str, commit: Commit, run: Run) -> Html:
    hashes = [
        tag("span", f"{name} ", tag("code", commit.files[name].sha256))
        for name in ("studies", "trials", "measurements")
    ]
    start = str(run.get("started_at") or "")[:16].replace("T", " ")
    cells: list[Cell | str] = [
        commit.name,
        Cell(start, None, "when"),
        _device(run) if run else "",
        Cell((run.get("git_commit") or "")[:12], None, "hash"),
        Cell(Html("".join(hashes)), "", "hashes"),
    ]
    return row(cells, data_groups=group_number, data_study="")


def terms(commits: Iterable[Commit]) -> Html:
    """Returns the section with the licence and citation of each source."""
    counts = Counter(licences.terms(commit.plan) for commit in commits)
    heads = ("source", "studies#", "licence", "to cite")
    rows = []
    for source_terms, count in sorted(counts.items(), key=lambda item: str(item[0])):
        licence = "not stated: may be converted but not redistributed"
        if source_terms.licence:
            licence = tag("a", source_terms.licence, href=source_terms.url, rel="noreferrer")
        cite = source_terms.citation or ""
        if not cite and source_terms.source == licences.OWN:
            cite = "CITATION.cff of this software and of the release"
        rows.append(row([source_terms.source, number(count), Cell(licence), cite]))
    return section("licences", "Licences and citations", table("Licences", heads, rows))


def kinds(groups: Sequence[FilterGroup]) -> list[tuple[str, str]]:
    """Returns the kinds of studies on the page and their titles."""
    present = {group.kind for group in groups}
    return [(kind, row.title) for kind, row in kind_views.PRESENTATIONS.items() if kind in present]
