// The catalog browser: text search, attribute filter and paging.

import * as api from './api.js';
import { titleButton } from './card.js';
import { entry } from './catalog.js';
import { byId, element } from './dom.js';
import { FilterForm } from './filter.js';
import { plural } from './format.js';

const PAGE_ITEMS = 20;
const TYPING_MS = 200;

export class Browse {
  #open;
  #model = null;
  #tagField = null;
  #filter = null;
  #after = null;
  #asked = null;
  #typing;
  #form;

  /** `open(item)` is called when a title is chosen. */
  constructor(open) {
    this.#open = open;
    this.#form = new FilterForm({
      chosen: (filter) => {
        this.#filter = filter;
        this.#search();
      },
      failed: (words) => this.#fail(words),
    });
    byId('browse-query').addEventListener('input', () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#search(), TYPING_MS);
    });
    byId('browse').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#search();
    });
    byId('shelf-more').addEventListener('click', () => this.#fetch());
  }

  /** Shows the catalog of `model`. */
  show(model, catalog) {
    this.#model = model;
    this.#tagField = catalog.tagField;
    this.#form.offer(catalog.attributes());
    return this.#search();
  }

  #search() {
    this.#after = null;
    return this.#fetch();
  }

  /** Fetches the next page, or the first. What the service says of the filter is shown beside it. */
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
      filter: api.filterText(this.#filter),
    };
    try {
      const { items, next, total } = await api.findItems(this.#model, question, asked.signal);
      const rows = items.map((listed) => this.#row(listed));
      if (first) byId('shelf').replaceChildren(...rows);
      else byId('shelf').append(...rows);
      this.#after = next;
      byId('shelf-more').hidden = next === null;
      this.#say(this.#found(total));
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      this.#fail(problem.detail ?? problem.message);
    }
    byId('shelf').setAttribute('aria-busy', 'false');
  }

  #found(total) {
    const narrowed = this.#filter !== null || byId('browse-query').value.trim() !== '';
    if (!narrowed) return total === 0 ? 'The catalog is empty so far.' : plural(total, 'item');
    return total === 0 ? 'No item matches.' : `${plural(total, 'item')} ${total === 1 ? 'matches' : 'match'}`;
  }

  #say(words) {
    byId('browse-says').textContent = words;
    byId('browse-filter').setAttribute('aria-invalid', 'false');
  }

  #fail(words) {
    byId('browse-says').textContent = words;
    byId('browse-filter').setAttribute('aria-invalid', String(byId('browse-filter').value !== ''));
    byId('shelf').replaceChildren();
    byId('shelf-more').hidden = true;
  }

  #row(listed) {
    const film = entry(listed, this.#tagField);
    return element(
      'li',
      { 'data-testid': 'shelved', 'data-item': film.item },
      titleButton(film, () => this.#open(film.item)),
      film.name === film.item ? null : element('span', { class: 'hint id' }, film.item),
      element('span', { class: 'hint tags' }, film.tags.join(' · ')),
      listed.trained ? null : element('span', { class: 'badge' }, 'not in the training'),
    );
  }
}
