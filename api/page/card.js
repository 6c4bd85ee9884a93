// The card of an item: its title, the explanation of its score for the user, and similar items.

import * as api from './api.js';
import { byId, element } from './dom.js';
import { plural, signed } from './format.js';

const REASONS = 6;
const ALIKE = 8;

/** The dialog `#card`. The caller of `open` passes the model, the user, the catalog and the form of labels. */
export class Card {
  #dialog = byId('card');
  #guarded;
  #asked = null;

  /** `guarded(work)` runs `work` and displays its errors. */
  constructor(guarded) {
    this.#guarded = guarded;
    byId('card-close').addEventListener('click', () => this.#dialog.close());
    // A click on the backdrop has the dialog itself as its target.
    this.#dialog.addEventListener('click', (event) => event.target === this.#dialog && this.#dialog.close());
    this.#dialog.addEventListener('close', () => this.#asked?.abort());
  }

  /** Shows `item`. `about` is `{model, user, epoch, catalog, feedback}`; replies reflect at least `epoch` events. */
  open(item, about) {
    return this.#guarded(async () => {
      this.#asked?.abort();
      const asked = new AbortController();
      this.#asked = asked;
      this.#describe(item, about);
      if (!this.#dialog.open) this.#dialog.showModal();
      this.#dialog.scrollTop = 0;
      try {
        const [why, similar] = await Promise.all([
          api.why(about.model, about, { item, limit: REASONS }, asked.signal),
          api.similar(about.model, item, ALIKE, asked.signal),
        ]);
        this.#explain(why, about);
        this.#compare(similar, about);
        this.#dialog.setAttribute('aria-busy', 'false');
      } catch (problem) {
        // The notice is below the dialog and would not be visible.
        if (problem.name !== 'AbortError') this.#dialog.close();
        throw problem;
      }
    });
  }

  #describe(item, { user, catalog }) {
    const listed = catalog.get(item);
    this.#dialog.setAttribute('aria-busy', 'true');
    this.#dialog.dataset.item = item;
    const year = listed.year ? element('span', { class: 'year' }, listed.year) : '';
    byId('card-title').replaceChildren(listed.name, year);
    byId('card-about').textContent = listed.tags.join(' · ');
    byId('why-title').textContent = `Why it gets its score for ${user}`;
    byId('why-score').textContent = '–';
    byId('why-error').textContent = '';
    byId('why-unit').textContent = '';
    for (const list of ['because', 'similar']) byId(list).replaceChildren();
    byId('similar-empty').hidden = true;
  }

  #explain(why, { catalog, feedback }) {
    const { score, prior, because, others, observations } = why;
    const shown = feedback.score(why);
    byId('why-score').textContent = shown.text;
    byId('why-score').dataset.score = score;
    byId('why-error').textContent = shown.spread;
    byId('why-unit').textContent = unitOf(feedback, score);
    const furthest = Math.max(...because.map((reason) => Math.abs(reason.contribution)), Number.EPSILON);
    const reasons = because.map(({ item, label, contribution }) =>
      row({
        words: catalog.get(item).name,
        given: feedback.given(label),
        value: contribution,
        text: signed(contribution),
        share: contribution / furthest,
      }),
    );
    const rest = observations - because.length;
    const remaining =
      rest > 0 ? [row({ words: plural(rest, `other ${feedback.noun}`), value: others, text: signed(others) })] : [];
    const average = row({ words: 'the average user', value: prior, text: prior.toFixed(2) });
    byId('because').replaceChildren(average, ...reasons, ...remaining);
  }

  #compare({ items }, about) {
    byId('similar-empty').hidden = items.length > 0;
    const alike = ({ item, similarity }) => {
      const listed = about.catalog.get(item);
      return element(
        'li',
        { 'data-testid': 'similar', 'data-item': item },
        titleButton(listed, () => this.open(item, about)),
        element('span', { class: 'figure' }, `similarity ${similarity.toFixed(2)}`),
      );
    };
    byId('similar').replaceChildren(...items.map(alike));
  }
}

/** The scale of the contributions, and the exact score where the form shows another. */
function unitOf({ kind, range }, score) {
  if (kind === 'thumbs') return `Contributions are in log-odds; they sum to ${score.toFixed(2)}.`;
  const outside = score < range[0] || score > range[1];
  return outside ? `Contributions sum to ${score.toFixed(2)}, outside the range of labels.` : 'The sum of:';
}

/** A title that opens its card. */
export function titleButton(listed, open) {
  const year = listed.year ? element('span', { class: 'year' }, listed.year) : null;
  const button = { type: 'button', class: 'title', 'aria-haspopup': 'dialog', onclick: open };
  return element('button', button, listed.name, year);
}

/** One term of the score; `share` is its fraction of the largest contribution, from -1 to 1. */
function row({ words, given = null, value, text, share = null }) {
  const way = share === null ? '' : share < 0 ? 'down' : 'up';
  const bar = share === null ? null : element('span', { class: `push ${way}`, 'aria-hidden': 'true' });
  bar?.style.setProperty('--share', Math.abs(share));
  return element(
    'li',
    { 'data-testid': 'reason', 'data-value': value },
    element('span', { class: 'words' }, words, given),
    bar,
    element('span', { class: `figure ${way}` }, text),
  );
}
