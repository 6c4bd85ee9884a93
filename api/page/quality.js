// The quality of the model over time: its loss curve with the switches of versions, and its current figures.

import { Chart } from './chart.js';
import { byId, element, facts } from './dom.js';
import { markOf } from './events.js';
import { count, figure, metricLabel, metricName, metricValue, plural } from './format.js';
import { linkTo } from './route.js';

/** The scale ends at this multiple of the median loss, so that the first high losses do not flatten the rest. */
const CEILING_MEDIANS = 2.2;
/** The window of the figure in large type. */
const WINDOW = 1000;
const WORST_MAX = 5;

export class QualityChart {
  #chart = new Chart(byId('quality-chart'), { height: 260, x: { whole: true } });

  /** `unit` is the unit of the labels. */
  show(quality, events, unit) {
    figures(quality, unit);
    worst(quality, unit);
    byId('quality').dataset.drift = quality.drift.rise ? 'found' : 'none';
    this.#draw(quality, events, unit);
  }

  #draw({ curve, baseline, metric }, events, unit) {
    byId('quality-chart').hidden = curve.length === 0;
    byId('quality-empty').hidden = curve.length > 0;
    if (curve.length === 0) return;
    const points = withGaps(curve);
    const values = points.map((point) => point.value);
    const marks = events.map(markOf).filter((mark) => mark !== null);
    const first = curve[0].position - curve[0].count;
    const last = Math.max(curve.at(-1).position, ...marks.map((mark) => mark.at), first + 1);
    const since = points.findLastIndex((point) => point.value === null) + 1;
    this.#chart.show({
      x: points.map((point) => point.position),
      xRange: [Math.max(first, 0), last],
      xLabel: 'observations in the log',
      yLabel: metricLabel(metric, unit),
      ceiling: ceilingOf(curve, baseline),
      series: [
        { values, colour: '--accent', width: 2.5 },
        {
          values: points.map((_, at) => (baseline && at >= since ? baseline.value : null)),
          colour: '--soft',
          dash: [2, 4],
        },
      ],
      marks: marks.reverse(),
      summary: summary(curve, metric),
      readout: (index) => readout(points[index], metric, unit),
    });
    const host = byId('quality-chart').dataset;
    host.versions = [...new Set(curve.map((point) => point.version))].join(' ');
    host.marks = marks.map((mark) => mark.kind).join(' ');
  }
}

function figures(quality, unit) {
  const { metric, version, baseline, baseline_observations: needed, windows, observations, drift } = quality;
  const recent = windows.find((window) => window.observations === WINDOW);
  byId('quality-now').textContent = recent ? figure(recent.value) : '–';
  byId('quality-caption').textContent = recent
    ? `${metricLabel(metric, unit)} over the last ${plural(recent.count, 'observation')} under v${version}`
    : `no observation under v${version} yet`;
  const value = (mean) => mean && `${metricValue(mean.value, metric, unit)}, ${plural(mean.count, 'observation')}`;
  const { median, ninth_decile: decile, compared } = quality.users;
  facts(byId('quality-facts'), [
    [
      `Baseline of v${version}`,
      value(baseline) ?? `known after its first ${count(needed)} observations, ${count(observations)} so far`,
    ],
    ['Last hour', value(quality.hour)],
    ['Last 24 hours', value(quality.day)],
    ['Validation pool', value(quality.pool)],
    ['Median user', median && `${metricValue(median, metric, unit)}, of ${plural(compared, 'user')}`],
    ['9 of 10 users below', decile && metricValue(decile, metric, unit)],
    ['Drift test', driftWords(drift, metric, unit)],
  ]);
}

function driftWords({ rise, statistic, threshold, observations, warm_up: warmUp }, metric, unit) {
  if (rise) {
    const [before, after] = [rise.value_before, rise.value_after].map(figure);
    return `drift: from ${before} to ${after} ${metricLabel(metric, unit)}`;
  }
  if (observations < warmUp) return `starts after ${count(warmUp)} observations, ${count(observations)} so far`;
  return `no drift: ${statistic.toFixed(1)} of ${threshold} standard deviations`;
}

function worst({ users, model, metric }, unit) {
  const shown = users.worst.slice(0, WORST_MAX);
  byId('worst').parentElement.hidden = shown.length === 0;
  const row = ({ user, value, count: times }) =>
    element(
      'li',
      {},
      element('a', { href: linkTo('try', { model, user }) }, user),
      element('span', { class: 'figure' }, `${metricValue(value, metric, unit)}, ${plural(times, 'observation')}`),
    );
  byId('worst').replaceChildren(...shown.map(row));
}

function ceilingOf(curve, baseline) {
  const values = curve.map((point) => point.value).sort((a, b) => a - b);
  const middle = values[Math.floor(values.length / 2)];
  return Math.max(Math.min(values.at(-1), CEILING_MEDIANS * middle) * 1.05, (baseline?.value ?? 0) * 1.05, 1e-6);
}

/** The points in order, with a gap where the version changes: lines of different versions are not connected. */
function withGaps(curve) {
  const ordered = curve.toSorted((a, b) => a.position - b.position || a.at - b.at);
  return ordered.flatMap((point, index) => {
    const before = ordered[index - 1];
    if (before === undefined || before.version === point.version) return [point];
    return [{ position: before.position, value: null, version: point.version }, point];
  });
}

function readout({ position, value, count: times, version }, metric, unit) {
  if (value === null) return null;
  const until = `up to observation ${count(position)}`;
  return `${metricValue(value, metric, unit)} under v${version}: ${plural(times, 'observation')} ${until}`;
}

function summary(curve, metric) {
  const observations = curve.reduce((sum, point) => sum + point.count, 0);
  const [from, to] = [curve[0], curve.at(-1)].map((point) => figure(point.value));
  return `${metricName(metric)} over ${plural(observations, 'observation')}: from ${from} to ${to}`;
}
