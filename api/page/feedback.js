// What the labels of a model are to a person: stars, an amount, a thumb or a play. Each form shows scores within its
// range, takes a new label, and shows a given one.

import { amountInput } from './amount.js';
import { element, icon } from './dom.js';
import { percent, plural } from './format.js';
import { playInput } from './plays.js';
import { starInput, starsOf } from './stars.js';
import { thumbInput } from './thumbs.js';

const STARS_MAX = 5;
/** Bounds of predicted probabilities, as of the service, so that the log loss is finite. */
const PROBABILITY_MIN = 1e-7;

const sigmoid = (score) => 1 / (1 + Math.exp(-score));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const clip = (value, low, high) => Math.min(Math.max(value, low), high);

/** The form of the labels of `loss`; `range` is the smallest and the largest label, or null if unknown. */
export function feedbackOf(loss, range) {
  if (loss === 'logistic') return thumbs();
  if (loss === 'implicit') return plays();
  const [low, high] = range ?? [1, STARS_MAX];
  return low >= 0 && high > 1 && high <= STARS_MAX ? stars([low, STARS_MAX]) : amounts([low, high]);
}

/** Forms whose score is an expected label, or under implicit feedback an expected preference. */
function graded({ range, digits, ...form }) {
  const [low, high] = range;
  const at = (score) => clip((score - low) / (high - low || 1), 0, 1);
  const value = (score) => score.toFixed(digits);
  const within = (score) => {
    if (score > high) return `above ${Number(high.toFixed(digits))}`;
    return score < low ? `below ${Number(low.toFixed(digits))}` : value(score);
  };
  return {
    range,
    value,
    score: ({ score, std_error: error }) => ({
      text: within(score),
      spread: score > high || score < low ? '' : `±${value(error)}`,
      low: at(score - error),
      at: at(score),
      high: at(score + error),
    }),
    /** The loss of a prediction, and the figure for the mean of such losses. */
    loss: (predicted, label) => (predicted - label) ** 2,
    figure: (losses) => Math.sqrt(mean(losses)),
    metric: 'RMSE',
    ...form,
  };
}

const evenly = ([low, high], digits) =>
  [0, 0.5, 1].map((at) => ({ at, text: String(Number((low + at * (high - low)).toFixed(digits))) }));

function stars(range) {
  const [low, high] = range;
  const steps = [1, 2, 3, 4, 5].map((step) => ({ at: (step - low) / (high - low), text: String(step) }));
  return graded({
    kind: 'stars',
    range,
    digits: 2,
    ticks: steps.filter(({ at }) => at >= 0),
    noun: 'rating',
    unit: 'stars',
    heading: 'Your rating',
    words: (label) => `${label} of 5 stars`,
    input: starInput,
    given: starsOf,
  });
}

function amounts(range) {
  const digits = range[1] - range[0] >= 50 ? 1 : 2;
  return graded({
    kind: 'amounts',
    range,
    digits,
    ticks: evenly(range, digits),
    noun: 'label',
    unit: 'labels',
    heading: 'Your label',
    words: (label) => `label ${label}`,
    input: (name, send) => amountInput(name, range, send),
    given: (label) => element('span', { class: 'amount-given' }, String(label)),
  });
}

function plays() {
  return graded({
    kind: 'plays',
    range: [0, 1],
    digits: 2,
    ticks: evenly([0, 1], 2),
    noun: 'play',
    unit: 'preference',
    heading: 'You',
    words: (label) => plural(label, 'play'),
    input: playInput,
    given: (label) => element('span', { class: 'amount-given' }, plural(label, 'play')),
    // Whatever the count, an item that was taken has the preference 1.
    loss: (predicted, label) => (predicted - (label > 0 ? 1 : 0)) ** 2,
  });
}

function thumbs() {
  return {
    kind: 'thumbs',
    range: [0, 1],
    ticks: [0, 0.5, 1].map((at) => ({ at, text: percent(at, 0) })),
    noun: 'answer',
    unit: 'nats',
    heading: 'You',
    value: (probability) => percent(probability, 0),
    score: ({ score, std_error: error, probability }) => {
      const [low, high] = [sigmoid(score - error), sigmoid(score + error)];
      const at = probability ?? sigmoid(score);
      const spread = `${(100 * low).toFixed(0)}–${percent(high, 0)}`;
      return { text: percent(at, 0), spread, low, at, high };
    },
    words: (label) => (label > 0.5 ? 'thumb up' : 'thumb down'),
    input: thumbInput,
    given: (label) =>
      element(
        'span',
        { class: 'given', role: 'img', 'aria-label': label > 0.5 ? 'thumb up' : 'thumb down' },
        icon(label > 0.5 ? 'up' : 'down'),
      ),
    loss: (predicted, label) => {
      const p = clip(predicted, PROBABILITY_MIN, 1 - PROBABILITY_MIN);
      const y = clip(label, 0, 1);
      return -y * Math.log(p) - (1 - y) * Math.log(1 - p);
    },
    figure: mean,
    metric: 'Log loss',
  };
}
