// The first tab of the page for browsers: current figures, and the curves of the last minutes, which
// the process keeps at `history`.
"use strict";

// ---- points of time, the oldest first

function points(history, now) {
  const { age_ms, answered_per_second, failed_per_second, p50_us, p99_us } = history;
  const inMilliseconds = (value) => isNumber(value) ? value / 1000 : null;
  return age_ms.map((age, index) => ({
    at: now - age, rate: answered_per_second[index], failed: failed_per_second[index],
    p50: inMilliseconds(p50_us[index]), p99: inMilliseconds(p99_us[index]),
  }));
}

const spanOf = (history) => 1000 * history.step_seconds * history.points_max;

// ---- rates of the rows of a table, from the counter of each

// Shortest time between two readings of a counter that a rate is of.
const SPAN_MS_MIN = 1000;

function rateRows(rows, key, counter, former, now) {
  const known = new Map();
  for (const row of rows) {
    let one = former.get(row[key]);
    if (!one || now - one.at >= SPAN_MS_MIN) {
      // The counter of a process that was started again begins anew.
      const isLater = one && row[counter] >= one.count;
      const rate = isLater ? (row[counter] - one.count) / ((now - one.at) / 1000) : null;
      one = { at: now, count: row[counter], rate };
    }
    row.rate = one.rate;
    known.set(row[key], one);
  }
  return known;
}

// ---- current figures

function proxyTiles(status) {
  const nodes = status.ring ? status.ring.nodes : [];
  const up = nodes.filter((node) => node.up).length;
  const paused = status.cores.reduce((all, core) => all + core.clients_paused, 0);
  return [
    ["clients", number(status.clients)], ["paused clients", number(paused), paused > 0],
    ["in flight", number(status.in_flight)], ["nodes up", `${up} of ${nodes.length}`, up < nodes.length],
  ];
}

function showTiles(subject, others, last) {
  const list = by("tiles");
  const all = [
    [`${subject}/s`, number(last.rate)], ["p50 ms", milliseconds(last.p50)], ["p99 ms", milliseconds(last.p99)],
    ["errors/s", decimal(last.failed), last.failed > 0], ...others,
  ];
  all.forEach(([name, value, isBad], index) => {
    if (!list.children[index]) {
      const tile = element("div");
      tile.append(element("dt", name), element("dd"));
      list.append(tile);
    }
    const shown = list.children[index].lastChild;
    write(shown, value);
    shown.classList.toggle("bad", Boolean(isBad));
  });
}

// ---- curves

const SVG = "http://www.w3.org/2000/svg";

const charts = (subject, latency) => [
  { title: `${subject[0].toUpperCase()}${subject.slice(1)} per second`, names: ["rate"], unit: "/s", form: number },
  { title: `${latency}: p50, and p99 dashed`, names: ["p50", "p99"], unit: " ms", form: milliseconds },
];

function showCharts(all, history, span, now) {
  const minutes = `${number(span / 60000)} minutes`, last = history[history.length - 1] || {};
  all.forEach(({ title, names, unit, form }, index) => {
    const place = by("charts");
    const figure = place.children[index] || place.appendChild(chart(title, names, minutes));
    const values = history.flatMap((point) => names.map((name) => point[name])).filter(isNumber);
    const most = values.reduce((one, other) => Math.max(one, other), 0);
    names.forEach((name, line) => figure.querySelectorAll("path")[line].setAttribute("d", curve(history, name, most, span, now)));
    const shown = names.map((name) => `${name === "rate" ? "now" : name} ${form(last[name])}${unit}`).join(", ");
    write(figure.querySelector("figcaption"), `${title}: ${shown}; maximum of the last ${minutes} ${form(most)}${unit}`);
  });
}

function chart(title, names, minutes) {
  const figure = element("figure");
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 600 100");
  drawing.setAttribute("preserveAspectRatio", "none");
  drawing.setAttribute("aria-hidden", "true");
  names.forEach(() => drawing.append(document.createElementNS(SVG, "path")));
  figure.append(element("figcaption", title), drawing, element("p", `${minutes} ago until now`, "axis"));
  return figure;
}

function curve(history, name, most, span, now) {
  let isOpen = false;
  const steps = [];
  for (const point of history) {
    const value = point[name];
    if (isNumber(value)) {
      const x = 600 * (1 - (now - point.at) / span), y = 97 - 92 * (most > 0 ? value / most : 0);
      steps.push(`${isOpen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`);
    }
    isOpen = isNumber(value);
  }
  return steps.join("");
}
