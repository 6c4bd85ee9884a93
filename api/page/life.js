// The history of the model: its loss curve, its events, and its current quality.

import * as api from './api.js';
import { axes } from './chart.js';
import { byId, count, drawn, element } from './dom.js';
import { ago } from './model.js';

/** Size of the drawing, which scales with the width of its card. */
const BOX = { width: 360, height: 190, left: 32, right: 10, top: 18, bottom: 24 };
const EVENTS_MAX = 200;
const LISTED_MAX = 40;
/** The scale ends at this multiple of the median loss, so that the first high losses do not flatten the rest. */
const CEILING_MEDIANS = 2.2;

/** Texts of the event kinds; kinds with a `mark` are also drawn in the chart. */
const KINDS = {
  created: { words: () => 'created' },
  triggered: { words: ({ details }) => `trigger: ${details.trigger ?? 'fired'}`, mark: 'cause' },
  training_started: { words: () => 'training began' },
  training_failed: { words: () => 'training failed', mark: 'fault' },
  gate_refused: { words: () => 'candidate refused', mark: 'fault' },
  gate_passed: { words: () => 'candidate is better' },
  activated: { words: ({ after }) => `v${after} serves`, mark: 'switch', label: ({ after }) => `v${after}` },
  rolled_back: {
    words: ({ after }) => `rolled back to v${after}`,
    mark: 'fault',
    label: ({ after }) => `↩ v${after}`,
  },
  pinned: { words: ({ after }) => `v${after} pinned` },
  unpinned: { words: ({ after }) => `v${after} unpinned` },
  pruned: { words: ({ before, after }) => `v${after ?? before} removed` },
  registered: { words: ({ after }) => `v${after} registered` },
  configured: { words: () => 'settings changed' },
};
const kindOf = (event) => KINDS[event.kind] ?? { words: () => event.kind };

/** Fetches and shows the model's quality and events; resolves to the active version. */
export async function showLife(model) {
  const [quality, { events }] = await Promise.all([api.getQuality(model), api.listEvents(model, EVENTS_MAX)]);
  showFigures(quality);
  showChart(quality, events);
  byId('events').replaceChildren(...events.slice(0, LISTED_MAX).map(eventRow));
  return quality.version;
}

const figure = (value) => value.toFixed(3);
const spaced = (name) => name.replaceAll('_', ' ').toUpperCase();

function showFigures({ metric, version, baseline, baseline_observations, windows, hour, pool, users, drift }) {
  const recent = windows.find((window) => window.observations === 1000);
  byId('life-now').textContent = recent ? figure(recent.value) : '–';
  byId('life-caption').textContent = recent
    ? `${spaced(metric)} over the last ${count(recent.count)} observations under v${version}`
    : `no observation under v${version} yet`;
  const atStart = baseline ? figure(baseline.value) : `after ${count(baseline_observations)} observations`;
  const facts = [
    [`Baseline of v${version}`, atStart],
    ['Last hour', hour && figure(hour.value)],
    ['Validation pool', pool && figure(pool.value)],
    ['Median user', users.median && figure(users.median)],
    ['Drift', drift.rise ? 'found' : `${drift.statistic.toFixed(1)} of ${drift.threshold}`],
  ].filter(([, value]) => value !== null);
  byId('life-facts').replaceChildren(
    ...facts.flatMap(([name, value]) => [element('dt', {}, name), element('dd', { 'data-fact': name }, value)]),
  );
  byId('life').dataset.drift = drift.rise ? 'found' : 'none';
}

function showChart({ curve, baseline, metric }, events) {
  const chart = byId('life-chart');
  byId('life-empty').hidden = curve.length > 0;
  // SVG elements have the attribute, but not the property.
  chart.toggleAttribute('hidden', curve.length === 0);
  if (curve.length === 0) return;
  const marked = events.filter((event) => kindOf(event).mark && event.details.observations !== undefined);
  const scale = scaleOf(curve, marked);
  chart.replaceChildren(
    ...frame(scale),
    ...baselineOf(curve, baseline, scale),
    ...lines(curve, scale),
    ...marked.reverse().map((event) => mark(event, scale)),
  );
  chart.setAttribute('aria-label', summary(curve, metric));
}

