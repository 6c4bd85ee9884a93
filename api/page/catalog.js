// The items of a model, loaded once, with filters on them.

import { listItems } from './api.js';

const PAGE_ITEMS = 1000;
/** Maximum number of items on the page; the caption of the ranking counts the loaded ones. */
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

/** The displayed fields of an item, from its attributes. */
export function entry({ item, attributes }) {
  const full = typeof attributes?.title === 'string' ? attributes.title : item;
  const genres = Array.isArray(attributes?.genres)
    ? attributes.genres.filter((genre) => typeof genre === 'string')
    : [];
  const { name, year } = splitTitle(full);
  return { item, full, name, year, genres, search: folded(`${name} ${full}`) };
}

export class Catalog {
  #entries = new Map();

  /** Loads every page; `progress(loaded)` is called after each. */
  static async load(model, progress) {
    const catalog = new Catalog();
    let after = null;
    do {
      const page = await listItems(model, PAGE_ITEMS, after);
      for (const item of page.items) catalog.#entries.set(item.item, entry(item));
      after = page.next;
      progress(catalog.size);
    } while (after !== null && catalog.size < ITEMS_MAX);
    return catalog;
  }

  get size() {
    return this.#entries.size;
  }

  /** The item, or a placeholder with its id if the catalog does not contain it. */
  get(item) {
    return this.#entries.get(item) ?? entry({ item, attributes: null });
  }

  /** The genres, most frequent first. */
  genres() {
    const frequency = new Map();
    for (const { genres } of this.#entries.values()) {
      for (const genre of genres) frequency.set(genre, (frequency.get(genre) ?? 0) + 1);
    }
    return [...frequency].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).map(([genre]) => genre);
  }

  /** Ids of the items of `genre` (null for any) whose titles contain every word of `query`, except `rated` ones. */
  select({ genre, query, rated }) {
    const words = folded(query).split(/\s+/).filter(Boolean);
    const chosen = [];
    for (const [item, { genres, search }] of this.#entries) {
      if (rated.has(item) || (genre !== null && !genres.includes(genre))) continue;
      if (words.every((word) => search.includes(word))) chosen.push(item);
    }
    return chosen;
  }
}
