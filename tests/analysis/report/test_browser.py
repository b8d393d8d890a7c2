"""The page in a browser: charts are drawn, nothing is asked for; it works by keyboard, on a phone and in the dark."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.report import page

from .browser import MISSING, POINTS, SECONDS, Browser, asked_for, opened

pytestmark = MISSING


@pytest.fixture(scope="module")
def browser(several: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    page.write(several, folder / "page.html", None, lambda _: None)
    with opened(folder) as browser:
        yield browser


def test_every_chart_has_points_and_loads_without_requests(browser: Browser) -> None:
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


def test_filters_reduce_points_and_rows_and_reset_restores_them(browser: Browser) -> None:
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


def test_a_choice_fades_the_other_curves(browser: Browser) -> None:
    opacities = """
      const found = {};
      for (const layer of ["points", "intervals", "fits"])
        for (const mark of document.querySelectorAll(
          `[data-chart="0"] g.${layer}_marks > *, [data-chart="0"] g.${layer}_pathgroup path`)) {
          const series = mark.__data__ && mark.__data__.datum.series;
          if (!series || !mark.hasAttribute("opacity")) continue;
          const own = (found[layer] ||= {});
          own[series] = [...new Set([...(own[series] || []), getComputedStyle(mark).opacity])];
        }
      return found"""

    def seen(chosen: str | None) -> dict[str, dict[str, list[str]]]:
        names = ("momentum", "nesterov", "sgd")
        own = {name: ["1" if chosen in (None, name) else "0.16"] for name in names}
        return dict.fromkeys(("points", "intervals", "fits"), own)

    def press(name: str) -> None:
        browser.run(
            "[...document.querySelectorAll('.chip')].find((one) => one.innerText.startsWith(arguments[0])).click()",
            name,
        )

    def settles(chosen: str | None) -> None:
        expected = seen(chosen)
        late = time.monotonic() + SECONDS
        while (found := browser.run(opacities)) != expected:
            assert time.monotonic() < late, found
            time.sleep(0.05)

    browser.open()
    settles(None)
    stops = (
        "[...document.querySelectorAll('[data-chart=\"0\"] path[tabindex]')].map((one) => one.__data__.datum.series)"
    )
    for name in ("sgd", "momentum"):  # from all to one, and from one to another
        press(name)
        settles(name)
        browser.wait(f"const own = {stops}; return own.length === 11 && own.every((one) => one === '{name}')")
    press("momentum")
    settles(None)
    assert len(browser.run(f"return {stops}")) == 33
    browser.open(look="digits/fully_connected_64/nesterov")  # a link draws it at once
    settles("nesterov")


def test_a_search_without_a_hit_says_so_and_how_to_undo_it(browser: Browser) -> None:
    browser.open(dataset="digits", q="zebra")
    said = browser.run("return document.getElementById('nothing').innerText")
    assert said == "No workload matches data set “digits” and the search “zebra”. Press Reset to show all 7."
    count = "return [document.getElementById('count').value, document.getElementById('count').ariaLive]"
    assert browser.run(count) == ["no workload matches", "polite"]
    assert browser.run("return document.getElementById('nothing').checkVisibility()")
    browser.run("document.querySelector('#filter button[type=reset]').click()")
    browser.wait("return document.getElementById('nothing').hidden")
    assert browser.run(count)[0].startswith("7 of 7 workloads, ")


AUDIT = """
  const found = [];
  const shown = (one) => one.checkVisibility({ visibilityProperty: true });
  const name = (one) => (one.getAttribute("aria-label") || one.innerText || "").trim();
  const about = (one) => `${one.tagName} ${one.getAttribute("class") || one.id} ${name(one).slice(0, 40)}`;
  for (const one of document.querySelectorAll("button, a[href], summary, table, section, nav, [tabindex='0'], .chart"))
    if (shown(one) && !name(one)) found.push(`no name: ${about(one)}`);
  for (const one of document.querySelectorAll("input, select"))
    if (!one.labels.length) found.push(`no label: ${one.name}`);
  for (const one of document.querySelectorAll("figure")) if (!one.querySelector("figcaption")) found.push("figure");
  for (const one of document.querySelectorAll("svg"))
    if (!one.closest("[aria-hidden=true], .chart[role][aria-label^='Chart: ']"))
      found.push(`svg: ${about(one.parentNode)}`);
  let level = 0;
  for (const one of document.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    if (shown(one) && Number(one.tagName[1]) > level + 1) found.push(`heading: ${about(one)}`);
    if (shown(one)) level = Number(one.tagName[1]);
  }
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  if (new Set(ids).size < ids.length) found.push("an id twice");
  const pixel = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  const rgba = (colour) => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = colour;
    pixel.fillRect(0, 0, 1, 1);
    return [...pixel.getImageData(0, 0, 1, 1).data];
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = rgba(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
    }
  };
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (c) => 0.2126 * linear(c[0] / 255) + 0.7152 * linear(c[1] / 255) + 0.0722 * linear(c[2] / 255);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(one) || one.closest("[opacity='0.16']")) continue;
    const style = getComputedStyle(one);
    const ink = luminance(rgba(one.closest("svg") ? style.fill : style.color));
    const paper = luminance(behind(one));
    if ((Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05) < 4.5) found.push(`contrast: ${about(one)}`);
  }
  return found"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_everything_has_a_name_an_order_and_contrast(browser: Browser, scheme: str, width: int) -> None:
    browser.emulate(scheme)
    browser.narrow(width)
    try:
        browser.open(look="digits/fully_connected_64/momentum")
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        assert browser.run(AUDIT) == []
        worse = "document.querySelector('.about').style.color = 'color-mix(in srgb, var(--paper), gray 50%)';"
        browser.run(worse + "document.querySelector('select').labels[0].replaceWith(document.querySelector('select'))")
        assert [line.partition(":")[0] for line in browser.run(AUDIT)] == ["no label", "contrast"]
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.emulate("light")


