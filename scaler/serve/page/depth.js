// One workload in depth: what it is, why, what holds it back, and every signal behind that.

import { showCard } from "./card.js";
import { age, countdown, element, keep, make, renew, say, stateWord, word } from "./dom.js";
import { dataAge, objectiveLines } from "./overview.js";
import { clock, counted, number, signalValue } from "./quantities.js";

const signalTitle = (name) => name.replace(/_(seconds|ratio)$/, "").replaceAll("_", " ");

/** A loud line, said once to a screen reader; how old it is goes on in silence. `text` null: nothing is wrong. */
export function showAlarm(node, text, ageSeconds = null) {
  node.hidden = text === null;
  renew(node, text, () => (text === null ? [] : [text, make("span", { class: "under", "aria-hidden": "true" })]));
  if (text !== null && ageSeconds !== null) age(node.lastChild, ageSeconds, "The last decision was made ", " ago.");
}

function alarm(detail) {
  if (!detail.decided_at) return null;
  if (!detail.current) return "No recent tick: what is shown is old. KEDA is told UNAVAILABLE and keeps its replica count.";
  if (!detail.available) return "Unavailable: signals are lost, so KEDA is told UNAVAILABLE and keeps its replica count.";
  return null;
}

export function showOne(detail, decisions) {
  renew(element("one-title"), detail.workload, () => [make("span", { class: "namespace" }, `${detail.namespace}/`), make("wbr"), detail.name]);
  const current = detail.current || !detail.decided_at;
  showState(detail, current);
  showAlarm(element("one-alarm"), alarm(detail), current ? null : detail.age_seconds);
  const warnings = [...detail.warnings, ...detail.signal_warnings];
  if (detail.lost_signals.length && detail.available) warnings.unshift(`Signals are lost (${detail.lost_signals.map(signalTitle).join(", ")}): what stands is held until they are read again.`);
  if (detail.admission && detail.admission !== "open") warnings.unshift(`Admission: ${detail.admission_words}.`);
  if (detail.mode !== "active") warnings.unshift(ruled(detail));
  renew(element("one-warnings"), warnings, () => warnings.map((text) => make("li", {}, text)));
  showFacts(detail);
  showCard(detail.workload, detail.card ?? null);
  showWhy(detail);
  const entryOf = (entry) => (entry ? `${entry.at} ${entry.effect?.sentence ?? ""}` : "");
  keep(element("decisions"), decisions.length ? decisions : [null], entryOf, decisionItem, () => {});
  showSignals(detail.signals);
  showSources(detail.sources);
}

/** Who rules instead of the laws, until when, and what they would do. */
function ruled({ mode, mode_words, override, advised }) {
  const until = override ? ` (${override.by}, until ${new Date(override.until).toLocaleString()})` : "";
  const batch = advised && (advised.batch_size === null ? "the engine’s own batch" : `batch ${number(advised.batch_size)}`);
  return `Mode ${mode}: ${mode_words}${until}.${advised ? ` By the laws: ${counted(advised.replicas, "replicas")}, ${batch}.` : ""}`;
}

function showState(detail, current) {
  renew(element("one-state"), [detail.state, detail.state_words, current], () => [
    stateWord(detail.state, current), ` ${detail.state_words}`, make("span", {}), // how long
  ]);
  const lasting = element("one-state").lastChild;
  if (detail.state_seconds !== null) age(lasting, detail.state_seconds + detail.age_seconds, ", for ");
}

function fact(title, value, ...under) {
  return make("div", { class: "fact" }, make("dt", {}, title), make("dd", {}, value, ...under.filter(Boolean).map((text) => make("span", { class: "under" }, text))));
}

/** What the engines say they really run: of all replicas that report, or as one signal tells it. */
function engineRuns(replicas, signal) {
  const sizes = replicas.map((each) => each.batch_size).filter((size) => size !== null);
  if (!sizes.length) return signal === null ? "" : `the engine runs ${number(signal)}`;
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  return `${counted(sizes.length, "replicas")} run${sizes.length === 1 ? "s" : ""} ${number(least)}${least === most ? "" : ` to ${number(most)}`}`;
}

function showFacts(detail) {
  if (!detail.decided_at) {
    for (const id of ["facts", "standing"]) renew(element(id), null, () => []);
    return;
  }
  const signal = (name) => detail.signals.find((each) => each.signal === name);
  const known = (name, unit = "") => {
    const { value, status } = signal(name);
    return `${value === null ? status.replace("_", " ") : number(value)}${value === null ? "" : unit}${status === "stale" ? " (stale)" : ""}`;
  };
  const { desired, ready, asleep, needed, floor, ceiling } = detail.replicas;
  const limits = ceiling === null ? `at least ${floor} allowed` : `${floor} to ${ceiling} allowed`;
  const [running, waiting, arrivals] = [known("running"), known("waiting"), known("arrivals_per_second", " req/s")];
  const applied = engineRuns(detail.applied, signal("applied_batch")?.value ?? null);
  const capacity = detail.capacity;
  const told = [detail.replicas, detail.batch_size, detail.token_budget, running, waiting, arrivals, applied, capacity, detail.utilisation, detail.objectives];
  renew(element("facts"), told, () => [
    fact("Replicas", `${number(desired)} wanted`, ready === null ? "ready unknown" : `${number(ready)} ready`, asleep ? `${number(asleep)} asleep` : "", needed !== null && needed !== desired ? `the load needs ${number(needed)}` : "", limits),
    fact("Batch", detail.batch_size === null ? "engine’s own" : number(detail.batch_size),
      applied, detail.token_budget === null ? "" : `${number(detail.token_budget)} tokens a step`),
    fact("Running", running, `waiting: ${waiting}`),
    fact("Arrivals", arrivals,
      detail.utilisation === null ? "" : `load is ${number(detail.utilisation * 100)} % of capacity`,
      capacity.requests_per_second === null ? "" : `one replica serves ${number(capacity.requests_per_second)} req/s (${capacity.source.replaceAll("_", " ")})`,
      capacity.loaded_sequences > capacity.sequences ? `loaded ${number(capacity.loaded_sequences / capacity.sequences)} × as far: arrivals are settled` : ""),
    make("div", { class: "fact wide" }, make("dt", {}, "P95 against objective"), make("dd", {}, ...[objectiveLines(detail.objectives)].flat())),
    make("div", { class: "fact" }, make("dt", {}, "Data age"), make("dd", {}, make("span", { id: "fact-age" }))),
  ]);
  dataAge(element("fact-age"), detail);
  renew(element("standing"), detail.standing, () => detail.standing.map(({ about, sentence }) =>
    make("div", {}, make("dt", {}, about.charAt(0).toUpperCase() + about.slice(1)), make("dd", {}, sentence))));
}

