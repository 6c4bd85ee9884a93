// The exploration of the model: its policy, the share of shown items that greedy would not have shown, and the mean
// reward of what was shown over time.

import { Chart } from './chart.js';
import { byId, facts } from './dom.js';
import { clock, count, day, figure, percent, plural } from './format.js';
import { POLICIES } from './policies.js';

/** Texts of the results of joining a reward to its decision, other than to a place of it. */
const JOINED = {
  repeated: 'Rewards given again',
  not_shown: 'Rewards of items not shown',
  other_user: 'Rewards of another user',
  expired: 'Rewards after the decision expired',
  unknown: 'Rewards of unknown decisions',
};

export class ExplorationChart {
  #chart = new Chart(byId('exploration-chart'), { height: 190, x: { time: true } });

  show(explored) {
    figures(explored);
    const spans = explored.spans.filter((span) => span.mean_reward !== null);
    byId('exploration-chart').hidden = spans.length === 0;
    byId('exploration-empty').hidden = spans.length > 0;
    if (spans.length === 0) return;
    const rewards = spans.map((span) => span.mean_reward);
    const [first, last] = [rewards[0], rewards.at(-1)].map(figure);
    this.#chart.show({
      x: spans.map((span) => span.from),
      yLabel: 'mean reward (labels)',
      series: [{ values: rewards, colour: '--accent', width: 2.5 }],
      summary: `Mean reward of what was shown: from ${first} to ${last}`,
      readout: (index) => {
        const { from, mean_reward: mean, rewards: times } = spans[index];
        return `${day(from)}, ${clock(from, { seconds: true })}: mean reward ${figure(mean)}, ${plural(times, 'reward')}`;
      },
    });
  }
}

function policyWords({ name, ...parameters }) {
  const words = Object.entries(parameters).map(([parameter, value]) => `${parameter} ${value}`);
  return [POLICIES[name]?.name ?? name, ...words].join(', ');
}

function figures({ policy, pool_share: pool, totals, joined }) {
  const { decisions, logged, slots, explored_share: share, rewards, mean_reward: mean, defaults } = totals;
  byId('exploration-now').textContent = share === null ? '–' : percent(share);
  byId('exploration-caption').textContent =
    share === null
      ? 'no ranking since the node started'
      : `of ${plural(slots, 'place')} show an item that greedy would not have shown`;
  const astray = Object.entries(joined).filter(([result, times]) => result !== 'slot' && times > 0);
  facts(byId('exploration-facts'), [
    ['Default policy', policyWords(policy)],
    ['Validation pool', `${percent(pool)} of rankings without a named policy`],
    ['Rankings', `${count(decisions)}, of which ${count(logged)} logged`],
    ['Rewards', count(rewards)],
    ['Mean reward', mean === null ? null : `${figure(mean)} (labels)`],
    ['Default rewards', defaults > 0 ? `${count(defaults)}, ${count(totals.defaults_replaced)} replaced later` : null],
    ...astray.map(([result, times]) => [JOINED[result] ?? result.replaceAll('_', ' '), count(times)]),
  ]);
}