def test_a_screen_reader_is_told_of_charts_points_and_landmarks(browser: Browser) -> None:
    browser.open()
    nodes = browser.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    names: dict[str, list[str]] = {}
    for node in nodes:
        if not node["ignored"]:
            names.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    charts = browser.run("return document.querySelectorAll('.chart').length")
    assert len(set(names["graphics-document"])) == len(names["graphics-document"]) == charts
    assert all(name.startswith("Chart: ") for name in names["graphics-document"])
    points = [name for name in names["graphics-symbol"] if "study" in name]
    others = [name for name in names["graphics-symbol"] if "study" not in name]
    assert len(points) == sum(browser.points(i) for i in range(charts))
    assert all("axis titled" in name or "legend" in name for name in others)
    assert {"banner", "navigation", "main", "contentinfo", "form", "status"} <= names.keys()
    assert [name for name in names["heading"] if name in ("Ledger", "Provenance")] == ["Ledger", "Provenance"]
    assert "steps" not in names["columnheader"] and "studies" in names["columnheader"]
    assert browser.run("return document.documentElement.lang") == "en"


def test_the_tabulator_reaches_all_that_can_be_pressed(browser: Browser) -> None:
    browser.open()
    pressed = "a[href], button, input, select, summary, .scroll, path[tabindex='0']"
    wanted = (
        f'return window.wanted = [...document.querySelectorAll("{pressed}")].filter((one) => one.checkVisibility())'
    )
    count = browser.run(f"{wanted}, window.wanted.length")
    reached = set()
    for _ in range(count + 1):
        browser.keys("TAB")
        reached.add(browser.run("return window.wanted.indexOf(document.activeElement)"))
    assert set(range(count)) <= reached


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
    head = "[...document.querySelectorAll('table.workloads th button')].find((one) => one.innerText.startsWith('pays'))"
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


