// The dashboard. One request streams the state once a second; every text is set with textContent, never as HTML.

const $ = (selector, inside = document) => inside.querySelector(selector);
const KEPT_SECONDS = 300;
const FEED_LINES = 300;
const OLD_CALL_SECONDS = 30;
const history_ = { rate: [], p50: [], p95: [] };
let token = sessionStorage.getItem("holdfast-token") ?? "";
let state = null;
let receivedAt = 0;
let page = [""]; // cursors of the pages of sessions, the present one last
let lastEvent = 0;
let stop = null;

// Elements

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function seconds(value) {
  if (value == null) return "";
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(value / 60);
  return minutes < 100 ? `${minutes} min ${Math.floor(value % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function bytes(value) {
  if (value < 1024) return `${value} B`;
  return value < 1024 ** 2 ? `${(value / 1024).toFixed(1)} KiB` : `${(value / 1024 ** 2).toFixed(1)} MiB`;
}

// A table keeps the rows of things that stay, so that focus and selection survive an update.
function fill(id, things, key, cells, action) {
  const table = $(`#${id}-table`), body = $("tbody", table);
  const labels = [...table.querySelectorAll("th")].map((cell) => cell.textContent);
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  things.forEach((thing, index) => {
    const name = key(thing);
    let row = known.get(name);
    known.delete(name);
    if (!row) {
      row = element("tr");
      row.dataset.key = name;
      for (const label of labels) row.append(element("td", "", { "data-label": label }));
      if (action) row.lastChild.append(action(thing));
    }
    cells(thing).forEach((cell, column) => {
      const [text, style] = Array.isArray(cell) ? cell : [cell, ""];
      const target = row.children[column];
      if (target.textContent !== String(text)) target.textContent = text;
      if (target.className !== style) target.className = style;
    });
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
  for (const row of known.values()) row.remove();
  const count = $(`#${id} .count`);
  if (count) count.textContent = `(${things.length})`;
}

function matches(...texts) {
  const wanted = $("#filter").value.trim().toLowerCase();
  return !wanted || texts.some((text) => String(text ?? "").toLowerCase().includes(wanted));
}

// Charts

function draw(id, lines, unit) {
  const svg = $(`#${id}`);
  const top = Math.max(...lines.flatMap(([, values]) => values), 0.001) * 1.1;
  const children = [60, 119].map((y) => {
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    for (const [name, value] of Object.entries({ x1: 0, x2: 600, y1: y, y2: y })) line.setAttribute(name, value);
    return line;
  });
  for (const [style, values] of lines) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const points = values.map((value, index) => {
      const x = 600 - (values.length - 1 - index) * (600 / (KEPT_SECONDS - 1));
      return `${x.toFixed(1)},${(119 - (value / top) * 117).toFixed(1)}`;
    });
    path.setAttribute("d", points.length ? `M${points.join("L")}` : "");
    path.setAttribute("class", style);
    children.push(path);
  }
  svg.replaceChildren(...children);
  $(`#${id}-legend`).replaceChildren(...lines.flatMap(([style, values, label]) => [
    element("span", "", { class: `swatch ${style}` }),
    element("span", `${label} ${unit(values.at(-1) ?? 0)}   `),
  ]));
}

function remember(figures) {
  for (const [name, value] of [["rate", figures.calls_per_second], ["p50", figures.p50], ["p95", figures.p95]]) {
    history_[name].push(value);
    if (history_[name].length > KEPT_SECONDS) history_[name].shift();
  }
  draw("rate", [["first", history_.rate, "now"]], (value) => `${value.toFixed(1)}/s`);
  draw("latency", [["first", history_.p50, "median"], ["second", history_.p95, "95 %"]], seconds);
}

// The page

const TILES = [
  ["attached", "sessions attached"], ["detached", "sessions detached"], ["running", "calls running"], ["queued", "calls queued"],
  ["parked", "calls parked"], ["asks", "questions open"], ["streams", "open streams"], ["log_bytes", "in logs", bytes],
  ["calls_per_second", "calls per second", (value) => value.toFixed(1)], ["loop_delay", "loop delay", seconds],
];

function show() {
  if (!state) return;
  const passed = (performance.now() - receivedAt) / 1000;
  $("#servers").textContent = state.servers.map((server) => `${server.name} ${server.version}`.trim()).join(" · ");
  $("#tiles").replaceChildren(...TILES.map(([name, label, form = String]) => {
    const tile = element("li", "", name === "queued" && state.figures[name] ? { class: "alarm" } : {});
    tile.append(element("b", form(state.figures[name])), element("span", label));
    return tile;
  }));
  fill("calls", state.calls.filter((call) => matches(call.name, call.method, call.client, call.session, call.principal, call.replica, call.waits_for)),
    (call) => call.id,
    (call) => [call.name || call.method, [seconds(call.age + passed), call.age + passed > OLD_CALL_SECONDS ? "old" : ""], call.waits_for, call.client,
      [call.session, "id"], call.era, [call.principal, "id"], call.replica],
    (call) => act("Cancel", `Cancel the call of ${call.name || call.method}? Its client receives an error.`, `calls/${call.id}/cancel`));
  fill("sessions", state.sessions.filter((session) => matches(session.id, session.client, session.principal, session.replica, session.state)),
    (session) => session.id,
    (session) => [[session.id, "id"], session.client, session.era, [session.state, `state-${session.state}`],
      session.closes_in == null ? "" : seconds(Math.max(0, session.closes_in - passed)), session.calls, session.streams, bytes(session.log_bytes), session.replica],
    (session) => act("Close", `Close session ${session.id} of ${session.client}? Its calls are cancelled, and its client must open a new one.`, `sessions/${session.id}/close`));
  fill("replicas", state.replicas, (replica) => replica.name,
    (replica) => [[replica.name, "id"], [replica.state, `state-${replica.state}`], replica.lease_left == null ? "" : seconds(Math.max(0, replica.lease_left - passed)),
      replica.sessions ?? "", replica.calls ?? "", seconds(replica.loop_delay)]);
  fill("upstreams", state.upstreams, (upstream) => `${upstream.server} ${upstream.replica}`,
    (upstream) => [upstream.server, upstream.connections, [upstream.state, `state-${upstream.state}`], upstream.restarts, upstream.replica]);
  $("#sessions .count").textContent = `(${state.figures.attached + state.figures.detached})`;
  $("#previous").disabled = page.length < 2;
  $("#next").disabled = !state.next_page;
  $("#counts-list").replaceChildren(...Object.entries(state.counts).map(([name, value]) => {
    const row = element("div");
    row.append(element("dt", name.replaceAll("_", " ")), element("dd", value, value ? { class: "nonzero" } : {}));
    return row;
  }));
}

function feed(events) {
  const list = $("#feed-list");
  for (const happened of events) {
    lastEvent = Math.max(lastEvent, happened.number);
    const line = element("li");
    line.append(element("time", new Date(happened.at * 1000).toLocaleTimeString()), element("b", happened.event),
      Object.entries(happened.facts).map(([name, value]) => `${name}=${value}`).join("  "));
    list.prepend(line);
  }
  while (list.children.length > FEED_LINES) list.lastChild.remove();
}

function act(label, question, path) {
  const button = element("button", label, { type: "button" });
  button.addEventListener("click", async () => {
    const dialog = $("#confirm");
    $("p", dialog).textContent = question;
    $(".danger", dialog).textContent = label;
    dialog.returnValue = "no";
    dialog.showModal();
    await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
    if (dialog.returnValue !== "yes") return;
    button.disabled = true;
    const response = await fetch(`api/${path}`, { method: "POST", headers: { authorization: `Bearer ${token}` } }).catch(() => null);
    notice(response?.ok ? `${label}: done` : `${label}: ${(response && (await response.json().catch(() => ({}))).error) || "no answer"}`);
    button.disabled = false;
  });
  return button;
}

let noticeTimer = 0;
function notice(text) {
  $("#notice").textContent = text;
  $("#notice").hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { $("#notice").hidden = true; }, 5000);
}

