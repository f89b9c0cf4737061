// The card that a workload shares: who has what of it now, what of that is lent or borrowed, and what is left.

import { draw, element, keep, make, renew, say, word } from "./dom.js";
import { number } from "./quantities.js";

/** Parts nearer to each other than this are one: they come rounded. */
const DUST = 0.0005;
const percent = (part) => (part === null ? "not known" : `${number(Math.round(part * 1000) / 10)} %`);

export function showCard(workload, card) {
  element("card").hidden = card === null;
  if (card === null) return;
  say(element("card-title"), `Shared card ${card.name}`);
  const measured = card.gpu_memory_free_ratio;
  say(element("card-left"), [
    `Nobody has ${percent(card.nobodys.time)} of its time and ${percent(card.nobodys.memory)} of its memory.`,
    measured === null ? "No GPU is read, so what is really free of its memory is not known." : `Measured free of its memory: ${percent(measured)}.`,
  ].join(" "));
  keep(element("sharing").tBodies[0], card.members, (each) => each.workload, makeRow, (row, each) => updateRow(row, each, workload));
}

function makeRow({ workload }) {
  const cell = (column, number) => make("td", { role: "cell", class: number ? "number" : null, "data-column": column });
  return make("tr", { role: "row" },
    make("th", { role: "rowheader", scope: "row" }, make("a", { href: `#${workload}` }, workload), make("span", { class: "under" })),
    cell("State"), cell("Its own", true), cell("Time now"), cell("Memory now"), cell("Batch up to", true));
}

function updateRow(row, member, shown) {
  const [head, state, own, time, memory, batch] = row.cells;
  say(head.lastChild, member.workload === shown ? "this one" : "");
  renew(state, member.state, () => word(member.state));
  say(own, percent(member.own));
  renew(time, [member.time, member.own], () => part(member.time, member.own));
  renew(memory, [member.memory, member.own], () => part(member.memory, member.own));
  say(batch, number(member.batch_size));
}

/** A part of the card as a bar, with a mark at what is its own. */
function part(now, own) {
  if (now === null) return "not known";
  const width = 64;
  return make("div", { class: "part" },
    draw("svg", { class: "meter", viewBox: `0 0 ${width} 10`, "aria-hidden": "true" },
      draw("rect", { class: "track", y: 2, height: 6, width }), draw("rect", { class: "bar share", y: 2, height: 6, width: width * now }),
      draw("path", { class: "mark", d: `M${width * own} 0v10` })),
    make("span", {}, percent(now)), make("span", { class: "under" }, moved(now, own)));
}

/** What of its own it has let go, or has of the others'. */
export function moved(now, own) {
  if (Math.abs(now - own) < DUST) return "";
  return now < own ? `${percent(own - now)} lent` : `${percent(now - own)} borrowed`;
}