function scaleOf(curve, marked) {
  const first = curve[0].position - curve[0].count;
  const last = Math.max(curve.at(-1).position, ...marked.map((event) => event.details.observations), first + 1);
  const values = curve.map((point) => point.value).sort((a, b) => a - b);
  const middle = values[Math.floor(values.length / 2)];
  const ceiling = Math.max(Math.min(values.at(-1), CEILING_MEDIANS * middle) * 1.05, 1e-6);
  const inside = { width: BOX.width - BOX.left - BOX.right, height: BOX.height - BOX.top - BOX.bottom };
  return {
    first,
    last,
    ceiling,
    x: (position) => BOX.left + (Math.max(position - first, 0) / (last - first)) * inside.width,
    y: (value) => BOX.height - BOX.bottom - (Math.min(value, ceiling) / ceiling) * inside.height,
  };
}

function frame({ first, last, ceiling, y }) {
  const levels = { levels: [0, ceiling / 2, ceiling], y, label: (value) => value.toFixed(1) };
  return axes(BOX, levels, { first: count(first), middle: 'observations', last: count(last) });
}

/** The baseline of the active version, from its activation on. */
function baselineOf(curve, baseline, { last, x, y }) {
  if (!baseline) return [];
  const { version } = curve.at(-1);
  const first = curve.findLast((point, index) => curve[index - 1]?.version !== version && point.version === version);
  const from = first ? first.position - first.count : last;
  return [drawn('line', { class: 'everyone', x1: x(from), x2: x(last), y1: y(baseline.value), y2: y(baseline.value) })];
}

/** One line for each stretch under one version; lines of different versions are not connected. */
function lines(curve, { x, y }) {
  const stretches = [];
  for (const point of curve) {
    const stretch = stretches.at(-1);
    if (stretch?.[0].version === point.version) stretch.push(point);
    else stretches.push([point]);
  }
  return stretches.map((points) => {
    const middle = (point) => point.position - point.count / 2;
    const place = (point) => `${x(middle(point)).toFixed(1)} ${y(point.value).toFixed(1)}`;
    const path = points.map((point, index) => `${index ? 'L' : 'M'}${place(point)}`);
    // A stretch of a single point is drawn as a dot: a line of length zero with round caps.
    if (points.length === 1) path.push('h0');
    const { version } = points[0];
    return drawn('path', { class: 'rmse', d: path.join(''), 'data-testid': 'life-line', 'data-version': version });
  });
}

function mark(event, { x }) {
  const { mark: kind, label, words } = kindOf(event);
  const at = x(event.details.observations);
  const anchor = at > BOX.width - 30 ? 'end' : 'middle';
  return drawn(
    'g',
    { class: `event ${kind}`, 'data-testid': 'life-mark', 'data-kind': event.kind },
    drawn('title', {}, `${words(event)}: ${event.why}`),
    drawn('line', { x1: at, x2: at, y1: BOX.top, y2: BOX.height - BOX.bottom }),
    label ? drawn('text', { class: 'tick', x: at, y: BOX.top - 5, 'text-anchor': anchor }, label(event)) : null,
  );
}

function summary(curve, metric) {
  const [first, last] = [curve[0], curve.at(-1)];
  const observations = curve.reduce((sum, point) => sum + point.count, 0);
  const [from, to] = [figure(first.value), figure(last.value)];
  return `${spaced(metric)} over ${count(observations)} observations: from ${from} to ${to}`;
}

function whyOf({ kind, by, why, details }) {
  // The preceding trigger event has the same reason.
  if (kind === 'training_started' && by === 'trigger') return '';
  if (kind !== 'configured') return why;
  return Object.keys(details).filter((name) => name !== 'observations').join(', ');
}

function eventRow(event) {
  const { words, mark: kind } = kindOf(event);
  return element(
    'li',
    { 'data-testid': 'event', 'data-kind': event.kind, class: kind ?? null },
    element('b', {}, words(event)),
    element('span', { class: 'when', title: new Date(event.at).toLocaleString() }, `${event.by}, ${ago(event.at)}`),
    element('span', { class: 'why' }, whyOf(event)),
  );
}
