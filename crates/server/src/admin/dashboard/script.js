// The dashboard: receives the state each second and writes it into the page.
//
// `EventSource` cannot send the token, so the stream of events is read with `fetch`.
//
// Keys, names and reasons are strangers' bytes: they reach the page by `textContent` and
// `setAttribute` only, and the page's policy (Trusted Types) refuses any other way.
"use strict";

const SECOND = 1000;
/** Time without a state after which the stream is given up: there is one each second. */
const SILENCE = 10 * SECOND;
/** Time to read what has come before the latest state is shown. */
const DRAIN = 50;
/** Longest pause between two attempts to open the stream. */
const MAX_PAUSE = 15 * SECOND;
/** Refusals of one key in a minute from which it is called an abuser. */
const ABUSE = 20;
const TOKEN = "ratekeeper-token";
const SVG = "http://www.w3.org/2000/svg";

const at = (id) => document.getElementById(id);
const text = (id, value) => { if (at(id).textContent !== value) at(id).textContent = value; };
const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
const sum = (cells, index) => cells.reduce((all, cell) => all + cell[index], 0);

/** The limit whose keys are shown, the key that was looked up, the last state, and look-ups so far. */
const view = { limit: null, found: null, state: null, lookUps: 0 };

/** An answer that is not a success, with the reason that the service gives. */
class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

/** Asks the service, with the token if there is one; throws its reason if it refuses. */
async function ask(path, options) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, body.detail ?? `status ${answer.status}`);
}

async function call(path, options = {}) {
  const answer = await ask(path, { ...options, signal: AbortSignal.timeout(10 * SECOND) });
  return answer.json().catch(() => ({}));
}

const query = (pairs) => new URLSearchParams(pairs).toString();

// The stream ---------------------------------------------------------------------------------

/** The stream that is read, its failures since the last state, the next attempt, and the state to be shown. */
const stream = { open: null, failures: 0, next: 0, latest: null };

/** Opens the stream, in place of the one that is read. A hidden tab has none. */
function listen() {
  clearTimeout(stream.next);
  stream.open?.abort();
  stream.open = stream.latest = null;
  if (document.hidden || !at("token-form").hidden) return;
  stream.open = new AbortController();
  read(stream.open);
}

async function read(own) {
  const silent = () => setTimeout(() => own.abort(), SILENCE);
  let timer = silent();
  try {
    const path = `v1/dashboard/stream${view.limit ? `?${query({ limit: view.limit })}` : ""}`;
    const { body } = await ask(path, { signal: own.signal });
    for await (const state of events(body)) {
      clearTimeout(timer);
      if (stream.open !== own) return;
      timer = silent();
      stream.failures = 0;
      if (!stream.latest) setTimeout(showLatest, DRAIN, own);
      stream.latest = state;
    }
    throw new Error("the service has ended the stream");
  } catch (error) {
    if (stream.open === own) lost(error);
  } finally {
    clearTimeout(timer);
  }
}

/** Shows the latest state. A page that was too slow finds several in its buffers, and skips all but the last. */
function showLatest(own) {
  const state = stream.latest;
  stream.latest = null;
  if (stream.open === own) show(JSON.parse(state));
}

/** Yields the data of each event. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ")) yield part.slice("data: ".length);
    }
  }
}

/** Says why there is no stream, and tries again later each time. */
function lost(error) {
  stream.open = null;
  if (error instanceof Refused && error.status === 401) { askForToken(); return; }
  const pause = Math.min(MAX_PAUSE, SECOND * 2 ** stream.failures);
  stream.failures += 1;
  const why = error instanceof Refused ? error.message : "no answer";
  connection("lost", `${why}; trying again in ${span(pause)}`);
  stream.next = setTimeout(listen, pause);
}

function show({ state, limit }) {
  view.state = state;
  at("panels").hidden = false;
  if (limit && limit.name !== view.limit) choose(limit.name);
  showState(state);
  if (limit) showLimit(limit);
  else at("detail").hidden = true;
  connection("live", "live");
}

document.addEventListener("visibilitychange", () => {
  stream.failures = 0;
  listen();
});

