// The feed of events, and lists of events elsewhere.

import { $, element } from "./elements.js";
import { short, time } from "./text.js";

const KEPT = 300;
const BAD = /failed|unreachable|lost|reaped|not_renewed|refused|dropped|not_ready|ended$/;
const QUIET = new Set(["call.ended"]);
export const recent = []; // The oldest first.

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

/** Take new events, and show the feed, the newest event first. */
export function feed(events) {
  recent.push(...events);
  recent.splice(0, Math.max(0, recent.length - KEPT));
  if (events.length) showFeed();
}

export function showFeed() {
  const withCalls = $("#feed-calls").checked;
  $("#feed-list").replaceChildren(...lines(recent.filter((happened) => withCalls || !QUIET.has(happened.event))).reverse());
}
