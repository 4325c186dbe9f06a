// What needs an operator's attention, as sentences: a fault that can be seen in one state of the fleet, what to do about it, and the rows that show it.

import { clock, count, percent, quoted, seconds } from "./text.js";

export const OLD_CALL_SECONDS = 30;
/** A call that was handed over may take long: its client does not wait for it. */
export const isLate = ({ age, state }) => age > OLD_CALL_SECONDS && state !== "handed over";
const LATE_LOOP_SECONDS = 0.25;
const RECENT_SECONDS = 30;
const MOST_TOOLS = 3; // More tools that fail are one sentence.

const LONG_WAITS = {
  handler: (calls) => `${count(calls, "call")} ${calls === 1 ? "does" : "do"} not return from the server’s own code. Look at the function, or cancel.`,
  ask: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for an answer of the client’s user. The call ends when the question’s time is over.`,
  upstream: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for the server behind, which does not answer.`,
  store: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for the store. Check that it is reachable and not overloaded.`,
  reader: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for a client that does not read its stream.`,
};
export const FINE = new Set(["attached", "live", "idle", "connected", "starting"]);
export const BROKEN = new Set(["silent", "gone", "failing"]);

/** A sentence: its tone (bad, warn), its text, and the section and the filter that show its rows. */
const say = (tone, sentence, section = "", filter = "") => ({ tone, sentence, section, filter });

function longWaits({ calls, servers }) {
  return Object.entries(LONG_WAITS).flatMap(([wait, sentence]) => {
    const old = calls.filter((call) => call.waits_for === wait && isLate(call));
    if (!old.length) return [];
    const oldest = old.reduce((one, other) => (one.age >= other.age ? one : other));
    const whose = servers.length > 1 && oldest.server ? ` of ${quoted(oldest.server)}` : "", who = oldest.client ? `, called by ${quoted(oldest.client)}` : "";
    return [say("warn", `${sentence(old.length)} The oldest: ${quoted(oldest.name || oldest.method)}${whose}${who}, ${clock(oldest.age)}.`, "calls", `waits:${wait}`)];
  });
}

function tools(state) {
  const failing = state.tools.filter((tool) => tool.recent.trouble).sort((one, other) => other.recent.errors - one.recent.errors);
  const found = failing.slice(0, MOST_TOOLS).map(({ name, server, recent }) => {
    const whole = state.servers.length > 1 ? `${quoted(name)} of ${quoted(server)}` : quoted(name);
    const { calls, errors, earlier_calls: before, earlier_errors: failed } = recent;
    if (recent.trouble === "rising") return say("bad", `${whole} fails more often: ${errors} of ${count(calls, "call")} in the last minute (${percent(errors / calls)}), ${percent(failed / before)} in the four minutes before. Its events have the errors.`, "tools", `tool:${name}`);
    return say("bad", `${whole} fails: ${errors + failed} of ${count(calls + before, "call")} in the last five minutes (${percent((errors + failed) / (calls + before))}). Its events have the errors.`, "tools", `tool:${name}`);
  });
  const more = failing.length - MOST_TOOLS;
  return more > 0 ? [...found, say("bad", `${count(more, "more tool")} ${more === 1 ? "fails" : "fail"}.`, "tools")] : found;
}

function replicas(state, events) {
  return state.replicas.flatMap((replica) => {
    const name = quoted(replica.name), filter = `replica:${replica.name}`;
    if (replica.state === "gone") return [say("bad", `Replica ${name} is gone: its lease has ended. Its calls have ended with an error.`, "replicas", filter)];
    if (BROKEN.has(replica.state)) {
      if (state.servers.some((server) => server.is_away)) return []; // It is asked through the store.
      const left = replica.lease_left == null ? "" : ` Its lease ends in ${clock(replica.lease_left)}; then its calls end with an error.`;
      return [say("bad", `Replica ${name} does not answer.${left}`, "replicas", filter)];
    }
    if (replica.loop_delay_max > LATE_LOOP_SECONDS) {
      // Each function is named once, perhaps long ago.
      const blocked = events.findLast(({ event, facts }) => event === "loop.blocked" && facts.replica === replica.name)?.facts;
      const where = blocked ? ` The last one that was named: ${quoted(blocked.function)} (${quoted(blocked.place)}).` : "";
      return [say("warn", `Replica ${name} was late by ${seconds(replica.loop_delay_max)} in the last minute: something blocks its event loop.${where}`, "replicas", filter)];
    }
    return [];
  });
}

function store(state, last) {
  const away = state.servers.filter((server) => server.is_away).map((server) => `${quoted(server.name)} (${quoted(server.store)})`);
  if (away.length) return [say("bad", `The store of ${away.join(", ")} does not answer. Calls in sessions wait for it or are refused, and this page shows only the work of one process.`, "calls", "waits:store")];
  const failed = last(["store.unreachable", "lease.not_renewed"]);
  return failed ? [say("bad", `The store did not answer ${clock(failed.ago)} ago. Calls in sessions wait for it or are refused.`, "feed", `event:${failed.event}`)] : [];
}

function authorization(last) {
  const failed = last(["verifier.failed"]);
  if (!failed) return [];
  const { authorization_server: server = "", reason = "" } = failed.facts;
  return [say("bad", `Tokens cannot be checked${server ? `: the authorization server ${quoted(server)} fails` : ""}${reason ? ` (${quoted(reason)})` : ""}. Clients with a new token are refused with 503.`, "feed", "event:verifier.failed")];
}

function queues(state, last) {
  const full = last(["queue.full"]), queued = state.figures.queued;
  if (full) return [say("warn", `The queue of ${full.facts.client ? `a session of ${quoted(full.facts.client)}` : "sessionless calls"} was full ${clock(full.ago)} ago: more calls are refused. The oldest calls hold the slots.`, "calls", full.facts.session ? `session:${full.facts.session}` : "")];
  return queued ? [say("warn", `${count(queued, "call")} ${queued === 1 ? "waits" : "wait"} for a free slot: all handlers are busy. The oldest calls hold the slots.`, "calls", "waits:slot")] : [];
}

/** Return the sentences, the worst first. `events` are the last ones, the oldest first. */
export function attention(state, events, now) {
  const last = (names, within = RECENT_SECONDS) => {
    const found = events.findLast((happened) => names.includes(happened.event)), ago = found ? now / 1000 - found.at : 0;
    return found && ago <= within ? { ...found, ago } : null;
  };
  const behind = state.upstreams.filter((upstream) => !FINE.has(upstream.state)).map((upstream) =>
    say(BROKEN.has(upstream.state) ? "bad" : "warn", `The server behind ${quoted(upstream.server)} is ${quoted(upstream.state)} on ${quoted(upstream.replica)}${upstream.reason && upstream.state === "failing" ? `: ${quoted(upstream.reason)}` : ""}.`, "upstreams", `server:${upstream.server}`));
  const found = [...store(state, last), ...authorization(last), ...replicas(state, events), ...tools(state), ...longWaits(state), ...behind, ...queues(state, last)];
  return found.sort((one, other) => (one.tone === "bad" ? 0 : 1) - (other.tone === "bad" ? 0 : 1));
}