function connection(kind, words) {
  at("connection").className = kind;
  text("connection", words);
}

function askForToken() {
  if (sessionStorage.getItem(TOKEN) !== null) {
    sessionStorage.removeItem(TOKEN);
    text("token-error", "The service refused this token.");
  }
  connection("lost", "token needed");
  at("panels").hidden = true;
  if (at("token-form").hidden) {
    at("token-form").hidden = false;
    at("token").focus();
  }
}

// Panels -------------------------------------------------------------------------------------

/** States of the last minute while this page is shown: the service counts from its start. */
const past = [];

function remember(state) {
  const all = (one) => one.times.decision.reduce((count, bucket) => count + bucket[1], 0);
  if (past.length && all(past[past.length - 1]) > all(state)) past.length = 0; // another process
  past.push(state);
  const minuteAgo = Date.parse(state.at) - 61 * SECOND;
  while (Date.parse(past[0].at) < minuteAgo) past.shift();
}

/** Returns the time within which a share of the calls of the last minute ended, in words. */
function within(percent, which) {
  const [first, last] = [past[0].times[which], past[past.length - 1].times[which]];
  if (!first || !last) return "-";
  const counts = last.map(([, count], index) => count - first[index][1]);
  let left = counts.reduce((all, count) => all + count, 0) * percent / 100;
  if (!left) return "-";
  const index = counts.findIndex((count) => (left -= count) <= 0);
  const [bound] = last[index];
  return bound === null ? `above ${moment(last[index - 1][0])}` : `${moment(bound)}`;
}

/** Returns seconds in words. */
function moment(seconds) {
  if (seconds < 0.001) return `${number(seconds * 1e6)} us`;
  return seconds < 1 ? `${number(seconds * 1000)} ms` : `${number(seconds)} s`;
}

/** Returns the rows of the panel of the service: what it has, and nothing that it does not use. */
function serviceRows({ store, held, memory, reports, signals, elastic, limits }) {
  const mib = (bytes) => `${number(bytes / 2 ** 20)} MiB`;
  const list = [["Counters in memory", `${number(memory.keys)} keys, ${mib(memory.bytes)} of ${mib(memory.budget_bytes)}`
    + (memory.evicted ? `; ${number(memory.evicted)} keys lost for want of room` : "")]];
  if (store.kind === "redis") {
    const down = store.servers_down.length ? `; down: ${store.servers_down.join(", ")}` : "";
    const offset = store.clock_offset_ms;
    const side = offset < 0 ? "behind" : "ahead";
    const clock = offset === null ? "" : `; its clock is ${number(Math.abs(offset))} ms ${side}`;
    list.push(["Store", `99 % of the calls within ${within(99, "store")}; ${number(store.failed)} failed, `
      + `${number(store.fallback)} decided without it${clock}${down}`]);
  }
  const waits = within(99, "queue");
  if (held || waits !== "-") list.push(["Queues", `${number(held)} requests wait; 99 % within ${waits}`]);
  const lending = limits.filter((limit) => limit.in_use !== undefined);
  const total = (field) => lending.reduce((all, limit) => all + limit[field], 0);
  if (lending.length) list.push(["Permits on loan", `${number(total("in_use"))} in use; ${number(total("expired"))} were not given back`]);
  const levels = Object.entries(signals);
  if (levels.length) {
    const level = ([name, words]) => `${name} ${words ?? "unknown"}`;
    list.push(["Signals", levels.map(level).join(", ")]);
  }
  for (const { limit, signal, below, open, percent, passed } of elastic) {
    list.push([`Elastic: ${limit}`, `${open ? `open, ${number(percent / 100)} times its number` : "closed, its own number"}; `
      + `open while ${signal} is below ${below}; ${number(passed)} passed above its own number`]);
  }
  const told = Object.entries(reports).filter(([, count]) => count);
  if (told.length) list.push(["Reports of results", told.map(([result, count]) => `${number(count)} ${result}`).join(", ")]);
  return list;
}

