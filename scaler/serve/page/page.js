// The live page: asks /v1 every two seconds and shows the answer. No library, no build, no request to anyone else.
"use strict";

const PERIOD_MS = 2000;
const LIMIT_MS = 8000;

const element = (id) => document.getElementById(id);
let chosen = decodeURIComponent(location.hash.slice(1)) || null;
let states = new Map();
let asking = false;
let again = false;
let arriving = false;

/** An element with text and attributes; everything shown goes through textContent, so nothing in it is markup. */
function make(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const word = (text, kind) => make("span", text, { class: `word ${kind || text}` });

/** Three significant digits, grouped, never an exponent. */
function number(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 1000 ? 3 : 7 });
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.1) return `${number(value * 1000)} ms`;
  if (value < 60) return `${number(value < 10 ? value : Math.round(value))} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  const minutes = Math.floor((whole % 3600) / 60);
  return `${Math.floor(whole / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
}

/** A quantile is an interval: a bucket's width is not evidence, so both ends are shown. */
function interval(bounds) {
  if (!bounds) return "–";
  if (bounds.high === null) return `over ${seconds(bounds.low)}`;
  if (bounds.low === bounds.high) return seconds(bounds.low);
  if (!bounds.low) return `up to ${seconds(bounds.high)}`;
  const [low, high] = [seconds(bounds.low), seconds(bounds.high)];
  const unit = high.slice(high.indexOf(" "));
  return low.endsWith(unit) && !low.includes("min") ? `${low.slice(0, -unit.length)}–${high}` : `${low} – ${high}`;
}

function signalValue(signal) {
  if (signal.latency) return `P95 ${interval(signal.latency.p95)}`;
  if (signal.value === null) return "–";
  if (signal.unit === "s") return seconds(signal.value);
  if (signal.unit === "0..1") return number(signal.value);
  const counted = signal.value === 1 && !signal.unit.includes("/");
  return `${number(signal.value)} ${counted ? signal.unit.replace(/s$/, "") : signal.unit}`;
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(LIMIT_MS), cache: "no-store" });
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(said.error || `${path} answered ${answer.status}`), { status: answer.status });
  }
  return answer.json();
}

const path = (name, rest = "") => `v1/workloads/${name.split("/").map(encodeURIComponent).join("/")}${rest}`;

function cell(content, column, number = false) {
  const made = make("td", null, number ? { role: "cell", class: "number" } : { role: "cell" });
  if (column) made.dataset.column = column;
  made.append(...[content].flat());
  return made;
}

function objectiveLines(objectives) {
  if (!objectives.length) return [make("span", "no objective declared", { class: "under" })];
  return objectives.map((objective) => {
    const line = make("div");
    const bound = objective.warning_seconds ?? objective.critical_seconds;
    const judged = objective.critical_verdict === "breached" ? "breached" : objective.verdict ?? objective.critical_verdict;
    const measured = objective.p95 ? `${interval(objective.p95)} of` : "no data, objective";
    line.append(`${objective.objective.toUpperCase()} ${measured} ${seconds(bound)} `);
    if (judged) line.append(word(judged));
    return line;
  });
}

function stateCell(workload) {
  const content = [word(workload.state)];
  if (!workload.current && workload.decided_at) content.push(make("span", "no recent tick", { class: "under" }));
  else if (workload.decided_at && !workload.available) content.push(make("span", "KEDA is told: unavailable", { class: "under" }));
  return cell(content, "State");
}

function summaryRow(workload) {
  const row = make("tr", null, workload.workload === chosen ? { role: "row", class: "chosen" } : { role: "row" });
  const name = make("button", workload.workload, { type: "button", class: "name" });
  name.setAttribute("aria-pressed", String(workload.workload === chosen));
  const head = make("th", null, { role: "rowheader", scope: "row" });
  head.append(name);
  if (workload.warnings.length) {
    head.append(make("span", workload.warnings.length === 1 ? "1 warning" : `${workload.warnings.length} warnings`, { class: "under" }));
  }
  const { desired, ready, ceiling } = workload.replicas;
  const replicas = !workload.decided_at ? ["–"] : [`${number(desired)} wanted`, make("span", `${number(ready)} ready${ceiling === null ? "" : `, max ${ceiling}`}`, { class: "under" })];
  row.append(
    head,
    stateCell(workload),
    cell(replicas, "Replicas", true),
    cell(workload.decided_at && workload.batch_size === null ? "engine’s own" : number(workload.batch_size), "Batch", true),
    cell(objectiveLines(workload.objectives)),
    cell(seconds(workload.age_seconds), "Data age", true),
  );
  row.addEventListener("click", () => choose(workload.workload));
  return row;
}

