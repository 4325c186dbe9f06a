// Shows one state of the fleet. Between two states ages count up and deadlines count down.

import { attention, BROKEN, FINE, isLate, OLD_CALL_SECONDS } from "./attention.js";
import { charts } from "./charts.js";
import { $, element, pairs, replace, set } from "./elements.js";
import { recent } from "./events.js";
import { isFiltered, matches } from "./filter.js";
import { cell, fill } from "./tables.js";
import { bytes, clock, count, percent, quoted, rate, seconds, short } from "./text.js";

const WAITS = {
  handler: "The server’s own code runs, or waits for something that Limpet does not know.",
  ask: "The client’s user has not answered a question yet. A parked call waits without a connection.",
  upstream: "The server behind this one has not answered.",
  store: "The store (Redis, SQLite) has not answered.",
  reader: "The client does not read its stream: its connection takes no more bytes.",
  slot: "It is queued: the session or the process has no free slot for a call.",
};
const WORDS = {
  "handed over": "The call took longer than its client waits. Its request is answered, it goes on, and the client collects the result.",
  attached: "The client is there: it has a connection, or its last connection ended in order.",
  detached: "The last connection of the client broke. The session waits for the client to come back, and is closed when its time is over.",
  era: "The revision of the protocol that the client speaks. Clients of 2026-07-28 have no sessions.",
  principal: "The user or program that the client’s token stands for; empty for clients without a token.",
  quiet: "How long ago the client sent its last request, or its last call ended.",
  log: "Messages that are kept, so that a client whose connection broke can read them again.",
  replica: "The server process. Several of them share a store.",
  lease: "The time for which the other replicas count a replica as alive without a sign of life.",
  "loop delay": "How late the process begins its next piece of work. Code that blocks makes it long.",
};
const QUIET_STATES = new Set(["running", "handed over"]);
const TILES = [
  ["Calls running", (f) => f.running, (f) => `${f.queued} queued · ${f.parked} parked · ${f.handed_over} handed over`],
  ["Sessions", (f) => f.attached + f.detached, (f) => `${f.attached} attached · ${f.detached} detached`],
  ["Calls per second", (f) => rate(f.calls_per_second), (f) => `median ${seconds(f.p50)} · 95 % ${seconds(f.p95)}`],
  ["Open questions", (f) => f.asks, () => "to users of clients"],
  ["Open streams", (f) => f.streams, (f) => `${bytes(f.log_bytes)} of messages kept`],
  ["Loop delay", (f) => seconds(f.loop_delay), (f) => `at most ${seconds(f.loop_delay_max)} in a minute`],
];

const tone = (state) => (FINE.has(state) ? "fine" : BROKEN.has(state) ? "bad" : "warn");

function aged(state, passed) {
  const later = (value) => (value == null ? null : value + passed), sooner = (value) => (value == null ? null : Math.max(0, value - passed));
  return {
    ...state,
    calls: state.calls.map((call) => ({ ...call, age: later(call.age) })).sort((one, other) => (other.age ?? 0) - (one.age ?? 0)),
    sessions: state.sessions.map((session) => ({ ...session, closes_in: sooner(session.closes_in), quiet: later(session.quiet) })),
    upstreams: state.upstreams.map((upstream) => ({ ...upstream, worked: later(upstream.worked), failed: later(upstream.failed) })),
    tools: state.tools.map((tool) => ({ ...tool, recent: { ...tool.recent, slowest: later(tool.recent.slowest) } })),
    replicas: state.replicas.map((replica) => ({ ...replica, lease_left: sooner(replica.lease_left) })),
  };
}

/** Show the sentences. An element stays while its sentence changes, so that its button keeps the focus. */
function showAttention(found, go) {
  const list = $("#attention ul");
  const shown = found.length ? found : [{ tone: "fine", sentence: "Nothing needs attention.", section: "" }];
  while (list.children.length > shown.length) list.lastChild.remove();
  shown.forEach(({ tone, sentence, section, filter }, index) => {
    let line = list.children[index];
    if (!line) {
      line = element("li");
      const button = element("button", "Show", { type: "button", class: "link" });
      button.addEventListener("click", () => go(line.dataset.section, line.dataset.filter));
      line.append(element("span"), button);
      list.append(line);
    }
    set(line.firstChild, sentence, "", Infinity);
    if (line.className !== tone) line.className = tone;
    line.lastChild.hidden = !section;
    Object.assign(line.dataset, { section, filter: filter ?? "" });
  });
}

function showTiles(figures) {
  replace($("#tiles"), TILES.map(([label, value, more]) => {
    const tile = element("li");
    tile.append(element("span", label), element("b", value(figures)), element("small", more(figures)));
    return tile;
  }));
}

/** Return the cells of recent calls: their rate, errors, durations, and the oldest that runs. */
function recentCells({ calls, calls_per_second: pace, errors, p50, p95, slowest, trouble }) {
  const share = calls ? errors / calls : 0, style = trouble ? "bad" : errors ? "warn" : "";
  return [cell(rate(pace), "", pace), cell(errors || "", style, errors), cell(errors ? percent(share) : "", style, share), cell(calls ? seconds(p50) : "", "", p50),
    cell(calls ? seconds(p95) : "", "", p95), cell(slowest == null ? "" : clock(slowest), slowest > OLD_CALL_SECONDS ? "warn" : "", slowest)];
}

const ago = (since) => (since == null ? "" : `${clock(since)} ago`);

