// A selection among models: the weights of its models, their history, and their losses.

import { Chart } from './chart.js';
import { byId, element, facts } from './dom.js';
import { count, figure, percent, plural, signed } from './format.js';

const STRATEGIES = {
  tsallis_inf: { name: 'Tsallis-INF', does: 'draws one model for each ranking' },
  exp3: { name: 'EXP3', does: 'draws one model for each ranking' },
  exp4: { name: 'EXP4', does: 'combines the answers of all models' },
  ab: { name: 'A/B split', does: 'answers each user by one model' },
};
const COLOURS = ['--accent', '--amber', '--down', '--up', '--soft', '--accent-soft', '--star-off', '--ink'];

/** The segment that this page uses, if the selection has a state for each; otherwise null. */
export const segmentOf = ({ segments }) => segments?.[0] ?? null;

/** The query for the state of a selection: of this user if it has one for each, of the first segment likewise. */
export const stateOf = (selection, user) => ({
  user: selection.scope === 'user' ? user : null,
  segment: segmentOf(selection),
});

export class SelectionChart {
  #chart = new Chart(byId('selection-chart'), { height: 230, x: { whole: true } });

  /** `report` is the state of `selection`. */
  show(selection, report, user) {
    const { name, does } = STRATEGIES[report.strategy.name] ?? { name: report.strategy.name, does: '' };
    byId('selection-strategy').textContent = name;
    byId('selection-caption').textContent = `${does}${selection.scope === 'user' ? `, here for ${user}` : ''}`;
    facts(byId('selection-facts'), [
      ['Judged by', report.objective === 'error' ? 'the error of predictions' : 'the rewards of what was shown'],
      ['Labels', `from ${selection.label_range[0]} to ${selection.label_range[1]}`],
      ['Observations', count(report.records)],
    ]);
    byId('arms').replaceChildren(...report.arms.map(row));
    this.#draw(report);
  }

  #draw({ arms, curve }) {
    // Without outcomes the weights are those of the start, and a line says nothing.
    const known = curve.length > 1 && arms.some((arm) => arm.outcomes > 0);
    byId('selection-chart').hidden = !known;
    byId('selection-empty').hidden = known;
    if (!known) return;
    const now = arms.map(({ arm, weight }) => `${arm} ${percent(weight)}`).join(', ');
    this.#chart.show({
      x: curve.map((point) => point.position),
      xLabel: 'observations in the log',
      yLabel: 'weight',
      ceiling: 1.04,
      series: arms.map((_, index) => ({ values: curve.map(({ weights }) => weights[index]), colour: COLOURS[index] })),
      summary: `Weights over ${plural(curve.at(-1).position - curve[0].position, 'observation')}, now: ${now}`,
      readout: (index) => {
        const { position, weights } = curve[index];
        const each = arms.map(({ arm }, at) => `${arm} ${percent(weights[at])}`).join(', ');
        return `At observation ${count(position)}: ${each}`;
      },
    });
    byId('selection-chart').dataset.lines = arms.length;
  }
}

function row({ arm, weight, outcomes, mean_loss: loss, difference }, index) {
  const brought =
    loss === null ? 'no outcome yet' : `mean loss ${figure(loss)} (0 to 1) over ${plural(outcomes, 'outcome')}`;
  const interval = difference && `${signed(difference.low, 3)} to ${signed(difference.high, 3)}`;
  const apart = difference ? ` · ${signed(difference.value, 3)} against the first (95 %: ${interval})` : '';
  const dot = element('span', { class: 'arm-colour', 'aria-hidden': 'true' });
  dot.style.setProperty('--arm', `var(${COLOURS[index]})`);
  return element(
    'li',
    { 'data-testid': 'arm', 'data-arm': arm },
    dot,
    element('b', {}, arm),
    element('span', { class: 'when', 'data-testid': 'arm-weight' }, percent(weight)),
    element('span', { class: 'why' }, `${brought}${apart}`),
  );
}
