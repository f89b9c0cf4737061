// The last minutes of one workload as graphs above each other over one time, with one moment under the pointer or the
// arrow keys in all of them; and the same as a table.

import { draw, element, keep, make, renew, say, word } from "./dom.js";
import { LEFT, RIGHT, area, band, grid, level, line, roundUp, scales, timeAxis } from "./plot.js";
import { clock, interval, number, passing, seconds, shortClock } from "./quantities.js";

const RANGES = [10, 30, 60];
/** A young timeline is drawn over the least of these that holds it, minutes: not as a sliver at the edge of an hour. */
const SPANS = [2, 5, 10, 20, 30, 60];
const BAND_HEIGHT = 20, GRAPH_HEIGHT = 76;
/** The scaler keeps the last 10 minutes in slots of 3 s and the rest in slots of 30 s. */
const FINE_SECONDS = 600, FINE_SLOT = 3, COARSE_SLOT = 30;

let range = 30;
let shown = null;
let cursorAt = null;

export const minutes = () => range;

const of = (key) => (moment) => moment[key];
const total = (moment) => (moment.running === null ? null : moment.running + (moment.waiting ?? 0));

/** What one graph shows: `lines` with their legend, the first on top; `peak` for its scale; how its numbers are told. */
const GRAPHS = [
  { title: "Requests", always: true, least: 2, peak: total, told: number, lines: [
    { name: "running", kind: "one", value: of("running"), area: [() => 0, of("running")] },
    { name: "waiting", kind: "two", value: of("waiting"), drawn: total, area: [of("running"), total] },
  ] },
  { title: "Arrivals, req/s", always: true, least: 1, peak: of("arrivals_per_second"), told: number, lines: [
    { name: "", kind: "one", value: of("arrivals_per_second") },
  ] },
  { title: "Replicas", always: true, step: true, least: 2, peak: (moment) => Math.max(moment.desired, moment.ready ?? 0), told: number, lines: [
    { name: "desired", kind: "one", value: of("desired") },
    { name: "ready", kind: "ready", value: of("ready"), area: [() => 0, of("ready")] },
  ] },
  { title: "Batch", step: true, peak: (moment) => Math.max(moment.batch ?? 0, moment.applied_batch ?? 0) || null, told: number, lines: [
    { name: "target", kind: "one", value: of("batch"), none: "the engine’s own" },
    { name: "the engine runs", kind: "two", value: of("applied_batch") },
  ] },
];
const KV = { title: "KV-cache use", peak: () => 1, top: 1, told: number, lines: [{ name: "", kind: "one", value: of("kv_use_ratio") }] };

function latencyGraph(objective) {
  const [low, high] = [of(`${objective.objective}_low`), of(`${objective.objective}_high`)];
  const finite = (moment) => (high(moment) === "inf" ? Infinity : high(moment));
  const middle = (moment) => (low(moment) === null ? null : high(moment) === "inf" ? low(moment) : (low(moment) + high(moment)) / 2);
  const bounds = [["objective", objective.warning_seconds], ["critical", objective.critical_seconds]].filter(([, value]) => value !== null);
  return {
    title: `${objective.objective.toUpperCase()} P95`,
    always: true,
    peak: (moment) => (low(moment) === null ? null : high(moment) === "inf" ? low(moment) * 1.5 : high(moment)),
    least: bounds[0][1] * 1.25,
    told: seconds,
    levels: bounds,
    lines: [{ name: "", kind: "one", value: middle, area: [low, finite], told: (moment) => (low(moment) === null ? "no data" : interval({ low: low(moment), high: high(moment) === "inf" ? null : high(moment) })) }],
  };
}

/** Columns as the API gives them, as moments; a longer pause than ticks explain is a gap. */
function momentsOf(answer) {
  const names = Object.keys(answer).filter((name) => Array.isArray(answer[name]));
  return answer.age_seconds.map((age, index) => {
    const slot = Math.max(answer.tick_seconds, age > FINE_SECONDS - COARSE_SLOT ? COARSE_SLOT : FINE_SLOT);
    const joined = index > 0 && answer.age_seconds[index - 1] - age <= 2.5 * slot + 3;
    return { ...Object.fromEntries(names.map((name) => [name, answer[name][index]])), age, joined };
  });
}

