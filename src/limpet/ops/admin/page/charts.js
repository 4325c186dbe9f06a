// Line charts of the last five minutes, one point for each second; of the last minute, if the server has just started. The pointer over a chart shows the values of that second.

import { $, element } from "./elements.js";
import { clock, rate, seconds, time } from "./text.js";

const POINTS = 300, FEWEST = 60, WIDTH = 600, HEIGHT = 120, FLOOR = 119;
const CHARTS = [
  { id: "rate", lines: [["first", 0, ""]], form: rate, least: 1 },
  { id: "errors", lines: [["failed", 3, "failed"], ["second", 4, "refused"]], form: rate, least: 1 },
  { id: "latency", lines: [["first", 1, "median"], ["second", 2, "95 %"]], form: seconds, least: 0.01 },
];
const pointed = {}; // By chart: how many seconds ago the pointer is.
const seen = {}; // By chart: how many seconds it shows.

function shape(tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Return the next round number: 1, 2 or 5 times a power of ten. */
function round(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

/** Return how many seconds a chart shows. */
const span = (points) => Math.max(FEWEST, points.length);

function draw({ id, lines, form, least }, points) {
  const columns = lines.map(([style, column, label]) => [style, points.map((point) => point[column]), label]);
  const top = round(Math.max(least, ...columns.flatMap(([, values]) => values)));
  const shown = span(points);
  const x = (index) => (WIDTH - (points.length - 1 - index) * (WIDTH / (shown - 1))).toFixed(1);
  const children = [1, HEIGHT / 2, FLOOR].map((y) => shape("line", { x1: 0, x2: WIDTH, y1: y, y2: y }));
  for (const [style, values] of columns) {
    if (!values.length) continue;
    const path = values.map((value, index) => `${x(index)},${(FLOOR - (value / top) * (FLOOR - 1)).toFixed(1)}`).join("L");
    if (style === "first" || style === "failed") children.push(shape("path", { class: `area ${style}`, d: `M${x(0)},${FLOOR}L${path}L${WIDTH},${FLOOR}Z` }));
    children.push(shape("path", { class: style, d: `M${path}` }));
  }
  const ago = Math.min(pointed[id] ?? 0, points.length - 1), at = points.length - 1 - ago;
  if (pointed[id] != null && at >= 0) children.push(shape("line", { class: "pointed", x1: x(at), x2: x(at), y1: 0, y2: HEIGHT }));
  $(`#${id}`).replaceChildren(...children);
  $(`#${id}`).nextElementSibling.textContent = form(top);
  $(`#${id}-legend`).previousElementSibling.textContent = `${shown % 60 ? clock(shown) : `${shown / 60} min`} ago`;
  seen[id] = shown;
  $(`#${id}-legend`).replaceChildren(
    ...columns.flatMap(([style, values, label]) => [element("span", "", { class: `swatch ${style}` }), element("span", `${label} ${form(values[at] ?? 0)}`.trim())]),
    element("span", pointed[id] == null || at < 0 ? "" : `at ${time(Date.now() - ago * 1000)}`));
}

/** Draw the points, the oldest first: calls per second, median and 95th percentile of their durations, failed and refused ones per second. */
export function charts(points) {
  for (const chart of CHARTS) draw(chart, points.slice(-POINTS));
}

/** Follow the pointer; `changed` is called when a chart must be drawn again. */
export function follow(changed) {
  for (const { id } of CHARTS) {
    const svg = $(`#${id}`);
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      pointed[id] = Math.round((1 - (event.clientX - box.left) / box.width) * ((seen[id] ?? POINTS) - 1));
      changed();
    });
    svg.addEventListener("pointerleave", () => { delete pointed[id]; changed(); });
  }
}
