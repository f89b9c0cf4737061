// All workloads at a glance: the loudest first, to be sorted and filtered once they are many.

import { moved } from "./card.js";
import { STATES, age, draw, element, keep, make, renew, say, stateWord, word } from "./dom.js";
import { bound, counted, interval, number, seconds, used, verdict } from "./quantities.js";

/** Rows drawn before somebody asks for all: a browser takes long over thousands, and nobody reads them. */
const ROWS = 200;
/** From how many workloads on there is something to filter. */
const MANY = 6;

const worstUse = (workload) => Math.max(-1, ...workload.objectives.map((each) => used(each) ?? -1));

/** What each column sorts by; numbers begin with the highest. */
const COLUMNS = [
  { key: "name", title: "Workload", by: (w) => w.workload },
  { key: "state", title: "State", by: (w) => STATES.length - STATES.indexOf(w.state) + (silent(w) ? 100 : 0) },
  { key: "load", title: "In flight, 30 min", by: (w) => w.in_flight ?? -1 },
  { key: "replicas", title: "Replicas", by: (w) => w.replicas.desired ?? -1, number: true },
  { key: "batch", title: "Batch", by: (w) => w.batch_size ?? -1, number: true },
  { key: "objective", title: "P95 against objective", by: worstUse },
  { key: "age", title: "Data age", by: (w) => w.data_age_seconds ?? (w.lost_signals.length ? Infinity : -1), number: true },
];

const view = { text: "", state: null, sort: "state", reversed: false, all: false };
let workloads = [];
let trends = new Map();
let redraw = () => {};

/** KEDA gets no number of this one: that matters more than the state it was last seen in. */
const silent = (workload) => Boolean(workload.decided_at) && !(workload.current && workload.available);

function order(one, other) {
  const column = COLUMNS.find((each) => each.key === view.sort);
  const [a, b] = [column.by(one), column.by(other)];
  const compared = typeof a === "string" ? a.localeCompare(b) : b - a;
  return (view.reversed ? -compared : compared) || one.workload.localeCompare(other.workload);
}

function matches(workload) {
  if (view.state === "silent" ? !silent(workload) : view.state && workload.state !== view.state) return false;
  return workload.workload.includes(view.text);
}

/** The list as it was answered. Trends come with every few answers only, and stay until the next. */
export function showOverview(answer) {
  workloads = answer.workloads;
  if (answer.trend_slot_seconds) trends = new Map(workloads.map((each) => [each.workload, each.in_flight_trend]));
  const gap = Math.ceil(answer.tick_seconds / 30);
  redraw = () => drawAll(gap);
  redraw();
}

function drawAll(gap) {
  const found = workloads.filter(matches).sort(order);
  const rows = view.all ? found : found.slice(0, ROWS);
  element("empty").hidden = workloads.length > 0;
  element("tools").hidden = workloads.length < MANY;
  element("workloads").hidden = !rows.length;
  element("none-match").hidden = rows.length > 0 || !workloads.length;
  element("more-row").hidden = rows.length === found.length;
  say(element("more"), `Show all ${found.length}`);
  say(element("shown"), found.length === workloads.length ? `${workloads.length} in all` : `${found.length} of ${workloads.length}`);
  drawStates();
  drawHeads();
  keep(element("workloads").tBodies[0], rows, (each) => each.workload, makeRow, (row, each) => updateRow(row, each, gap));
}

function drawStates() {
  const counts = STATES.map((state) => [state, workloads.filter((each) => each.state === state).length]);
  const quiet = workloads.filter(silent).length;
  const shown = counts.filter(([state, count]) => count || state === view.state);
  if (quiet || view.state === "silent") shown.unshift(["silent", quiet]);
  keep(element("states"), shown, ([state]) => state, makeFilter, (button, [state, count]) => {
    button.setAttribute("aria-pressed", String(view.state === state));
    say(button.lastChild, String(count));
  });
}

function makeFilter([state]) {
  const label = state === "silent" ? word("no answer for KEDA", "critical") : word(state);
  const button = make("button", { type: "button" }, label, " ", make("span", { class: "count" }));
  button.addEventListener("click", () => change({ state: view.state === state ? null : state }));
  return button;
}

