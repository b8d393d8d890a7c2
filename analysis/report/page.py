"""The page: all sections, styles, scripts and data in one file that asks the network for nothing."""

import base64
import hashlib
import html
import importlib.metadata
import json
import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from analysis import output
from analysis.report import (
    charts,
    core_charts,
    curves_html,
    factorizations_html,
    header_html,
    layout_charts,
    layouts_html,
    ledger_html,
    payoff_html,
    steps_charts,
)
from analysis.report.contents import PageContents, gather
from analysis.report.markup import Html, join, tag
from results.bad_input import BadInput
from results.durable import Location, local

# Makes Vega-Embed of the bundle a global of the page.
SNIPPET = "window.vegaEmbed = vegaEmbed;"
SCRIPTS = ("charts.js", "page.js")
SECTIONS = {
    "curves": "Curves",
    "workloads": "Workloads",
    "factorizations": "Factorizations",
    "layouts": "Layouts",
    "payoff": "Pay-off",
    "ledger": "Ledger",
    "provenance": "Provenance",
    "licences": "Licences",
}
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def write(folder: Location, out: str | Path, target: tuple[str, float] | None, report: Callable[[str], None]) -> int:
    """Writes the page of a store or a release, and returns its size in bytes.

    Args:
      folder: of the store.
      out: the file; what is there is replaced.
      target: metric and value of a target other than the studies' own.
      report: takes a line of progress.

    Raises:
      BadInput: there is no store, nothing in it has run, the charts are not installed, or ``out`` cannot be written.
    """
    out = local(out)
    if out.is_dir():
        raise BadInput(f"--out {out} is a folder; name a file, such as {out / 'report.html'}")
    bundle = _bundle()
    data = render(gather(folder, target, report), bundle).encode()
    output.write(out, data, "FILE")
    return len(data)


def render(contents: PageContents, bundle: str) -> str:
    """The page as text; the same studies give the same."""
    curves = steps_charts.steps_charts(contents.goals)
    of_payoff = payoff_html.payoff(contents.goals, contents.factorizations)
    of_cores = core_charts.core_charts([one for _, one in contents.factorizations])
    of_layouts = layout_charts.layout_charts([one for _, one in contents.layouts])
    before = sum(len(one.charts) for one in curves)
    body = [
        curves_html.curves(curves),
        curves_html.workloads(contents.goals),
        factorizations_html.factorizations(contents.factorizations, before, of_cores),
        layouts_html.layouts(contents.layouts, before + len(of_cores), of_layouts),
        of_payoff,
        ledger_html.ledger(contents.groups),
        ledger_html.provenance(contents),
        ledger_html.terms(contents.commits),
    ]
    there = {"factorizations": contents.factorizations, "layouts": contents.layouts, "payoff": of_payoff}
    links = [(name, words) for name, words in SECTIONS.items() if there.get(name, True)]
    main = tag("main", header_html.no_match(), *body, id="main")
    parts = [
        header_html.header(contents),
        header_html.noscript(),
        header_html.navigation(links),
        header_html.filters(contents.groups),
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
        "charts": [
            *(chart for one in curves for chart in one.charts.values()),
            *(chart | {"groups": []} for chart in [one.chart for one in of_cores] + [one.chart for one in of_layouts]),
        ],
    }
    script = "\n".join(_own(name) for name in SCRIPTS)
    filled = {
        "policy": html.escape(_policy(bundle, script)),
        "version": importlib.metadata.version("scaling-limits"),
        "title": f"{header_html.TITLE} · scaling-limits",
        "style": _own("page.css"),
        "body": join(parts),
        "data": embed_json(data),
        "bundle": bundle,
        "script": script,
    }
    return _PLACEHOLDER.sub(lambda match: filled[match[1]], _own("page.html"))


def embed_json(data: Any) -> str:
    """Data as JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def _footer() -> Html:
    version = f"Made by scaling-limits {importlib.metadata.version('scaling-limits')} with python -m analysis report."
    libraries = (
        "Charts are drawn by Vega, Vega-Lite and Vega-Embed (BSD 3-Clause licence, © University of Washington "
        "Interactive Data Lab and contributors). This page holds all it needs and asks the network for nothing."
    )
    return tag("footer", tag("p", version), tag("p", libraries))


def _policy(*scripts: str) -> str:
    """The policy of the page: it may run its own scripts, known by hash, and connect to nothing."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{own}'" for own in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; connect-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


def _bundle() -> str:
    """The libraries that draw, as one script."""
    try:
        import vl_convert
    except ImportError:
        raise BadInput(
            "report needs vl-convert-python to draw its charts: pip install 'scaling-limits[report]'"
        ) from None
    return vl_convert.javascript_bundle(SNIPPET).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _own(name: str) -> str:
    return resources.files("analysis.report").joinpath(name).read_text("utf-8")
