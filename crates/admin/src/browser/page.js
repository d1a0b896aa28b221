// The page for browsers: asks the JSON pages of this address every two seconds, and shows them.
//
// Texts come from clients and nodes. `textContent` is the only way by which one gets onto the page.
"use strict";

const INTERVAL_MS = 2000;
const ANSWER_MS_MAX = 15000;
const ROWS_MAX = 500;

const by = (id) => document.getElementById(id);
const state = {
  token: null, isLocked: false, isPaused: false, isAsking: false, isDue: false, timer: null,
  version: null, status: null, config: null, configAt: -Infinity, pages: {}, updated: 0,
  history: [], span: 0, rates: [], view: "overview", tables: {},
};

// ---- elements

function element(name, content, className) {
  const made = document.createElement(name);
  if (content !== undefined) made.textContent = content;
  if (className) made.className = className;
  return made;
}

function write(target, content) {
  if (target.textContent !== content) target.textContent = content;
}

// What the page knows of each kind of process; `rated` names rows that have a rate by a counter of theirs.
const PROXY = {
  name: "proxy", subject: "queries", latency: "Latency",
  tables: ["nodes", "clients", "connections", "links", "logins", "certificates", "queries", "slow", "hot", "options"],
  rated: (status) => [[status.ring ? status.ring.nodes : [], "host_id", "queries"]], tiles: proxyTiles,
  alerts: (status) => alerts(status),
};
const NAMES = { agent: "agent", shim: "shim", store: "embedded nodes" };

function processOf(status) {
  if ("client_groups" in status) return PROXY;
  const found = Object.keys(RELAYS).find((key) => key in status);
  return found ? RELAYS[found] : null;
}

// ---- requests

async function ask(path, parameters) {
  const headers = {};
  if (state.token) headers.Authorization = `Bearer ${state.token}`;
  const request = { headers, cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS_MAX) };
  if (parameters) {
    headers["Content-Type"] = "application/json";
    Object.assign(request, { method: "POST", body: JSON.stringify(parameters) });
  }
  const answer = await fetch(path, request);
  const isJson = (answer.headers.get("Content-Type") || "").startsWith("application/json");
  const body = isJson ? await answer.json() : await answer.text();
  if (answer.ok) return body;
  const failure = new Error(isJson && body.error ? body.error : `the answer has the status ${answer.status}`);
  failure.status = answer.status;
  throw failure;
}

async function turn() {
  clearTimeout(state.timer);
  state.isDue = state.isAsking;
  if (state.isAsking) return;
  state.isAsking = true;
  const begun = performance.now();
  try {
    await askAll(begun);
    state.isLocked = false;
    show();
  } catch (failure) {
    complain(failure);
  }
  state.isAsking = false;
  // Pages of a large ring cost the proxy more, and are asked for less often.
  const pause = state.isDue ? 0 : Math.max(INTERVAL_MS, 10 * (performance.now() - begun));
  if (!state.isPaused && !state.isLocked && !document.hidden) state.timer = setTimeout(turn, pause);
}

async function askAll(now) {
  const view = TABLES[state.view];
  const [status, history] = await Promise.all([ask("status"), ask("history")]);
  const found = processOf(status);
  const isConfigDue = found === PROXY && (now - state.configAt > 5 * INTERVAL_MS || state.view === "options");
  const isShown = view && found && [...found.tables, "runbook"].includes(state.view);
  // The runbook is a part of the program, and stays as it is.
  const isKnown = !isShown || ["status", "config"].includes(view.page) || (view.page === "runbook" && state.pages.runbook);
  const [config, rows] = await Promise.all([isConfigDue ? ask("config") : state.config, isKnown ? null : ask(view.page)]);
  if (isConfigDue) Object.assign(state, { config, configAt: now });
  if (!isKnown) state.pages[view.page] = rows;
  Object.assign(state, { status, history: points(history, performance.now()), span: spanOf(history) });
  if (found) state.rates = found.rated(status).map((rows, index) => rateRows(...rows, state.rates[index] || new Map(), now));
  state.pages.status = status;
  state.pages.config = state.config;
  state.updated = Date.now();
}

// ---- alerts of a proxy, which it computes

