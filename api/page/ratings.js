// What the user said, newest first, with the predictions.

import { byId, element } from './dom.js';
import { count } from './format.js';

const HINT = 'What you answer moves here. Two or three answers are enough to see a change.';

/** Shows `history`; `total` may be larger if only the newest events were fetched. */
export function showRatings(history, { total, catalog, feedback }) {
  byId('ratings-title-words').textContent = `Your ${feedback.noun}s`;
  byId('ratings-count').textContent = total ? count(total) : '';
  byId('ratings-empty').textContent = HINT;
  byId('ratings-empty').hidden = history.length > 0;
  byId('ratings').hidden = history.length === 0;
  byId('ratings').setAttribute('aria-label', `Your ${feedback.noun}s, newest first`);
  byId('ratings').replaceChildren(...history.map((event) => row(event, catalog.get(event.item), feedback)));
}

function row({ item, label, predicted }, listed, feedback) {
  const was = predicted === null ? '' : `predicted ${feedback.value(predicted)}`;
  return element(
    'li',
    { 'data-testid': 'rating', 'data-item': item },
    element('span', { class: 'name' }, listed.name),
    feedback.given(label),
    element('span', { class: 'was' }, was),
  );
}