function drawHeads() {
  for (const head of element("workloads").tHead.rows[0].cells) {
    const column = COLUMNS.find((each) => each.key === head.dataset.key);
    if (column.key !== view.sort) head.setAttribute("aria-sort", "none");
    else head.setAttribute("aria-sort", (typeof column.by(workloads[0]) === "string") !== view.reversed ? "ascending" : "descending");
  }
}

// -- one row ----------------------------------------------------------------------------------------------------------

function makeRow(workload) {
  const link = make("a", { href: `#${workload.workload}`, class: "name" });
  link.append(make("span", { class: "namespace" }, `${workload.namespace}/`), make("wbr"), workload.name);
  const row = make("tr", { role: "row" });
  row.append(make("th", { role: "rowheader", scope: "row" }, link, make("span", { class: "under" })));
  for (const column of COLUMNS.slice(1)) {
    row.append(make("td", { role: "cell", class: `${column.key}${column.number ? " number" : ""}`, "data-column": column.title }));
  }
  // The whole row leads there for a pointer; keyboard and screen reader have the link in it.
  row.addEventListener("click", (event) => event.target.closest("a") || getSelection().toString() || link.click());
  return row;
}

/** Where replicas are kept, or come from, other than awake; null: there is nothing to say. */
function rung({ rung, active, replicas }) {
  if (rung === "asleep") return active ? "asleep" : null;
  return replicas.asleep ? "waking" : null;
}

function updateRow(row, workload, gap) {
  const [head, state, load, replicas, batch, objective, data] = row.cells;
  row.classList.toggle("silent", silent(workload));
  const warnings = workload.warnings.length;
  say(head.lastChild, warnings ? counted(warnings, "warnings") : "");
  renew(state, [workload.state, workload.current, workload.available, Boolean(workload.decided_at), workload.lost_signals, workload.mode, rung(workload), (workload.budget_spent_ratio ?? 0) >= 1], () => [
    stateWord(workload.state, workload.current || !workload.decided_at),
    workload.decided_at ? null : make("span", { class: "under" }, "not evaluated yet"),
    workload.mode === "active" ? null : make("span", { class: "under busy" }, `mode ${workload.mode}`),
    rung(workload) && make("span", { class: `under ${rung(workload) === "waking" ? "busy" : ""}` }, rung(workload)),
    workload.budget_spent_ratio >= 1 ? make("span", { class: "under busy" }, "budget spent") : null,
    silent(workload) ? make("span", { class: "under loud" }, workload.current ? "KEDA is told: unavailable" : "no recent tick") : null,
    workload.lost_signals.length && !silent(workload) ? make("span", { class: "under busy" }, "signals lost, holding") : null,
  ]);
  renew(load, [trends.get(workload.workload) ?? [], workload.in_flight], ([trend, now]) => (workload.decided_at ? sparkline(trend, now, gap) : "–"));
  renew(replicas, workload.replicas, ({ desired, ready, asleep, ceiling }) =>
    desired === null ? "–" : [
      `${number(desired)} wanted`,
      make("span", { class: "under" }, `${ready === null ? "ready unknown" : `${number(ready)} ready`}${asleep ? `, ${number(asleep)} asleep` : ""}${ceiling === null ? "" : `, max ${ceiling}`}`),
    ]);
  renew(batch, [workload.batch_size, Boolean(workload.decided_at), workload.card], ([size, decided, card]) => [
    decided && size === null ? "engine’s own" : number(size),
    card && make("span", { class: "under" }, `card ${card.name}`),
    card && moved(card.time, card.own) ? make("span", { class: "under" }, moved(card.time, card.own)) : null,
  ]);
  const objectives = workload.current ? workload.objectives : workload.objectives.map((each) => ({ ...each, status: "stale" }));
  renew(objective, [objectives, Boolean(workload.decided_at)], ([told, decided]) => (decided ? objectiveLines(told) : "–"));
  dataAge(data, workload);
}

/** How old the readings are that it is judged by. */
export function dataAge(node, workload) {
  const none = workload.data_age_seconds === null && workload.lost_signals.length > 0;
  node.classList.toggle("loud", none);
  age(node, workload.data_age_seconds);
  if (none) say(node, "no data");
}

