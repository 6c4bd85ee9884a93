// A selection among models: the weights of its arms, their history, and their losses.

import * as api from './api.js';
import { axes } from './chart.js';
import { byId, count, drawn, element } from './dom.js';

/** Size of the drawing, which scales with the width of its card. */
const BOX = { width: 360, height: 190, left: 38, right: 10, top: 12, bottom: 24 };

const STRATEGIES = {
  tsallis_inf: 'draws one model for each ranking',
  exp3: 'draws one model for each ranking',
  exp4: 'combines all models',
  ab: 'splits users among models',
};

/** Fetches and shows the state of a selection, for this user if it has a state for each user. */
export async function showSelection(selection, user) {
  const report = await api.getSelection(selection.name, {
    user: selection.scope === 'user' ? user : null,
    segment: segmentOf(selection),
  });
  byId('model-name').textContent = selection.name;
  byId('selection-strategy').textContent = report.strategy.name;
  const whose = selection.scope === 'user' ? `, for ${user}` : '';
  byId('selection-caption').textContent = `${STRATEGIES[report.strategy.name]}${whose}`;
  byId('arms').replaceChildren(...report.arms.map(armRow));
  showChart(report);
}

/** The segment that this page uses, if the selection has a state for each; otherwise null. */
export const segmentOf = ({ segments }) => segments?.[0] ?? null;

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

function armRow({ arm, weight, outcomes, mean_loss: loss, difference }, index) {
  const brought = loss === null ? 'nothing known yet' : `mean loss ${loss.toFixed(3)} of ${count(outcomes)}`;
  const signed = (value) => `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(3)}`;
  const apart = difference && ` · ${signed(difference.value)} (${signed(difference.low)} to ${signed(difference.high)})`;
  return element(
    'li',
    { 'data-testid': 'arm', 'data-arm': arm, class: `arm-${index}` },
    element('b', {}, arm),
    element('span', { class: 'when', 'data-testid': 'arm-weight' }, percent(weight)),
    element('span', { class: 'why' }, `${brought}${apart ?? ''}`),
  );
}

function showChart({ arms, curve }) {
  const chart = byId('selection-chart');
  byId('selection-empty').hidden = curve.length > 1;
  // SVG elements have the attribute, but not the property.
  chart.toggleAttribute('hidden', curve.length < 2);
  if (curve.length < 2) return;
  const [first, last] = [curve[0].position, curve.at(-1).position];
  const x = (at) => BOX.left + ((at - first) / Math.max(last - first, 1)) * (BOX.width - BOX.left - BOX.right);
  const y = (weight) => BOX.height - BOX.bottom - weight * (BOX.height - BOX.top - BOX.bottom);
  const line = (_, arm) => {
    const place = ({ position, weights }) => `${x(position).toFixed(1)} ${y(weights[arm]).toFixed(1)}`;
    const path = curve.map((point, index) => `${index ? 'L' : 'M'}${place(point)}`).join('');
    return drawn('path', { class: `weight arm-${arm}`, d: path, 'data-testid': 'weight-line' });
  };
  const words = { first: count(first), middle: 'observations', last: count(last) };
  chart.replaceChildren(...axes(BOX, { levels: [0, 0.5, 1], y, label: percent }, words), ...arms.map(line));
  const now = arms.map(({ arm, weight }) => `${arm} ${percent(weight)}`).join(', ');
  chart.setAttribute('aria-label', `Weights over ${count(last - first)} observations, now: ${now}`);
}
