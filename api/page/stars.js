// Five stars to rate with, and the display of a rating.

import { element, icon } from './dom.js';

const STARS = [1, 2, 3, 4, 5];

const words = (label) => `${label} ${label === 1 ? 'star' : 'stars'}`;

/**
 * A control for `name` as `{node, mark}`: a single tab stop; arrows move between the stars; Enter, Space or a digit
 * rates. The stars are buttons rather than radio buttons, because arrow keys on radio buttons would rate immediately.
 * `mark(label)` shows a label that is being sent; `mark(null)` resets.
 */
export function starInput(name, send) {
  const buttons = STARS.map((label) =>
    element(
      'button',
      {
        type: 'button',
        'data-label': label,
        'data-testid': `star-${label}`,
        'aria-label': `Rate ${name} ${words(label)}`,
        tabindex: label === 1 ? '0' : '-1',
        onclick: () => send(label),
      },
      icon('star'),
    ),
  );
  const focus = (label) => {
    const target = buttons[Math.min(Math.max(label, 1), STARS.length) - 1];
    for (const button of buttons) button.tabIndex = button === target ? 0 : -1;
    target.focus();
  };
  const keys = (event) => {
    const label = Number(event.target.closest('button').dataset.label);
    const next = {
      ArrowRight: label + 1,
      ArrowUp: label + 1,
      ArrowLeft: label - 1,
      ArrowDown: label - 1,
      Home: 1,
      End: 5,
    };
    if (event.key in next) focus(next[event.key]);
    else if (STARS.includes(Number(event.key)) && !event.ctrlKey && !event.metaKey && !event.altKey)
      send(Number(event.key));
    else return;
    event.preventDefault();
  };
  const group = { class: 'answer stars', role: 'group', 'aria-label': `Your rating of ${name}`, onkeydown: keys };
  const mark = (label) => {
    for (const button of buttons) {
      button.disabled = label !== null;
      button.classList.toggle('lit', label !== null && Number(button.dataset.label) <= label);
    }
  };
  return { node: element('div', group, ...buttons), mark };
}

/** The display of a given rating, including half stars. */
export function starsOf(label) {
  const row = element('span', { class: 'given', role: 'img', 'aria-label': words(label) });
  for (const step of STARS) {
    const share = Math.min(Math.max(label - step + 1, 0), 1);
    const star = icon('star');
    star.classList.add(share >= 1 ? 'full' : share > 0 ? 'half' : 'none');
    row.append(star);
  }
  return row;
}
