// The filter of the catalog: a form of attribute, comparison and value, or JSON. Both are sent on submit only.

import { byId, element } from './dom.js';

/** Maximum number of suggested values. */
const VALUES_MAX = 200;

const not = (filter) => ({ not: filter });
const COMPARISONS = {
  is: { words: 'is', filter: (field, value) => ({ eq: { field, value } }) },
  'is-not': { words: 'is not', filter: (field, value) => not({ eq: { field, value } }) },
  least: { words: 'is at least', filter: (field, value) => ({ range: { field, gte: value } }) },
  most: { words: 'is at most', filter: (field, value) => ({ range: { field, lte: value } }) },
  exists: { words: 'exists', bare: true, filter: (field) => ({ exists: { field } }) },
  'exists-not': { words: 'is missing', bare: true, filter: (field) => not({ exists: { field } }) },
};

/** The typed text as the type of the attribute's values: a number, a boolean or a text. */
function typed(text, values) {
  const types = new Set([...values].map((value) => typeof value));
  if (types.has('number') && text.trim() !== '' && Number.isFinite(Number(text))) return Number(text);
  if (types.has('boolean') && (text === 'true' || text === 'false')) return text === 'true';
  return text;
}

export class FilterForm {
  #attributes = new Map();
  #chosen;
  #failed;

  /** `chosen(filter)` is called with a filter, or null for none; `failed(words)` with what is wrong with the JSON. */
  constructor({ chosen, failed }) {
    this.#chosen = chosen;
    this.#failed = failed;
    const option = ([value, { words }]) => element('option', { value }, words);
    byId('filter-comparison').replaceChildren(...Object.entries(COMPARISONS).map(option));
    byId('filter-field').addEventListener('change', () => this.#suggest());
    byId('filter-comparison').addEventListener('change', () => this.#suggest());
    byId('filter').addEventListener('submit', (event) => this.#submitForm(event));
    byId('filter-clear').addEventListener('click', () => this.#clear());
    byId('filter-json-form').addEventListener('submit', (event) => this.#submitJson(event));
  }

  /** Offers the attributes of a catalog: a map from name to set of values. */
  offer(attributes) {
    this.#attributes = attributes;
    byId('filter').hidden = attributes.size === 0;
    byId('filter-none').hidden = attributes.size > 0;
    const names = [...attributes.keys()].sort();
    const chosen = byId('filter-field').value;
    byId('filter-field').replaceChildren(...names.map((name) => element('option', { value: name }, name)));
    if (attributes.has(chosen)) byId('filter-field').value = chosen;
    this.#suggest();
  }

  #suggest() {
    const values = [...(this.#attributes.get(byId('filter-field').value) ?? [])].slice(0, VALUES_MAX);
    byId('filter-values').replaceChildren(...values.map((value) => element('option', { value: String(value) })));
    const { bare } = COMPARISONS[byId('filter-comparison').value];
    byId('filter-value').disabled = Boolean(bare);
    byId('filter-value').placeholder = bare || values.length === 0 ? '' : `such as ${values[0]}`;
  }

  #submitForm(event) {
    event.preventDefault();
    const field = byId('filter-field').value;
    const value = typed(byId('filter-value').value, this.#attributes.get(field) ?? []);
    const filter = COMPARISONS[byId('filter-comparison').value].filter(field, value);
    byId('browse-filter').value = JSON.stringify(filter);
    this.#apply(filter);
  }

  #submitJson(event) {
    event.preventDefault();
    const text = byId('browse-filter').value.trim();
    if (text === '') {
      this.#clear();
      return;
    }
    let filter;
    try {
      filter = JSON.parse(text);
    } catch (error) {
      this.#failed(`This is not JSON yet: ${error.message}`);
      return;
    }
    this.#apply(filter);
  }

  #apply(filter) {
    byId('filter-clear').hidden = false;
    this.#chosen(filter);
  }

  #clear() {
    byId('browse-filter').value = '';
    byId('filter-value').value = '';
    byId('filter-clear').hidden = true;
    this.#chosen(null);
  }
}
