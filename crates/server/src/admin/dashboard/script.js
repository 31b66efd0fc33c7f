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
const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
const percent = (part, whole) => `${number(whole ? (part * 100) / whole : 0)} %`;
const sum = (cells, index) => cells.reduce((all, cell) => all + cell[index], 0);
const total = (counts) => counts.reduce((all, one) => all + one);
const three = (spans) => [0, 1, 2].map((index) => sum(spans, index));
/** Returns the sums of the chosen range: allowed, refused, and requests that a limit in shadow would refuse. */
const sums = ({ counts }) => three(counts[view.range].spans);
/** Returns the counts of a second, the average of the last ten. */
function perSecond({ counts: { "1m": { spans, step } } }) {
  const recent = spans.slice(-Math.ceil(10 / step));
  return three(recent).map((count) => count / Math.max(1, recent.length * step));
}
/** Returns the limits, those first that refuse most; refusals in shadow come after all others. */
const sorted = (limits) => limits.map((limit) => [limit, sums(limit)])
  .sort(([, one], [, other]) => other[1] - one[1] || other[2] - one[2]).map(([limit]) => limit);

/** What is shown: the range of the charts, a limit and its details, if somebody chose it, and the key that was looked up. */
const view = { range: "1m", limit: null, details: null, chosen: false, found: null, state: null, lookUps: 0 };

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
  view.details = limit;
  at("panels").hidden = false;
  remember(state);
  if (limit && limit.name !== view.limit) choose(limit.name);
  showState(state);
  if (limit) showLimit(limit);
  else at("detail").hidden = true;
  connection("live", "live");
  if (limit?.counts) follow(state.limits);
}

/** Opens the limit that refuses most in place of one that refuses nothing, unless somebody works with that. */
function follow(limits) {
  const [most] = sorted(limits);
  const quiet = (limit) => !sums(limit)[1] && !sums(limit)[2];
  if (view.chosen || at("detail").matches(":focus-within") || !quiet(view.details) || quiet(most)) return;
  choose(most.name);
  listen();
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

at("range").addEventListener("change", ({ target }) => {
  view.range = target.value;
  if (!view.state) return;
  showState(view.state);
  if (view.details) showLimit(view.details);
});

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
  const list = [["Counters in memory", `${counted(memory.keys, "key")}, ${mib(memory.bytes)} of ${mib(memory.budget_bytes)}`
    + (memory.evicted ? `; ${counted(memory.evicted, "key")} lost for want of room` : "")]];
  if (store.kind === "redis") {
    const down = store.servers_down.length ? `; down: ${store.servers_down.join(", ")}` : "";
    const offset = store.clock_offset_ms;
    const side = offset < 0 ? "behind" : "ahead";
    const clock = offset === null ? "" : `; its clock is ${number(Math.abs(offset))} ms ${side}`;
    list.push(["Store", `99 % of the calls within ${within(99, "store")}; ${number(store.failed)} failed, `
      + `${number(store.fallback)} decided without it${clock}${down}`]);
  }
  const waits = within(99, "queue");
  if (held || waits !== "-") list.push(["Queues", `${counted(held, "request")} waiting; 99 % within ${waits}`]);
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
  const { store, changes } = state;
  const ago = (change) => span(Date.parse(state.at) - Date.parse(change));
  const refusal = changes.find(({ kind, text }) => kind === "error" && /^(policy|envoy configuration) refused/.test(text));
  text("policy", (state.rejected ? `policy refused ${refusal ? `${ago(refusal.at)} ago` : ""}, version ${state.version} still serves`
    : `policy version ${state.version}, ${ago(state.applied_at)} old`) + (state.ready ? "" : ", NOT READY"));
  at("policy").className = state.rejected ? "error" : "";
  at("policy").title = state.sha;
  const [allowed, denied, errors] = perSecond(state);
  text("rate", `${number(allowed + denied)}/s`);
  text("rate-note", `${number(state.limits.reduce((all, limit) => all + total(perSecond(limit)), 0))} decisions of limits/s${errors ? `, ${number(errors)} errors/s` : ""}`);
  text("share", percent(denied, allowed + denied));
  text("share-note", `${number(denied)} requests/s${state.held ? `, ${state.held} held back` : ""}`);
  text("time", within(99, "decision"));
  text("time-note", `half within ${within(50, "decision")}; last minute`);
  facts(at("service"), serviceRows(state));
  text("store", `${store.kind} ${store.state}`);
  text("store-note", store.kind === "redis"
    ? `${counted(store.failed, "call")} failed, ${number(store.fallback)} decided without it` : "in this process");
  showUpstreams(state.upstreams);
  text("alerts", number(state.alerts));
  text("alerts-note", state.alerts ? `key${state.alerts === 1 ? "" : "s"} close to a limit` : "");
  chart("requests", state, ["allowed", "refused", "errors"], ["allowed", "denied", "failed"]);
  showLimits(state.limits);
  rows(at("changes"), changes, (row, change) => {
    cell(row, 0, clock(change.at, SECOND));
    cell(row, 1, change.kind, change.kind === "error" ? "error" : " ");
    cell(row, 2, change.text);
    cell(row, 3, change.by ?? "");
  });
  text("changes-note", changes.length ? "" : "None since the start.");
}

