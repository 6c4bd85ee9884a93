// Numbers, times and names as text, with their units.

const SPANS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];
const METRICS = { rmse: 'RMSE', log_loss: 'log loss', rank: 'mean rank' };

/** Formats 9742 as "9,742", in the locale of the browser. */
export const count = (number) => number.toLocaleString();

/** "1 observation", "2,000 observations". */
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;

/** "+0.12", "−0.12", with the sign of mathematics. */
export const signed = (value, digits = 2) => `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(digits)}`;

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;

/** A number of bytes in its largest unit: "512 bytes", "1.5 KiB", "64 MiB". */
export function size(bytes) {
  if (bytes < 1024) return plural(bytes, 'byte');
  if (bytes < 1024 ** 2) return `${Number((bytes / 1024).toPrecision(3))} KiB`;
  return `${Number((bytes / 1024 ** 2).toPrecision(3))} MiB`;
}

/** "a", "a and b", "a, b and c". */
export const listed = (words) => new Intl.ListFormat('en-GB').format(words);

/** A loss with three digits after the point, or fewer where it is large. */
export const figure = (value) => (value >= 100 ? value.toFixed(1) : value.toFixed(3));

export const metricName = (metric) => METRICS[metric] ?? metric.replaceAll('_', ' ');

/** The metric with its unit, which for some is that of the labels: "RMSE (stars)". */
export function metricLabel(metric, unit) {
  const units = { rmse: unit, log_loss: 'nats', rank: 'share of items' };
  return `${metricName(metric)} (${units[metric] ?? metric})`;
}

/** "0.719 RMSE (stars)". */
export const metricValue = (value, metric, unit) => `${figure(value)} ${metricLabel(metric, unit)}`;

/** A time in Unix milliseconds relative to now. */
export function ago(time) {
  const passed = Date.now() - time;
  const [unit, length] = SPANS.find(([, span]) => passed >= span) ?? [];
  if (!unit) return 'just now';
  return new Intl.RelativeTimeFormat('en', { numeric: 'auto' }).format(-Math.floor(passed / length), unit);
}

const two = (number) => String(number).padStart(2, '0');

/** "14:05", or "14:05:30" with `seconds`; 24 hours in every locale. */
export function clock(time, { seconds = false } = {}) {
  const at = new Date(time);
  const parts = [at.getHours(), at.getMinutes(), ...(seconds ? [at.getSeconds()] : [])];
  return parts.map(two).join(':');
}

/** "23 Nov". */
export const day = (time) => new Date(time).toLocaleDateString('en-GB', { day: 'numeric', month: 'short' });

/** "23 Nov 2026, 14:05:30". */
export const moment = (time) => `${day(time)} ${new Date(time).getFullYear()}, ${clock(time, { seconds: true })}`;

/** A number of seconds in its largest unit: "1.5 s", "10 min", "24 h", "30 days". */
export function duration(seconds) {
  if (seconds < 60) return `${Number(seconds.toPrecision(2))} s`;
  if (seconds < 3600) return `${Number((seconds / 60).toPrecision(2))} min`;
  if (seconds < 172_800) return `${Number((seconds / 3600).toPrecision(2))} h`;
  return `${Number((seconds / 86_400).toPrecision(3))} days`;
}
