"""The page in a browser: charts are drawn, nothing is asked for; it works by keyboard, on a phone and in the dark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.report import page

from .browser import MISSING, POINTS, Browser, asked_for, opened

pytestmark = MISSING


@pytest.fixture(scope="module")
def browser(several: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    page.write(several, folder / "page.html", None, lambda _: None)
    with opened(folder) as browser:
        yield browser


def test_every_chart_has_points_and_nothing_is_wrong_or_asked_for(browser: Browser) -> None:
    browser.driver.get("about:blank")
    browser.driver.get_log("performance")  # of the browser's own first page
    browser.open()
    charts = browser.run("return document.querySelectorAll('.chart').length")
    assert charts >= 5
    assert [i for i in range(charts) if not browser.points(i)] == []
    assert browser.driver.get_log("browser") == []
    assert asked_for(browser) == {browser.address}


def test_the_browser_refuses_what_a_page_might_ask_for(browser: Browser) -> None:
    browser.open()
    script = "return fetch('https://example.invalid/').then(() => 'went', (error) => String(error))"
    assert "TypeError" in browser.run(script)
    browser.run("const image = new Image(); image.src = 'https://example.invalid/a.png'")
    script = "const script = document.createElement('script'); script.textContent = 'window.went = 1';"
    assert browser.run(script + "document.body.append(script); return window.went === undefined")
    refused = browser.driver.get_log("browser")
    for directive in ("connect-src", "img-src", "script-src"):
        assert any(directive in entry["message"] for entry in refused)


def test_filters_leave_fewer_points_and_rows_and_reset_brings_them_back(browser: Browser) -> None:
    browser.open()
    whole = browser.points()
    rows = "return [...document.querySelectorAll('table.workloads tbody tr')].filter((row) => !row.hidden).length"
    assert (whole, browser.run(rows)) == (33, 4)
    choose = "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
    choose += "field.dispatchEvent(new Event('input', { bubbles: true }))"
    browser.run(choose, "select[name=optimizer]", "momentum")
    browser.wait(f"return document.querySelectorAll('[data-chart=\"0\"] {POINTS}').length === 11")
    assert browser.run(rows) == 1
    assert browser.run("return document.getElementById('count').value").startswith("1 of ")
    assert browser.run("return document.getElementById('factorizations').hidden")
    assert browser.run("return location.hash") == "#optimizer=momentum"
    shown = "return [...document.querySelectorAll('table.ledger tr.shown td')].map((cell) => cell.textContent)"
    assert browser.run(shown)[:3] == ["shown", "11", "132"]
    browser.run("document.querySelector('#filter button[type=reset]').click()")
    browser.wait(f"return document.querySelectorAll('[data-chart=\"0\"] {POINTS}').length === {whole}")
    assert browser.run(rows) == 4
    browser.run(choose, "input[name=q]", "fully_connected_8")
    browser.wait("return document.getElementById('count').value.startsWith('1 of ')")


def test_a_view_can_be_linked_to(browser: Browser) -> None:
    key = "digits/fully_connected_64/momentum"
    browser.open(dataset="digits", look=key)
    assert browser.run("return document.querySelector('select[name=dataset]').value") == "digits"
    pressed = "return [...document.querySelectorAll('.chip[aria-pressed=true] span')].map((chip) => chip.textContent)"
    assert "momentum" in browser.run(pressed)
    assert browser.run("return !document.querySelector('.panel [data-detail]:not([hidden])').hidden")
    assert browser.run("return document.querySelectorAll('[data-chart=\"0\"] .bands_marks path').length") == 1
    browser.run("location.hash = 'optimizer=sgd'")
    browser.wait("return document.querySelector('select[name=optimizer]').value === 'sgd'")
    assert browser.run("return document.querySelector('select[name=dataset]').value") == ""
    browser.run("location.hash = 'optimizer=%3Cb%3E&look=nobody'")
    browser.wait("return document.querySelector('select[name=optimizer]').value === ''")


def test_a_chip_looks_at_one_workload_and_a_second_press_at_all(browser: Browser) -> None:
    browser.open()
    bands = '[data-chart="0"] .bands_marks path'
    assert browser.run(f"return document.querySelectorAll('{bands}').length") == 0
    press = "document.querySelector('.chip').click()"
    browser.run(press)
    browser.wait(f"return document.querySelectorAll('{bands}').length === 1")
    assert "look=" in browser.run("return location.hash")
    browser.run(press)
    browser.wait(f"return document.querySelectorAll('{bands}').length === 0")
    assert browser.run("return location.hash") == ""


def test_points_tell_by_keyboard_what_they_tell_by_pointer(browser: Browser) -> None:
    browser.open()
    tip = "const tip = document.getElementById('tip'); return tip.hidden ? null : tip.innerText"
    browser.run('document.querySelector(\'[data-chart="0"] path[tabindex="0"]\').focus()')
    first = browser.run(tip)
    for word in ("steps to target", "trial", "learning rate", "study", "batch size"):
        assert word in first
    label = browser.run("return document.activeElement.getAttribute('aria-label')")
    assert first.split("\n")[0] in label
    browser.keys("ARROW_RIGHT")
    second = browser.run(tip)
    assert second != first and "2 examples" in second
    browser.keys("HOME")
    assert browser.run(tip) == first
    browser.keys("ESCAPE")
    assert browser.run(tip) is None
    stops = browser.run('return document.querySelectorAll(\'[data-chart="0"] path[tabindex="0"]\').length')
    assert stops == 1
    hover = f"document.querySelector('[data-chart=\"0\"] {POINTS}').dispatchEvent(new PointerEvent('pointerover', "
    browser.run("document.activeElement.blur()")
    browser.run(hover + "{ bubbles: true }))")
    assert "steps to target" in browser.run(tip)


def test_tables_are_sorted_by_numbers_with_empty_ones_last(browser: Browser) -> None:
    browser.open()
    head = "[...document.querySelectorAll('table.workloads th button')].find((one) => one.innerText.startsWith('crit'))"
    cells = "return [...document.querySelectorAll('table.workloads tbody tr')].map((row) => row.cells[3].dataset.value)"
    browser.run(f"{head}.click()")
    rising = browser.run(cells)
    browser.run(f"{head}.click()")
    falling = browser.run(cells)
    numbers = [float(value) for value in rising if value]
    assert len(numbers) == 3 and numbers == sorted(numbers)
    assert [float(value) for value in falling if value] == numbers[::-1]
    assert rising[-1] == falling[-1] == ""
    assert browser.run(f"return {head}.closest('th').getAttribute('aria-sort')") == "descending"


@pytest.mark.parametrize("width", [360, 390, 768])
def test_no_width_scrolls_sideways(browser: Browser, width: int) -> None:
    browser.narrow(width)
    try:
        browser.open()
        assert browser.run("return document.documentElement.clientWidth") == width
        assert browser.run("return document.documentElement.scrollWidth") <= width
        svg = browser.run("return document.querySelector('.chart svg').getBoundingClientRect().right")
        assert svg <= width
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_and_light_have_their_own_colours_and_a_button(browser: Browser) -> None:
    colours = "const at = (one) => getComputedStyle(document.querySelector(one));"
    colours += f"return [at('html').backgroundColor, at('.chart text').fill, at('[data-chart=\"0\"] {POINTS}').fill]"
    seen = []
    for scheme in ("light", "dark"):
        browser.emulate(scheme)
        browser.open()
        seen.append(browser.run(colours))
    assert all(one != other for one, other in zip(*seen, strict=True))
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colours) == seen[0]
    browser.emulate("light")
    assert browser.run("return document.getElementById('theme').textContent") == "Dark"


def test_without_scripts_all_tables_are_there(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get("about:blank")
        browser.driver.get(browser.address)
        from selenium.webdriver.common.by import By

        body = browser.driver.find_element(By.TAG_NAME, "body").text
        assert "Scripts are off, so the charts, the filters and sorting are missing." in body
        assert "identified" in body and "It adds up." in body
        assert not browser.driver.find_element(By.CLASS_NAME, "chart").is_displayed()
        assert browser.driver.find_element(By.CLASS_NAME, "detail").is_displayed()
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
