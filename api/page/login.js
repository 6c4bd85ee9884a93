// The key of the user, kept while the tab is open, and the dialog that asks for it when the service needs one.

import { byId } from './dom.js';
import { offerSignIn } from './signin.js';

const STORED = 'celeris-key';

/** The question that is open; all requests that need the answer wait for it. */
let asking = null;

/** The key, or null. */
export const storedKey = () => sessionStorage.getItem(STORED);

/** Uses this key from now on, while the tab is open. */
export const storeKey = (key) => sessionStorage.setItem(STORED, key);

/** Asks for a key in place of `refused`, with the words of the service. Resolves to whether there is another one. */
export async function askForKey(refused, words) {
  if (storedKey() !== refused) return true;
  asking ??= ask(refused === null ? null : words).finally(() => {
    asking = null;
  });
  return asking;
}

function ask(words) {
  const [dialog, input] = [byId('login'), byId('login-key')];
  byId('login-problem').textContent = words ?? '';
  byId('login-problem').hidden = words === null;
  input.value = '';
  dialog.returnValue = '';
  offerSignIn();
  dialog.showModal();
  input.focus();
  return new Promise((resolve) => {
    const closed = () => {
      const key = input.value.trim();
      input.value = '';
      const given = dialog.returnValue === 'do' && key !== '';
      if (given) storeKey(key);
      resolve(given);
    };
    dialog.addEventListener('close', closed, { once: true });
  });
}

byId('login-form').addEventListener('submit', (event) => {
  event.preventDefault();
  byId('login').close('do');
});
byId('login-cancel').addEventListener('click', () => byId('login').close(''));
