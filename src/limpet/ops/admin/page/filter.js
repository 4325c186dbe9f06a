// The filter of the tables and events: a text that any field contains, or `field:text`, where one field is exactly this text.

import { $ } from "./elements.js";

const FIELD = /^(tool|waits|session|client|replica|server|event):(.+)$/;

/** Return true if a thing passes the filter. `fields` are its texts by name; a thing without the named field passes if `open`. */
export function matches(fields, open = true) {
  const wanted = $("#filter").value.trim().toLowerCase();
  if (!wanted) return true;
  const texts = Object.entries(fields).map(([name, value]) => [name, String(value ?? "").toLowerCase()]);
  const [, name, text] = FIELD.exec(wanted) ?? [];
  if (!name) return texts.some(([, value]) => value.includes(wanted));
  const found = texts.find(([field]) => field === name);
  return found ? found[1] === text : open;
}

export const isFiltered = () => $("#filter").value.trim() !== "";
