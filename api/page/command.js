// A shell command with a button that copies it.

import { announce, element } from './dom.js';

/** `what` names the command for screen readers. */
export function command(what, text) {
  const button = element('button', { type: 'button', class: 'quiet copy', 'aria-label': `Copy: ${what}` }, 'Copy');
  button.addEventListener('click', () => copy(text, button));
  const code = element('pre', { tabindex: '0', 'aria-label': what }, element('code', {}, text));
  return element('div', { class: 'command' }, code, button);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
    announce('Copied');
  } catch {
    // Without a secure context there is no clipboard: the text is selected instead, ready for the copy key.
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = 'Selected';
  }
}

/** `curl` with a JSON body. */
export function curl(method, path, body) {
  const lines = [
    `curl -X ${method} ${location.origin}${path}`,
    "  -H 'content-type: application/json'",
    `  -d '${JSON.stringify(body)}'`,
  ];
  return lines.join(' \\\n');
}
