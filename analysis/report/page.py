"""The report page: a single file with all sections, styles, scripts and data. It makes no network requests."""

import base64
import hashlib
import html
import importlib
import importlib.metadata
import json
import re
from collections.abc import Collection, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from analysis import kind_views, output
from analysis.report import (
    charts,
    curves_html,
    ledger_html,
    payoff_html,
    steps_charts,
)
from analysis.report.contents import FilterGroup, PageContents, Run, gather
from analysis.report.markup import Html, definitions, join, tag, upright
from results.bad_input import BadInput
from results.durable import Location, local
from results.plans.study import TargetRequest
from results.printing import Report

# Exports Vega-Embed from the bundle as a global of the page.
SNIPPET = "window.vegaEmbed = vegaEmbed;"
SCRIPTS = ("charts.js", "page.js")
SECTIONS = {
    "curves": "Curves",
    "workloads": "Workloads",
    **{row.section.name: row.section.title for row in kind_views.PRESENTATIONS.values() if row.section},
    "payoff": "Pay-off",
    "ledger": "Ledger",
    "provenance": "Provenance",
    "licences": "Licences",
}
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
TITLE = "How far does more parallelism pay off?"
FILTERS = ("kind", "dataset", "model", "optimizer")
WORDS = {"kind": "kind of study", "dataset": "data set"}


def write(folder: Location, out: str | Path, target: TargetRequest, report: Report) -> int:
    """Renders a store or a release as a page, writes the page and returns its size in bytes.

    Args:
      folder: folder of the store.
      out: file to write. An existing file is replaced.
      target: metric and value to use instead of the studies' own targets.
      report: called with progress lines.

    Raises:
      BadInput: the store is missing or empty, vl-convert-python is not installed, or ``out`` cannot be written.
    """
    out = local(out)
    if out.is_dir():
        raise BadInput(f"--out {out} is a folder. Name a file, such as {out / 'report.html'}.")
    bundle = _bundle()
    data = render(gather(folder, target, report), bundle, report).encode()
    output.write(out, data, "FILE")
    return len(data)


def render(contents: PageContents, bundle: str, report: Report | None = None) -> str:
    """Returns the page as text, which depends only on the studies. ``report`` is called with progress lines."""
    curves = steps_charts.steps_charts(contents.goals)
    of_payoff = payoff_html.payoff(contents.goals, contents.measured[kind_views.CORES], report)
    drawn = [chart for chart_of_section in curves for chart in chart_of_section.charts.values()]
    sections: dict[str, Html] = {}
    for kind, studies in contents.measured.items():
        section = kind_views.PRESENTATIONS[kind].section
        assert section is not None
        if studies:
            sections[section.name], section_charts = importlib.import_module(section.module).section(
                studies, len(drawn)
            )
            drawn += [chart_of_section.chart | {"groups": []} for chart_of_section in section_charts]
    body = [
        curves_html.curves(curves),
        curves_html.workloads(contents.goals),
        *sections.values(),
        of_payoff,
        ledger_html.ledger(contents.groups),
        ledger_html.provenance(contents),
        ledger_html.terms(contents.commits),
    ]
    absent = {row.section.name for row in kind_views.PRESENTATIONS.values() if row.section} - sections.keys()
    if not of_payoff:
        absent.add("payoff")
    links = [(name, words) for name, words in SECTIONS.items() if name not in absent]
    main = tag("main", tag("p", id="nothing", hidden=""), *body, id="main")
    parts = [
        _header(contents),
        _noscript(),
        _navigation(links),
        _filters(contents.groups),
        main,
        _footer(),
    ]
    data = {
        "config": charts.config(),
        "groups": [
            {"key": group.key, "kind": group.kind, "dataset": group.dataset, "model": group.model}
            | {"optimizer": group.optimizer, "search_text": group.search_text.lower()}
            for group in contents.groups
        ],
        "charts": drawn,
    }
    script = "\n".join(_own(name) for name in SCRIPTS)
    filled = {
        "policy": html.escape(_policy(bundle, script)),
        "version": importlib.metadata.version("scaling-limits"),
        "title": f"{TITLE} · scaling-limits",
        "style": _own("page.css"),
        "body": join(parts),
        "data": embed_json(data),
        "bundle": bundle,
        "script": script,
    }
    return _PLACEHOLDER.sub(lambda match: filled[match[1]], _own("page.html"))


