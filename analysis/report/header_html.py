"""The head of the page: a few numbers, links to its sections, and its filters; as HTML."""

from collections.abc import Collection, Sequence
from typing import Any

from analysis import presentations
from analysis.report import ledger_html
from analysis.report.contents import FilterGroup, PageContents
from analysis.report.markup import Html, tag

TITLE = "How far does more parallelism pay off?"
FILTERS = ("kind", "dataset", "model", "optimizer")
WORDS = {"kind": "kind of study", "dataset": "data set"}


def header(contents: PageContents) -> Html:
    """The title with a summary of all measurements."""
    trials, measurements = (
        sum(commit.files[name].rows for commit in contents.commits) for name in ("trials", "measurements")
    )
    facts = [
        (f"{len(contents.commits):,}", "study" if len(contents.commits) == 1 else "studies"),
        (f"{len(contents.groups):,}", "workloads"),
        (f"{trials:,}", "trials"),
        (f"{measurements:,}", "measurements"),
    ]
    cards = [tag("div", tag("dt", noun), tag("dd", count)) for count, noun in facts]
    theme = tag("button", "Dark theme", type="button", id="theme")
    return tag(
        "header",
        tag("div", tag("p", "scaling-limits", class_="brand"), theme, class_="top"),
        tag("h1", TITLE),
        tag("p", _circumstances(contents.runs, {group.kind for group in contents.groups}), class_="lede"),
        tag("dl", *cards, class_="facts"),
    )


def _circumstances(runs: Sequence[dict[str, Any]], kinds: Collection[str]) -> str:
    """The questions of the page, and when and with what it was measured, in a few sentences."""
    own = [run for run in runs if run["started_at"]]
    days = sorted(str(run["started_at"])[:10] for run in own)
    devices = sorted({str(run["device_kind"]) for run in own if run["device_kind"]})
    versions = sorted({str(run["code_version"]) for run in own if run["code_version"]})
    words = " ".join(row.question for kind, row in presentations.PRESENTATIONS.items() if kind in kinds)
    if days:
        when = f"on {days[0]}" if days[0] == days[-1] else f"between {days[0]} and {days[-1]}"
        where = f" on {', '.join(devices)}" if devices else ""
        what = f" with scaling-limits {', '.join(versions)}" if versions else ""
        words += f" Measured {when}{where}{what}."
    return words


def navigation(sections: Sequence[tuple[str, str]]) -> Html:
    """Links to the sections."""
    return tag("nav", *(tag("a", words, href=f"#{name}") for name, words in sections), aria_label="Sections")


def filters(groups: Sequence[FilterGroup]) -> Html:
    """The form that filters what the page shows."""
    fields = []
    for name in FILTERS:
        values = (
            ledger_html.kinds(groups)
            if name == "kind"
            else [(v, v) for v in sorted({getattr(g, name) for g in groups})]
        )
        options = [tag("option", "all", value=""), *(tag("option", words, value=value) for value, words in values)]
        fields.append(tag("label", tag("span", WORDS.get(name, name)), tag("select", *options, name=name)))
    search = tag(
        "input", type="search", name="q", placeholder="muon, at least, …", autocomplete="off", spellcheck="false"
    )
    fields.append(tag("label", tag("span", "search"), search))
    count = tag("output", "", id="count", aria_live="polite")
    reset = tag("button", "Reset", type="reset")
    return tag("form", *fields, tag("div", count, reset, class_="outcome"), id="filter", aria_label="Filter")


def no_match() -> Html:
    """A place for the words of a search that finds nothing, which page.js fills."""
    return tag("p", id="nothing", hidden="")


def noscript() -> Html:
    """A note on what is missing without scripts."""
    words = (
        "Scripts are off, so the charts, the filters and sorting are missing. All tables are here: workloads with "
        "critical batch sizes and verdicts, factorizations, ledger, provenance and licences."
    )
    return tag("noscript", tag("p", words, class_="noscript"))
