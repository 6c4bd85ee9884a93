// A thumb up or down, for labels of 0 and 1.

import { element, icon } from './dom.js';

const THUMBS = [
  { label: 1, name: 'up', words: 'Thumb up' },
  { label: 0, name: 'down', words: 'Thumb down' },
];

/** A control for `name` as `{node, mark}`; see `starInput`. */
export function thumbInput(name, send) {
  const buttons = THUMBS.map(({ label, name: way, words }) =>
    element(
      'button',
      {
        type: 'button',
        class: way,
        'data-label': label,
        'data-testid': `thumb-${way}`,
        'aria-label': `${words} for ${name}`,
        title: words,
        onclick: () => send(label),
      },
      icon(way),
    ),
  );
  const mark = (label) => {
    for (const button of buttons) {
      button.disabled = label !== null;
      button.classList.toggle('lit', Number(button.dataset.label) === label);
    }
  };
  const group = { class: 'answer thumbs', role: 'group', 'aria-label': `Your answer to ${name}` };
  return { node: element('div', group, ...buttons), mark };
}
