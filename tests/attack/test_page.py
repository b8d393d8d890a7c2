"""The page of a store of hostile names, in a browser: none of them runs, asks the network or hides another."""

from collections.abc import Iterator

import pytest

from analysis.report import page

from ..analysis.conftest import Ran, plan, publish
from ..analysis.report.browser import MISSING, Browser, asked_for, opened

pytestmark = MISSING

RUNS = "window.went = (window.went || 0) + 1"
TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # the text around them
NAMES = (
    f"<script>{RUNS}</script>",
    f"</script><script>{RUNS}</script>",
    f"<img src=x onerror='{RUNS}'>",
    f'"><svg onload="{RUNS}">',
    f"javascript:{RUNS}",
    f"<a href='javascript:{RUNS}' autofocus onfocus='{RUNS}'>x</a>",
    "<iframe src='https://example.invalid/'></iframe><link rel=stylesheet href='https://example.invalid/a.css'>",
    "<meta http-equiv=refresh content='0;url=https://example.invalid/'><base href='https://example.invalid/'>",
    *("<!--<script>", "]]>", "{{constructor.constructor('window.went = 1')()}}", "${window.went = 1}"),
    *("__proto__", "constructor", "' \" ` \\ & < >", "datum.x; window.went = 1", "x" * 5000),
    *("\u202egnp.elif\u2066", "\x00\x1b[2J\x07\x7f\x9b", "\u2028\u2029\ufeff"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("hostile")
    for number, name in enumerate(NAMES):
        study = plan(model_options={"widths": name}, dataset_version=name, trials=2)
        told = {"device_kind": name, "code_version": name}
        publish(folder / "store", study, {i: Ran([(5 + number, 0.3), (9 + number, 0.1)]) for i in range(2)}, **told)
    page.write(folder / "store", folder / "page.html", None, lambda _: None)
    with opened(folder) as browser:
        yield browser


def test_nothing_of_a_name_runs_or_asks(browser: Browser) -> None:
    browser.driver.get_log("performance")  # of the browser's own first page
    browser.open()
    assert asked_for(browser) == {browser.address}
    assert browser.run("return window.went === undefined")
    made = (
        "script[src], iframe, img, base, object, embed, a[href^='javascript'], link[href^='http'], [onerror], [onload]"
    )
    assert browser.run(f'return document.querySelectorAll("{made}").length') == 0
    assert browser.run("return Object.prototype.went === undefined && ({}).x === undefined")
    assert browser.driver.get_log("browser") == []


def test_nothing_runs_whatever_is_chosen_and_pointed_at(browser: Browser) -> None:
    browser.open()
    browser.driver.get_log("performance")
    every = "for (const one of document.querySelectorAll(arguments[0])) "
    browser.run(every + "one.click()", ".chip, th button, summary")
    browser.run(every + "one.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }))", "path, .chip")
    choose = "for (const choice of [...one.options]) { one.value = choice.value;"
    choose += "one.dispatchEvent(new Event('input', { bubbles: true })) }"
    browser.run(every + choose, "#filter select")
    for name in NAMES[:4]:
        browser.open(look=name, dataset=name)
    assert {url for url in asked_for(browser) if not url.startswith(browser.address)} == set()
    assert browser.run("return window.went === undefined")


def test_every_name_is_there_to_be_read(browser: Browser) -> None:
    browser.open()
    text = browser.run("return document.body.textContent")
    for name in NAMES[:-3]:
        assert name[:40] in text, name
    assert r"\u202egnp.elif\u2066" in text
    assert {c for c in browser.run("return document.documentElement.outerHTML") if c in TURNS} == set()
    assert {c for c in browser.driver.title if c in TURNS} == set()
    assert browser.run("return [...document.querySelectorAll('.chip')].length") >= len(NAMES)