function showWhy(detail) {
  const cause = element("cause");
  cause.hidden = !detail.cause_words;
  renew(cause, detail.cause_words ?? null, (words) => ["The latency is put down to: ", make("strong", {}, words ?? ""), "."]);
  const list = (id, items, none, build) => renew(element(id), items.length ? items.map((each) => each.sentence) : none, () =>
    items.length ? items.map(build) : make("li", { class: "none" }, none));
  const still = detail.suppressed.length ? "Nothing moved: what was wanted is held back." : "Nothing moved, and nothing needs to.";
  list("reasons", detail.reasons, detail.decided_at ? still : "Not evaluated yet.", (each) => make("li", {}, each.sentence));
  element("advised").hidden = !detail.advice.length;
  list("advice", detail.advice.map((sentence) => ({ sentence })), "", (each) => make("li", {}, each.sentence));
  const held = detail.suppressed.length ? detail.suppressed : [null];
  keep(element("suppressed"), held, (each) => each?.untimed_sentence ?? "", heldItem, (item, each) => {
    const left = each?.remaining_seconds ?? null;
    if (left !== null) countdown(item.lastChild, left - detail.age_seconds);
  });
}

function heldItem(held) {
  if (held === null) return make("li", { class: "none" }, "Nothing.");
  return make("li", {}, held.untimed_sentence, " ", make("span", { class: "left" }));
}

function decisionItem(entry) {
  if (entry === null) return make("li", { class: "none" }, "None since this scaler started.");
  const at = new Date(entry.at);
  const changes = entry.changes.map((each) => `${each.what.replaceAll("_", " ")} ${shown(each.from)} → ${shown(each.to)}`).join(", ");
  const why = entry.reasons.map((reason) => reason.sentence).join("; ");
  return make("li", {},
    make("time", { datetime: entry.at, title: at.toLocaleString() }, clock(at)), " ",
    make("strong", {}, changes), why ? make("span", { class: "under" }, why) : null,
    entry.effect ? make("span", { class: "under" }, entry.effect.sentence) : null);
}

function shown(value) {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "number" ? number(value) : String(value);
}

// -- signals and sources ----------------------------------------------------------------------------------------------

const STATUS_ORDER = ["unknown", "stale", "known", "not_applicable"];

/** What is measured, or missing where it is needed, in full view; what nobody misses, folded. */
function showSignals(signals) {
  const measured = (each) => each.status === "known" || each.status === "stale";
  const absent = signals.filter((each) => !measured(each) && !(each.status === "unknown" && each.required_for.length));
  const here = signals.filter((each) => !absent.includes(each));
  here.sort((a, b) => STATUS_ORDER.indexOf(a.status) - STATUS_ORDER.indexOf(b.status));
  keep(element("signals").tBodies[0], here, (each) => each.signal, signalRow, updateSignal);
  const details = element("absent");
  details.hidden = !absent.length;
  renew(details.querySelector("ul"), absent.map((each) => [each.signal, each.reason]), () =>
    absent.map((each) => make("li", {}, signalTitle(each.signal), make("span", { class: "under" }, each.reason))));
  say(details.querySelector("summary"), `${counted(absent.length, "signals")} that nothing measures here, or that do not apply now`);
}

function signalRow(signal) {
  const cell = (column, number) => make("td", { role: "cell", class: number ? "number" : null, "data-column": column });
  return make("tr", { role: "row" },
    make("th", { role: "rowheader", scope: "row" }, signalTitle(signal.signal), make("span", { class: "under" })),
    cell("Status"), cell("Value", true), cell("Age", true));
}

function updateSignal(row, signal) {
  const [head, status, value, since] = row.cells;
  const missed = signal.status === "known" || !signal.required_for.length ? "" : `; needed for ${signal.required_for.join(", ")}`;
  say(head.lastChild, `${signal.reason || signal.meaning}${missed}`);
  renew(status, signal.status, () => word(signal.status.replace("_", " "), signal.status));
  say(value, signalValue(signal));
  age(since, signal.age_seconds);
}

function showSources(sources) {
  renew(element("sources"), sources.map(({ source, endpoint, ok, detail }) => [source, endpoint, ok, detail]), () =>
    sources.length
      ? sources.map((each) => make("li", {}, word(each.ok ? "answers" : "fails", each.ok ? "met" : "breached"), ` ${each.source} `,
        make("span", { class: "endpoint" }, each.endpoint), each.ok ? null : make("span", { class: "under loud" }, each.detail)))
      : make("li", { class: "none" }, "None has been asked yet."));
}
