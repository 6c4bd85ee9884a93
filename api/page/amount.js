// A number field, for labels that are no stars.

import { element } from './dom.js';

/** A control for `name` as `{node, mark}`; see `starInput`. `range` is the range of the labels so far, as a hint. */
export function amountInput(name, [low, high], send) {
  const hint = `${low} to ${high}`;
  const field = element('input', {
    type: 'number',
    step: 'any',
    required: true,
    inputmode: 'decimal',
    placeholder: hint,
    'data-testid': 'amount',
    'aria-label': `Label of ${name}, so far ${hint}`,
  });
  const button = element(
    'button',
    { class: 'act', 'data-testid': 'amount-send', 'aria-label': `Send ${name}` },
    'Send',
  );
  const submit = (event) => {
    event.preventDefault();
    send(field.valueAsNumber);
  };
  const mark = (label) => {
    field.disabled = button.disabled = label !== null;
    if (label === null) field.value = '';
  };
  return { node: element('form', { class: 'answer amount', onsubmit: submit }, field, button), mark };
}
