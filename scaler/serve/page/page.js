// The live page: asks /v1 every two seconds and shows the answer. No library, no build, no request to anyone else.
// The address says what is shown: "#" all workloads, "#namespace/name" one of them.

import { showAlarm, showOne } from "./depth.js";
import { age, element, make, passTime, renew, say } from "./dom.js";
import { setUpOverview, showOverview } from "./overview.js";
import { minutes, setUpTimeline, showTimeline } from "./timeline.js";

const PERIOD_MS = 2000;
/** With so many workloads an answer is large: it is asked for less often. */
const MANY = 200, MANY_PERIOD_MS = 5000;
const LIMIT_MS = 8000;
/** A trend is of slots of 30 s, so it need not be asked for with every turn. */
const TREND_MINUTES = 30, TREND_PERIOD_MS = 15000;

let chosen = null;
let states = new Map();
let arriving = false;
let cameFrom = null;
let turns = 0;
let timer = null;
let trendDue = 0;
let period = PERIOD_MS;
let answeredAt = null;

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(LIMIT_MS), cache: "no-store" });
  if (answer.ok) return answer.json();
  const said = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(said.error || `${path} answered ${answer.status}`), { status: answer.status });
}

const path = (name, rest = "") => `v1/workloads/${name.split("/").map(encodeURIComponent).join("/")}${rest}`;

function wanted() {
  try {
    return decodeURIComponent(location.hash.slice(1)) || null;
  } catch {
    return null; // a "%" that begins nothing
  }
}

/** Show one of the three views. Who came here by a link begins at its heading, and who comes back, where they left. */
function reveal(id, title) {
  for (const view of ["all", "one", "gone"]) element(view).hidden = view !== id;
  document.title = title;
  if (!arriving) return;
  arriving = false;
  const left = id === "all" && document.querySelector(`a.name[href="#${CSS.escape(cameFrom ?? "")}"]`);
  if (left) {
    left.focus();
    left.scrollIntoView({ block: "center" });
    return;
  }
  scrollTo(0, 0);
  element(`${id}-title`).focus({ preventScroll: true });
}

/** Tell a screen reader, in its own time, which states have changed. */
function announce(workloads) {
  const changed = workloads.filter((each) => states.has(each.workload) && states.get(each.workload) !== each.state);
  if (changed.length > 3) say(element("said"), `${changed.length} workloads have changed their state`);
  else if (changed.length) say(element("said"), changed.map((each) => `${each.workload} is now ${each.state}`).join(". "));
  for (const each of workloads) states.set(each.workload, each.state);
}

async function turnAll() {
  const trend = performance.now() >= trendDue;
  const answer = await ask(trend ? `v1/workloads?trend_minutes=${TREND_MINUTES}` : "v1/workloads");
  if (chosen !== null) return;
  if (trend) trendDue = performance.now() + TREND_PERIOD_MS;
  period = answer.workloads.length > MANY ? MANY_PERIOD_MS : PERIOD_MS;
  announce(answer.workloads);
  showOverview(answer);
  const decided = answer.workloads.filter((each) => each.decided_at);
  const dead = decided.length > 0 && decided.every((each) => !each.current);
  loopDead(dead ? Math.min(...decided.map((each) => each.age_seconds)) : null);
  answered(!dead);
  reveal("all", "loadtide");
}

async function turnOne(name) {
  const asked = [path(name), path(name, "/decisions?limit=20"), path(name, `/timeline?minutes=${minutes()}`)];
  const [detail, log, timeline] = await Promise.all(asked.map(ask));
  if (name !== chosen) return;
  announce([detail]);
  loopDead(null);
  reveal("one", `${detail.workload}: ${detail.state} · loadtide`); // before it is drawn: what is hidden has no width
  showOne(detail, log.decisions);
  showTimeline(timeline, detail.objectives);
  answered(detail.current || !detail.decided_at);
}

/** Nothing has ticked: what is shown is history, and that must not be mistaken for calm. */
function loopDead(seconds) {
  const text = "The loop has stopped: nothing is being decided. KEDA is told UNAVAILABLE and keeps the replica counts it has. Look at the scaler’s log, and restart it.";
  showAlarm(element("alarm"), seconds === null ? null : text, seconds);
}

function answered(live) {
  answeredAt = performance.now();
  const text = live ? "live" : "answers, but decides nothing";
  renew(element("link"), text, () => [live ? make("span", { class: "dot", "aria-hidden": "true" }) : null, text]);
  element("link").classList.toggle("lost", !live);
}

function unanswered(error) {
  element("link").classList.add("lost");
  renew(element("link"), error.message, () => {
    const text = [`No answer from the scaler: what is shown is old (${error.message}).`];
    if (answeredAt !== null) text.push(age(make("span", { "aria-hidden": "true" }), (performance.now() - answeredAt) / 1000, " The last came ", " ago."));
    return text;
  });
}

async function turn() {
  clearTimeout(timer);
  timer = null;
  const mine = ++turns;
  const name = chosen;
  try {
    await (name === null ? turnAll() : turnOne(name));
  } catch (error) {
    if (mine !== turns) return;
    if (error.status === 404 && name !== null) {
      say(element("gone-title"), `There is no workload ${name}`);
      reveal("gone", "loadtide");
      answered(true);
    } else {
      unanswered(error);
    }
  }
  if (mine === turns && !document.hidden) timer = setTimeout(turn, period);
}

function go() {
  cameFrom = chosen;
  chosen = wanted();
  arriving = true;
  trendDue = 0;
  period = PERIOD_MS;
  turn();
}

setUpOverview();
setUpTimeline(turn);
element("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is ours
  element("main").focus();
});
addEventListener("hashchange", go);
document.addEventListener("visibilitychange", () => document.hidden || turn());
setInterval(passTime, 1000);
chosen = wanted();
turn();
