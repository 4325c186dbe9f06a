// The dashboard: the token, the live stream, acts of the operator, and keys. One request streams the state once a second.

import { follow } from "./charts.js";
import { $, element, pairs } from "./elements.js";
import { feed, forget, lines, showFeed } from "./events.js";
import { isFiltered } from "./filter.js";
import { bytes, clock, short, time } from "./text.js";
import { sortable } from "./tables.js";
import { show } from "./view.js";

const STALE_SECONDS = 6; // A state comes each second; a silent replica delays it by two.
const LOST_SECONDS = 15; // After this time without a state, the connection is given up.
const RETRY_SECONDS = 1;
const TOKEN = "limpet-token";

let token = sessionStorage.getItem(TOKEN) ?? "";
let state = null;
let received = { at: 0, date: 0 };
let problem = ""; // Why there is no new state.
let pages = [""]; // Cursors of the pages of sessions, the present one last.
let lastEvent = 0;
let stream = null; // The controller of the live stream.
let openedAt = 0; // When the live stream was asked for.

const passed = () => (performance.now() - received.at) / 1000;
const call = (path, options = {}) => fetch(`api/${path}`, { ...options, headers: { authorization: `Bearer ${token}` } });
const reason = async (response) => (await response.json().catch(() => ({}))).error ?? `status ${response.status}`;

// The picture

function render() {
  if (!state) return;
  const isStale = problem !== "" || passed() > STALE_SECONDS;
  const found = show(state, Math.min(passed(), STALE_SECONDS), pages.length, act, details, go);
  connected(!isStale, isStale ? "reconnecting" : state.replicas.length > 1 ? `live, answered by ${short(state.replica)}` : "live");
  $("#stale").hidden = !isStale;
  $("#stale").textContent = isStale ? `Stale since ${time(received.date)}, ${clock(passed())} ago. ${problem || "The server sends nothing."} Reconnecting.` : "";
  $("#dashboard").classList.toggle("stale", isStale);
  document.title = isStale ? "Stale · Limpet" : found ? `(${found}) Limpet` : "Limpet";
}

function connected(isLive, text) {
  $("#connection").classList.toggle("live", isLive);
  if ($("#connection .text").textContent !== text) $("#connection .text").textContent = text;
}

let noticeTimer = 0;
function notice(text, style = "") {
  $("#notice").textContent = text;
  $("#notice").className = style;
  $("#notice").hidden = false;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { $("#notice").hidden = true; }, 6000);
}

// Acts

function act(label, deed, question, path) {
  const button = element("button", label, { type: "button" });
  button.addEventListener("click", async () => {
    const heading = $("h2", button.closest("section"));
    if (!(await confirmed(question, deed))) return;
    try {
      const response = await call(path, { method: "POST" });
      if (response.ok) notice(`Done: ${deed.toLowerCase()}.`);
      else notice(`${deed} failed: ${await reason(response)}`, "bad");
    } catch {
      notice(`${deed} failed: the server does not answer.`, "bad");
    }
    // The row goes away, and the focus would be lost with it.
    heading.focus({ preventScroll: true });
  });
  return button;
}

let answer = () => {}; // Takes the answer to the question that is shown.
function confirmed(question, label) {
  const dialog = $("#confirm");
  answer(false);
  $("#confirm-question").textContent = question;
  $(".danger", dialog).textContent = label;
  dialog.returnValue = "no";
  dialog.showModal();
  $("button", dialog).focus();
  return new Promise((done) => { answer = done; });
}

// The event comes late: another question may be shown by then.
$("#confirm").addEventListener("close", (event) => { if (!event.target.open) answer(event.target.returnValue === "yes"); });

async function details(name) {
  const found = await asked(`sessions/${encodeURIComponent(name)}`);
  if (!found) return;
  const { session, events } = found;
  const isAway = state?.servers.some((server) => server.is_away);
  const facts = !session ? [["state", isAway ? "not known: the store does not answer" : "closed"]] : [["client", session.client], ["era", session.era], ["state", session.state], ["principal", session.principal],
    ["closes in", session.closes_in == null ? "" : clock(session.closes_in)], ["calls", session.calls], ["streams", session.streams], ["log", bytes(session.log_bytes)], ["replica", session.replica]];
  open(`Session ${name}`, facts, events);
}

async function find(correlation) {
  const found = await asked(`find/${encodeURIComponent(correlation)}`);
  if (!found) return;
  if (found.events.length) open(`Correlation id ${short(correlation)}`, [], found.events);
  else notice("None of the last events has this id. The log may have it.", "bad");
}

