// How far the predictions for the user were off, one answer after the other.

import { Chart } from './chart.js';
import { byId } from './dom.js';
import { count, figure, plural } from './format.js';

/** Minimum number of answers on the axis, so that the first points are not spread over the whole width. */
const ANSWERS_MIN = 10;
/** A window rather than the mean of all, so that learning becomes visible. */
const WINDOW = 10;

/** Points `{event, own, recent}`, oldest first: the figure of one answer, and that of the last ten. */
function points(history, feedback) {
  const predicted = history.filter((event) => event.predicted !== null).reverse();
  const losses = predicted.map((event) => feedback.loss(event.predicted, event.label));
  const recent = (index) => feedback.figure(losses.slice(Math.max(0, index + 1 - WINDOW), index + 1));
  return predicted.map((event, index) => ({ event, own: feedback.figure([losses[index]]), recent: recent(index) }));
}

export class ErrorChart {
  #chart = new Chart(byId('error-chart'), { height: 190, x: { whole: true } });

  /** Shows `history` (newest first); `everyone` is the same figure over all users, or null. */
  show(history, { everyone, title, feedback }) {
    const shown = points(history, feedback);
    const { metric, unit, noun } = feedback;
    const slots = Math.max(ANSWERS_MIN, shown.length);
    byId('error-now').textContent = shown.length ? figure(shown.at(-1).recent) : '–';
    byId('error-caption').textContent = caption(shown, history, feedback);
    byId('error-everyone').hidden = everyone === null;
    byId('error-line').textContent = `${metric} of the last ${WINDOW}`;
    byId('error-dot').textContent = `one ${noun}`;
    this.#chart.show({
      x: shown.map((_, index) => index + 1),
      xRange: [0.5, slots + 0.5],
      xLabel: `your ${noun}s, in order`,
      yLabel: `${metric} (${unit})`,
      series: [
        { values: shown.map((point) => point.own), colour: '--amber', dots: true },
        { values: shown.map((point) => point.recent), colour: '--accent', width: 2.5 },
        { values: shown.map(() => everyone), colour: '--soft', dash: [2, 4] },
      ],
      levels: everyone === null ? [] : [everyone],
      summary: summary(shown, feedback),
      readout: (index) => {
        const { event, own } = shown[index];
        const guess = `predicted ${feedback.value(event.predicted)}, then ${feedback.words(event.label)}`;
        return `${title(event.item)}: ${guess}; ${metric} ${figure(own)} (${unit})`;
      },
    });
  }
}

function caption(shown, history, { metric, unit, noun }) {
  const times = Math.min(shown.length, WINDOW);
  if (shown.length > 0) return `${metric} (${unit}) over the last ${times === 1 ? noun : `${count(times)} ${noun}s`}`;
  return history.length ? 'no prediction on record yet' : `answer for an item to see how far off the prediction was`;
}

function summary(shown, { metric, unit }) {
  if (shown.length === 0) return 'No predictions to compare yet';
  const [from, to] = [shown[0].recent, shown.at(-1).recent].map(figure);
  return `${metric} of ${plural(shown.length, 'prediction')}: from ${from} to ${to} (${unit})`;
}