export function showTimeline(answer, objectives) {
  const other = shown?.workload !== answer.workload;
  if (other) cursorAt = null;
  const moments = momentsOf(answer);
  const graphs = [...GRAPHS, ...objectives.map(latencyGraph), KV].filter((graph) => graph.always || moments.some((moment) => graph.lines.some((each) => each.value(moment) !== null)));
  const oldest = moments[0]?.age ?? 0;
  const span = 60 * Math.min(range, SPANS.find((each) => each * 60 >= oldest) ?? range);
  shown = { workload: answer.workload, moments, graphs, now: Date.parse(answer.now), tick: answer.tick_seconds, span };
  if (other || !element("timeline-table").open) element("timeline-table").open = false;
  drawGraphs();
}

function drawGraphs() {
  if (!shown) return;
  const { moments, graphs, span, now } = shown;
  const width = Math.max(240, element("timeline").clientWidth);
  const state = { title: "State", state: true }, axis = { title: "", axis: true };
  keep(element("timeline"), [state, ...graphs, axis], (graph) => graph.title, makePanel, (panel, graph) => {
    const height = graph.state ? BAND_HEIGHT : graph.axis ? 18 : GRAPH_HEIGHT;
    const top = graph.top ?? roundUp(Math.max(graph.least ?? 0, 1e-3, ...moments.map((moment) => graph.peak?.(moment) ?? 0)));
    const scale = scales(width, height, span, top);
    const svg = panel.querySelector("svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const parts = graph.state ? stateBands(scale) : graph.axis ? timeAxis(scale, span, now, shortClock) : drawGraph(graph, scale, top);
    svg.replaceChildren(...parts.filter(Boolean));
  });
  showMoment(document.activeElement !== element("timeline"));
}

function makePanel(graph) {
  const legend = graph.axis ? null : make("p", { class: "legend" }, make("span", { class: "title" }, graph.title), make("span", { class: "values" }));
  return make("div", { class: "panel" }, legend, draw("svg", { width: "100%" }));
}

function stateBands(scale) {
  const reach = Math.max(shown.tick, FINE_SLOT) * 2;
  return [
    ...band(shown.moments, of("state"), scale, BAND_HEIGHT - 4, reach),
    ...band(shown.moments, (moment) => (moment.available ? null : "unavailable"), { x: scale.x }, BAND_HEIGHT, reach)
      .filter((part) => part?.tagName === "rect").map((part) => { part.setAttribute("y", BAND_HEIGHT - 3); part.setAttribute("height", 3); return part; }),
  ];
}

function drawGraph(graph, scale, top) {
  const { moments } = shown;
  const levels = (graph.levels ?? []).filter(([, value]) => value <= top);
  return [
    ...grid(scale, top, graph.told),
    ...graph.lines.filter((each) => each.area).map((each) => area(moments, ...each.area, scale, { step: graph.step, kind: each.kind })),
    ...levels.map(([name, value]) => level(value, scale, name)),
    ...graph.lines.toReversed().map((each) => line(moments, each.drawn ?? each.value, scale, { step: graph.step, kind: each.kind })),
  ];
}

// -- one moment -------------------------------------------------------------------------------------------------------

const momentAt = (index) => shown.now - shown.moments[index].age * 1000;

/** The moment looked at: the nearest to the cursor's time, which stays where it is while new moments come. */
function looked() {
  const end = shown.moments.length - 1;
  if (cursorAt === null || end < 0) return end;
  let nearest = 0;
  for (let index = 1; index <= end; index++) if (Math.abs(momentAt(index) - cursorAt) < Math.abs(momentAt(nearest) - cursorAt)) nearest = index;
  return nearest;
}

const valueOf = (graph, each, moment) => each.told?.(moment) ?? (each.value(moment) === null ? each.none ?? "unknown" : graph.told(each.value(moment)));

function showMoment(aloud) {
  const index = looked(), moment = shown.moments[index], timeline = element("timeline");
  timeline.classList.toggle("pointing", cursorAt !== null && Boolean(moment));
  if (!moment) {
    say(element("moment"), "Nothing has been recorded yet: it begins when this scaler starts.");
    return;
  }
  const when = clock(new Date(momentAt(index))), ago = cursorAt === null ? "now" : `${passing(moment.age)} ago`;
  renew(element("moment"), [when, ago, moment.state, moment.available, shown.span, range], () => [
    make("strong", {}, when), ` ${ago} `, word(moment.state), moment.available ? null : make("span", { class: "loud" }, " KEDA was told: unavailable"),
    shown.span < range * 60 ? make("span", { class: "quiet" }, " (recorded since this scaler started)") : null,
  ]);
  const panels = [...timeline.children].slice(1, -1);
  shown.graphs.forEach((graph, place) => {
    const values = [
      ...graph.lines.map((each) => [each.name, each.kind, valueOf(graph, each, moment)]),
      ...(graph.levels ?? []).map(([name, value]) => [name, `level ${name}`, graph.told(value)]),
    ];
    renew(panels[place].querySelector(".values"), values, () => values.map(([name, kind, value]) =>
      make("span", { class: "value" }, make("span", { class: `key ${kind}`, "aria-hidden": "true" }), name ? `${name} ` : "", make("b", {}, value))));
  });
  const width = timeline.clientWidth - LEFT - RIGHT;
  timeline.style.setProperty("--cursor", `${LEFT + (1 - moment.age / shown.span) * width}px`);
  timeline.setAttribute("aria-valuemax", shown.moments.length - 1);
  timeline.setAttribute("aria-valuenow", index);
  if (aloud) timeline.setAttribute("aria-valuetext", `${when}, ${ago}: ${moment.state}${moment.available ? "" : ", unavailable"}. ${sentences(moment)}`);
}

const sentences = (moment) => shown.graphs.map((graph) => `${graph.title}: ${graph.lines.map((each) => `${each.name} ${valueOf(graph, each, moment)}`.trim()).join(", ")}`).join(". ");

function point(event) {
  const box = element("timeline").getBoundingClientRect();
  const share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
  look(shown && shown.now - (1 - Math.min(1, Math.max(0, share))) * shown.span * 1000);
}

function look(at) {
  if (!shown) return;
  cursorAt = at;
  showMoment(true);
}

function press(event) {
  if (!shown?.moments.length) return;
  const end = shown.moments.length - 1, here = looked();
  const to = { ArrowLeft: here - 1, ArrowDown: here - 1, ArrowRight: here + 1, ArrowUp: here + 1, PageDown: here - 10, PageUp: here + 10, Home: 0, End: end }[event.key];
  if (event.key === "Escape") look(null);
  else if (to !== undefined) look(momentAt(Math.min(end, Math.max(0, to))));
  else return;
  event.preventDefault();
}

// -- the same as a table ----------------------------------------------------------------------------------------------

/** As of when it is opened: a table that moves while it is read cannot be read. */
function fillTable() {
  const details = element("timeline-table");
  if (!details.open || !shown) return;
  const columns = shown.graphs.flatMap((graph) => graph.lines.map((each) => [each.name ? `${graph.title}: ${each.name}` : graph.title, graph, each]));
  const head = make("tr", {}, ...["Time", "State", ...columns.map(([title]) => title)].map((title) => make("th", { scope: "col" }, title)));
  const rows = shown.moments.map((moment, index) => make("tr", {},
    make("th", { scope: "row" }, clock(new Date(momentAt(index)))), make("td", {}, moment.available ? moment.state : `${moment.state}, unavailable`),
    ...columns.map(([, graph, each]) => make("td", { class: "number" }, valueOf(graph, each, moment)))));
  details.querySelector("table").replaceChildren(
    make("caption", {}, `As of ${clock(new Date(shown.now))}, newest first; close and open it for later moments.`),
    make("thead", {}, head), make("tbody", {}, ...rows.reverse()));
}

export function setUpTimeline(ask) {
  for (const each of RANGES) {
    const button = make("button", { type: "button", "aria-pressed": String(each === range) }, `${each} min`);
    button.addEventListener("click", () => {
      range = each;
      for (const other of element("ranges").children) other.setAttribute("aria-pressed", String(other === button));
      ask();
    });
    element("ranges").append(button);
  }
  const timeline = element("timeline");
  timeline.addEventListener("pointermove", point);
  timeline.addEventListener("pointerdown", point);
  timeline.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && look(null));
  timeline.addEventListener("keydown", press);
  element("timeline-table").addEventListener("toggle", fillTable);
  new ResizeObserver(drawGraphs).observe(timeline);
}