function showState(state) {
  remember(state);
  const age = Date.parse(state.at) - Date.parse(state.applied_at);
  text("policy", `policy version ${state.version}, ${span(age)} old${state.ready ? "" : ", NOT READY"}`);
  at("policy").title = state.sha;
  const recent = state.seconds.slice(-10);
  const [allowed, denied, errors] = [0, 1, 2].map((index) => sum(recent, index) / Math.max(1, recent.length));
  const all = allowed + denied;
  text("rate", `${number(all)}/s`);
  text("rate-note", `average of 10 s${errors ? `, ${number(errors)} errors/s` : ""}`);
  text("share", `${number(all ? (denied * 100) / all : 0)} %`);
  text("share-note", `${number(denied)}/s${state.held ? `, ${state.held} held back` : ""}`);
  text("time", within(99, "decision"));
  text("time-note", `half within ${within(50, "decision")}; last minute`);
  rows(at("service"), serviceRows(state), (row, [name, words]) => {
    if (!row.cells.length) row.append(document.createElement("th"));
    cell(row, 0, name);
    cell(row, 1, words);
  });
  text("store", `${state.store.kind} ${state.store.state}`);
  text("store-note", state.store.kind === "redis"
    ? `${number(state.store.failed)} calls failed, ${number(state.store.fallback)} decided without it` : "in this process");
  showUpstreams(state.upstreams);
  text("alerts", number(state.alerts));
  text("alerts-note", state.alerts ? "keys close to a limit" : "");
  chart(at("minute"), state.seconds, 60, "requests of the last minute", marks(state, 60 * SECOND));
  showLimits(state.limits);
  text("more", state.more ? `${number(state.more)} more limits refuse less, or have no history.` : "");
  rows(at("changes"), state.changes, (row, change) => {
    cell(row, 0, new Date(change.at).toLocaleTimeString());
    cell(row, 1, change.kind);
    cell(row, 2, change.text);
    cell(row, 3, change.by ?? "");
  });
  showHurt(state.limits);
  showCountries(state.countries);
  text("changes-note", state.changes.length ? "" : "None since the start.");
}

/** Shows the tile and the panel of upstreams, the panel first while one fails. */
function showUpstreams(all) {
  const panel = at("upstream-panel");
  at("upstream-tile").hidden = panel.hidden = !all.length;
  const faults = all.flatMap(({ name, faults }) => faults.map((fault) => `${name}: ${fault}`));
  const addresses = all.flatMap((one) => one.addresses);
  const total = (field) => all.reduce((count, one) => count + one[field], 0);
  text("upstream", `${addresses.filter(({ up }) => up).length} of ${addresses.length} up`);
  at("upstream").className = faults.length ? "error" : "";
  text("upstream-note", `${number(total("failed"))} of ${number(total("requests"))} requests failed, ${number(total("in_flight"))} in flight`);
  const first = at("panels").firstElementChild === panel;
  if (faults.length && !first) at("panels").prepend(panel);
  if (!faults.length && first) at("service-panel").before(panel);
  at("upstream-faults").replaceChildren(...faults.map((fault) => {
    const item = document.createElement("li");
    item.textContent = fault;
    return item;
  }));
  const counts = (of) => Object.entries(of).filter(([, count]) => count).map(([name, count]) => `${name} ${number(count)}`);
  const within = (millis) => (millis === null ? "-" : moment(millis / SECOND));
  rows(at("upstreams"), all, (row, one) => {
    const addresses = one.addresses.map(({ address, up, connections, failed }) =>
      `${address} ${up ? "up" : "left out"}, ${number(connections)} connections${failed ? `, ${number(failed)} attempts failed` : ""}`);
    cell(row, 0, one.route || "(all others)");
    cell(row, 1, number(one.requests), "number");
    cell(row, 2, number(one.failed), "number");
    cell(row, 3, [...counts(one.responses), ...counts(one.failures), ...counts({ left: one.left })].join(", "));
    cell(row, 4, within(one.half_within_ms), "number");
    cell(row, 5, within(one.most_within_ms), "number");
    cell(row, 6, number(one.in_flight), "number");
    cell(row, 7, addresses.join("; "));
    [, "requests, last minute", "failed", , "half within", "99 % within", "in flight"].forEach((label, index) => {
      if (label) row.cells[index].dataset.label = label;
    });
  });
}