export function objectiveLines(objectives) {
  if (!objectives.length) return make("span", { class: "under" }, "no objective declared");
  return objectives.map((each) => {
    const told = each.p95 ? `${interval(each.p95)} of ${seconds(bound(each))}` : `no data, objective ${seconds(bound(each))}`;
    const judged = each.p95 && verdict(each);
    return make("div", { class: "objective-line" }, make("abbr", {}, each.objective.toUpperCase()), meter(each), make("span", {}, told), judged ? word(judged) : null);
  });
}

/** The P95 as a bar: solid up to its lower bound, lighter up to the upper; the mark is the objective. */
function meter(objective) {
  const width = 64;
  const place = (value) => Math.min(width, (value / bound(objective)) * width * 0.6);
  const bars = [];
  if (objective.p95) {
    const { low, high } = objective.p95;
    const kind = verdict(objective) ?? "undecided";
    bars.push(draw("rect", { class: `bar ${kind} maybe`, y: 2, height: 6, width: high === null ? width : place(high) }));
    bars.push(draw("rect", { class: `bar ${kind}`, y: 2, height: 6, width: place(low) }));
  }
  return draw("svg", { class: "meter", viewBox: `0 0 ${width} 10`, "aria-hidden": "true" },
    draw("rect", { class: "track", y: 2, height: 6, width }), ...bars,
    draw("path", { class: "mark", d: `M${width * 0.6} 0v10` }));
}

/** Requests in flight, each slot's most; a slot that nobody measured is a gap, not a zero. */
function sparkline(before, now, gap) {
  const trend = [...before.slice(0, -1), now === null ? before.at(-1) ?? null : Math.max(now, before.at(-1) ?? 0)];
  const [width, height] = [112, 26];
  const top = Math.max(1, ...trend.map((value) => value ?? 0));
  const at = (slot, value) => `${((slot / Math.max(1, trend.length - 1)) * width).toFixed(1)} ${(height - 1 - (value / top) * (height - 3)).toFixed(1)}`;
  let [line, area, run] = ["", "", null];
  const close = () => { if (run !== null) area += `L${at(run, 0)}z`; };
  trend.forEach((value, slot) => {
    if (value === null) return;
    const joined = run !== null && slot - run <= gap;
    if (!joined) { close(); area += `M${at(slot, 0)}`; }
    line += `${joined ? "L" : "M"}${at(slot, value)}${joined ? "" : "h.01"}`;
    area += `L${at(slot, value)}`;
    run = slot;
  });
  close();
  return [
    draw("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
      draw("path", { class: "base", d: `M0 ${height - .5}H${width}` }), draw("path", { class: "area", d: area }), draw("path", { class: "line", d: line })),
    make("span", { class: "now" }, now === null ? "unknown" : number(now)),
    make("span", { class: "unseen" }, now === null ? "" : `, at most ${number(Math.max(...trend))} in 30 min`),
  ];
}

// -- the reader's wishes ----------------------------------------------------------------------------------------------

function change(wish) {
  Object.assign(view, wish);
  redraw();
}

function sortBy(key) {
  change(view.sort === key ? { reversed: !view.reversed } : { sort: key, reversed: false });
}

export function setUpOverview() {
  for (const column of COLUMNS) {
    const button = make("button", { type: "button" }, column.title);
    button.addEventListener("click", () => sortBy(column.key));
    element("workloads").tHead.rows[0].append(
      make("th", { role: "columnheader", scope: "col", class: column.number ? "number" : null, "data-key": column.key }, button));
    element("sort").append(make("option", { value: column.key }, column.title));
  }
  element("sort").value = view.sort;
  element("sort").addEventListener("change", (event) => change({ sort: event.target.value, reversed: false }));
  element("search").addEventListener("input", (event) => change({ text: event.target.value.trim().toLowerCase() }));
  element("more").addEventListener("click", () => change({ all: true }));
  element("unfilter").addEventListener("click", () => {
    element("search").value = "";
    change({ text: "", state: null });
    element("all-title").focus();
  });
}
