// Making and changing elements. Every text is set with textContent, never as HTML.

import { short } from "./text.js";

export const $ = (selector, inside = document) => inside.querySelector(selector);

export function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function set(target, value, style) {
  const text = short(value);
  if (target.textContent !== text) target.textContent = text;
  if (target.className !== style) target.className = style;
}

/**
 * Show things in a table. The row of a thing that stays is kept, so that focus and selection survive an update.
 * A cell is a text, or a text with a class, or a text with a class and the function of its button.
 */
export function fill(id, things, key, cells, action) {
  const table = $(`#${id}-table`), body = $("tbody", table), heads = [...table.querySelectorAll("th")];
  const wanted = new Set(things.map(key));
  for (const row of [...body.children]) if (!wanted.has(row.dataset.key)) row.remove();
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  things.forEach((thing, index) => {
    const name = key(thing);
    let row = known.get(name);
    if (!row) {
      row = element("tr");
      row.dataset.key = name;
      for (const head of heads) row.append(element("td", "", { "data-label": head.textContent }));
      if (action) row.lastChild.append(action(thing));
    }
    cells(thing).forEach((cell, column) => {
      const [text, style = "", pressed = null] = Array.isArray(cell) ? cell : [cell];
      const target = row.children[column];
      if (pressed && !target.firstElementChild) {
        const button = element("button", "", { type: "button" });
        button.addEventListener("click", () => pressed());
        target.append(button);
      }
      set(pressed ? target.firstElementChild : target, text, pressed ? "link" : `${heads[column].className} ${style}`.trim());
      if (pressed) target.className = style;
    });
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
}

/** Replace the children of an element only if their texts or classes change. */
export function replace(target, children) {
  const same = target.children.length === children.length && children.every((child, index) => child.isEqualNode(target.children[index]));
  if (!same) target.replaceChildren(...children);
}

/** Return the rows of a list of names and values. */
export function pairs(values) {
  return values.map(([name, value]) => {
    const row = element("div", "", value === 0 ? { class: "zero" } : {});
    row.append(element("dt", short(name)), element("dd", short(value)));
    return row;
  });
}