/** Rows are kept by name, so that the focus of the keyboard stays where it is. */
const limitRows = new Map();

function showLimits(limits) {
  const body = at("limits").tBodies[0];
  const names = new Set(limits.map((limit) => limit.name));
  for (const [name, row] of limitRows) {
    if (!names.has(name)) { row.remove(); limitRows.delete(name); }
  }
  limits.forEach((limit, index) => {
    let row = limitRows.get(limit.name);
    if (!row) {
      row = limitRow(limit.name);
      limitRows.set(limit.name, row);
    }
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
    fillLimit(row, limit);
  });
}

function limitRow(name) {
  const row = document.createElement("tr");
  const labels = [, "mode", "allowed/s", "refused/s", "near/s", "highest key", , "keys refused"];
  for (let index = 0; index < 8; index += 1) {
    const place = row.insertCell();
    if (labels[index]) place.dataset.label = labels[index];
    if (index >= 2 && index <= 5) place.className = "number";
  }
  const button = document.createElement("button");
  button.className = "link";
  button.textContent = name;
  button.addEventListener("click", () => {
    choose(name);
    at("detail").scrollIntoView({ block: "start" });
    listen();
  });
  row.cells[0].append(button);
  row.cells[6].append(picture("trend", "0 0 120 24"));
  return row;
}

/** Returns an empty picture. */
function picture(kind, box) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of [["class", kind], ["role", "img"], ["viewBox", box], ["preserveAspectRatio", "none"]]) {
    svg.setAttribute(key, value);
  }
  return svg;
}

function fillLimit(row, limit) {
  const recent = limit.trend.slice(-2);
  const seconds = Math.max(1, recent.length * 5);
  const [allowed, denied, shadow] = [0, 1, 2].map((index) => sum(recent, index) / seconds);
  row.cells[0].firstChild.setAttribute("aria-pressed", String(limit.name === view.limit));
  row.cells[0].firstChild.title = limit.limit;
  cell(row, 1, limit.mode + (limit.in_use === undefined ? "" : `, ${number(limit.in_use)} in use`));
  cell(row, 2, number(allowed));
  cell(row, 3, limit.mode === "shadow" ? `${number(shadow)} (would)` : number(denied + shadow));
  cell(row, 4, number(rate(limit.name, ({ near }) => near)));
  cell(row, 5, limit.highest_percent === null ? "-" : `${number(limit.highest_percent)} %`);
  const refused = limit.trend.map(([, one, other]) => [0, one + other]);
  chart(row.cells[6].firstChild, refused, 12, "refusals of the last minute");
  cell(row, 7, cause(limit));
}

/** Returns how much a count of a limit has grown in the last minute. */
function grown(name, count) {
  const known = past.map((state) => state.limits.find((limit) => limit.name === name)).filter(Boolean);
  return known.length < 2 ? 0 : Math.max(0, count(known[known.length - 1]) - count(known[0]));
}

/** Returns the same a second. */
function rate(name, count) {
  const first = past.find((state) => state.limits.some((limit) => limit.name === name));
  return grown(name, count) * SECOND / (Date.parse(view.state.at) - Date.parse(first?.at) || SECOND);
}

/** Returns the likely cause of the refusals: one key, or a number that is too low. A few refusals of one key say little. */
function cause({ denied, distinct_denied: distinct, busiest }) {
  if (!denied) return "none";
  const abuser = busiest >= ABUSE ? ": an abuser" : "";
  if (distinct <= 1) return `one key${abuser}`;
  if (busiest * 2 > denied) return `${number(distinct)}, mostly one key${abuser}`;
  return `${number(distinct)} keys: the number may be too low`;
}

// Who is hurt, and countries -----------------------------------------------------------------

