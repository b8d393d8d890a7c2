"""Stores to make pages of, and what is read of a page."""

import dataclasses
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from analysis.report import contents, page
from results.plans.factorization import Factorization
from results.plans.search_space import Range, SearchSpace

from ..conftest import Ran, plan, publish, sweep

EVIL = "</script><b id=evil>AMD</b> & \"sons' {{data}}"


@pytest.fixture(autouse=True, scope="module")
def _quick_fits(few_curves: None) -> None:
    """Pages are built with few prior curves."""


class Page(NamedTuple):
    """A page as text, its data, its elements (name, attributes) and what each script holds."""

    text: str
    data: dict[str, Any]
    elements: list[tuple[str, dict[str, str | None]]]
    scripts: list[str]
    policy: str

    def rows(self, chart: int, name: str = "points") -> list[dict[str, Any]]:
        own = self.data["charts"][chart]
        return [
            *own["always"].get(name, []),
            *own.get("several", {}).get(name, []),
            *own.get("focused", {}).get(name, []),
        ]

    def said(self) -> str:
        """What a reader sees, without scripts and styles."""
        body = re.sub(r"<(script|style)\b.*?</\1>", " ", self.text, flags=re.S)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.within: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.within = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self.within = None

    def handle_data(self, data: str) -> None:
        if self.within == "script":
            self.scripts[-1] += data


def parsed(text: str) -> Page:
    parser = _Parser()
    parser.feed(text)
    policies = [a["content"] for _, a in parser.elements if a.get("http-equiv") == "Content-Security-Policy"]
    return Page(text, json.loads(parser.scripts[0]), parser.elements, parser.scripts, str(policies[0]))


@pytest.fixture
def paged() -> Callable[..., Page]:
    """The page of a store, with a stand-in for what draws its charts, which takes a second to bundle."""

    def make(folder: Path, asked: tuple[str, float] | None = None) -> Page:
        return parsed(page.render(contents.gather(folder, asked, lambda _: None), "/* charts */"))

    return make


@pytest.fixture(scope="session")
def several(
    tmp_path_factory: pytest.TempPathFactory,
    factorization: Factorization,
    publish_factorization: Callable[..., None],
) -> Path:
    """A store with three optimizers, one that never gets there, and factorizations; not to be written to."""
    folder = tmp_path_factory.mktemp("several") / "store"
    sweep(folder, trials=12)
    never = [(4, 0.5), (64, 0.25)]
    for size in (1, 2):
        publish(folder, plan(model_options={"widths": [8]}, batch_size=size, budget_steps=64), {0: Ran(never)})
    own = plan(model_options={"widths": [8]}, batch_size=4)
    publish(
        folder, own, {0: Ran([(4, 0.5), (64, 0.05)])}, device_kind=EVIL, backend="cpu", started_at="2026-03-04T05:06"
    )
    for cores in (1, 2, 8):
        study = dataclasses.replace(factorization, cores=cores, trials=4)
        publish_factorization(folder, study, seconds=1 / cores, emulated=cores > 2, device_kind="AMD EPYC")
    for solver in ("cholesky", "qr"):
        space = SearchSpace({name: Range("DISCRETE", values=(0.01,)) for name in factorization.space})
        study = dataclasses.replace(factorization, solver=solver, space=space, trials=1)
        publish_factorization(folder, study, device_kind="AMD EPYC")
    return folder
