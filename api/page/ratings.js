// The user's ratings, newest first, with their predictions.

import { byId, count, element } from './dom.js';
import { starsOf } from './stars.js';

/** Shows `history`; `total` may be larger if only the newest ratings were fetched. */
export function showRatings(history, { total, catalog }) {
  byId('ratings-count').textContent = total ? count(total) : '';
  byId('ratings-empty').hidden = history.length > 0;
  byId('ratings').hidden = history.length === 0;
  byId('ratings').replaceChildren(...history.map((event) => row(event, catalog.get(event.item))));
}

function row({ item, label, predicted }, film) {
  const was = predicted === null ? '' : `predicted ${predicted.toFixed(2)}`;
  return element(
    'li',
    { 'data-testid': 'rating', 'data-item': item },
    element('span', { class: 'name', title: film.full }, film.name),
    starsOf(label),
    element('span', { class: 'was' }, was),
  );
}
