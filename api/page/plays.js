// A button that counts a play, for implicit feedback.

import { element } from './dom.js';

const PLAY = 1;

/** A control for `name` as `{node, mark}`; see `starInput`. */
export function playInput(name, send) {
  const attributes = { type: 'button', class: 'act', 'data-testid': 'play', 'aria-label': `+1 play of ${name}` };
  const button = element('button', { ...attributes, onclick: () => send(PLAY) }, '+1 play');
  const mark = (label) => {
    button.disabled = label !== null;
  };
  return { node: element('div', { class: 'answer plays' }, button), mark };
}
