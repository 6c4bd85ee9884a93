// The items of a model, loaded once, with filters on them.

import { listItems } from './api.js';

const PAGE_ITEMS = 1000;
/** Maximum number of items on the page. */
const ITEMS_MAX = 50_000;

/** Titles in library order, with the article last: "Matrix, The". */
const INVERTED = /^(.+), (The|A|An|Le|La|Les|L'|El|Los|Las|Il|Lo|Der|Die|Das)$/;
const DATED = /^(.+?)\s*\((\d{4})(?:[-–]\d{0,4})?\)$/;
/** Titles with an alternative name: "Seven (a.k.a. Se7en)". */
const ALIAS = /^(.+?)\s+\(.+\)$/;

/** "Matrix, The (1999)" as `{name: "The Matrix", year: "1999"}`. */
export function splitTitle(title) {
  const dated = DATED.exec(title.trim());
  const bare = (dated ? dated[1] : title).trim();
  const primary = (ALIAS.exec(bare)?.[1] ?? bare).trim();
  const inverted = INVERTED.exec(primary);
  if (!inverted) return { name: primary, year: dated?.[2] ?? null };
  const glue = inverted[2].endsWith("'") ? '' : ' ';
  return { name: `${inverted[2]}${glue}${inverted[1]}`, year: dated?.[2] ?? null };
}

/** Lower case and without accents, so that "amelie" finds "Amélie". */
const folded = (text) => text.normalize('NFD').replace(/\p{M}/gu, '').toLowerCase();

/** The displayed fields of an item, from its attributes; an item without a title is shown by its id. */
export function entry({ item, attributes }, tagField = 'genres') {
  const full = typeof attributes?.title === 'string' ? attributes.title : item;
  const tags = attributes?.[tagField];
  const { name, year } = full === item ? { name: item, year: null } : splitTitle(full);
  return { item, name, year, tags: isTags(tags) ? tags : [], search: folded(`${name} ${full} ${item}`) };
}

const isTags = (value) => Array.isArray(value) && value.every((tag) => typeof tag === 'string');

/** The attribute with lists of texts that most items have, such as the genres of films; null without one. */
function commonTags(items) {
  const frequency = new Map();
  for (const { attributes } of items) {
    for (const [field, value] of Object.entries(attributes ?? {})) {
      if (isTags(value)) frequency.set(field, (frequency.get(field) ?? 0) + 1);
    }
  }
  const [first] = [...frequency].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  return first?.[0] ?? null;
}

export class Catalog {
  #entries = new Map();
  #attributes = new Map();
  /** The attribute of the chips above the ranking, or null. */
  tagField = null;
  /** Number of items of the model, of which at most `ITEMS_MAX` are loaded. */
  total = 0;

  /** Loads every page; `progress(loaded, total)` is called after each. */
  static async load(model, progress) {
    const catalog = new Catalog();
    const items = [];
    let after = null;
    do {
      const page = await listItems(model, PAGE_ITEMS, after);
      items.push(...page.items);
      after = page.next;
      catalog.total = page.total;
      progress(items.length, page.total);
    } while (after !== null && items.length < ITEMS_MAX);
    catalog.tagField = commonTags(items);
    for (const item of items) catalog.#add(item);
    return catalog;
  }

  #add(item) {
    this.#entries.set(item.item, entry(item, this.tagField));
    for (const [field, value] of Object.entries(item.attributes ?? {})) {
      if (!this.#attributes.has(field)) this.#attributes.set(field, new Set());
      for (const one of Array.isArray(value) ? value : [value]) this.#attributes.get(field).add(one);
    }
  }

  get size() {
    return this.#entries.size;
  }

  /** The item, or a placeholder with its id if the catalog does not contain it. */
  get(item) {
    return this.#entries.get(item) ?? entry({ item, attributes: null });
  }

  /** The attributes of the items: name and set of values. */
  attributes() {
    return this.#attributes;
  }

  /** The tags, most frequent first. */
  tags() {
    const frequency = new Map();
    for (const { tags } of this.#entries.values()) {
      for (const tag of tags) frequency.set(tag, (frequency.get(tag) ?? 0) + 1);
    }
    return [...frequency].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([tag]) => tag);
  }

  /** Ids of the items with `tag` (null for any) and with every word of `query` in title or id, except `rated` ones. */
  select({ tag, query, rated }) {
    const words = folded(query).split(/\s+/).filter(Boolean);
    const chosen = [];
    for (const [item, { tags, search }] of this.#entries) {
      if (rated.has(item) || (tag !== null && !tags.includes(tag))) continue;
      if (words.every((word) => search.includes(word))) chosen.push(item);
    }
    return chosen;
  }
}
