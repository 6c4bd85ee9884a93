// The latest study of the model: its trials as a chart, and what it has found.

import * as api from './api.js';
import { Chart } from './chart.js';
import { byId, facts } from './dom.js';
import { clock, count, day, percent, plural } from './format.js';

/** Trials that are much worse than the present settings are drawn at this end of the chart, in percent. */
const WORST = -20;

const METRICS = { rmse: 'RMSE', log_loss: 'log loss', rank: 'rank' };

const ENDED = {
  trials: 'all trials made',
  seconds: 'out of time',
  patience: 'no improvement any more',
  stopped: 'stopped',
  failures: 'failed',
};

/** Digits of a loss: standard errors are some thousandths. */
const loss = (value) => value.toFixed(4);

const words = (params) =>
  Object.entries(params)
    .map(([name, value]) => `${name.replaceAll('_', ' ')} ${value ?? 'none'}`)
    .join(', ');

export class StudyChart {
  #chart = new Chart(byId('study-chart'), { height: 190, x: { whole: true } });

  async refresh(model) {
    const { studies } = await api.listStudies(model);
    const latest = studies.length > 0 ? await api.getStudy(studies[0].study) : null;
    const trials = latest?.trials.filter(({ state }) => state === 'complete') ?? [];
    byId('study-empty').hidden = latest !== null;
    byId('study-chart').hidden = trials.length < 2;
    figures(latest);
    if (trials.length >= 2) this.#draw(latest, trials);
  }

  #draw({ baseline, metric }, trials) {
    const gain = (value) => (100 * (baseline.value - value)) / Math.abs(baseline.value);
    const gains = trials.map(({ value }) => gain(value));
    let highest = WORST;
    const best = gains.map((value) => (highest = Math.max(highest, value)));
    this.#chart.show({
      x: trials.map(({ trial }) => trial),
      xLabel: 'trial',
      yLabel: 'lower loss (%)',
      series: [
        { values: best, colour: '--accent', width: 2.5 },
        { values: gains.map((value) => Math.max(value, WORST)), colour: '--soft', dots: true },
      ],
      summary: `The best of ${plural(trials.length, 'trial')} has a loss that is ${highest.toFixed(1)} % lower`,
      readout: (index) => {
        const { trial, value, params } = trials[index];
        const settings = trial === 0 ? 'the present settings' : words(params);
        return `trial ${trial}: ${METRICS[metric] ?? metric} ${loss(value)}, ${settings}`;
      },
    });
  }
}

function stateWords({ state, why_stopped: why, complete, trials_max: most, created }) {
  const begun = `since ${day(created)}, ${clock(created)}`;
  const made = `${count(complete)} of ${count(most + 1)} trials`;
  return state === 'running' ? `running ${begun}: ${made}` : `${ENDED[why] ?? state}: ${made}, begun ${day(created)}`;
}

function resultWords({ best, baseline, applied }) {
  if (best === null) return null;
  if (best.trial === 0) return 'the present settings';
  const gain = `${loss(best.value)} instead of ${loss(baseline.value)}`;
  return `${words(best.params)}: ${gain}${applied === null ? '' : ', applied'}`;
}

/** Who has made trials, if it was not the node alone. */
function workerWords({ trials }) {
  const names = new Set(trials.map(({ worker }) => worker ?? 'this node'));
  return trials.some(({ worker }) => worker !== null) ? [...names].join(', ') : null;
}

function figures(study) {
  byId('study-facts').hidden = study === null;
  if (study === null) return;
  const shares = Object.entries(study.importance).sort(([, a], [, b]) => b - a);
  facts(byId('study-facts'), [
    ['State', stateWords(study)],
    ['Best', resultWords(study)],
    ['Workers', workerWords(study)],
    ['Importance', shares.map(([name, share]) => `${name.replaceAll('_', ' ')} ${percent(share, 0)}`).join(', ') || null],
    ['Problem', study.error],
  ]);
}
