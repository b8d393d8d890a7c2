// Charts are drawn when they come near the window or are printed, and redrawn when the selection changes. Pointer,
// touch and keyboard focus show the same description of a point.
window.reportCharts = (() => {
  "use strict";
  const tip = document.getElementById("tip");
  const views = new Map(); // by number of the chart
  const places = [...document.querySelectorAll("[data-chart]")];
  let data, shown, focus;

  // The group that a chart highlights: the selected one, or the only visible one. Otherwise null.
  function only(chart) {
    const members = chart.groups.filter((group) => shown.has(group));
    if (members.includes(focus)) return focus;
    return members.length === 1 ? members[0] : null;
  }

  // The rows that a chart shows, by data set. Vega gets copies because it writes an id into each row and treats a row
  // with an id, or a copy of it, as one that it has already drawn.
  function rows(chart) {
    const one = only(chart);
    const found = {};
    const take = (own, wanted, dim) => {
      for (const [name, all] of Object.entries(own || {})) found[name] = all.filter(wanted).map((row) => ({ ...row, dim: dim(row) }));
    };
    const never = () => false;
    take(chart.always, (row) => row.w === undefined || shown.has(row.w), (row) => one !== null && row.w !== one);
    take(chart.several, (row) => one === null && (row.w < 0 || shown.has(row.w)), never);
    take(chart.focused, (row) => row.w === one, never);
    return found;
  }

  async function embed(place) {
    const at = Number(place.dataset.chart);
    if (views.has(at)) return;
    views.set(at, null);
    const chart = data.charts[at];
    const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: false, defaultStyle: false, config: data.config };
    const spec = { ...chart.spec, description: place.getAttribute("aria-label"), datasets: rows(chart) };
    const made = await window.vegaEmbed(place, spec, options);
    views.set(at, made.view);
    place.dataset.drawn = "";
    reachable(place);
  }

  async function redraw(at) {
    const view = views.get(at);
    if (!view) return;
    for (const [name, own] of Object.entries(rows(data.charts[at]))) view.data(name, own);
    await view.resize().runAsync();
    reachable(places[at]);
  }

  // Points in the order of the keyboard: curve by curve, from left to right, without dimmed points.
  function points(place) {
    const datum = (point) => point.__data__.datum;
    const order = (a, b) => String(datum(a).series).localeCompare(String(datum(b).series)) || datum(a).x - datum(b).x;
    return [...place.querySelectorAll("g.points_marks > path")].filter((point) => point.__data__ && !datum(point).dim).sort(order);
  }

  // Only one point of each chart is in the tab order. Arrow keys move from there.
  function reachable(place) {
    for (const point of place.querySelectorAll("path[tabindex]")) point.removeAttribute("tabindex");
    points(place).forEach((point, i) => point.setAttribute("tabindex", i ? "-1" : "0"));
  }

  function onKey(event) {
    const place = event.currentTarget;
    const all = points(place);
    const here = all.indexOf(document.activeElement);
    if (here < 0) return;
    const where = all[here].__data__;
    const column = all.filter((point) => point.__data__.datum.x === where.datum.x).sort((a, b) => b.__data__.y - a.__data__.y);
    const above = column.indexOf(all[here]);
    const next = {
      ArrowRight: all[here + 1],
      ArrowLeft: all[here - 1],
      ArrowUp: column[above + 1],
      ArrowDown: column[above - 1],
      Home: all[0],
      End: all[all.length - 1],
    };
    if (event.key === "Escape") tip.hidden = true;
    if (!(event.key in next)) return;
    event.preventDefault();
    if (!next[event.key]) return;
    all[here].setAttribute("tabindex", "-1");
    next[event.key].setAttribute("tabindex", "0");
    next[event.key].focus();
  }

  function element(name, words) {
    const made = document.createElement(name);
    made.textContent = words;
    return made;
  }

  function showTip(point) {
    const [heading, ...lines] = point.__data__.datum.label.split("\n");
    const list = document.createElement("dl");
    for (const line of lines) {
      const colon = line.indexOf(": ");
      list.append(element("dt", colon < 0 ? "" : line.slice(0, colon)), element("dd", line.slice(colon < 0 ? 0 : colon + 2)));
    }
    tip.replaceChildren(element("strong", heading), list);
    tip.hidden = false;
    placeTip(point);
  }

  function placeTip(point) {
    const box = point.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const room = document.documentElement.clientWidth;
    const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), room - own.width - 8);
    const above = box.top - own.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 10}px`;
  }

  // Moving the focus scrolls the page, so the description follows the focused point.
  function onScroll() {
    const point = document.activeElement.closest("g.points_marks > path");
    if (point && !tip.hidden) placeTip(point);
    else tip.hidden = true;
  }

  function listen(place) {
    const on = (event) => {
      const point = event.target.closest("g.points_marks > path");
      if (point && point.__data__) showTip(point);
      else if (event.type === "pointerover" && !place.contains(document.activeElement)) tip.hidden = true;
    };
    place.addEventListener("pointerover", on);
    place.addEventListener("pointerdown", on);
    place.addEventListener("focusin", on);
    place.addEventListener("pointerleave", () => (tip.hidden = true));
    place.addEventListener("focusout", () => (tip.hidden = true));
    place.addEventListener("keydown", onKey);
  }

  // Draws charts once they are near the window.
  function watch() {
    const near = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) {
          if (!entry.isIntersecting) continue;
          near.unobserve(entry.target);
          embed(entry.target);
        }
      },
      { rootMargin: "800px 0px" },
    );
    places.forEach((place) => near.observe(place));
    window.addEventListener("scroll", onScroll, { passive: true });
  }

  return {
    start(all, groups, chosen) {
      [data, shown, focus] = [all, groups, chosen];
      places.forEach(listen);
      watch();
    },
    update(groups, chosen) {
      [shown, focus] = [groups, chosen];
      tip.hidden = true;
      return Promise.all([...views.keys()].map(redraw));
    },
    drawAll: () => Promise.all(places.map(embed)),
    fit: () => window.dispatchEvent(new Event("resize")), // makes Vega measure its containers
    only,
  };
})();
