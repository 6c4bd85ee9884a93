// The ranking: one row per slot, with score, uncertainty and a control to answer; rows move with an animation when the
// ranking changes.

import { element } from './dom.js';

const GLIDE = { duration: 520, easing: 'cubic-bezier(.2, .8, .2, 1)' };
const RISE = { duration: 360, easing: 'ease-out' };

const still = matchMedia('(prefers-reduced-motion: reduce)');

export class Ranking {
  #list;
  #rate;
  #explain;
  #rows = new Map();
  #feedback = null;

  /** `rate(item, label)` is called when the user answers, `explain(item)` when an explanation is requested. */
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
   * the same user, filter and policy. `chance` says whether to show propensities; `feedback` is the form of the labels.
   * Returns by how many positions each item rose, as `#movement`; nothing without `moves`.
   */
  show(slots, { catalog, feedback, moves, chance }) {
    this.#use(feedback);
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
    return changes;
  }

  /** Another form of labels needs other rows. */
  #use(feedback) {
    if (this.#feedback === feedback) return;
    this.#feedback = feedback;
    this.#rows = new Map();
  }

  /** Shows placeholder rows while a ranking is loading, to avoid a layout shift. */
  wait(rows) {
    this.#rows = new Map();
    const ghosts = Array.from({ length: rows }, () => element('li', { class: 'row ghost', 'aria-hidden': 'true' }));
    this.#list.replaceChildren(...ghosts);
  }

  /** Shows in its row that an answer was sent; null resets. */
  mark(item, label) {
    const row = this.#rows.get(item);
    if (!row) return;
    row.sent = label !== null;
    row.control.mark(label);
  }

  /** The position of the row with keyboard focus, or null. */
  focusedPlace() {
    const place = [...this.#rows.values()].findIndex((row) => row.node.contains(document.activeElement));
    return place < 0 ? null : place;
  }

  /** Focuses the row at the position of a rated row, so that keyboard users can continue. */
  focus(place) {
    const rows = [...this.#rows.values()];
    const control = rows[Math.min(place, rows.length - 1)]?.control.node;
    control?.querySelector('input, button:not([tabindex="-1"])').focus({ preventScroll: true });
  }

  /** By how many positions each remaining item rose (negative if it fell); Infinity for newly shown items. */
  #movement(slots) {
    const staying = new Set(slots.map((slot) => slot.item));
    // A rated item leaves the ranking; the shift of the items below it does not count as movement.
    const left = this.order.filter((item) => staying.has(item) || !this.#rows.get(item).sent);
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

  #row(listed) {
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
        'aria-label': `Why ${listed.name}?`,
        onclick: () => this.#explain(listed.item),
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
    const feedback = this.#feedback;
    const control = feedback.input(listed.name, (label) => this.#rate(listed.item, label));
    const node = element(
      'li',
      { class: 'row', 'data-testid': 'row', 'data-item': listed.item },
      element('div', { class: 'rank' }, place, move),
      element(
        'div',
        { class: 'film' },
        element('div', { class: 'name' }, listed.name, listed.year && element('span', { class: 'year' }, listed.year)),
        element('div', { class: 'genres' }, element('span', {}, listed.tags.join(' · ')), chance, why),
      ),
      element('div', { class: 'belief' }, bar, element('div', { class: 'figures' }, score, spread)),
      control.node,
    );
    const row = { node, control, sent: false };
    row.update = (slot, { place: number, change, chance: random }) => {
      row.sent = false;
      control.mark(null);
      place.textContent = number;
      showMove(move, change);
      chance.hidden = !random;
      chance.textContent = slot.propensity === null ? 'by chance' : `chance ${share(slot.propensity)}`;
      chance.title =
        slot.propensity === null
          ? 'This policy has no closed form for the probability of a place'
          : 'The probability that the policy shows this item in this place';
      const shown = feedback.score(slot);
      node.dataset.score = slot.score;
      score.textContent = shown.text;
      spread.textContent = shown.spread;
      slide(bar, { '--low': shown.low, '--score': shown.at, '--high': shown.high });
    };
    return row;
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

function share(probability) {
  if (probability >= 0.9995 || probability === 0) return `${Math.round(probability * 100)} %`;
  return probability < 0.001 ? '< 0.1 %' : `${(probability * 100).toPrecision(3)} %`;
}
