// The few ways in which the page touches the document. Text goes through textContent alone, so nothing in it is markup;
// and what has not changed is not touched, so that a selection, a focus or a screen reader's place survives a redraw.

import { passing } from "./quantities.js";

export const element = (id) => document.getElementById(id);

function furnish(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const make = (tag, attributes = {}, ...children) => furnish(document.createElement(tag), attributes, children);

export const draw = (tag, attributes = {}, ...children) =>
  furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const shownBefore = new WeakMap();

/** Fill `node` with what `build` makes of `value`, unless it shows that already. */
export function renew(node, value, build) {
  const text = JSON.stringify(value);
  if (shownBefore.get(node) === text) return;
  shownBefore.set(node, text);
  node.replaceChildren(...[build(value)].flat().filter((child) => child !== null && child !== undefined));
}

export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const rowsOf = new WeakMap();

/** The children of `parent`, one for each of `items` and in their order; those already there are kept and moved. */
export function keep(parent, items, keyOf, makeRow, update) {
  const before = rowsOf.get(parent) ?? new Map();
  const after = new Map();
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const row = before.get(key) ?? makeRow(item);
    update(row, item);
    after.set(key, row);
    if (row === place) place = place.nextSibling;
    else parent.insertBefore(row, place);
  }
  for (const [key, row] of before) if (!after.has(key)) row.remove();
  rowsOf.set(parent, after);
  // Moving a row takes the focus from what is in it.
  if (focused && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

// -- ages, which go on while nobody answers ---------------------------------------------------------------------------

/** Let `node` show an age that goes on by itself. `null`: there is none. */
export function age(node, value, before = "", after = "") {
  if (value === null || value === undefined) {
    delete node.dataset.since;
    say(node, "–");
    return node;
  }
  Object.assign(node.dataset, { since: performance.now() / 1000 - value, before, after });
  return showAge(node);
}

/** Let `node` count down from `value`. */
export function countdown(node, value) {
  node.dataset.until = performance.now() / 1000 + value;
  return showAge(node);
}

function showAge(node) {
  const now = performance.now() / 1000;
  const { since, until, before, after } = node.dataset;
  if (until !== undefined) say(node, until > now ? `${passing(until - now)} left` : "about to end");
  else say(node, `${before}${passing(now - since)}${after}`);
  return node;
}

export function passTime() {
  for (const node of document.querySelectorAll("[data-since], [data-until]")) showAge(node);
}

// -- words for states -------------------------------------------------------------------------------------------------

/** Each state's shape, so that neither colour nor the word is alone in telling it. */
const SHAPES = {
  stalled: "M2 2h8v8H2z",
  critical: "M6 .6 11.4 6 6 11.4.6 6z",
  high: "M6 1l5.2 9.6H.8z",
  unknown: "M6 .8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 6 .8zm0 1.7a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7zM5 5h2v2H5z",
  normal: "M6 1.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6z",
  low: "M6 11 .8 1.4h10.4z",
  idle: "M6 .8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 6 .8zm0 1.7a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7z",
};
/** The loudest first. */
export const STATES = Object.keys(SHAPES);

const shape = (state) => draw("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, draw("path", { d: SHAPES[state] }));

/** A state as it is; or as it was last seen, of a workload that ticks no more. */
export const stateWord = (state, current) => (current ? word(state) : word(`was ${state}`, "unknown"));

export const word = (text, kind = text) => make("span", { class: `word ${kind}` }, SHAPES[kind] ? shape(kind) : null, text);