function alerts(status) {
  const since = (alert) => `since ${new Date(alert.since_unix_ms).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  const found = status.alerts.map((alert) => ({
    what: `${capital(alert.text)} (${since(alert)})`, advice: `${capital(alert.remedy)}.`, rule: alert.name, isQuiet: alert.severity === "note",
  }));
  const omitted = status.alerts_omitted;
  if (omitted) found.push({ what: `${omitted} more alerts`, advice: "", rule: "", isQuiet: false });
  return found;
}

function showAlerts(found) {
  const list = by("alerts");
  const shown = found.length ? found : [{ what: "None", advice: "", rule: "", isQuiet: true }];
  while (list.children.length > shown.length) list.lastChild.remove();
  shown.forEach(({ what, advice, rule, isQuiet }, index) => {
    const item = list.children[index] || list.appendChild(element("li"));
    if (!item.firstChild) item.append(element("strong"), element("span"), element("a"));
    const [strong, span, link] = item.children;
    item.classList.toggle("quiet", isQuiet);
    write(strong, what);
    write(span, advice ? `. ${advice} ` : "");
    link.hidden = !rule;
    write(link, rule ? `Runbook: ${rule}` : "");
    link.href = `#runbook=${rule}`;
  });
}

// ---- tables

function tableState(name) {
  const [title, direction] = TABLES[name].sort;
  return state.tables[name] ||= { sort: TABLES[name].columns.findIndex((one) => one.title === title), direction, filter: "" };
}

const isAbsent = (value) => value === null || value === undefined;

// Rows without a value come last in either direction.
function compare(one, other, direction) {
  if (isAbsent(one) || isAbsent(other)) return isAbsent(one) - isAbsent(other);
  const isText = typeof one === "string" || typeof other === "string";
  return direction * (isText ? String(one).localeCompare(String(other)) : one - other);
}

function showTable(name) {
  const view = TABLES[name], page = state.pages[view.page], { sort, direction, filter } = tableState(name);
  write(by("table-title"), view.title);
  if (by("table").dataset.view !== name) openTable(name);
  if (!page) return;
  const all = view.rows(page), needle = filter.toLowerCase();
  const cells = (row) => view.columns.map((one) => one.form(sum(one.value(row))));
  const found = all.filter((row) => !needle || cells(row).some((cell) => cell.toLowerCase().includes(needle)));
  found.sort((one, other) => compare(sum(view.columns[sort].value(one)), sum(view.columns[sort].value(other)), direction));
  // A column without any value is left out, as `shunt clients` does.
  const isFilled = (one) => all.some((row) => !isAbsent(one.value(row)));
  const filled = view.columns.map((one, index) => index === 0 || all.length === 0 || isFilled(one));
  fill(by("rows"), view, found.slice(0, ROWS_MAX));
  fill(by("others"), { ...view, act: null }, view.others ? view.others(page) : []);
  const missing = view.missing ? view.missing(page) : [];
  const rest = found.length > ROWS_MAX ? `; the first ${ROWS_MAX} are shown` : "";
  write(by("count"), `${number(found.length)} of ${number(all.length)}${rest}`);
  const silent = missing.length > 0 && `Cores that did not answer in time: ${missing.join(", ")}.`;
  write(by("table-note"), [view.absence && view.absence(page), silent, view.note].filter(Boolean).join(" "));
  hideEmpty(filled);
  [...by("heading").children].slice(0, view.columns.length).forEach((cell, index) => {
    cell.setAttribute("aria-sort", index !== sort ? "none" : direction > 0 ? "ascending" : "descending");
    write(cell.firstChild, view.columns[index].title + (index !== sort ? "" : direction > 0 ? " ▲" : " ▼"));
  });
}

function hideEmpty(filled) {
  const rows = [by("heading"), ...by("rows").children, ...by("others").children];
  for (const row of rows) filled.forEach((isShown, index) => { if (row.children[index]) row.children[index].hidden = !isShown; });
}

function openTable(name) {
  const view = TABLES[name];
  by("table").dataset.view = name;
  by("filter").value = tableState(name).filter;
  by("rows").replaceChildren();
  by("others").replaceChildren();
  write(by("count"), "");
  write(by("table-note"), "");
  by("heading").replaceChildren(...view.columns.map((one, index) => {
    const cell = element("th", undefined, one.isNumber ? "number" : ""), button = element("button", one.title);
    cell.scope = "col";
    button.type = "button";
    button.addEventListener("click", () => {
      const chosen = tableState(name);
      const direction = chosen.sort === index ? -chosen.direction : one.isNumber || one.form === time ? -1 : 1;
      Object.assign(chosen, { sort: index, direction });
      showTable(name);
    });
    cell.append(button);
    return cell;
  }));
  if (view.act) by("heading").append(element("th", view.act.title, "act"));
}