/** Shows the limits that refuse keys, a plan, or requests without priority. */
function showHurt(limits) {
  const all = limits.map((limit) => {
    const plans = limit.plans.map(([plan], index) => [plan, grown(limit.name, (one) => one.plans[index]?.[1] ?? 0)]);
    const shed = limit.shed === undefined ? null : grown(limit.name, (one) => one.shed ?? 0);
    return { ...limit, plans: plans.filter(([, denied]) => denied), shed };
  });
  const hurt = all.filter(({ hour, plans, shed }) => hour.keys || plans.length || shed);
  const byPlan = limits.some((limit) => limit.plans.length);
  const byPriority = limits.some((limit) => limit.shed !== undefined);
  const labels = [, "keys refused this hour", "for the first time", "by plan, last minute:", "shed by priority:"];
  rows(at("hurt"), hurt, (row, { name, hour, plans, shed }) => {
    cell(row, 0, name);
    cell(row, 1, number(hour.keys), "number");
    cell(row, 2, number(hour.first), "number");
    cell(row, 3, plans.map(([plan, denied]) => `${plan} ${number(denied)}`).join("; "));
    cell(row, 4, shed ? `${number(shed)} in the last minute` : "");
    labels.forEach((label, index) => { row.cells[index].dataset.label = label; });
    row.cells[3].hidden = !byPlan;
    row.cells[4].hidden = !byPriority;
  });
  const heads = at("hurt").tHead.rows[0].cells;
  heads[3].hidden = !byPlan;
  heads[4].hidden = !byPriority;
  text("hurt-note", hurt.length ? "Different keys of this hour and the one before it, estimated; for the first time: not refused in the hour before."
    : "No key was refused in this hour and the one before it.");
}

function showCountries(found) {
  at("countries-panel").hidden = !found;
  if (!found) return;
  const { since, countries, scheduled } = found;
  const most = Math.max(1, ...countries.flatMap(({ hours }) => hours.map(([all]) => all)));
  rows(at("countries"), countries, (row, { country, hours, scheduled: active }) => {
    cell(row, 0, country);
    const place = row.cells[1] ?? row.insertCell();
    if (!place.firstChild) place.append(picture("heat-row", "0 0 240 28"));
    const busiest = hours.reduce((best, [all], hour) => (all > hours[best][0] ? hour : best), 0);
    const clock = (hour) => new Date(Date.parse(since) + hour * 3600 * SECOND).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    const bars = [];
    hours.forEach(([all, refused], hour) => {
      const x = hour * 10;
      if (all) bars.push({ x, y: 4, width: 9.5, height: 24, class: "heat", "fill-opacity": 0.15 + 0.85 * all / most });
      if (refused) bars.push({ x, y: 28 - 24 * refused / all, width: 9.5, height: 24 * refused / all, class: "denied" });
      if (active[hour]) bars.push({ x, y: 0, width: 10, height: 3, class: "window" });
    });
    draw(place.firstChild, bars);
    const windows = active.filter(Boolean).length;
    place.firstChild.setAttribute("aria-label", `${country}: ${number(sum(hours, 0))} requests, ${number(sum(hours, 1))} refused, `
      + `most at ${clock(busiest)}${windows ? `; a scheduled limit applied in ${windows} hours` : ""}`);
    cell(row, 2, number(sum(hours, 0)), "number");
    cell(row, 3, number(sum(hours, 1)), "number");
  });
  const windows = scheduled.map(({ limit, active }) => `${limit} ${active}`).join("; ");
  text("countries-note", `${countries.length ? "The last hour is at the right." : "No request yet whose limits depend on its country."}`
    + `${windows ? ` Scheduled: ${windows}.` : ""}`);
}

// One limit ----------------------------------------------------------------------------------

/** Shows another limit, which the stream may not have sent yet. */
function choose(name) {
  view.limit = name;
  view.found = null;
  view.lookUps += 1; // an answer on its way is about another limit
  const limit = about(name);
  text("detail-title", `${name}: ${limit.limit}`);
  at("detail").hidden = false;
  at("acts").hidden = at("override").hidden = true;
  text("found", "");
  text("whatif-result", "");
  at("bans-panel").hidden = at("ban").hidden = at("lift").hidden = !limit.ban;
  at("parts").replaceChildren(...limit.key.map((part) => {
    const label = document.createElement("label");
    const input = document.createElement("input");
    input.required = true;
    input.autocomplete = "off";
    input.spellcheck = false;
    label.append(part, input);
    return label;
  }));
  showLimits(view.state.limits);
}