def embed_json(data: Any) -> str:
    """Encodes data as JSON that cannot close its script element. Strings are escaped as in ``markup``."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return upright(text, r"\\").replace("<", "\\u003c")


def _footer() -> Html:
    version = f"Made by scaling-limits {importlib.metadata.version('scaling-limits')} with python -m analysis report."
    libraries = (
        "Charts are drawn by Vega, Vega-Lite and Vega-Embed (BSD 3-Clause licence, © University of Washington "
        "Interactive Data Lab and contributors). This page is self-contained and makes no network requests."
    )
    return tag("footer", tag("p", version), tag("p", libraries))


def _policy(*scripts: str) -> str:
    """Returns the content security policy. It allows only the page's own scripts (by hash) and no connections."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; connect-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


def _bundle() -> str:
    """Returns the chart libraries as one script."""
    try:
        import vl_convert  # optional dependency
    except ImportError:
        raise BadInput(
            "The report needs vl-convert-python to draw charts. Run pip install 'scaling-limits[report]'."
        ) from None
    return vl_convert.javascript_bundle(SNIPPET).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _own(name: str) -> str:
    return resources.files("analysis.report").joinpath(name).read_text("utf-8")


def _header(contents: PageContents) -> Html:
    """Returns the header, with a summary of all measurements."""
    trials, measurements = (
        sum(commit.files[name].rows for commit in contents.commits) for name in ("trials", "measurements")
    )
    facts = [
        ("study" if len(contents.commits) == 1 else "studies", f"{len(contents.commits):,}"),
        ("workloads", f"{len(contents.groups):,}"),
        ("trials", f"{trials:,}"),
        ("measurements", f"{measurements:,}"),
    ]
    theme = tag("button", "Dark theme", type="button", id="theme")
    return tag(
        "header",
        tag("div", tag("p", "scaling-limits", class_="brand"), theme, class_="top"),
        tag("h1", TITLE),
        tag("p", _circumstances(contents.runs, {group.kind for group in contents.groups}), class_="lede"),
        definitions(facts, "facts"),
    )


def _circumstances(runs: Sequence[Run], kinds: Collection[str]) -> str:
    """Returns the questions answered by the page, and the dates, devices and software of its measurements."""
    started = [run for run in runs if run["started_at"]]
    days = sorted(str(run["started_at"])[:10] for run in started)
    devices = sorted({str(run["device_kind"]) for run in started if run["device_kind"]})
    versions = sorted({str(run["code_version"]) for run in started if run["code_version"]})
    words = " ".join(row.question for kind, row in kind_views.PRESENTATIONS.items() if kind in kinds)
    if days:
        when = f"on {days[0]}" if days[0] == days[-1] else f"between {days[0]} and {days[-1]}"
        where = f" on {', '.join(devices)}" if devices else ""
        what = f" with scaling-limits {', '.join(versions)}" if versions else ""
        words += f" Measured {when}{where}{what}."
    return words


def _navigation(sections: Sequence[tuple[str, str]]) -> Html:
    """Returns links to the sections."""
    return tag("nav", *(tag("a", words, href=f"#{name}") for name, words in sections), aria_label="Sections")


def _filters(groups: Sequence[FilterGroup]) -> Html:
    """Returns the form that filters the page."""
    fields = []
    for name in FILTERS:
        values = [(value, value) for value in sorted({getattr(group, name) for group in groups})]
        if name == "kind":
            values = ledger_html.kinds(groups)
        options = [tag("option", "all", value=""), *(tag("option", words, value=value) for value, words in values)]
        fields.append(tag("label", tag("span", WORDS.get(name, name)), tag("select", *options, name=name)))
    search = tag(
        "input", type="search", name="q", placeholder="muon, at least, …", autocomplete="off", spellcheck="false"
    )
    fields.append(tag("label", tag("span", "search"), search))
    count = tag("output", "", id="count", aria_live="polite")
    reset = tag("button", "Reset", type="reset")
    return tag("form", *fields, tag("div", count, reset, class_="outcome"), id="filter", aria_label="Filter")


def _noscript() -> Html:
    """Returns the note that is shown when scripts are disabled."""
    words = (
        "Scripts are disabled, so charts, filters and sorting do not work. All tables are shown: workloads with "
        "critical batch sizes and verdicts, factorizations, ledger, provenance and licences."
    )
    return tag("noscript", tag("p", words, class_="noscript"))
