// Filters, selection and sorting of the page, and the address that records them.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const charts = window.reportCharts;
  const form = document.getElementById("filter");
  const fields = ["kind", "dataset", "model", "optimizer", "q"];
  const members = new Map([...document.querySelectorAll("[data-groups]")].map((one) => [one, one.dataset.groups.split(" ").map(Number)]));
  let focus = null;
  let started = false;

  const folds = [...document.querySelectorAll(".fold")];
  const narrow = window.matchMedia("(max-width: 46rem)"); // as in page.css

  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  function go(place) {
    const fold = place.closest(".fold") || place.querySelector(".fold");
    if (fold) fold.open = true;
    place.scrollIntoView({ behavior: still.matches ? "auto" : "smooth", block: "start" });
  }
  const asked = (name) => form.elements[name].value;

  function shown() {
    const words = asked("q").toLowerCase().split(/\s+/).filter(Boolean);
    const there = (group) => fields.slice(0, 4).every((name) => !asked(name) || group[name] === asked(name));
    const searchText = (group) => `${group.search_text} ${group.key} ${group.key.replaceAll("_", " ")}`.toLowerCase();
    const found = data.groups.map((group) => there(group) && words.every((word) => searchText(group).includes(word)));
    return new Set(found.flatMap((yes, i) => (yes ? [i] : [])));
  }

  function show() {
    const groups = shown();
    for (const [one, own] of members) one.hidden = !own.some((group) => groups.has(group));
    started ? charts.update(groups, focus) : charts.start(data, groups, focus);
    started = true;
    for (const panel of document.querySelectorAll(".panel")) detail(panel, groups);
    count(groups);
    address();
  }

  // Marks the pressed chip and shows the details of the selected workload.
  function detail(panel, groups) {
    const chart = data.charts[panel.querySelector("[data-chart]").dataset.chart];
    const one = charts.only(chart);
    for (const chip of panel.querySelectorAll("[data-group]")) {
      chip.hidden = !groups.has(Number(chip.dataset.group));
      chip.setAttribute("aria-pressed", String(Number(chip.dataset.group) === one));
    }
    for (const each of panel.querySelectorAll("[data-detail]")) each.hidden = Number(each.dataset.detail) !== one;
  }

  function count(groups) {
    const studies = [...document.querySelectorAll("[data-study]")];
    const visible = studies.filter((row) => !row.hidden).length;
    const number = (value) => value.toLocaleString("en");
    document.getElementById("count").textContent = groups.size
      ? `${number(groups.size)} of ${number(data.groups.length)} workloads, ${number(visible)} of ${number(studies.length)} studies`
      : "no workload matches";
    const nothing = document.getElementById("nothing");
    nothing.hidden = groups.size > 0;
    nothing.textContent = `No workload matches ${wanted()}. Press Reset to show all ${number(data.groups.length)}.`;
    const ledger = document.querySelector("table.ledger");
    const sums = ledger.querySelector("tr.shown");
    sums.hidden = groups.size === data.groups.length;
    [...sums.cells].slice(1).forEach((cell, i) => {
      const rows = [...ledger.tBodies[0].rows].filter((row) => !row.hidden);
      cell.textContent = number(rows.reduce((sum, row) => sum + Number(row.cells[i + 1].dataset.value), 0));
    });
  }

  // The filters in words.
  function wanted() {
    const label = (field) => field.closest("label").firstChild.textContent;
    const words = (field) => (field.options ? `${label(field)} “${field.selectedOptions[0].textContent}”` : `the search “${field.value.trim()}”`);
    return fields.filter((name) => asked(name).trim()).map((name) => words(form.elements[name])).join(" and ");
  }

  function address() {
    const params = new URLSearchParams();
    for (const name of fields) if (asked(name)) params.set(name, asked(name));
    if (focus !== null) params.set("look", data.groups[focus].key);
    const hash = params.toString() ? `#${params}` : "";
    if (hash || /[=]/.test(location.hash)) history.replaceState(null, "", hash || location.pathname + location.search);
  }

  function restore() {
    const params = new URLSearchParams(location.hash.slice(1));
    for (const name of fields) {
      const field = form.elements[name];
      const value = params.get(name) || "";
      field.value = field.options && ![...field.options].some((option) => option.value === value) ? "" : value;
    }
    const look = data.groups.findIndex((group) => group.key === params.get("look"));
    focus = look < 0 ? null : look;
    show();
    if (focus !== null) reveal();
  }

  function reveal() {
    const panel = [...document.querySelectorAll("#curves .panel")].find((one) => members.get(one).includes(focus));
    if (panel) go(panel);
  }

  function look(group) {
    focus = focus === group ? null : group;
    show();
  }

  function sort(button) {
    const head = button.closest("th");
    const body = head.closest("table").tBodies[0];
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const value = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
    const compare = (a, b) => {
      const [one, other] = [value(a), value(b)];
      if (!one || !other) return Number(!one) - Number(!other); // empty values are last in both directions
      const order = head.classList.contains("number") ? one - other : one.localeCompare(other, "en", { numeric: true });
      return falling ? -order : order;
    };
    body.append(...[...body.rows].sort(compare));
  }

  function theme() {
    const root = document.documentElement;
    const button = document.getElementById("theme");
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const name = () => (button.textContent = dark() ? "Light theme" : "Dark theme");
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      name();
    });
    system.addEventListener("change", name);
    name();
  }

  // A narrow window collapses all sections except the first, because each is many screens long.
  function fold() {
    for (const one of folds) one.open = !narrow.matches || one === folds[0];
    narrow.addEventListener("change", () => {
      if (!narrow.matches) for (const one of folds) one.open = true;
    });
    for (const one of folds) one.addEventListener("toggle", () => one.open && charts.fit());
  }

  // Printing opens every section and draws every chart at the width of the paper.
  function print() {
    const paper = document.documentElement.classList;
    let closed = [];
    window.addEventListener("beforeprint", () => {
      closed = folds.filter((one) => !one.open);
      for (const one of folds) one.open = true;
      paper.add("paper");
      charts.fit();
      charts.drawAll();
    });
    window.addEventListener("afterprint", () => {
      paper.remove("paper");
      for (const one of closed) one.open = false;
      charts.fit();
    });
  }

  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    focus = null;
    setTimeout(show);
  });
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-group]");
    const button = event.target.closest("thead button");
    const link = event.target.closest("nav a");
    const row = event.target.closest("[data-look]");
    if (chip) look(Number(chip.dataset.group));
    else if (button) sort(button);
    else if (link) {
      event.preventDefault(); // the address holds the filter
      go(document.querySelector(link.getAttribute("href")));
    } else if (row && event.target.closest("button.show")) {
      focus = Number(row.dataset.look);
      show();
      reveal();
    }
  });
  window.addEventListener("hashchange", restore);
  theme();
  fold();
  print();
  restore();
})();