// Rows keep their elements, so that focus and selection survive the next turn.
function fill(body, view, rows) {
  const focused = document.activeElement, known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const keys = new Set();
  rows.forEach((data, index) => {
    let key = JSON.stringify(view.key(data));
    while (keys.has(key)) key += "+";
    keys.add(key);
    const row = known.get(key) || makeRow(view, key);
    row.data = data;
    view.columns.forEach((one, place) => {
      const cell = row.children[place];
      write(cell, one.form(sum(one.value(data))));
      cell.classList.toggle("bad", Boolean(one.isBad && one.isBad(data)));
    });
    if (view.act) write(row.lastChild.firstChild, view.act.label(data));
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] || null);
  });
  while (body.children.length > rows.length) body.lastChild.remove();
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

function makeRow(view, key) {
  const row = element("tr");
  row.dataset.key = key;
  const className = (one) => one.isNumber ? "number" : one.title === "text" ? "text long" : "text";
  row.append(...view.columns.map((one) => element("td", undefined, className(one))));
  if (view.act) {
    const cell = element("td", undefined, "act"), button = element("button");
    button.type = "button";
    button.addEventListener("click", () => view.act.open(row.data));
    cell.append(button);
    row.append(cell);
  }
  return row;
}

// ---- closing clients

function openKick(conditions) {
  const given = Object.entries(conditions || {}).filter(([, value]) => value !== null && value !== undefined);
  by("conditions").replaceChildren(element("legend", "Conditions"), ...given.map(([key, value]) => {
    const label = element("label"), box = element("input");
    Object.assign(box, { type: "checkbox", checked: true, name: key, value });
    box.addEventListener("change", judgeKick);
    label.append(box, value === true ? ` no ${key.replace("without_", "")}` : ` ${key} = ${value}`);
    return label;
  }));
  write(by("outcome"), "");
  write(by("cancel"), "Cancel");
  judgeKick();
  by("kick").showModal();
  by("cancel").focus();
}

const chosen = () => [...by("conditions").querySelectorAll("input:checked")];
const judgeKick = () => { by("confirm").disabled = chosen().length === 0; };

async function kick() {
  by("confirm").disabled = true;
  write(by("outcome"), "closing");
  try {
    const outcome = await ask("kick", Object.fromEntries(chosen().map((box) => [box.name, box.name.startsWith("without_") || box.value])));
    const missing = outcome.cores_missing.length ? "; some cores did not answer in time, try again" : "";
    write(by("outcome"), `closed ${outcome.closed} ${outcome.closed === 1 ? "client" : "clients"}${missing}`);
    write(by("cancel"), "Done");
  } catch (failure) {
    write(by("outcome"), `error: ${failure.message}`);
    judgeKick();
  }
  turn();
}

// ---- nodes taken out of routing, and back

function openDrain({ address, drained }) {
  const change = drained ? "undrain_node" : "drain_node", name = drained ? "Take back" : "Drain";
  write(by("drain-title"), `${name} ${address}`);
  write(by("drain-effect"), drained
    ? "The proxy sends queries to this node again."
    : "The proxy sends new queries to other nodes. Queries under way finish. A reload keeps this, a restart of the proxy does not.");
  write(by("drain-outcome"), "");
  write(by("drain-cancel"), "Cancel");
  write(by("drain-confirm"), name);
  Object.assign(by("drain-confirm"), { disabled: false, onclick: () => drain(change, address) });
  by("drain").showModal();
  by("drain-cancel").focus();
}

async function drain(change, address) {
  by("drain-confirm").disabled = true;
  write(by("drain-outcome"), "asking");
  try {
    const outcome = await ask(change, { node: address });
    const rest = outcome.in_flight === 1 ? "1 query is" : `${number(outcome.in_flight)} queries are`;
    write(by("drain-outcome"), outcome.drained ? `drained; ${rest} under way` : "taken back");
    write(by("drain-cancel"), "Done");
  } catch (failure) {
    write(by("drain-outcome"), `error: ${failure.message}`);
    by("drain-confirm").disabled = false;
  }
  turn();
}

// ---- any state as nested tables

function tree(value, depth = 0) {
  if (value === null || typeof value !== "object") return element("span", text(value));
  if (depth > 6) return element("span", JSON.stringify(value));
  const table = element("table"), body = element("tbody");
  const isObject = (one) => one && typeof one === "object" && !Array.isArray(one);
  const isList = Array.isArray(value) && value.length > 0 && value.every(isObject);
  if (isList) {
    const names = [...new Set(value.flatMap(Object.keys))], heading = element("tr");
    heading.append(...names.map((name) => element("th", name)));
    const head = element("thead");
    head.append(heading);
    table.append(head);
    for (const one of value.slice(0, ROWS_MAX)) body.append(cellsOf(names.map((name) => tree(one[name], depth + 1))));
  } else if (Array.isArray(value)) {
    return element("span", value.map((one) => typeof one === "object" ? JSON.stringify(one) : text(one)).join(", ") || nothing);
  } else {
    for (const [name, one] of Object.entries(value)) body.append(cellsOf([element("strong", name), tree(one, depth + 1)]));
  }
  table.append(body);
  return table;
}

