// The feed of events, and lists of events elsewhere.

import { $, element } from "./elements.js";
import { matches } from "./filter.js";
import { short, time } from "./text.js";

const KEPT = 300;
const BAD = /failed|failing|blocked|unreachable|lost|reaped|not_renewed|refused|dropped|not_ready|slow|unanswered|stalled|full|gone|ended$/;
const QUIET = new Set(["call.ended"]);
export const recent = []; // The oldest first. Calls that succeeded are kept apart: they are many.
const quiet = [];

/** Return the lines of events: the time, the event, its facts. */
export function lines(events) {
  return events.map((happened) => {
    const isBad = BAD.test(happened.event) && !QUIET.has(happened.event);
    const line = element("li"), facts = element("span", "", { class: "facts" });
    for (const [name, value] of Object.entries(happened.facts)) {
      const fact = element("span");
      fact.append(element("i", `${name} `), element("bdi", short(value)));
      facts.append(fact);
    }
    line.append(element("time", time(happened.at * 1000), { datetime: new Date(happened.at * 1000).toISOString() }),
      element("b", happened.event, isBad ? { class: "bad" } : {}), facts);
    return line;
  });
}

function keep(kept, events) {
  kept.push(...events);
  kept.sort((one, other) => one.at - other.at); // Replicas report at different moments.
  kept.splice(0, Math.max(0, kept.length - KEPT));
}

/** Take new events, and show the feed, the newest event first. */
export function feed(events) {
  if (!events.length) return;
  keep(recent, events.filter((happened) => !QUIET.has(happened.event)));
  keep(quiet, events.filter((happened) => QUIET.has(happened.event)));
  showFeed();
}

/** Forget all events: another process numbers them now. */
export function forget() {
  recent.length = quiet.length = 0;
}

export function showFeed() {
  const shown = $("#feed-calls").checked ? [...recent] : recent;
  if (shown !== recent) keep(shown, quiet);
  const found = shown.filter(({ event, facts }) => matches({ event, ...facts, waits: facts.waits_for }, false));
  $("#feed-list").replaceChildren(...lines(found).reverse());
}
