// The rating control with five stars, and the display of a rating.

import { element, star } from './dom.js';

export const STARS = [1, 2, 3, 4, 5];

const plural = (label) => `${label} ${label === 1 ? 'star' : 'stars'}`;

/**
 * A rating control for `title`: a single tab stop; arrows move between the stars; Enter, Space or a digit rates. The
 * stars are buttons rather than radio buttons, because arrow keys on radio buttons would rate immediately.
 */
export function starInput(title, rate) {
  const buttons = STARS.map((label) =>
    element(
      'button',
      {
        type: 'button',
        'data-label': label,
        'data-testid': `star-${label}`,
        'aria-label': `Rate ${title} ${plural(label)}`,
        tabindex: label === 1 ? '0' : '-1',
        onclick: () => rate(label),
      },
      star(),
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
      rate(Number(event.key));
    else return;
    event.preventDefault();
  };
  return element(
    'div',
    { class: 'stars', role: 'group', 'aria-label': `Your rating of ${title}`, onkeydown: keys },
    ...buttons,
  );
}

/** Highlights the pressed stars while the rating is being sent; 0 resets them. */
export function markStars(control, label) {
  control.classList.toggle('sent', label > 0);
  for (const button of control.children) {
    button.disabled = label > 0;
    button.classList.toggle('lit', Number(button.dataset.label) <= label);
  }
}

/** The display of a given rating, including half stars. */
export function starsOf(label) {
  const row = element('span', { class: 'given', role: 'img', 'aria-label': plural(label) });
  for (const step of STARS) {
    const share = Math.min(Math.max(label - step + 1, 0), 1);
    const icon = star();
    icon.classList.add(share >= 1 ? 'full' : share > 0 ? 'half' : 'none');
    row.append(icon);
  }
  return row;
}
