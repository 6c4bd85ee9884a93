// The exploration of the model: its policy, the share of slots that greedy would not have shown, and the mean reward of
// shown slots over time.

import * as api from './api.js';
import { axes } from './chart.js';
import { byId, count, drawn, element } from './dom.js';

/** Size of the drawing, which scales with the width of its card. */
const BOX = { width: 360, height: 150, left: 32, right: 10, top: 10, bottom: 24 };

/** Fetches and shows the exploration of the model. */
export async function showExploration(model) {
  const explored = await api.getExploration(model);
  showFigures(explored);
  showChart(explored);
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;

function parametersOf({ name, ...parameters }) {
  const words = Object.entries(parameters).map(([parameter, value]) => `${parameter} ${value}`);
  return [name, ...words].join(', ');
}

function showFigures({ policy, pool_share, totals, joined }) {
  const { decisions, slots, explored_share, rewards, mean_reward, defaults, defaults_replaced } = totals;
  byId('exploration-now').textContent = explored_share === null ? '–' : percent(explored_share);
  byId('exploration-caption').textContent =
    explored_share === null ? 'no ranking yet' : `of ${count(slots)} slots show what greedy would not`;
  const astray = Object.entries(joined).filter(([result, times]) => result !== 'slot' && times > 0);
  const facts = [
    ['Default policy', parametersOf(policy)],
    ['Validation pool', `${percent(pool_share)} of its rankings`],
    ['Rankings', `${count(decisions)}, ${count(totals.logged)} logged`],
    ['Rewards', count(rewards)],
    ['Mean reward', mean_reward === null ? null : mean_reward.toFixed(3)],
    ['Given by default', defaults > 0 ? `${count(defaults)}, ${count(defaults_replaced)} replaced` : null],
    ...astray.map(([result, times]) => [result.replaceAll('_', ' '), count(times)]),
  ].filter(([, value]) => value !== null);
  byId('exploration-facts').replaceChildren(
    ...facts.flatMap(([name, value]) => [element('dt', {}, name), element('dd', { 'data-explored': name }, value)]),
  );
}

function showChart({ spans }) {
  const rewarded = spans.filter((span) => span.mean_reward !== null);
  const chart = byId('exploration-chart');
  byId('exploration-empty').hidden = rewarded.length > 0;
  // SVG elements have the attribute, but not the property.
  chart.toggleAttribute('hidden', rewarded.length === 0);
  if (rewarded.length === 0) return;
  const scale = scaleOf(rewarded);
  chart.replaceChildren(...frame(scale), line(rewarded, scale));
  const [first, last] = [rewarded[0], rewarded.at(-1)].map((span) => span.mean_reward.toFixed(2));
  chart.setAttribute('aria-label', `Mean reward of what was shown: from ${first} to ${last}`);
}

function scaleOf(spans) {
  const rewards = spans.map((span) => span.mean_reward);
  const floor = Math.min(0, ...rewards);
  const ceiling = Math.max(floor + 1e-6, ...rewards);
  const [first, last] = [spans[0].from, Math.max(spans.at(-1).from, spans[0].from + 1)];
  const inside = { width: BOX.width - BOX.left - BOX.right, height: BOX.height - BOX.top - BOX.bottom };
  return {
    floor,
    ceiling,
    first: spans[0].from,
    last: spans.at(-1).from,
    x: (from) => BOX.left + ((from - first) / (last - first)) * inside.width,
    y: (reward) => BOX.height - BOX.bottom - ((reward - floor) / (ceiling - floor)) * inside.height,
  };
}

const clock = (time) => new Date(time).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });

function frame({ floor, ceiling, first, last, y }) {
  const levels = { levels: [floor, (floor + ceiling) / 2, ceiling], y, label: (reward) => reward.toFixed(1) };
  return axes(BOX, levels, { first: clock(first), last: first === last ? undefined : clock(last) });
}

function line(spans, { x, y }) {
  const place = (span) => `${x(span.from).toFixed(1)} ${y(span.mean_reward).toFixed(1)}`;
  const path = spans.map((span, index) => `${index ? 'L' : 'M'}${place(span)}`);
  // A single point is drawn as a dot: a line of length zero with round caps.
  if (spans.length === 1) path.push('h0');
  return drawn('path', { class: 'rmse', d: path.join(''), 'data-testid': 'exploration-line' });
}