async function asked(path) {
  try {
    const response = await call(path);
    if (response.ok) return await response.json();
    notice(await reason(response), "bad");
  } catch {
    notice("The server does not answer.", "bad");
  }
  return null;
}

function open(title, facts, events) {
  const dialog = $("#details");
  $("h2", dialog).textContent = title;
  $("dl", dialog).replaceChildren(...pairs(facts.filter(([, value]) => value !== "")));
  $("ol", dialog).replaceChildren(...lines(events).reverse());
  dialog.showModal();
  $("button", dialog).focus();
}

// The token

function ask(error = "") {
  state = null;
  stream?.abort();
  stream = null;
  token = "";
  sessionStorage.removeItem(TOKEN);
  document.title = "Limpet";
  for (const id of ["dashboard", "stale", "forget"]) $(`#${id}`).hidden = true;
  $("#servers").textContent = "";
  $("#login").hidden = false;
  $("#login-error").textContent = error;
  $("#token").setAttribute("aria-invalid", String(error !== ""));
  connected(false, "not connected");
  $("#token").focus();
}

$("#login form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("#token").value.trim();
  $("#login-error").textContent = "";
  if (!/^[\x21-\x7e]+$/.test(token)) return ask("This is not a token: a token has only letters, digits and signs of ASCII, and no space.");
  live();
});
$("#forget").addEventListener("click", () => ask());

// The live stream

async function live() {
  stream?.abort();
  const mine = (stream = new AbortController());
  while (stream === mine) {
    openedAt = performance.now();
    try {
      const response = await call(`live?${new URLSearchParams({ page: pages.at(-1), events: lastEvent })}`, { signal: mine.signal });
      if (response.status === 401) return ask("The server refused this token.");
      if (!response.ok) throw new Error(await reason(response));
      sessionStorage.setItem(TOKEN, token);
      await read(response.body.getReader(), mine);
      problem = "The server has closed the stream.";
    } catch (error) {
      if (mine.signal.aborted) return;
      problem = error instanceof TypeError ? "The server cannot be reached." : `${short(error.message)}.`;
      if (!state && !$("#login").hidden) return ask(problem);
      if (!state) connected(false, problem);
    }
    render();
    await new Promise((done) => setTimeout(done, RETRY_SECONDS * 1000));
  }
}

async function read(reader, mine) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done || stream !== mine) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop();
    for (const part of parts) take(part);
  }
}

function take(part) {
  const [, kind, data] = /^(?:event: ([^\n]*)\n)?data: ([^\n]*)$/.exec(part) ?? [];
  if (!data) return;
  if (kind === "failed") {
    problem = `${short(JSON.parse(data).error)}.`;
    return render();
  }
  const before = state?.replica;
  state = JSON.parse(data);
  if (before && before !== state.replica) return restart();
  received = { at: performance.now(), date: Date.now() };
  problem = "";
  $("#login").hidden = true;
  $("#token").value = "";
  for (const id of ["dashboard", "forget"]) $(`#${id}`).hidden = false;
  lastEvent = Math.max(lastEvent, ...state.events.map((happened) => happened.number));
  feed(state.events);
  render();
}

/** Another process answers now: its events have numbers of their own. */
function restart() {
  lastEvent = 0;
  forget();
  live();
}

// Controls

function turn() {
  live();
  $("#sessions").scrollIntoView({ block: "nearest" });
}

/** Show the rows of a problem: its section, filtered. */
function go(section, filter) {
  $("#filter").value = filter;
  filtered();
  $(`#${section}`).scrollIntoView({ block: "start" });
  $(`#${section}`).focus({ preventScroll: true });
}

function filtered() {
  $("#unfilter").hidden = !isFiltered();
  $("#dashboard").classList.toggle("filtered", isFiltered());
  showFeed();
  render();
}

$("#filter").addEventListener("input", filtered);
$("#unfilter").addEventListener("click", () => { $("#filter").value = ""; filtered(); $("#filter").focus(); });
$("#feed-calls").addEventListener("change", showFeed);
$("#find").addEventListener("submit", (event) => { event.preventDefault(); find($("#correlation").value.trim()); });
$("#next").addEventListener("click", () => { pages.push(state.next_page); turn(); });
$("#previous").addEventListener("click", () => { pages.pop(); turn(); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, dialog") || !state) return;
  event.preventDefault();
  $("#filter").focus();
});
follow(render);
sortable(render);
setInterval(() => {
  if (state && performance.now() - Math.max(received.at, openedAt) > LOST_SECONDS * 1000) live();
  render();
}, 1000);
if (token) live();
else ask();
