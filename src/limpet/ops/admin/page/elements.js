// Making and changing elements. Every text is set with textContent, never as HTML.

import { short } from "./text.js";

export const $ = (selector, inside = document) => inside.querySelector(selector);

export function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** Set text and class of an element, if they change. */
export function set(target, value, style, longest) {
  const text = short(value, longest);
  if (target.textContent !== text) target.textContent = text;
  if (target.className !== style) target.className = style;
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
