// The card of an item: its title, the explanation of its score for the user, and similar items.

import * as api from './api.js';
import { byId, count, element } from './dom.js';
import { starsOf } from './stars.js';

const REASONS = 6;
const ALIKE = 8;

const signed = (value) => `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(2)}`;
const plural = (number, word) => `${count(number)} ${word}${number === 1 ? '' : 's'}`;

/** The dialog `#card`. The caller of `open` passes the model, the user and the catalog for titles. */
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

  /** Shows `item`. `about` is `{model, user, epoch, catalog}`; the replies reflect at least `epoch` events. */
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
    const film = catalog.get(item);
    this.#dialog.setAttribute('aria-busy', 'true');
    this.#dialog.dataset.item = item;
    byId('card-title').replaceChildren(film.name, film.year ? element('span', { class: 'year' }, film.year) : '');
    byId('card-about').textContent = film.genres.join(' · ');
    byId('why-title').textContent = `Why it gets its score for ${user}`;
    byId('why-score').textContent = '–';
    byId('why-error').textContent = '';
    for (const list of ['because', 'similar']) byId(list).replaceChildren();
    byId('similar-empty').hidden = true;
  }

  #explain({ score, std_error: error, prior, because, others, observations }, { catalog }) {
    byId('why-score').textContent = score.toFixed(2);
    byId('why-error').textContent = `±${error.toFixed(2)}, of which`;
    const furthest = Math.max(...because.map((reason) => Math.abs(reason.contribution)), Number.EPSILON);
    const reasons = because.map(({ item, label, contribution }) =>
      row({
        words: element('span', { class: 'name', title: catalog.get(item).full }, catalog.get(item).name),
        given: starsOf(label),
        value: contribution,
        text: signed(contribution),
        share: contribution / furthest,
      }),
    );
    const rest = observations - because.length;
    const words = element('span', {}, plural(rest, 'other rating'));
    const remaining = rest > 0 ? [row({ words, value: others, text: signed(others) })] : [];
    byId('because').replaceChildren(
      row({ words: element('span', { class: 'name' }, 'everyone’s taste'), value: prior, text: prior.toFixed(2) }),
      ...reasons,
      ...remaining,
    );
  }

  #compare({ items }, about) {
    byId('similar-empty').hidden = items.length > 0;
    const alike = ({ item, similarity }) => {
      const film = about.catalog.get(item);
      return element(
        'li',
        { 'data-testid': 'similar', 'data-item': item },
        titleButton(film, () => this.open(item, about)),
        element('span', { class: 'figure', title: 'Cosine of the features' }, similarity.toFixed(2)),
      );
    };
    byId('similar').replaceChildren(...items.map(alike));
  }
}

/** A title that opens its card. */
export function titleButton(film, open) {
  const year = film.year ? element('span', { class: 'year' }, film.year) : null;
  const button = { type: 'button', class: 'title', title: film.full, 'aria-haspopup': 'dialog', onclick: open };
  return element('button', button, film.name, year);
}

/** One term of the score; `share` is its fraction of the largest contribution, from -1 to 1. */
function row({ words, given = null, value, text, share = null }) {
  const way = share === null ? '' : share < 0 ? 'down' : 'up';
  const bar = share === null ? null : element('span', { class: `push ${way}`, 'aria-hidden': 'true' });
  bar?.style.setProperty('--share', Math.abs(share));
  return element(
    'li',
    { 'data-testid': 'reason', 'data-value': value },
    words,
    given,
    bar,
    element('span', { class: `figure ${way}` }, text),
  );
}