/** Replace the rows, keeping the keyboard where it was: the page redraws under the reader's fingers. */
function showAll(workloads) {
  const body = element("all").tBodies[0];
  const focused = body.contains(document.activeElement) ? document.activeElement.textContent : null;
  body.replaceChildren(...workloads.map(summaryRow));
  if (focused !== null) [...body.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  element("all").hidden = !workloads.length;
  element("empty").hidden = Boolean(workloads.length);
  const changed = workloads.filter((w) => states.has(w.workload) && states.get(w.workload) !== w.state);
  if (changed.length) element("said").textContent = changed.map((w) => `${w.workload} is now ${w.state}`).join(". ");
  states = new Map(workloads.map((w) => [w.workload, w.state]));
}

function list(id, items, none) {
  element(id).replaceChildren(...(items.length ? items : none ? [make("li", none, { class: "none" })] : []));
}

function signalRow(signal) {
  const row = make("tr", null, { role: "row" });
  const title = signal.signal.replace(/_(seconds|ratio)$/, "").replaceAll("_", " ");
  const head = make("th", title, { role: "rowheader", scope: "row" });
  head.append(make("span", signal.reason || signal.meaning, { class: "under" }));
  row.append(
    head,
    cell(word(signal.status.replace("_", " "), signal.status), "Status"),
    cell(signalValue(signal), "Value", true),
    cell(seconds(signal.age_seconds), "Age", true),
  );
  return row;
}

function decisionItem(entry) {
  const item = make("li");
  const at = new Date(entry.at);
  item.append(make("time", at.toLocaleTimeString(), { datetime: entry.at, title: at.toLocaleString() }), " ");
  const changes = entry.changes.map((c) => `${c.what.replaceAll("_", " ")} ${shown(c.from)} → ${shown(c.to)}`).join(", ");
  item.append(make("strong", changes));
  const why = entry.reasons.map((reason) => reason.sentence).join("; ");
  if (why) item.append(make("span", why, { class: "under" }));
  return item;
}

function shown(value) {
  if (value === null) return "none";
  return typeof value === "number" ? number(value) : String(value);
}

function showOne(detail, decisions) {
  element("one").hidden = false;
  element("one-title").textContent = detail.workload;
  const state = element("one-state");
  state.replaceChildren(word(detail.state), ` ${detail.state_words}`);
  if (detail.state_seconds !== null) state.append(`, for ${seconds(detail.state_seconds)}`);
  if (detail.cause_words) state.append(`. Cause: ${detail.cause_words}`);
  if (detail.admission && detail.admission !== "open") state.append(`. ${detail.admission_words}`);
  list("one-warnings", [...detail.warnings, ...detail.signal_warnings].map((text) => make("li", text)));
  list("reasons", detail.reasons.map((reason) => make("li", reason.sentence)), "Nothing moved, and nothing needs to.");
  list("suppressed", detail.suppressed.map((held) => make("li", held.sentence)), "Nothing.");
  list("decisions", decisions.map(decisionItem), "None since this scaler started.");
  const order = { known: 0, stale: 1, unknown: 2, not_applicable: 3 };
  const signals = [...detail.signals].sort((a, b) => order[a.status] - order[b.status]);
  element("signals").tBodies[0].replaceChildren(...signals.map(signalRow));
  if (arriving) element("one-title").focus();
  arriving = false;
}

function choose(name) {
  chosen = name;
  history.replaceState(null, "", name ? `#${encodeURIComponent(name)}` : location.pathname);
  arriving = Boolean(name);
  if (!name) element("one").hidden = true;
  turn();
}

async function turn() {
  if (asking) {
    again = true;
    return;
  }
  asking = true;
  try {
    const all = await ask("v1/workloads");
    showAll(all.workloads);
    if (chosen) {
      const wanted = chosen;
      const [detail, log] = await Promise.all([ask(path(wanted)), ask(path(wanted, "/decisions?limit=12"))]);
      if (wanted === chosen) showOne(detail, log.decisions);
    }
    element("link").textContent = `live, version ${all.version}`;
    element("link").classList.remove("lost");
  } catch (error) {
    if (error.status === 404) {
      element("one").hidden = true; // the workload was deleted while it was looked at
      chosen = null;
    } else {
      element("link").textContent = `no answer from the scaler: what is shown may be old (${error.message})`;
      element("link").classList.add("lost");
    }
  } finally {
    asking = false;
    if (again) {
      again = false;
      turn();
    }
  }
}

element("close").addEventListener("click", () => choose(null));
document.addEventListener("visibilitychange", () => document.hidden || turn());
setInterval(() => document.hidden || turn(), PERIOD_MS);
turn();
