// The body of a function: returns what stands in the way of a person with other eyes or hands, as sentences.

const problems = [];
const shown = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && node.getClientRects().length > 0;
const short = (node) => `<${node.tagName.toLowerCase()}${node.id ? ` id=${node.id}` : ""}> "${(node.textContent || "").trim().slice(0, 40)}"`;

/** As far as our own markup goes: the whole rule for accessible names is longer. */
function nameOf(node) {
  const by = node.getAttribute("aria-labelledby");
  if (by) return by.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
  const label = node.getAttribute("aria-label");
  if (label) return label.trim();
  if (node.labels?.length) return [...node.labels].map((each) => each.textContent).join(" ").trim();
  return (node.textContent || "").trim();
}

for (const control of document.querySelectorAll("a, button, input, select, summary, [tabindex], [role=slider], [role=region]")) {
  if (shown(control) && !nameOf(control) && control.id !== "main") problems.push(`no name: ${short(control)}`);
  if (control.tabIndex > 0) problems.push(`its own place in the focus order: ${short(control)}`);
}
for (const group of document.querySelectorAll("table, section, article, [role=group]")) {
  if (shown(group) && !nameOf(group)) problems.push(`no name: ${short(group)}`);
}
for (const picture of document.querySelectorAll("svg")) {
  const hidden = picture.closest("[aria-hidden=true], [role=slider]"); // what is in a slider is no more than its face
  if (shown(picture) && !hidden) problems.push("a picture that a screen reader meets, without a text");
}
const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
for (const id of new Set(ids.filter((each, place) => ids.indexOf(each) !== place))) problems.push(`two of id ${id}`);
let level = 0;
for (const heading of document.querySelectorAll("h1, h2, h3, h4")) {
  if (!shown(heading)) continue;
  const next = Number(heading.tagName[1]);
  if (next > level + 1) problems.push(`a heading is left out before ${short(heading)}`);
  level = next;
}

// -- contrast ---------------------------------------------------------------------------------------------------------

/** [red, green, blue, alpha] of a computed colour, 0..1. */
function channels(colour) {
  const numbers = colour.match(/-?[\d.]+(e-?\d+)?/g).map(Number);
  const scale = colour.startsWith("rgb") ? 255 : 1;
  return [...numbers.slice(0, 3).map((each) => each / scale), numbers[3] ?? 1];
}
const over = (top, under) => top.slice(0, 3).map((each, place) => each * top[3] + under[place] * (1 - top[3]));
function luminance(colour) {
  const [red, green, blue] = colour.map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
function contrast(one, other) {
  const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}
function ground(node) {
  const layers = [];
  for (let each = node; each; each = each.parentElement) layers.push(channels(getComputedStyle(each).backgroundColor));
  return layers.reverse().reduce((under, layer) => over(layer, under), [1, 1, 1]);
}
function check(node, colour, under) {
  const ratio = contrast(over(channels(colour), under), under);
  if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${short(node)} class="${node.getAttribute("class") ?? ""}"`);
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Set();
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || seen.has(node) || !shown(node) || node.closest("svg")) continue;
  seen.add(node);
  check(node, getComputedStyle(node).color, ground(node));
}
for (const text of document.querySelectorAll("svg text")) {
  const rect = text.previousElementSibling?.tagName === "rect" ? text.previousElementSibling : null;
  const under = ground(text.closest("div"));
  check(text, getComputedStyle(text).fill, rect ? over(channels(getComputedStyle(rect).fill), under) : under);
}
return problems;
