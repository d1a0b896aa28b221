// The page for browsers of a dispatcher and of a sidecar: their figures, tables and alerts.
"use strict";

const shareOf = (part, all) => all > 0 ? `${number(100 * part / all)} %` : nothing;
const upOf = (rows, isUp) => {
  const up = rows.filter(isUp).length;
  return [`${up} of ${rows.length}`, up < rows.length];
};

Object.assign(TABLES, {
  backends: {
    title: "Backends", page: "status", sort: ["p99 ms", -1], key: (row) => [row.address],
    rows: (page) => page.dispatcher.backends,
    note: "Times run from a request to the head of its answer, since the dispatcher has started.",
    columns: [
      column("backend", "address"), column("state", "state", text, { isBad: (row) => row.links === 0 }),
      column("links", "links", number, { isBad: (row) => row.links === 0 }), column("links lost", "links_lost", number),
      column("in flight", "in_flight", number), column("requests/s", "rate", decimal), column("requests", "requests", number),
      column("p50 ms", "microseconds.p50", microseconds), column("p99 ms", "microseconds.p99", microseconds),
    ],
  },
  ways: {
    title: "Answers", page: "status", sort: ["answers", -1], key: (row) => [row.group, row.name],
    rows: ({ dispatcher }) => {
      const row = (group) => ([name, count]) => ({ group, name: name.replaceAll("_", " "), count });
      return [
        ...Object.entries({ relayed: dispatcher.answers_relayed, "handed over": dispatcher.answers_handed_over }).map(row("whole answers")),
        ...Object.entries(dispatcher.relayed).map(row("relayed though offered")),
        ...Object.entries(dispatcher.handovers_ended).map(row("hand-overs ended")),
      ].filter(({ count }) => count > 0);
    },
    columns: [column("group", "group"), column("name", "name"), column("answers", "count", number)],
  },
  servers: {
    title: "Servers", page: "status", sort: ["p99 ms", -1], key: (row) => [row.server],
    rows: (page) => page.multiget.servers,
    note: "Times run from a command over TCP to its answer, since the sidecar has started.",
    columns: [
      column("server", "server"), column("shim", "shim"),
      column("state", "state", text, { isBad: (row) => row.up === false, value: (row) => row.up === null ? "no connection" : row.up ? "up" : "down" }),
      column("answers/s", "rate", decimal), column("answers", "microseconds.count", number),
      column("p50 ms", "microseconds.p50", microseconds), column("p99 ms", "microseconds.p99", microseconds),
    ],
  },
});

// Both have the hosts of their clients in the same form.
const hosts = (title, heading, part) => ({
  title, page: "status", sort: ["requests/s", -1], key: (row) => [row.address], rows: (page) => part(page).client_hosts.hosts,
  others: (page) => {
    const { others } = part(page).client_hosts;
    return others.connections + others.requests > 0 ? [{ address: "(others)", ...others }] : [];
  },
  columns: [
    column(heading, "address"), column("connections", "connections", number), column("requests/s", "rate", decimal),
    column("requests", "requests", number), column("errors", "errors", number),
  ],
});
Object.assign(TABLES, {
  hosts: hosts("Clients", "client", (page) => page.dispatcher),
  applications: hosts("Applications", "application's host", (page) => page.multiget),
});

function relayAlerts(status) {
  const found = [];
  const add = (what, advice, rule = "") => found.push({ what, advice, rule, isQuiet: false });
  if (!status.ready) add(`Not ready: ${status.reason}`, "The log says more.", "");
  if (status.dispatcher) {
    const { backends, loops_handing_over: hands, handover } = status.dispatcher;
    const isCutOff = backends.every((backend) => backend.links === 0);
    for (const { address } of backends.filter((backend) => backend.links === 0)) {
      add(`Backend ${address} cannot be reached`, "Look at its agent, and at the network to it.", isCutOff ? "ShuntDispatchWithoutAgents" : "");
    }
    if (hands === 0 && handover !== "off") {
      add(`No connection is handed over: ${handover}`, "Answers go through the dispatcher.", "ShuntDispatchRelaysAll");
    }
  }
  for (const { server } of (status.multiget ? status.multiget.servers : []).filter((one) => one.up === false)) {
    add(`Server ${server} does not answer`, "Look at the server, the network to it, and its login.", "ShuntSidecarServerDown");
  }
  return found;
}

const RELAYS = {
  dispatcher: {
    name: "dispatcher", subject: "answers", latency: "Time to the head of an answer", tables: ["backends", "ways", "hosts"],
    rated: ({ dispatcher }) => [[dispatcher.backends, "address", "requests"], [dispatcher.client_hosts.hosts, "address", "requests"]],
    alerts: relayAlerts,
    tiles: ({ dispatcher }) => [
      ["clients", number(dispatcher.clients)], ["with agents", number(dispatcher.away)],
      ["handed over", shareOf(dispatcher.answers_handed_over, dispatcher.answers_handed_over + dispatcher.answers_relayed)],
      ["backends up", ...upOf(dispatcher.backends, (backend) => backend.links > 0)],
    ],
  },
  multiget: {
    name: "sidecar", subject: "commands", latency: "Latency of GET and MGET", tables: ["servers", "applications"],
    rated: ({ multiget }) => [[multiget.servers, "server", "answers"], [multiget.client_hosts.hosts, "address", "requests"]],
    alerts: relayAlerts,
    tiles: ({ multiget }) => [
      ["applications", number(multiget.clients)], ["multigets", number(multiget.under_way)],
      ["servers silent", number(multiget.silent), multiget.silent > 0],
      ["servers up", ...upOf(multiget.servers, (server) => server.up !== false)],
    ],
  },
};