// The connection

function connected(isLive, text) {
  $("#connection").classList.toggle("live", isLive);
  $("#connection .text").textContent = text;
}

function ask(error = "") {
  $("#dashboard").hidden = true;
  $("#login").hidden = false;
  $("#login .error").textContent = error;
  connected(false, "not connected");
  $("#token").focus();
}

async function live() {
  for (;;) {
    const abort = new AbortController();
    stop = () => abort.abort();
    try {
      const query = new URLSearchParams({ page: page.at(-1), events: lastEvent });
      const response = await fetch(`api/live?${query}`, { headers: { authorization: `Bearer ${token}` }, signal: abort.signal });
      if (response.status === 401) return ask(token ? "This token is wrong." : "");
      if (!response.ok) throw new Error(`status ${response.status}`);
      $("#login").hidden = true;
      $("#dashboard").hidden = false;
      await read(response.body.getReader());
      connected(false, "reconnecting");
    } catch (error) {
      connected(false, "reconnecting");
      if (error.name === "AbortError") continue;
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

async function read(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (!part.startsWith("data: ")) continue;
      state = JSON.parse(part.slice(6));
      receivedAt = performance.now();
      connected(true, `live, ${state.replica}`);
      remember(state.figures);
      feed(state.events);
      show();
    }
  }
}

$("#login form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("#token").value.trim();
  $("#token").value = "";
  sessionStorage.setItem("holdfast-token", token);
  live();
});
$("#filter").addEventListener("input", show);
$("#next").addEventListener("click", () => { page.push(state.next_page); stop(); });
$("#previous").addEventListener("click", () => { page.pop(); stop(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "TEXTAREA"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    $("#filter").focus();
  }
});
setInterval(show, 1000);
live();