/** Returns what is known of a limit, little of one that is not among those listed. */
const about = (name) => view.state.limits.find((limit) => limit.name === name) ?? { limit: "", key: [], ban: null };

function showLimit({ name, top, day, day_minutes: minutes, bans }) {
  showKeys(top);
  showDay(day, minutes);
  const limit = about(name);
  if (bans) {
    rows(at("bans"), bans.bans, (row, ban) => {
      keyCell(row, ban.key, bans.reveal_keys === "raw");
      cell(row, 1, span(ban.ends_after_ms), "number");
    });
  }
  text("bans-note", bans || !limit.ban ? bansNote(bans) : `Bans in a shared store: ratekeeper bans list ${name}`);
}

function bansNote(bans) {
  if (!bans) return "";
  if (!bans.bans.length) return "No key is banned.";
  const first = bans.bans.length === 20 ? "The first 20, those that end last. " : "";
  return first + (bans.reveal_keys === "raw" ? "" : `Keys shown as reveal_keys = "${bans.reveal_keys}": type the plain key to lift a ban.`);
}

function showKeys(top) {
  const hidden = top.reveal_keys === "raw" ? "" : `, keys shown as reveal_keys = "${top.reveal_keys}"`;
  text("keys-note", `Last ${span(top.covers_ms)}${hidden}.${top.keys.length ? "" : " No key has asked in that time."}`);
  rows(at("keys"), top.keys, (row, key) => {
    const count = ({ count, error }) => number(count) + (error ? ` (error ${number(error)})` : "");
    const free = key.refused?.next_free_in_ms;
    const wait = free === null ? "never" : free ? `in ${span(free)}` : "now";
    keyCell(row, key.key, top.reveal_keys === "raw");
    cell(row, 1, count(key.requests), "number");
    cell(row, 2, count(key.denied), "number");
    cell(row, 3, key.refused ? wait : "-", "number");
  });
}

/** Writes a key, as a button that looks it up if it is shown as it is. */
function keyCell(row, parts, raw) {
  const place = row.cells[0] ?? row.insertCell();
  if (!raw || !parts.length) { cell(row, 0, parts.join(", ") || "(one key)"); return; }
  let button = place.querySelector("button");
  if (!button) {
    button = document.createElement("button");
    button.className = "link mono";
    button.addEventListener("click", () => fillParts(button.parts));
    place.replaceChildren(button);
  }
  button.parts = parts;
  const words = parts.join(", ");
  if (button.textContent !== words) button.textContent = words;
}

function fillParts(parts) {
  const inputs = at("parts").querySelectorAll("input");
  inputs.forEach((input, index) => { input.value = value(parts[index] ?? ""); });
  lookUp();
}

/** Returns the value of a part, which is written as NAME=VALUE. */
const value = (part) => part.slice(part.indexOf("=") + 1);

function showDay(spans, minutes) {
  if (!spans) {
    at("day").replaceChildren();
    text("day-note", "This limit has no history: the first 256 limits of the policy have one.");
    return;
  }
  chart(at("day"), spans, 145, "requests of the last 24 hours", marks(view.state, 145 * 600 * SECOND));
  text("day-note", `${number(sum(spans, 0))} allowed and ${number(sum(spans, 1))} refused in the last `
    + `${span(minutes * 60 * SECOND)}; one bar is 10 minutes.`);
}

// One key ------------------------------------------------------------------------------------

const values = () => [...at("parts").querySelectorAll("input")].map((input) => input.value);

