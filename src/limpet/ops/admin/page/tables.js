// Tables that keep their rows, can be sorted by any column, and hide the columns in which no row has anything.

import { $, element, set } from "./elements.js";

const orders = {}; // By table: the column that the operator has chosen, and its direction.
const heads = (table) => [...table.querySelectorAll("thead th")];

function compare(one, other) {
  if (one == null || one === "") return other == null || other === "" ? 0 : 1; // Nothing is last in both directions.
  if (other == null || other === "") return -1;
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
}

function ordered(id, things, cells) {
  const order = orders[id];
  if (!order) return things;
  const values = new Map(things.map((thing) => [thing, cells(thing)[order.column].value]));
  return [...things].sort((one, other) => {
    const [first, second] = [values.get(one), values.get(other)];
    const found = compare(first, second);
    return order.isDescending && first != null && first !== "" && second != null && second !== "" ? -found : found;
  });
}

/** Return a cell: a text, its class, the value to sort by, and the function of its button. */
export const cell = (text, style = "", value = text, pressed = null) => ({ text, style, value, pressed });

/**
 * Show things in a table. The row of a thing that stays is kept, so that focus and selection survive an update.
 * `cells` returns the cells of a thing.
 */
export function fill(id, things, key, cells, action) {
  const table = $(`#${id}-table`), body = $("tbody", table), columns = heads(table);
  const wanted = new Set(things.map(key));
  for (const row of [...body.children]) if (!wanted.has(row.dataset.key)) row.remove();
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const used = columns.map((_, column) => action != null && column === columns.length - 1);
  ordered(id, things, cells).forEach((thing, index) => {
    const row = known.get(key(thing)) ?? made(columns, key(thing), action?.(thing));
    cells(thing).forEach(({ text, style, pressed }, column) => {
      const target = row.children[column];
      used[column] ||= String(text ?? "") !== "";
      if (pressed && !target.firstElementChild) {
        const button = element("button", "", { type: "button" });
        button.addEventListener("click", () => pressed());
        target.append(button);
      }
      set(pressed ? target.firstElementChild : target, text, pressed ? "link" : `${columns[column].className} ${style}`.trim());
      if (pressed) target.className = style;
    });
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
  for (const row of [$("thead tr", table), ...body.children]) used.forEach((isUsed, column) => { row.children[column].hidden = !isUsed; });
}

function made(columns, key, button) {
  const row = element("tr");
  row.dataset.key = key;
  for (const head of columns) row.append(element("td", "", { "data-label": head.textContent }));
  if (button) row.lastChild.append(button);
  return row;
}

/** Let a press on the head of a column sort its table; `changed` is called then. The third press brings the first order back. */
export function sortable(changed) {
  for (const table of document.querySelectorAll("table")) {
    const id = table.id.replace("-table", "");
    heads(table).forEach((head, column) => {
      if ($(".hidden", head)) return;
      const button = element("button", head.textContent, { type: "button", class: "sort" });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const order = orders[id], isFirst = head.classList.contains("number"); // The largest number first, the first name first.
        if (order?.column !== column) orders[id] = { column, isDescending: isFirst };
        else if (order.isDescending === isFirst) order.isDescending = !isFirst;
        else delete orders[id];
        for (const other of heads(table)) other.removeAttribute("aria-sort");
        if (orders[id]) head.setAttribute("aria-sort", orders[id].isDescending ? "descending" : "ascending");
        changed();
      });
    });
  }
}
