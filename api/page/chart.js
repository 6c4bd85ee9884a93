// The user's prediction errors: the difference between each rating and its prediction. Also the axes of all charts.

import { byId, drawn } from './dom.js';

/** Size of the drawing, which scales with the width of its card. */
const BOX = { width: 360, height: 168, left: 26, right: 10, top: 10, bottom: 24 };
/** Minimum number of slots on the horizontal axis, so that the first points are not spread over the whole width. */
const SLOTS_MIN = 10;
/** A window rather than the mean of all ratings, so that learning becomes visible. */
const WINDOW = 10;
/** Minimum height of the scale, in stars. */
const ERROR_MAX_MIN = 2;

/**
 * The frame of a chart in `box`: a line at each of the `levels` with its `label`, and below the frame the labels of the
 * start, the unit and the end of the other axis; undefined ones are omitted.
 */
export function axes(box, { levels, y, label }, { first, middle, last }) {
  const [left, right] = [box.left, box.width - box.right];
  const lines = levels.flatMap((level) => [
    drawn('line', { class: 'grid', x1: left, x2: right, y1: y(level), y2: y(level) }),
    drawn('text', { class: 'tick', x: left - 6, y: y(level) + 3.5, 'text-anchor': 'end' }, label(level)),
  ]);
  const below = [
    { words: first, x: left, anchor: 'start' },
    { words: middle, x: (left + right) / 2, anchor: 'middle' },
    { words: last, x: right, anchor: 'end' },
  ];
  const named = below.filter(({ words }) => words !== undefined);
  const names = named.map(({ words, x, anchor }) =>
    drawn('text', { class: 'tick', x, y: box.height - 6, 'text-anchor': anchor }, words),
  );
  return [...lines, ...names];
}

/** Points `{event, error, rmse}`, oldest first, of the ratings with a prediction; `rmse` is over the last ten. */
export function errorPoints(history) {
  const predicted = history.filter((event) => event.predicted !== null).reverse();
  const errors = predicted.map((event) => Math.abs(event.predicted - event.label));
  return predicted.map((event, index) => {
    const window = errors.slice(Math.max(0, index + 1 - WINDOW), index + 1);
    const rmse = Math.sqrt(window.reduce((sum, error) => sum + error * error, 0) / window.length);
    return { event, error: errors[index], rmse };
  });
}

/** Draws `history` (newest first); `everyone` is the RMSE over all users, or null. */
export function showErrors(history, { everyone, title }) {
  const points = errorPoints(history);
  const ceiling = Math.max(ERROR_MAX_MIN, ...points.map((point) => Math.ceil(point.error)));
  const slots = Math.max(SLOTS_MIN, points.length);
  const x = (index) => BOX.left + ((index + 0.5) / slots) * (BOX.width - BOX.left - BOX.right);
  const y = (error) => BOX.height - BOX.bottom - (error / ceiling) * (BOX.height - BOX.top - BOX.bottom);
  const figure = byId('error-chart');
  const levels = Array.from({ length: ceiling + 1 }, (_, error) => error);
  const grid = axes(BOX, { levels, y, label: String }, { middle: 'your ratings, in order' });
  figure.replaceChildren(...grid, ...reference(everyone, ceiling, y), ...marks(points, { x, y, title }));
  figure.setAttribute('aria-label', summary(points));
  byId('error-now').textContent = points.length ? points.at(-1).rmse.toFixed(2) : '–';
  byId('error-caption').textContent = caption(points, history);
  byId('error-everyone').hidden = everyone === null;
}

function reference(everyone, ceiling, y) {
  if (everyone === null || everyone > ceiling) return [];
  return [
    drawn('line', { class: 'everyone', x1: BOX.left, x2: BOX.width - BOX.right, y1: y(everyone), y2: y(everyone) }),
  ];
}

function marks(points, { x, y, title }) {
  const radius = points.length > 60 ? 2 : 3.5;
  const dots = points.map(({ event, error }, index) =>
    drawn(
      'circle',
      { class: 'dot', 'data-testid': 'error-point', cx: x(index), cy: y(error), r: radius },
      drawn('title', {}, `${title(event.item)}: predicted ${event.predicted.toFixed(2)}, rated ${event.label}`),
    ),
  );
  if (points.length === 0) return [];
  const path = points
    .map(({ rmse }, index) => `${index ? 'L' : 'M'}${x(index).toFixed(1)} ${y(rmse).toFixed(1)}`)
    .join('');
  const last = points.length - 1;
  return [
    ...dots,
    drawn('path', { class: 'rmse', d: path }),
    drawn('circle', { class: 'head', cx: x(last), cy: y(points[last].rmse), r: 4.5 }),
  ];
}

function caption(points, history) {
  if (points.length > 1) return `stars off, over the last ${Math.min(points.length, WINDOW)} ratings`;
  if (points.length === 1) return 'stars off, at the first rating';
  return history.length ? 'no prediction on record yet' : 'rate a title to see how far off it was';
}

function summary(points) {
  if (points.length === 0) return 'No predictions to compare yet';
  const [first, last] = [points[0], points.at(-1)].map((point) => point.rmse.toFixed(2));
  return `Error of ${points.length} predictions: from ${first} to ${last} stars`;
}
