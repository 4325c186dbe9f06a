// Shows one state of the fleet. Between two states ages count up and deadlines count down.

import { attention, BROKEN, FINE, OLD_CALL_SECONDS } from "./attention.js";
import { charts } from "./charts.js";
import { $, element, fill, pairs, replace } from "./elements.js";
import { recent } from "./events.js";
import { bytes, clock, count, quoted, rate, seconds, short } from "./text.js";

const WAITS = {
  handler: "The server’s own code runs, or waits for something that Holdfast does not know.",
  ask: "The client’s user has not answered a question yet. A parked call waits without a connection.",
  upstream: "The server behind this one has not answered.",
  store: "The store (Redis, SQLite) has not answered.",
  reader: "The client does not read its stream, and the stream’s buffer is full.",
  slot: "It is queued: the session or the process has no free slot for a call.",
};
const WORDS = {
  attached: "The client is there: it has a connection, or its last connection ended in order.",
  detached: "The last connection of the client broke. The session waits for the client to come back, and is closed when its time is over.",
  era: "The revision of the protocol that the client speaks. Clients of 2026-07-28 have no sessions.",
  principal: "The user or program that the client’s token stands for; empty for clients without a token.",
  log: "Messages that are kept, so that a client whose connection broke can read them again.",
  replica: "The server process. Several of them share a store.",
  lease: "The time for which the other replicas count a replica as alive without a sign of life.",
  "loop delay": "How late the process begins its next piece of work. Code that blocks makes it long.",
};
const TILES = [
  ["Calls running", (f) => f.running, (f) => `${f.queued} queued · ${f.parked} parked`],
  ["Sessions", (f) => f.attached + f.detached, (f) => `${f.attached} attached · ${f.detached} detached`],
  ["Calls per second", (f) => rate(f.calls_per_second), (f) => `median ${seconds(f.p50)} · 95 % ${seconds(f.p95)}`],
  ["Open questions", (f) => f.asks, () => "to users of clients"],
  ["Open streams", (f) => f.streams, (f) => `${bytes(f.log_bytes)} of messages kept`],
  ["Loop delay", (f) => seconds(f.loop_delay), () => "of the slowest replica"],
];

const tone = (state) => (FINE.has(state) ? "fine" : BROKEN.has(state) ? "bad" : "warn");

function matches(...texts) {
  const wanted = $("#filter").value.trim().toLowerCase();
  return !wanted || texts.some((text) => String(text ?? "").toLowerCase().includes(wanted));
}

function aged(state, passed) {
  const later = (value) => (value == null ? null : value + passed), sooner = (value) => (value == null ? null : Math.max(0, value - passed));
  return {
    ...state,
    calls: state.calls.map((call) => ({ ...call, age: later(call.age) })).sort((one, other) => (other.age ?? 0) - (one.age ?? 0)),
    sessions: state.sessions.map((session) => ({ ...session, closes_in: sooner(session.closes_in) })),
    replicas: state.replicas.map((replica) => ({ ...replica, lease_left: sooner(replica.lease_left) })),
  };
}

function showAttention(found) {
  const shown = found.length ? found : [["fine", "Nothing needs attention."]];
  replace($("#attention ul"), shown.map(([style, sentence]) => element("li", sentence, { class: style })));
}

function showTiles(figures) {
  replace($("#tiles"), TILES.map(([label, value, more]) => {
    const tile = element("li");
    tile.append(element("span", label), element("b", value(figures)), element("small", more(figures)));
    return tile;
  }));
}

function showCalls(calls, act) {
  const seen = calls.filter((call) => matches(call.id, call.name, call.method, call.client, call.session, call.principal, call.replica, call.waits_for, call.state));
  fill("calls", seen, (call) => call.id,
    (call) => [[call.name || call.method, "name"], [call.id, "id"], [call.state, call.state === "running" ? "" : "warn"], [call.waits_for, "wait"],
      [call.age == null ? "" : clock(call.age), call.age > OLD_CALL_SECONDS ? "warn" : ""], [call.client, "name"],
      [call.session, "id"], call.era, [call.principal, "id"], [call.replica, "id"]],
    (call) => act("Cancel", "Cancel the call", `Cancel the call of ${quoted(call.name || call.method)} by ${quoted(call.client)}? Its client receives an error.`, `calls/${encodeURIComponent(call.id)}/cancel`));
  $("#calls .count").textContent = seen.length === calls.length ? calls.length : `${seen.length} of ${calls.length}`;
}

function showSessions(state, page, act, details) {
  const seen = state.sessions.filter((session) => matches(session.id, session.client, session.principal, session.replica, session.state));
  fill("sessions", seen, (session) => session.id,
    (session) => [[session.id, "id", () => details(session.id)], [session.client, "name"], session.era, [session.state, tone(session.state)],
      session.closes_in == null ? "" : clock(session.closes_in), session.calls, session.streams, bytes(session.log_bytes), [session.principal, "id"], [session.replica, "id"]],
    (session) => act("Close", "Close the session", `Close session ${session.id} of ${quoted(session.client)}? Its calls are cancelled, and its client must open a new session.`, `sessions/${encodeURIComponent(session.id)}/close`));
  const all = state.figures.attached + state.figures.detached, isWhole = page === 1 && !state.next_page;
  $("#sessions .count").textContent = all;
  $("#previous").disabled = page < 2;
  $("#next").disabled = !state.next_page;
  $(".pages").hidden = isWhole;
  $("#page-number").textContent = `page ${page}, ${count(seen.length, "session")}${$("#filter").value.trim() ? " of this page match" : ""}`;
}

function showRest(state) {
  const several = state.servers.length > 1;
  fill("replicas", state.replicas, (replica) => `${replica.name} ${replica.server}`,
    (replica) => [[several && replica.server ? `${replica.name} · ${replica.server}` : replica.name, "id"], [replica.state, tone(replica.state)], replica.lease_left == null ? "" : clock(replica.lease_left),
      replica.sessions ?? "", replica.calls ?? "", seconds(replica.loop_delay)]);
  fill("upstreams", state.upstreams, (upstream) => `${upstream.server} ${upstream.replica}`,
    (upstream) => [[upstream.server, "name"], [upstream.state, tone(upstream.state)], upstream.connections, upstream.restarts, [upstream.replica, "id"]]);
  replace($("#counts-list"), pairs(Object.entries(state.counts).map(([name, value]) => [name.replaceAll("_", " "), value])));
}

for (const [id, meanings] of [["#waits", WAITS], ["#words", WORDS]]) replace($(id), pairs(Object.entries(meanings)));

/** Show a state that was received some seconds ago. Returns how many things need attention. */
export function show(received, passed, page, act, details) {
  const state = aged(received, passed);
  const found = attention(state, recent, Date.now());
  $("#servers").textContent = state.servers.map((server) => `${short(server.name)} ${short(server.version)}`.trim()).join(" · ");
  showAttention(found);
  showTiles(state.figures);
  charts(state.history);
  showCalls(state.calls, act);
  showSessions(state, page, act, details);
  showRest(state);
  return found.length;
}