def test_phone_folds_sections_and_scrolls_tables(browser: Browser) -> None:
    browser.narrow(390)
    try:
        browser.open()
        folds = "return [...document.querySelectorAll('.fold')].map((one) => one.open)"
        assert browser.run(folds) == [True, *[False] * 6]  # something to see, and titles
        browser.run("document.querySelector('.fold').open = false")
        assert browser.run("return document.documentElement.scrollHeight") < 2000
        browser.run("document.querySelector('nav a[href=\"#ledger\"]').click()")
        assert browser.run(folds) == [False, False, False, False, True, False, False]
        browser.run("document.querySelector('#workloads summary').focus()")
        browser.keys("ENTER")
        assert browser.run(folds)[1]
        browser.run("document.querySelector('#workloads .show').click()")
        browser.wait("return document.querySelector('#curves .fold').open")
        browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
        assert browser.run("return document.documentElement.scrollWidth") <= 390
        heads = "return [...document.querySelectorAll('#payoff th')].map((one) => one.getBoundingClientRect().right)"
        assert browser.run(heads)[2] <= 390  # the answers of devices need no scrolling
        table = browser.run(
            "const box = document.querySelector('#workloads .scroll'); box.scrollLeft = 200;"
            "const left = (one) => one.getBoundingClientRect().left;"
            "const [head, first] = [left(box.querySelector('th')), left(box.querySelector('td'))];"
            "return [box.scrollWidth > box.clientWidth, box.scrollLeft, head - left(box) < 2, first === head]"
        )
        assert table == [True, 200, True, True]
        browser.wait(
            "const charts = [...document.querySelectorAll('.chart svg')];"
            "return charts.every((one) => one.getBoundingClientRect().width > 300)"
        )
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.open()
        assert browser.run(folds) == [True] * 7
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


SHEET = """
  window.matchMedia("print").addEventListener("change", (event) => {
    if (!event.matches) return;
    const all = (selector) => [...document.querySelectorAll(selector)];
    const widest = Math.max(...all(".chart svg, table").map((one) => one.getBoundingClientRect().right));
    window.sheet = {
      open: all(".fold").every((one) => one.open),
      charts: all(".chart svg").length,
      controls: all("#filter, nav, #theme, .hint, .skip").filter((one) => one.checkVisibility()).length,
      fits: widest <= document.querySelector("main").getBoundingClientRect().right + 0.5,
      ink: getComputedStyle(document.body).color,
      paper: getComputedStyle(document.documentElement).backgroundColor,
      text: getComputedStyle(document.querySelector(".chart text")).fill,
    };
  })"""


def test_paper_has_all_sections_and_charts_without_controls(browser: Browser) -> None:
    browser.emulate("dark")
    browser.narrow(390)
    try:
        browser.driver.get("about:blank")
        browser.driver.get(browser.address)
        browser.wait("return document.getElementById('count')?.value")
        assert (
            browser.run("return document.querySelectorAll('.chart svg').length") <= 1
        )  # all but the first section are folded away
        browser.run(SHEET)
        pages = browser.print().count(b"/Type /Page\n")
        sheet = browser.wait("return window.sheet")
        charts = browser.run("return document.querySelectorAll('.chart').length")
        assert (sheet["open"], sheet["charts"], sheet["controls"]) == (True, charts, 0)
        assert sheet["fits"]
        assert (sheet["ink"], sheet["paper"]) == ("rgb(0, 0, 0)", "rgb(255, 255, 255)")
        assert sheet["text"] in ("rgb(0, 0, 0)", "rgb(51, 51, 51)")
        assert pages > 3
        assert browser.run("return [...document.querySelectorAll('.fold')].filter((one) => one.open).length") == 1
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.emulate("light")


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
    assert browser.run("return document.getElementById('theme').textContent") == "Dark theme"


def test_without_scripts_all_tables_are_there(browser: Browser) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get("about:blank")
        browser.driver.get(browser.address)
        from selenium.webdriver.common.by import By

        body = browser.driver.find_element(By.TAG_NAME, "body").text
        assert "Scripts are disabled, so charts, filters and sorting do not work." in body
        assert "identified" in body and "It adds up." in body
        assert not browser.driver.find_element(By.CLASS_NAME, "chart").is_displayed()
        assert browser.driver.find_element(By.CLASS_NAME, "detail").is_displayed()
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
