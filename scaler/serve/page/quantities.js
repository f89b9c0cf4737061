// How a number is said to a person, as scaler/serve/quantities.py says it in sentences.

/** Three significant digits, whole from a thousand on, grouped, never an exponent. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en", Math.abs(value) < 999.5 ? { maximumSignificantDigits: 3 } : { maximumFractionDigits: 0 });
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.1) return `${number(value * 1000)} ms`;
  if (value < 59.5) return `${number(value < 10 ? value : Math.round(value))} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min${whole % 60 ? ` ${whole % 60} s` : ""}`;
  if (whole >= 48 * 3600) return `${Math.floor(whole / 86400)} d`;
  const minutes = Math.floor((whole % 3600) / 60);
  return `${Math.floor(whole / 3600)} h${minutes ? ` ${minutes} min` : ""}`;
}

/** An age or a time left, which moves while one looks at it: whole seconds. */
export const passing = (value) => seconds(value < 60 ? Math.round(value) : value);

/** A quantile is an interval: a bucket's width is not evidence, so both ends are shown. `high` null: no upper end. */
export function interval({ low, high }) {
  if (high === null) return `over ${seconds(low)}`;
  if (low === high) return seconds(low);
  if (!low) return `up to ${seconds(high)}`;
  const [from, to] = [seconds(low), seconds(high)];
  const unit = to.slice(to.indexOf(" "));
  return from.endsWith(unit) && !from.includes("min") ? `${from.slice(0, -unit.length)}–${to}` : `${from} – ${to}`;
}

export function signalValue(signal) {
  if (signal.latency) return `P95 ${interval(signal.latency.p95)}`;
  if (signal.value === null) return "–";
  if (signal.unit === "s") return seconds(signal.value);
  if (signal.unit === "0..1") return number(signal.value);
  const one = signal.value === 1 && !signal.unit.includes("/");
  return `${number(signal.value)} ${one ? signal.unit.replace(/s$/, "") : signal.unit}`;
}

export const counted = (count, plural) => `${number(count)} ${count === 1 ? plural.replace(/s$/, "") : plural}`;

/** The time of day in the reader's own zone; of 24 hours, as in logs. */
export const clock = (date) => date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
export const shortClock = (date) => date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** The bound a P95 is held against first: the objective, or the critical bound where only that is declared. */
export const bound = (objective) => objective.warning_seconds ?? objective.critical_seconds;

export function verdict(objective) {
  if (objective.status === "stale") return "stale"; // what was true once is no verdict on now
  if (objective.critical_verdict === "breached") return "breached";
  return objective.verdict ?? objective.critical_verdict;
}

/** How much of its objective a P95 uses up, 1 being all of it; null where there is no P95. */
export function used(objective) {
  return objective.p95 ? (objective.p95.estimate ?? objective.p95.low) / bound(objective) : null;
}