/** Shows a key under a limit, after the words about an act. An answer that comes after a newer look-up is dropped. */
async function lookUp(said = "", limit = view.limit, parts = values()) {
  view.lookUps += 1;
  const mine = view.lookUps;
  at("acts").hidden = at("override").hidden = true;
  const words = await balance(limit, parts);
  const override = await overrideOf(limit, parts);
  if (mine !== view.lookUps || view.limit !== limit) return;
  text("found", (parts.length ? `${parts.join(", ")}: ` : "") + said + words + (override?.words ?? ""));
  view.found = { limit, parts };
  at("acts").hidden = false;
  at("override").hidden = override === null;
  at("override-remove").hidden = !override?.words;
}

/** Returns the pairs that name one key to the calls of overrides: no value of it is a pattern. */
const overridePairs = (limit, parts) => [["limit", limit], ...parts.map((part) => ["value", part])];

/** Returns the override of a key in words, empty if it has none; null where keys have no overrides. */
async function overrideOf(limit, parts) {
  if (!parts.length) return null;
  try {
    const { overrides } = await call(`v1/overrides?${query(overridePairs(limit, parts))}`);
    const found = overrides.find((one) => one.in_force);
    return { words: found ? ` Override: ${found.set}${found.until ? `, until ${found.until}` : ""}.` : "" };
  } catch {
    return null; // the policy names no file
  }
}

const keyPath = (limit, parts) => `v1/keys/${encodeURIComponent(limit)}?${query(parts.map((part) => ["key", part]))}`;

/** Returns the balance of a key in words, or why it is not known. */
async function balance(limit, parts) {
  try {
    const found = await call(keyPath(limit, parts));
    const banned = found.ban_ends_after_ms ? `, banned for ${span(found.ban_ends_after_ms)}` : "";
    const full = found.reset_after_ms === null ? "" : `, full in ${span(found.reset_after_ms)}`;
    return `${number(found.remaining)} of ${number(found.quota)} remain${full}${banned}.`;
  } catch (error) {
    const unused = error instanceof Refused && error.status === 404;
    return unused ? "Nothing is counted for this key: its balance is full." : error.message;
  }
}

/** Answers the question that is open. */
let answer = () => {};
at("confirm").addEventListener("close", () => {
  // The event comes a moment after the answer: the next question may be open already.
  if (!at("confirm").open) answer(at("confirm").returnValue === "yes");
});

/** Returns the answer of the operator to a question about a key. */
function confirmed(question, parts) {
  const dialog = at("confirm");
  answer(dialog.returnValue === "yes");
  text("question", question);
  text("question-key", parts.join(", "));
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => {
    answer = done;
  });
}

async function act(question, work) {
  const { limit, parts } = view.found;
  if (!await confirmed(`${question} under ${limit}?`, parts)) return;
  try {
    const said = await work(limit, parts);
    if (view.limit === limit) await lookUp(`${said} `, limit, parts);
  } catch (error) {
    if (view.limit === limit) text("found", `${parts.join(", ")}: ${error.message}`);
  }
}

async function reset(limit, parts) {
  await call(keyPath(limit, parts), { method: "DELETE" });
  return "The key is reset.";
}

const banQuery = (limit, parts) => [["limit", limit], ...parts.map((part) => ["key", part])];

async function ban(limit, parts) {
  await call(`v1/bans?${query([...banQuery(limit, parts), ["for", "1h"]])}`, { method: "POST" });
  return "The key is banned.";
}

async function lift(limit, parts) {
  await call(`v1/bans?${query(banQuery(limit, parts))}`, { method: "DELETE" });
  return "The ban is lifted.";
}

async function setOverride(limit, parts) {
  const fields = ["set", "until", "reason"].map((name) => [name, at(`override-${name}`).value.trim()]);
  const stated = fields.filter(([, value]) => value);
  await call(`v1/overrides?${query([...overridePairs(limit, parts), ...stated])}`, { method: "PUT" });
  for (const [name] of fields) at(`override-${name}`).value = "";
  return "The override is set.";
}

async function removeOverride(limit, parts) {
  await call(`v1/overrides?${query(overridePairs(limit, parts))}`, { method: "DELETE" });
  return "The override is removed.";
}

// What if ------------------------------------------------------------------------------------