function cellsOf(contents) {
  const row = element("tr");
  for (const content of contents) {
    const cell = element("td");
    cell.append(content);
    row.append(cell);
  }
  return row;
}

// ---- the page as a whole

function show() {
  const { status } = state, found = processOf(status);
  const other = Object.keys(NAMES).find((key) => key in status);
  const kind = found ? found.name : other ? NAMES[other] : "process";
  const cluster = found && status.ring ? ` of ${status.ring.cluster_name}` : "";
  state.version ||= status.version;
  const isOld = state.version !== status.version ? "; load this page again: the version has changed" : "";
  write(by("name"), `Shunt ${kind}${cluster}`);
  const raised = found ? found.alerts(status) : [];
  const bad = raised.filter((alert) => !alert.isQuiet).length;
  const ready = status.ready ? "ready" : `not ready: ${status.reason}`;
  write(by("state"), `${ready}; version ${status.version}, up ${duration(status.uptime_seconds)}${isOld}`);
  by("state").classList.toggle("bad", !status.ready);
  document.body.classList.remove("stale");
  document.title = `${bad ? `(${bad}) ` : ""}Shunt ${kind}${cluster}`;
  by("login").hidden = true;
  const names = found ? ["overview", ...found.tables, "runbook", "status"] : ["status"];
  if (!names.includes(state.view)) state.view = names[0];
  showNavigation(names, bad);
  for (const id of ["overview", "status"]) by(id).hidden = state.view !== id;
  by("table").hidden = !(state.view in TABLES);
  if (state.view === "overview") {
    const last = state.history[state.history.length - 1] || {};
    showTiles(found.subject, found.tiles(status), last);
    showCharts(charts(found.subject, found.latency), state.history, state.span, performance.now());
    showAlerts(raised);
  } else if (state.view === "status") {
    by("tree").replaceChildren(tree(status));
  } else {
    showTable(state.view);
  }
}

function showNavigation(names, bad) {
  const nav = by("nav");
  if (nav.children.length !== names.length) {
    nav.replaceChildren(...names.map((name) => {
      const link = element("a");
      link.href = `#${name}`;
      return link;
    }));
  }
  names.forEach((name, index) => {
    const link = nav.children[index], title = TABLES[name] ? TABLES[name].title : name[0].toUpperCase() + name.slice(1);
    write(link, name === "overview" && bad ? `${title} (${bad} ${bad === 1 ? "alert" : "alerts"})` : title);
    link.classList.toggle("bad", name === "overview" && bad > 0);
    if (name === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
}

function duration(seconds) {
  const [days, hours, minutes] = [seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60].map(Math.floor);
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min` : `${seconds} s`;
}

function complain(failure) {
  document.body.classList.add("stale");
  by("state").classList.add("bad");
  const since = state.updated ? ` The figures are from ${new Date(state.updated).toISOString().slice(11, 19)} UTC.` : "";
  const why = failure.status ? failure.message : failure.name === "TypeError" ? "the process cannot be reached" : failure.message;
  write(by("state"), `no answer: ${why}.${since}`);
  state.isLocked = failure.status === 401;
  if (state.isLocked) {
    write(by("login-error"), state.token ? "The token is not accepted." : "");
    state.token = null;
    if (by("login").hidden) {
      by("login").hidden = false;
      by("token").focus();
    }
  }
}

function choose() {
  const [name, filter] = location.hash.slice(1).split("=");
  if (name === "main") return;
  if (name in TABLES && filter !== undefined) {
    tableState(name).filter = filter;
    by("table").dataset.view = "";
  }
  state.view = name in TABLES || name === "status" ? name : "overview";
  if (state.status) show();
  turn();
}

by("pause").addEventListener("click", () => {
  state.isPaused = !state.isPaused;
  by("pause").setAttribute("aria-pressed", String(state.isPaused));
  if (!state.isPaused) turn();
});
by("login").addEventListener("submit", (event) => {
  event.preventDefault();
  state.token = by("token").value.trim();
  by("token").value = "";
  turn();
});
by("search").addEventListener("submit", (event) => event.preventDefault());
by("filter").addEventListener("input", () => {
  tableState(state.view).filter = by("filter").value;
  showTable(state.view);
});
by("confirm").addEventListener("click", kick);
window.addEventListener("hashchange", choose);
document.addEventListener("visibilitychange", () => { if (!document.hidden && !state.isPaused) turn(); });
choose();
