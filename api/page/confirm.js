// The dialog before every change of a model: it says what will happen, and does nothing without a second click.

import { byId, element } from './dom.js';

/**
 * Resolves to null if the user cancels, and otherwise to whether `option`, the words of a check box, was chosen.
 * `says` is a list of sentences.
 */
export function confirmed({ title, says, action, option = null }) {
  const dialog = byId('confirm');
  byId('confirm-title').textContent = title;
  byId('confirm-says').replaceChildren(...says.map((words) => element('p', {}, words)));
  byId('confirm-option').checked = false;
  byId('confirm-option-field').hidden = option === null;
  byId('confirm-option-words').textContent = option ?? '';
  byId('confirm-do').textContent = action;
  dialog.returnValue = '';
  dialog.showModal();
  byId('confirm-cancel').focus();
  return new Promise((resolve) => {
    const closed = () => resolve(dialog.returnValue === 'do' ? { option: byId('confirm-option').checked } : null);
    dialog.addEventListener('close', closed, { once: true });
  });
}

byId('confirm-do').addEventListener('click', () => byId('confirm').close('do'));
byId('confirm-cancel').addEventListener('click', () => byId('confirm').close(''));