function showTools(state) {
  const several = state.servers.length > 1;
  const seen = state.tools.filter(({ name, server }) => matches({ tool: name, server }));
  fill("tools", seen, (tool) => `${tool.server} ${tool.name}`, (tool) => [cell(tool.name, "name"), cell(several ? tool.server : "", "name"), ...recentCells(tool.recent)]);
  counted("tools", seen, state.tools);
  fill("upstreams", state.upstreams.filter(({ server, replica }) => matches({ server, replica })), (upstream) => `${upstream.server} ${upstream.replica}`,
    (upstream) => [cell(upstream.server, "name"), cell(upstream.state, tone(upstream.state)), ...recentCells(upstream.recent), cell(upstream.connections), cell(upstream.restarts || ""), cell(ago(upstream.worked), "", upstream.worked),
      cell(upstream.failed == null ? "" : `${ago(upstream.failed)}: ${upstream.reason}`, upstream.state === "failing" ? "bad" : "", upstream.failed), cell(upstream.replica, "id")]);
}

function counted(id, seen, all) {
  $(`#${id} .count`).textContent = seen.length === all.length ? all.length : `${seen.length} of ${all.length}`;
}

function showCalls(calls, act) {
  const seen = calls.filter(({ id, name, method, client, session, principal, replica, waits_for: waits, state }) =>
    matches({ id, tool: name || method, client, session, principal, replica, waits, state }));
  fill("calls", seen, (call) => call.id,
    (call) => [cell(call.name || call.method, "name"), cell(call.id, "id"), cell(call.state, QUIET_STATES.has(call.state) ? "" : "warn"), cell(call.waits_for, "wait"),
      cell(call.age == null ? "" : clock(call.age), isLate(call) ? "warn" : "", call.age), cell(call.client, "name"),
      cell(call.session, "id"), cell(call.era), cell(call.principal, "id"), cell(call.replica, "id")],
    (call) => act("Cancel", "Cancel the call", `Cancel the call of ${quoted(call.name || call.method)} by ${quoted(call.client)}? Its client receives an error.`, `calls/${encodeURIComponent(call.id)}/cancel`));
  counted("calls", seen, calls);
}

const NO_SESSIONS = { true: "The sessions are not known: their store does not answer.", false: "No session is open. Sessionless clients have none." };

function showSessions(state, page, act, details) {
  set($("section:has(#sessions) .empty"), NO_SESSIONS[state.servers.some((server) => server.is_away)], "empty", Infinity);
  const seen = state.sessions.filter(({ id, client, principal, replica, state: now }) => matches({ session: id, client, principal, replica, now }));
  fill("sessions", seen, (session) => session.id,
    (session) => [cell(session.id, "id", session.id, () => details(session.id)), cell(session.client, "name"), cell(session.era), cell(session.state, tone(session.state)),
      cell(session.calls || "", "", session.calls), cell(session.quiet == null ? "" : clock(session.quiet), "", session.quiet), cell(session.closes_in == null ? "" : clock(session.closes_in), "", session.closes_in),
      cell(session.streams || "", "", session.streams), cell(session.log_bytes ? bytes(session.log_bytes) : "", "", session.log_bytes), cell(session.principal, "id"), cell(session.replica, "id")],
    (session) => act("Close", "Close the session", `Close session ${session.id} of ${quoted(session.client)}? Its calls are cancelled, and its client must open a new session.`, `sessions/${encodeURIComponent(session.id)}/close`));
  const all = state.figures.attached + state.figures.detached, isWhole = page === 1 && !state.next_page;
  $("#sessions .count").textContent = all;
  $("#previous").disabled = page < 2;
  $("#next").disabled = !state.next_page;
  $(".pages").hidden = isWhole;
  $("#page-number").textContent = `page ${page}, ${count(seen.length, "session")}${isFiltered() ? " of this page match" : ""}`;
}

function showRest(state) {
  const several = state.servers.length > 1;
  fill("replicas", state.replicas.filter(({ name, server, state: now }) => matches({ replica: name, server, now })), (replica) => `${replica.name} ${replica.server}`,
    (replica) => [cell(several && replica.server ? `${replica.name} · ${replica.server}` : replica.name, "id"), cell(replica.state, tone(replica.state)), cell(replica.lease_left == null ? "" : clock(replica.lease_left), "", replica.lease_left),
      cell(replica.sessions ?? ""), cell(replica.calls ?? ""), cell(seconds(replica.loop_delay), "", replica.loop_delay), cell(seconds(replica.loop_delay_max), "", replica.loop_delay_max)]);
  replace($("#counts-list"), pairs(Object.entries(state.counts).map(([name, value]) => [name.replaceAll("_", " "), value])));
}

for (const [id, meanings] of [["#waits", WAITS], ["#words", WORDS]]) replace($(id), pairs(Object.entries(meanings)));

/** Show a state that was received some seconds ago. Returns how many things need attention. */
export function show(received, passed, page, act, details, go) {
  const state = aged(received, passed);
  const found = attention(state, recent, Date.now());
  $("#servers").textContent = state.servers.map((server) => `${short(server.name)} ${short(server.version)}`.trim()).join(" · ");
  showAttention(found, go);
  showTiles(state.figures);
  charts(state.history);
  showTools(state);
  showCalls(state.calls, act);
  showSessions(state, page, act, details);
  showRest(state);
  return found.length;
}
