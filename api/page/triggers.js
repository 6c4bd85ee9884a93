// The triggers that retrain the model by themselves, and how to set them.

import { command, curl } from './command.js';
import { byId, element, facts, showRows } from './dom.js';
import { count, duration, percent } from './format.js';

const WORDS = {
  threshold: ({ margin, window, on }) => {
    const observations = on === 'pool' ? 'observations of the validation pool' : 'observations';
    return `loss over ${count(window)} ${observations} ${percent(margin, 0)} above the baseline`;
  },
  drift: ({ threshold }) => `drift test above ${threshold} standard deviations`,
  volume: ({ observations, growth }) =>
    growth > 0
      ? `at ${count(observations)} new observations, and ${percent(growth, 0)} more than the training before knew`
      : `every ${count(observations)} new observations`,
  popularity: ({ observations, until }) =>
    `from ${count(observations)} observations up to ${count(until)}, while the model is not trained`,
  schedule: ({ every }) => `every ${duration(every)}, if there are new observations`,
  study: ({ every, trials, space }) =>
    `every ${duration(every)}, if there are new observations: ${count(trials)} trials of ${Object.keys(space).join(', ')}`,
};
const NAMES = {
  threshold: 'Loss',
  drift: 'Drift',
  volume: 'Volume',
  popularity: 'Offsets of items',
  schedule: 'Schedule',
  study: 'Study',
};

export function showTriggers({ name, triggers }) {
  const on = Object.keys(WORDS).filter((trigger) => triggers[trigger]);
  byId('triggers-caption').textContent = on.length
    ? 'The model is retrained on its own:'
    : 'All are off: the model is retrained on request only.';
  facts(byId('triggers-facts'), [
    ...Object.entries(WORDS).map(([trigger, words]) => [
      NAMES[trigger],
      triggers[trigger] ? words(triggers[trigger]) : 'off',
    ]),
    ['Pause after a training', duration(triggers.cool_down)],
  ]);
  const example = { triggers: { volume: { observations: 10_000 } } };
  showRows(byId('triggers-how'), name, () => [
    element('p', { class: 'hint' }, 'To retrain after every 10,000 observations:'),
    command('set a trigger', curl('PATCH', `/v1/models/${name}`, example)),
  ]);
}