/** Writes pairs of a name and words. */
function facts(table, list) {
  rows(table, list, (row, [name, words]) => {
    if (!row.cells.length) row.append(document.createElement("th"));
    cell(row, 0, name);
    cell(row, 1, words);
  });
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
  const place = at(faults.length ? "panels" : "more");
  if (panel.parentElement !== place) place.prepend(panel);
  at("upstream-faults").replaceChildren(...faults.map((fault) => {
    const item = document.createElement("li");
    item.textContent = fault;
    return item;
  }));
  const counts = (of) => Object.entries(of).filter(([, count]) => count).map(([name, count]) => `${name} ${number(count)}`);
  const within = (millis) => (millis === null ? "-" : moment(millis / SECOND));
  rows(at("upstreams"), all, (row, one) => {
    const addresses = one.addresses.map(({ address, up, connections, failed }) =>
      `${address} ${up ? "up" : "left out"}, ${counted(connections, "connection")}${failed ? `, ${counted(failed, "attempt")} failed` : ""}`);
    cell(row, 0, one.route || (all.length > 1 ? "(all others)" : "(all)"));
    cell(row, 1, number(one.requests), "number");
    cell(row, 2, number(one.failed), "number");
    cell(row, 3, [...counts(one.responses), ...counts(one.failures), ...counts({ left: one.left })].join(", "));
    cell(row, 4, within(one.half_within_ms), "number");
    cell(row, 5, within(one.most_within_ms), "number");
    cell(row, 6, number(one.in_flight), "number");
    cell(row, 7, addresses.join("; "));
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
  const stay = body.matches(":hover") || body.querySelector(":focus-visible"); // no row moves away from a hand
  sorted(limits).forEach((limit, index) => {
    const row = limitRows.get(limit.name) ?? limitRow(limit.name);
    if (!row.parentElement || (!stay && body.rows[index] !== row)) body.insertBefore(row, body.rows[index] ?? null);
    fillLimit(row, limit);
  });
  const { more } = view.state;
  text("limits-note", `Clients: different keys of this ${view.range === "1m" ? "minute" : "hour"} and the one before it, estimated.`
    + `${more ? ` ${counted(more, "limit")} with fewer refusals, or no history, left out.` : ""}`);
}

function limitRow(name) {
  const row = at("limit-row").content.firstElementChild.cloneNode(true);
  limitRows.set(name, row);
  const button = row.querySelector("button");
  button.textContent = name;
  button.addEventListener("click", () => {
    view.chosen = true;
    choose(name);
    const { top } = at("detail").getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) at("detail").scrollIntoView();
    listen();
  });
  return row;
}

function fillLimit(row, limit) {
  const [button, about, reading] = row.cells[0].children;
  button.setAttribute("aria-pressed", limit.name === view.limit);
  about.textContent = limit.limit + (limit.mode === "enforce" ? "" : `, ${limit.mode}`);
  reading.textContent = causeOf(limit);
  const [allowed, denied, shadow] = sums(limit);
  const refused = denied + shadow;
  cell(row, 1, number(allowed + refused));
  cell(row, 2, denied && shadow ? `${number(denied)}, ${number(shadow)} would be` : `${number(refused)}${shadow ? " would be" : ""}`);
  cell(row, 3, percent(refused, allowed + refused));
  const [touched, clients] = view.range === "1m" ? [limit.distinct_denied, limit.distinct] : [limit.hour.keys, limit.hour.asked];
  cell(row, 4, clients ? `${number(touched)} of ${number(clients)}, ${percent(touched, clients)}` : "-");
  const spans = limit.counts[view.range].spans.map(([, ...refused]) => [0, ...refused]);
  draw(row.cells[5].firstChild, bars(spans, { x: 0, y: 1, width: 96, height: 23 }, highest(spans)));
  row.cells[5].firstChild.setAttribute("aria-label", `${number(refused)} refusals over time`);
}

/** Returns how much a count has grown in the last minute; it may be unknown in some states. */
function grown(count) {
  const known = past.filter((state) => count(state) !== undefined);
  return known.length < 2 ? 0 : Math.max(0, count(known[known.length - 1]) - count(known[0]));
}

/** Returns the same a second. */
function rate(count) {
  const first = past.find((state) => count(state) !== undefined);
  return grown(count) * SECOND / (Date.parse(view.state.at) - Date.parse(first?.at) || SECOND);
}

/** Returns the likely cause of the refusals in words. A few refusals of one key say little. */
function causeOf({ cause, denied, distinct_denied: distinct, busiest, banned, bans }) {
  const abuser = busiest + banned > denied ? ", banned" : busiest >= ABUSE ? ": an abuser" : "";
  switch (cause) {
    case "": return "";
    case "no key": return "no key: a part of it is missing";
    case "blocked": return "blocked keys";
    case "one key": return `one key${abuser}`;
    case "mostly one key": return `${number(distinct)}, mostly one key${abuser}`;
    case "ban wave": return `ban wave: ${bans > 1 ? `${number(bans)} keys banned` : `${number(distinct)} keys refused`}`;
    default: return `${number(distinct)} keys: the number may be too low`;
  }
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
  at("parts").replaceChildren(...limit.key.map((part) => {
    const label = at("part").content.firstElementChild.cloneNode(true);
    label.prepend(part);
    return label;
  }));
  at("decisions").picked = null;
}

/** Returns what is known of a limit, little of one that is not among those listed. */
const about = (name) => view.state.limits.find((limit) => limit.name === name) ?? { limit: "", key: [], ban: null };

const byHand = (act) => `, ${act === "ban" ? "banned" : "allowed"} by hand`;

function showLimit(details) {
  const { name, top, bans, by_hand: set } = details;
  const limit = about(name);
  showKeys(top);
  chart("decisions", details, ["allowed", "refused", "would be refused"]);
  facts(at("facts"), limit.hour ? factsOf(limit) : []);
  rows(at("bans"), [...set, ...(bans?.bans ?? [])], (row, ban) => {
    keyCell(row, ban.key, top.reveal_keys === "raw");
    cell(row, 1, `${span(ban.ends_after_ms)}${ban.act ? byHand(ban.act) : ""}`, "number");
  });
  at("bans-panel").hidden = !limit.ban && !set.length;
  text("bans-note", bans || !limit.ban ? bansNote(bans, set) : `Bans in a shared store: ratekeeper bans list ${name}`);
}

/** Returns what else is known of a limit: whom it touches, and when it applies. */
function factsOf({ name, mode, in_use: used, highest_percent: highest, hour, key, match, active, ...limit }) {
  const of = (count) => ({ limits }) => limits.filter((one) => one.name === name).map(count)[0];
  const list = [["Mode", mode + (used === undefined ? "" : `, ${number(used)} in use`)],
    ["Near", `${number(rate(of(({ near }) => near)))} requests/s; the highest key has spent ${number(highest)} %`],
    ["Keys refused", `${number(hour.keys)} in this hour and the one before it, ${number(hour.first)} for the first time`]];
  const plans = limit.plans.map(([plan], index) => [plan, grown(of((one) => one.plans[index]?.[1]))]).filter(([, denied]) => denied);
  if (limit.plans.length) list.push(["By plan, last minute", plans.map(([plan, denied]) => `${plan} ${number(denied)}`).join(", ") || "none"]);
  if (limit.shed !== undefined) list.push(["Refused for priority", `${number(grown(of(({ shed }) => shed)))} in the last minute`]);
  if (view.state.countries && (key.includes("country") || match.some(({ field }) => field === "country"))) {
    const { since, countries } = view.state.countries;
    list.push(["Countries, 24 h", countries.map(({ country, hours }) => {
      const most = hours.reduce((best, [all], hour) => (all > hours[best][0] ? hour : best), 0);
      return `${country} ${number(sum(hours, 0))}, ${percent(sum(hours, 1), sum(hours, 0))} refused, most at ${clock(Date.parse(since) + most * 3600 * SECOND)}`;
    }).join("; ")]);
  }
  if (active) list.push(["Applies", active.times]);
  return list;
}

function bansNote(bans, set) {
  if (!bans) return "";
  if (!bans.bans.length) return set.length ? "" : "No key is banned.";
  const first = bans.bans.length === 20 ? "The first 20, those that end last. " : "";
  return first + (bans.reveal_keys === "raw" ? "" : `Keys shown as reveal_keys = "${bans.reveal_keys}": type the plain key to lift a ban.`);
}

function showKeys(top) {
  const hidden = top.reveal_keys === "raw" ? "" : `, keys shown as reveal_keys = "${top.reveal_keys}"`;
  const unlisted = [[top.key_missing, "without a part of the key"], [top.blocked, "of blocked keys"]].filter(([count]) => count)
    .map(([count, words]) => `${counted(count, "refusal")} ${words}`);
  text("keys-note", `Last ${span(top.covers_ms)}${hidden}.${top.keys.length ? "" : " No key was refused in that time."}`
    + `${unlisted.length ? ` Not listed: ${unlisted.join(", ")}.` : ""}`);
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
  // With its name, of which the service takes away one: a value may begin like a name.
  inputs.forEach((input, index) => { input.value = parts[index] ?? ""; });
  lookUp();
}

// One key ------------------------------------------------------------------------------------

const values = () => [...at("parts").querySelectorAll("input")].map((input) => input.value);

/** Shows a key under a limit, after the words about an act. An answer that comes after a newer look-up is dropped. */
async function lookUp(said = "", limit = view.limit, parts = values()) {
  view.lookUps += 1;
  const mine = view.lookUps;
  at("acts").hidden = at("override").hidden = true;
  at("override").reset();
  const words = await balance(limit, parts);
  const override = await overrideOf(limit, parts);
  if (mine !== view.lookUps || view.limit !== limit) return;
  const { writes } = view.state;
  const closed = writes ? "" : ' To change it, start the service with RATEKEEPER_ADMIN_TOKEN or admin_writes = "open".';
  text("found", (parts.length ? `${parts.join(", ")}: ` : "") + said + words + (override?.words ?? "") + closed);
  view.found = { limit, parts };
  at("acts").hidden = !writes;
  at("override").hidden = !writes || override === null;
  at("override-remove").hidden = !override?.words;
}

/** Returns the override of a key in words, empty if it has none; null where keys have no overrides. */
async function overrideOf(limit, parts) {
  if (!parts.length) return null;
  try {
    const { overrides } = await call(overridePath(limit, parts));
    const found = overrides.find((one) => one.in_force);
    return { words: found ? ` Override: ${found.set}${found.until ? `, until ${found.until}` : ""}.` : "" };
  } catch {
    return null; // the policy names no file
  }
}

/** Returns the balance of a key in words, or why it is not known. */
async function balance(limit, parts) {
  try {
    const found = await call(keyPath(limit, parts));
    const banned = found.ban_ends_after_ms ? `, banned for ${span(found.ban_ends_after_ms)}` : "";
    const hand = found.by_hand ? `${byHand(found.by_hand.act)} for ${span(found.by_hand.ends_after_ms)}` : "";
    const full = found.reset_after_ms === null ? "" : `, full in ${span(found.reset_after_ms)}`;
    return `${number(found.remaining)} of ${number(found.quota)} remain${full}${banned}${hand}.`;
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

/** Asks the operator, calls the service about the key that was looked up, and shows what came of it. */
async function act(question, method, path, said) {
  const { limit, parts } = view.found;
  if (!await confirmed(`${question} under ${limit}?`, parts)) return;
  try {
    const done = await call(path(limit, parts), { method });
    const idle = done?.act === "ban" && done.mode !== "enforce" ? `The limit refuses nothing: mode = "${done.mode}". ` : "";
    if (view.limit === limit) await lookUp(`${said} ${idle}`, limit, parts);
  } catch (error) {
    if (view.limit === limit) text("found", `${parts.join(", ")}: ${error.message}`);
  }
}

const keyPath = (limit, parts) => `v1/keys/${encodeURIComponent(limit)}?${query(parts.map((part) => ["key", part]))}`;
const banPath = (limit, parts, ...more) => `v1/bans?${query([["limit", limit], ...parts.map((part) => ["key", part]), ...more])}`;
/** No value of the key is a pattern. */
const overridePath = (limit, parts, ...more) => `v1/overrides?${query([["limit", limit], ...parts.map((part) => ["value", part]), ...more])}`;

/** Returns the fields of an override that are filled in. */
const stated = () => ["set", "until", "reason"].map((name) => [name, at(`override-${name}`).value.trim()]).filter(([, value]) => value);

// What if ------------------------------------------------------------------------------------

async function whatIf() {
  const limit = view.limit;
  const wanted = at("whatif-number").value.trim();
  let words;
  try {
    const found = await call(`v1/whatif?${query({ limit, number: wanted })}`);
    const refusals = (one) => `${one.limit} refuses ${counted(one.denied, "request")} of ${counted(one.distinct_denied, "key")}`;
    const sample = found.sampled_keys_percent < 100 ? `, a sample of ${number(found.sampled_keys_percent)} % of the keys` : "";
    words = `Of ${counted(found.requests, "request")} of ${counted(found.keys, "key")} in ${span(found.covers_ms)}${sample}: `
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
  const labels = [...table.querySelectorAll("th[scope]")].map((head) => head.textContent);
  while (body.rows.length > items.length) body.deleteRow(-1);
  items.forEach((item, index) => {
    const row = body.rows[index] ?? body.insertRow();
    fill(row, item);
    labels.forEach((label, index) => { row.cells[index].dataset.label = label; });
  });
}

function cell(row, index, words, kind = "") {
  const place = row.cells[index] ?? row.insertCell();
  if (kind) place.className = kind;
  if (place.textContent !== words || place.firstElementChild) place.textContent = words;
}

const rect = (kind, x, y, width, height) => ({ tag: "rect", class: kind, x, y, width, height });
const words = (kind, x, y, text) => ({ tag: "text", class: kind, x, y, text });
const highest = (spans) => Math.max(1, ...spans.map(total));

/** Returns the bars of spans in a box, the newest at the right; fewer than `places` do not fill it. */
function bars(spans, box, most, kinds = ["allowed", "denied", "shadow"], places = PLACES) {
  const step = box.width / Math.max(spans.length, places);
  return spans.flatMap((counts, index) => {
    const x = box.x + box.width - (spans.length - index - 0.1) * step;
    let y = box.y + box.height;
    const each = counts.map((count, kind) => rect(kinds[kind], x, y -= count * box.height / most, step * 0.8, count * box.height / most));
    return each.filter(({ height }) => height);
  });
}

/** Minimum number of bars for which an axis has room. */
const PLACES = 12;
/** Times between two marks of an axis, in seconds. */
const INTERVALS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 28800];
const clock = (time, length) => new Date(time).toLocaleTimeString("en-GB", { timeStyle: length < 60 * SECOND ? "medium" : "short" });

/** Returns lines and numbers up to `most`, and times from `start` to `now`. */
function axes(box, most, start, now) {
  const lines = [0, most / 2, most].flatMap((mark) => {
    const y = box.y + box.height * (1 - mark / most);
    return [rect("line", box.x, y, box.width, 1), words("high", box.x - 6, y + 4, number(mark))];
  });
  const interval = INTERVALS.find((seconds) => (now - start) / seconds / SECOND <= box.width / 80) * SECOND;
  const zone = new Date(now).getTimezoneOffset() * 60 * SECOND;
  for (let time = Math.ceil((start - zone) / interval) * interval + zone; time <= now; time += interval) {
    const x = box.x + (time - start) * box.width / (now - start);
    lines.push(words("time", Math.min(x, box.x + box.width - 20), box.y + box.height + 16, clock(time, interval)));
  }
  return lines;
}

/** Draws the chosen range with its changes, and writes the numbers of the bar that is picked, or the sums. */
function chart(id, { counts }, names, kinds) {
  const svg = at(id);
  const { spans, step } = counts?.[view.range] ?? { spans: [], step: 1 };
  const length = step * (view.range === "1m" ? SECOND : 60 * SECOND);
  const now = Date.parse(view.state.at);
  const begin = now - spans.length * length;
  // All charts begin together, that of a limit that a reload added too.
  const whole = view.state.counts[view.range];
  const places = Math.max(PLACES, spans.length, whole.spans.length * whole.step / step);
  const start = now - places * length;
  const box = { x: 44, y: 20, width: Math.max(1, svg.clientWidth - 52), height: svg.clientHeight - 40 };
  const x = (time) => box.x + (time - start) * box.width / (now - start);
  const bar = Math.floor((svg.picked - begin) / length);
  const [from, to] = [begin + bar * length, begin + (bar + 1) * length];
  const changes = view.state.changes.map(({ at: time, text }) => ({ time: Date.parse(time), text })).filter(({ time }) => time > start);
  const round = 10 ** Math.max(0, Math.floor(Math.log10(highest(spans) / 2)));
  const most = 2 * Math.ceil(highest(spans) / 2 / round) * round;
  svg.setAttribute("viewBox", `0 0 ${svg.clientWidth} ${svg.clientHeight}`);
  draw(svg, [words("unit", 0, 10, `${id} in ${span(length)}`), ...axes(box, most, start, now),
    ...(spans[bar] ? [rect("picked", x(from), box.y, x(to) - x(from), box.height)] : []), ...bars(spans, box, most, kinds, places),
    ...changes.map(({ time }) => rect("mark", x(time), box.y, 1, box.height))]);
  const values = spans[bar] ?? three(spans);
  const list = names.map((name, index) => `${number(values[index])} ${name}`).slice(0, values[2] ? 3 : 2);
  const then = changes.filter(({ time }) => spans[bar] && time >= from && time < to).map(({ text }) => `; ${text.split("\n")[0]}`);
  const value = `${spans[bar] ? clock(from, length) : `last ${span(spans.length * length)}`}: ${list.join(", ")}${then.join("")}`;
  text(`${id}-value`, value);
  const last = Math.max(0, spans.length - 1);
  const fields = { label: id, valuemax: last, valuenow: spans[bar] ? bar : last, valuetext: value };
  for (const [name, field] of Object.entries(fields)) svg.setAttribute(`aria-${name}`, field);
  const timeAt = (place) => start + (place - box.x) * (now - start) / box.width;
  Object.assign(svg, { begin, now, length, timeAt, redraw: () => chart(id, { counts }, names, kinds) });
}

/** Picks the bar of a time in a chart; null for none. */
function pick(svg, time) {
  svg.picked = time;
  svg.redraw?.();
}

for (const svg of document.querySelectorAll(".chart")) {
  svg.addEventListener("pointermove", ({ offsetX }) => pick(svg, svg.timeAt(offsetX)));
  for (const end of ["pointerleave", "blur"]) svg.addEventListener(end, () => pick(svg, null));
  svg.addEventListener("keydown", (event) => {
    const { begin, now, length } = svg;
    const from = svg.picked ?? now + length / 2;
    const to = { ArrowLeft: from - length, ArrowRight: from + length, Home: begin, End: now, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    pick(svg, to && Math.min(now - length / 2, Math.max(begin + length / 2, to)));
  });
}

/** Draws shapes in those that are there. */
function draw(svg, shapes) {
  while (svg.childElementCount > shapes.length) svg.lastElementChild.remove();
  shapes.forEach(({ tag, text, ...fields }, index) => {
    let shape = svg.children[index];
    if (shape?.tagName !== tag) {
      shape?.remove();
      shape = svg.insertBefore(document.createElementNS(SVG, tag), svg.children[index] ?? null);
    }
    if (text !== undefined) shape.textContent = text;
    for (const [name, value] of Object.entries(fields)) shape.setAttribute(name, value);
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

const onSubmit = (id, work) => at(id).addEventListener("submit", (event) => { event.preventDefault(); work(); });
const onClick = (id, ...what) => at(id).addEventListener("click", () => act(...what));
onSubmit("token-form", () => {
  sessionStorage.setItem(TOKEN, at("token").value);
  at("token").value = "";
  text("token-error", "");
  at("token-form").hidden = true;
  listen();
});
onSubmit("lookup", () => lookUp());
onSubmit("whatif", whatIf);
onSubmit("override", () => act(`Set the override ${at("override-set").value.trim()} for this one key`, "PUT",
  (...key) => overridePath(...key, ...stated()), "The override is set."));
onClick("override-remove", "Remove the override of the key", "DELETE", overridePath, "The override is removed.");
onClick("reset", "Reset the key", "DELETE", keyPath, "The key is reset.");
const actPath = (act) => (...key) => banPath(...key, ["act", act], ["for", at("hand-for").value.trim()]);
onClick("ban", "Ban the key", "POST", actPath("ban"), "The key is banned.");
onClick("allow", "Allow the key", "POST", actPath("allow"), "The key is allowed.");
onClick("lift", "Lift the ban of the key", "DELETE", banPath, "The ban is lifted.");
listen();