async function whatIf() {
  const limit = view.limit;
  const wanted = at("whatif-number").value.trim();
  let words;
  try {
    const found = await call(`v1/whatif?${query({ limit, number: wanted })}`);
    const refusals = (one) => `${one.limit} refuses ${number(one.denied)} requests of ${number(one.distinct_denied)} keys`;
    const sample = found.sampled_keys_percent < 100 ? `, a sample of ${number(found.sampled_keys_percent)} % of the keys` : "";
    words = `Of ${number(found.requests)} requests of ${number(found.keys)} keys in ${span(found.covers_ms)}${sample}: `
      + `${[found.present, ...found.numbers].map(refusals).join("; ")}.`;
  } catch (error) {
    words = error.message;
  }
  if (view.limit === limit) text("whatif-result", words);
}

// Drawing ------------------------------------------------------------------------------------

/** Writes one row for each item, in rows that stay. */
function rows(table, items, fill) {
  const body = table.tBodies[0];
  while (body.rows.length > items.length) body.deleteRow(-1);
  items.forEach((item, index) => fill(body.rows[index] ?? body.insertRow(), item));
}

function cell(row, index, words, kind = "") {
  const place = row.cells[index] ?? row.insertCell();
  if (kind) place.className = kind;
  if (place.textContent !== words || place.firstElementChild) place.textContent = words;
}

/** Returns where the changes of a time up to now lie in it, from 0 to 1. */
function marks({ at: now, changes }, length) {
  const places = changes.map((change) => 1 - (Date.parse(now) - Date.parse(change.at)) / length);
  return places.filter((place) => place >= 0 && place <= 1);
}

/** Draws bars of allowed and refused requests, the newest at the right, and lines at changes; the label has the sums. */
function chart(svg, cells, places, what, changes = []) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const highest = Math.max(1, ...cells.map(([allowed, denied]) => allowed + denied));
  const step = width / places;
  const bars = [];
  cells.slice(-places).forEach(([allowed, denied], index, shown) => {
    const x = (places - shown.length + index) * step;
    const [low, high] = [(allowed * height) / highest, (denied * height) / highest];
    bars.push({ x, y: height - low, width: step * 0.8, height: low, class: "allowed" });
    bars.push({ x, y: height - low - high, width: step * 0.8, height: high, class: "denied" });
  });
  for (const place of changes) bars.push({ x: Math.min(width - 1, place * width), y: 0, width: 1, height, class: "mark" });
  draw(svg, bars.filter((bar) => bar.height > 0));
  const noted = changes.length ? `, ${changes.length} changes` : "";
  svg.setAttribute("aria-label", `${what}: ${number(sum(cells, 0))} allowed, ${number(sum(cells, 1))} refused${noted}`);
}

/** Draws bars in those that are there. */
function draw(svg, bars) {
  while (svg.childElementCount > bars.length) svg.lastElementChild.remove();
  bars.forEach((fields, index) => {
    const bar = svg.children[index] ?? svg.appendChild(document.createElementNS(SVG, "rect"));
    bar.removeAttribute("fill-opacity");
    for (const [name, value] of Object.entries(fields)) bar.setAttribute(name, String(value));
  });
}

/** Returns a length of time in words, of one unit. */
function span(millis) {
  const seconds = Math.max(0, Math.ceil(millis / SECOND));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 2 * 86400) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, at("token").value);
  at("token").value = "";
  text("token-error", "");
  at("token-form").hidden = true;
  listen();
});
at("lookup").addEventListener("submit", (event) => { event.preventDefault(); lookUp(); });
at("whatif").addEventListener("submit", (event) => { event.preventDefault(); whatIf(); });
at("override").addEventListener("submit", (event) => {
  event.preventDefault();
  act(`Set the override ${at("override-set").value.trim()} for this one key`, setOverride);
});
at("override-remove").addEventListener("click", () => act("Remove the override of the key", removeOverride));
at("reset").addEventListener("click", () => act("Reset the key", reset));
at("ban").addEventListener("click", () => act("Ban the key for 1 h", ban));
at("lift").addEventListener("click", () => act("Lift the ban of the key", lift));
listen();
