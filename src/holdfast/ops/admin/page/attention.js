// What needs an operator's attention, as sentences: a fault that can be seen in one state of the fleet, and what to do about it.

import { clock, count, quoted, seconds } from "./text.js";

export const OLD_CALL_SECONDS = 30;
const LATE_LOOP_SECONDS = 0.25;
const RECENT_SECONDS = 30;

const LONG_WAITS = {
  handler: (calls) => `${count(calls, "call")} ${calls === 1 ? "does" : "do"} not return from the server’s own code. Look at the function, or cancel.`,
  ask: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for an answer of the client’s user. The call ends when the question’s time is over.`,
  upstream: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for the server behind, which does not answer.`,
  store: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for the store. Check that it is reachable and not overloaded.`,
  reader: (calls) => `${count(calls, "call")} ${calls === 1 ? "waits" : "wait"} for a client that does not read its stream.`,
};
export const FINE = new Set(["attached", "live", "idle", "connected"]);
export const BROKEN = new Set(["silent", "gone", "failing"]);

function longWaits(calls) {
  return Object.entries(LONG_WAITS).flatMap(([wait, sentence]) => {
    const old = calls.filter((call) => call.waits_for === wait && call.age > OLD_CALL_SECONDS);
    if (!old.length) return [];
    const oldest = old.reduce((one, other) => (one.age >= other.age ? one : other));
    return [["warn", `${sentence(old.length)} The oldest: ${quoted(oldest.name || oldest.method)}, ${clock(oldest.age)}.`]];
  });
}

function replicas(state) {
  return state.replicas.flatMap((replica) => {
    if (replica.state === "gone") return [["bad", `Replica ${quoted(replica.name)} is gone: its lease has ended. Its calls have ended with an error.`]];
    if (BROKEN.has(replica.state)) {
      const left = replica.lease_left == null ? "" : ` Its lease ends in ${clock(replica.lease_left)}; then its calls end with an error.`;
      return [["bad", `Replica ${quoted(replica.name)} does not answer.${left}`]];
    }
    if (replica.loop_delay > LATE_LOOP_SECONDS) return [["warn", `Replica ${quoted(replica.name)} is late by ${seconds(replica.loop_delay)}: something blocks its event loop.`]];
    return [];
  });
}

function store(state, events, now) {
  const away = state.servers.filter((server) => server.is_away).map((server) => quoted(server.name));
  if (away.length) return [["bad", `The store of ${away.join(", ")} does not answer. Calls in sessions wait for it or are refused, and this page shows only the work of one process.`]];
  const last = events.findLast((happened) => ["store.unreachable", "process.not_ready", "lease.not_renewed"].includes(happened.event));
  if (!last || now / 1000 - last.at > RECENT_SECONDS) return [];
  return [["bad", `The store did not answer ${clock(now / 1000 - last.at)} ago. Calls in sessions wait for it or are refused.`]];
}

/** Return pairs of a tone (bad, warn) and a sentence, the worst first. `events` are the last ones, the oldest first. */
export function attention(state, events, now) {
  const found = [...store(state, events, now), ...replicas(state), ...longWaits(state.calls)];
  for (const upstream of state.upstreams) {
    if (!FINE.has(upstream.state)) found.push([BROKEN.has(upstream.state) ? "bad" : "warn", `The server behind ${quoted(upstream.server)} is ${quoted(upstream.state)} on ${quoted(upstream.replica)}.`]);
  }
  const queued = state.figures.queued;
  if (queued) found.push(["warn", `${count(queued, "call")} ${queued === 1 ? "waits" : "wait"} for a free slot: all handlers are busy. The oldest calls below hold the slots.`]);
  return found.sort(([one], [other]) => (one === "bad" ? 0 : 1) - (other === "bad" ? 0 : 1));
}
