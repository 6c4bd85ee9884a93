// The ranking: one row per slot, with score, uncertainty and stars; rows move with an animation when the ranking
// changes.

import { element } from './dom.js';
import { markStars, starInput } from './stars.js';

/** The scale of the bars. The service does not clamp scores, so the scale extends above five stars. */
const SCALE = { low: 1, high: 5.5 };
const GLIDE = { duration: 520, easing: 'cubic-bezier(.2, .8, .2, 1)' };
const RISE = { duration: 360, easing: 'ease-out' };

const still = matchMedia('(prefers-reduced-motion: reduce)');

const onScale = (score) => Math.min(Math.max((score - SCALE.low) / (SCALE.high - SCALE.low), 0), 1);

export class Ranking {
  #list;
  #rate;
  #explain;
  #rows = new Map();

  /** `rate(item, label)` is called when a star is pressed, `explain(item)` when an explanation is requested. */
  constructor(list, { rate, explain }) {
    this.#list = list;
    this.#rate = rate;
    this.#explain = explain;
  }

  /** The items shown, best first. */
  get order() {
    return [...this.#rows.keys()];
  }

  /**
   * Shows `slots`. `moves` says whether positions are compared with the previous ranking, which only makes sense for
   * the same user, filter and policy. `chance` says whether to show propensities.
   */
  show(slots, { catalog, moves, chance }) {
    const before = this.#positions();
    const changes = moves ? this.#movement(slots) : new Map();
    const rows = new Map();
    for (const [index, slot] of slots.entries()) {
      const row = this.#rows.get(slot.item) ?? this.#row(catalog.get(slot.item));
      row.update(slot, { place: index + 1, change: changes.get(slot.item) ?? 0, chance });
      rows.set(slot.item, row);
    }
    this.#rows = rows;
    this.#list.replaceChildren(...[...rows.values()].map((row) => row.node));
    if (!still.matches) this.#glide(before);
  }

  /** Shows placeholder rows while a ranking is loading, to avoid a layout shift. */
  wait(rows) {
    this.#rows = new Map();
    const ghosts = Array.from({ length: rows }, () => element('li', { class: 'row ghost', 'aria-hidden': 'true' }));
    this.#list.replaceChildren(...ghosts);
  }

  /** Highlights the stars of a row whose rating was sent; 0 resets them. */
  mark(item, label) {
    const row = this.#rows.get(item);
    if (row) markStars(row.stars, label);
  }

  /** The position of the row with keyboard focus, or null. */
  focusedPlace() {
    const place = [...this.#rows.values()].findIndex((row) => row.node.contains(document.activeElement));
    return place < 0 ? null : place;
  }

  /** Focuses the row at the position of a rated row, so that keyboard users can continue. */
  focus(place) {
    const rows = [...this.#rows.values()];
    rows[Math.min(place, rows.length - 1)]?.stars.querySelector('[tabindex="0"]').focus({ preventScroll: true });
  }

  /** By how many positions each remaining item rose (negative if it fell); Infinity for newly shown items. */
  #movement(slots) {
    const staying = new Set(slots.map((slot) => slot.item));
    // A rated item leaves the ranking; the shift of the items below it does not count as movement.
    const left = this.order.filter(
      (item) => staying.has(item) || !this.#rows.get(item).stars.classList.contains('sent'),
    );
    const old = new Map(left.map((item, index) => [item, index]));
    const changes = new Map();
    for (const [index, { item }] of slots.entries()) {
      if (old.has(item)) changes.set(item, old.get(item) - index);
      else if (index < left.length) changes.set(item, Infinity);
    }
    return changes;
  }

  #positions() {
    const top = this.#list.getBoundingClientRect().top;
    // Rectangles rather than offsets, so that a row in an animation continues from its visible position.
    return new Map([...this.#rows].map(([item, row]) => [item, row.node.getBoundingClientRect().top - top]));
  }

  #glide(before) {
    for (const [item, { node }] of this.#rows) {
      for (const flight of node.getAnimations()) flight.cancel();
      if (before.has(item)) {
        const distance = before.get(item) - node.offsetTop;
        if (Math.abs(distance) < 1) continue;
        node.animate([{ transform: `translateY(${distance}px)` }, { transform: 'none' }], GLIDE);
      } else {
        node.animate(
          [
            { opacity: 0, transform: 'translateY(1rem)' },
            { opacity: 1, transform: 'none' },
          ],
          RISE,
        );
      }
    }
  }

  #row(film) {
    const place = element('span', { class: 'place' });
    const move = element('span', { class: 'move' });
    const chance = element('span', { class: 'chance', hidden: true });
    const why = element(
      'button',
      {
        type: 'button',
        class: 'ask',
        'data-testid': 'why',
        'aria-haspopup': 'dialog',
        'aria-label': `Why ${film.name}?`,
        onclick: () => this.#explain(film.item),
      },
      'why?',
    );
    const score = element('span', { class: 'score', 'data-testid': 'score' });
    const spread = element('span', { class: 'spread' });
    const bar = element('div', { class: 'bar', 'aria-hidden': 'true' });
    bar.append(
      element('div', { class: 'sure' }),
      element('div', { class: 'unsure' }),
      element('div', { class: 'tick' }),
    );
    const stars = starInput(film.name, (label) => this.#rate(film.item, label));
    const node = element(
      'li',
      { class: 'row', 'data-testid': 'row', 'data-item': film.item },
      element('div', { class: 'rank' }, place, move),
      element(
        'div',
        { class: 'film', title: film.full },
        element('div', { class: 'name' }, film.name, film.year && element('span', { class: 'year' }, film.year)),
        element('div', { class: 'genres' }, element('span', {}, film.genres.join(' · ')), chance, why),
      ),
      element('div', { class: 'belief' }, bar, element('div', { class: 'figures' }, score, spread)),
      stars,
    );
    const update = (slot, { place: number, change, chance: random }) => {
      markStars(stars, 0);
      place.textContent = number;
      showMove(move, change);
      chance.hidden = !random;
      chance.textContent = slot.propensity === null ? 'by chance' : `chance ${percent(slot.propensity)}`;
      chance.title =
        slot.propensity === null
          ? 'This policy has no closed form for the probability of a slot'
          : 'The probability that the policy shows this title in this place';
      score.textContent = slot.score.toFixed(2);
      spread.textContent = `±${slot.std_error.toFixed(2)}`;
      slide(bar, {
        '--low': onScale(slot.score - slot.std_error),
        '--score': onScale(slot.score),
        '--high': onScale(slot.score + slot.std_error),
      });
    };
    return { node, stars, update };
  }
}

/** Sets the ends of a bar with an animation. */
function slide(bar, ends) {
  const from = Object.fromEntries(Object.keys(ends).map((name) => [name, bar.style.getPropertyValue(name)]));
  for (const [name, value] of Object.entries(ends)) bar.style.setProperty(name, value);
  if (from['--score'] !== '' && !still.matches) bar.animate([from, ends], GLIDE);
}

function showMove(node, change) {
  node.className = `move ${change > 0 ? 'up' : change < 0 ? 'down' : ''}`;
  if (change === 0) {
    node.replaceChildren();
    return;
  }
  const places = Math.abs(change);
  const words = places === Infinity ? 'up from below' : `${change > 0 ? 'up' : 'down'} ${places}`;
  node.replaceChildren(
    element('span', { 'aria-hidden': 'true' }, `${change > 0 ? '▲' : '▼'}${places === Infinity ? '' : places}`),
    element('span', { class: 'unseen' }, words),
  );
  node.title = words;
}

function percent(share) {
  if (share >= 0.9995 || share === 0) return `${Math.round(share * 100)} %`;
  return share < 0.001 ? '< 0.1 %' : `${(share * 100).toPrecision(3)} %`;
}
