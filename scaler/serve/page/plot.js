// Lines, areas and bands of one small graph over time. Moments are oldest first, each with its `age` in seconds and
// `joined`: whether it follows the one before without a gap. What was not known is null, and breaks a line.

import { draw } from "./dom.js";

/** Room for the scale on the left, and for half a stroke on the right. */
export const LEFT = 46, RIGHT = 4;
const TOP = 6, BOTTOM = 3;

/** The least round number at or above `value`. */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((factor) => factor * power).find((round) => round >= value * 0.999);
}

/** The geometry of a graph: where a moment and a value lie. */
export function scales(width, height, span, top) {
  return {
    width,
    height,
    x: (age) => LEFT + (1 - age / span) * (width - LEFT - RIGHT),
    y: (value) => height - BOTTOM - (Math.min(value, top) / top) * (height - TOP - BOTTOM),
  };
}

const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

/** Runs of moments without a gap at which `value` is known. */
function runs(moments, value) {
  const found = [];
  let open = false;
  for (const moment of moments) {
    if (value(moment) === null) { open = false; continue; }
    if (!open || !moment.joined) found.push([]);
    found.at(-1).push(moment);
    open = true;
  }
  return found;
}

/** A step holds its value until the next moment; a line leads to it. */
function trace(run, value, { x, y }, step) {
  return run.map((moment, index) => {
    const to = point(x(moment.age), y(value(moment)));
    if (!index) return to;
    return step ? `H${x(moment.age).toFixed(1)}V${y(value(moment)).toFixed(1)}` : `L${to}`;
  }).join("");
}

export function line(moments, value, scale, { step = false, kind }) {
  const d = runs(moments, value).map((run) => `M${trace(run, value, scale, step)}h.5`).join("");
  return draw("path", { class: `line ${kind}`, d });
}

/** Between two values of each moment. */
export function area(moments, low, high, scale, { step = false, kind }) {
  const known = (moment) => (low(moment) === null ? null : high(moment));
  const d = runs(moments, known).map((run) => {
    const back = [...run].reverse().map((moment, index, all) => {
      const y = scale.y(low(moment)).toFixed(1), x = scale.x(moment.age).toFixed(1);
      const before = all[index - 1];
      return step && before ? `V${y}H${x}` : `L${x} ${y}`;
    });
    return `M${trace(run, high, scale, step)}${back.join("")}z`;
  });
  return draw("path", { class: `area ${kind}`, d: d.join("") });
}

/** A level across the whole graph, as an objective. */
export const level = (value, { width, y }, kind) =>
  draw("path", { class: `level ${kind}`, d: `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}` });

export function grid({ width, y }, top, told) {
  return [0, top / 2, top].flatMap((value) => [
    draw("path", { class: value ? "grid" : "ground", d: `M${LEFT} ${y(value).toFixed(1)}H${width - RIGHT}` }),
    value === top / 2 ? null : draw("text", { class: "scale", x: LEFT - 6, y: y(value) + (value ? 4 : 1), "text-anchor": "end" }, told(value)),
  ]);
}

/** What held over a time, as a band; `reach`: how long the last moment of a run holds, seconds. */
export function band(moments, value, { x }, height, reach) {
  const parts = [];
  for (const moment of moments) {
    const held = value(moment), before = parts.at(-1);
    if (before && moment.joined) before.until = moment.age;
    if (before && moment.joined && before.held === held) continue;
    parts.push({ held, from: moment.age, until: moment.age });
  }
  // The end of each run, as long as its last word can be taken to hold.
  parts.forEach((part, index) => {
    const next = parts[index + 1];
    if (!next || next.from < part.until) part.until = Math.max(part.until - reach, next?.from ?? 0, 0);
  });
  return parts.filter((part) => part.held !== null).flatMap((part) => {
    const [from, to] = [x(part.from), x(part.until)];
    const room = to - from > part.held.length * 7 + 10;
    return [
      draw("rect", { class: `band ${part.held}`, x: from.toFixed(1), width: Math.max(1, to - from).toFixed(1), height, rx: 2 }),
      room ? draw("text", { class: `band-word ${part.held}`, x: from + 6, y: height - 5 }, part.held) : null,
    ];
  });
}

/** The hours and minutes under the graphs. */
export function timeAxis({ width, x }, span, now, told) {
  const room = (width - LEFT) / 64;
  const step = [60, 120, 300, 600, 900, 1800].find((each) => span / each <= room) ?? 1800;
  const marks = [];
  for (let at = Math.ceil((now / 1000 - span) / step) * step; at <= now / 1000; at += step) {
    const place = x(now / 1000 - at);
    if (place < LEFT + 12 || place > width - 16) continue;
    marks.push(draw("path", { class: "grid", d: `M${place.toFixed(1)} 0v4` }));
    marks.push(draw("text", { class: "scale", x: place, y: 15, "text-anchor": "middle" }, told(new Date(at * 1000))));
  }
  return marks;
}
