// The catalog browser: text search, attribute filter and paging.

import * as api from './api.js';
import { titleButton } from './card.js';
import { entry } from './catalog.js';
import { byId, element } from './dom.js';

const PAGE_ITEMS = 20;
const TYPING_MS = 200;

export class Browse {
  #open;
  #model = null;
  #after = null;
  #asked = null;
  #typing;

  /** `open(item)` is called when a title is chosen. */
  constructor(open) {
    this.#open = open;
    const changed = () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#search(), TYPING_MS);
    };
    for (const field of ['browse-query', 'browse-filter']) byId(field).addEventListener('input', changed);
    byId('browse').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#search();
    });
    byId('shelf-more').addEventListener('click', () => this.#fetch());
  }

  /** Shows the catalog of `model`. */
  show(model) {
    this.#model = model;
    return this.#search();
  }

  #search() {
    this.#after = null;
    return this.#fetch();
  }

  /** Fetches the next page, or the first. Errors of the filter are shown beside it. */
  async #fetch() {
    if (this.#model === null) return;
    this.#asked?.abort();
    const asked = new AbortController();
    this.#asked = asked;
    const first = this.#after === null;
    byId('shelf').setAttribute('aria-busy', 'true');
    const question = {
      limit: PAGE_ITEMS,
      after: this.#after,
      q: byId('browse-query').value.trim() || null,
      filter: byId('browse-filter').value.trim() || null,
    };
    try {
      const { items, next } = await api.findItems(this.#model, question, asked.signal);
      const rows = items.map((listed) => this.#row(listed));
      if (first) byId('shelf').replaceChildren(...rows);
      else byId('shelf').append(...rows);
      this.#after = next;
      byId('shelf-more').hidden = next === null;
      this.#say(first && items.length === 0 ? 'Nothing in the catalog is like that.' : '');
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      this.#say(problem.detail ?? problem.message);
      byId('browse-filter').setAttribute('aria-invalid', String(question.filter !== null));
      byId('shelf').replaceChildren();
      byId('shelf-more').hidden = true;
    }
    byId('shelf').setAttribute('aria-busy', 'false');
  }

  #say(words) {
    byId('browse-says').textContent = words;
    byId('browse-filter').setAttribute('aria-invalid', 'false');
  }

  #row(listed) {
    const film = entry(listed);
    return element(
      'li',
      { 'data-testid': 'shelved', 'data-item': film.item },
      titleButton(film, () => this.#open(film.item)),
      element('span', { class: 'hint' }, film.genres.join(' · ')),
      listed.trained ? null : element('span', { class: 'badge', title: 'It came after the training' }, 'new'),
    );
  }
}
