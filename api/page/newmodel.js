// The form that creates a model.

import * as api from './api.js';
import { element } from './dom.js';

const DIM_DEFAULT = 32;
/** What users say, in ordinary words, and the loss for it. */
const KINDS = [
  { loss: 'squared', name: 'Ratings or amounts', hint: 'such as 1 to 5 stars, or euros' },
  { loss: 'logistic', name: 'Yes or no', hint: 'such as clicked or not, as labels 1 and 0' },
  { loss: 'implicit', name: 'Counts', hint: 'such as plays or purchases; there is no “no”' },
];

const field = (words, input) => element('label', { class: 'labelled' }, element('span', {}, words), input);

function kinds() {
  const choice = ({ loss, name, hint }, index) =>
    element(
      'label',
      { class: 'choice' },
      element('input', { type: 'radio', name: 'loss', value: loss, checked: index === 0 }),
      element('span', {}, element('b', {}, name), element('span', { class: 'hint' }, hint)),
    );
  return element(
    'fieldset',
    { class: 'choices' },
    element('legend', {}, 'What do users say about items?'),
    ...KINDS.map(choice),
  );
}

/** `created(name)` is called with the name of the new model; `guarded(work)` runs `work` and displays its errors. */
export function newModelForm({ guarded, created }) {
  const name = element('input', {
    name: 'name',
    required: true,
    maxlength: '64',
    pattern: '[A-Za-z0-9_\\-]+',
    placeholder: 'films',
    title: 'Letters, digits, - and _',
    spellcheck: 'false',
    autocapitalize: 'none',
    'data-testid': 'new-model-name',
  });
  const dim = element('input', { name: 'dim', type: 'number', min: '1', max: '512', value: String(DIM_DEFAULT) });
  const submit = (event) => {
    event.preventDefault();
    const { loss } = Object.fromEntries(new FormData(form));
    return guarded(async () => {
      const model = await api.createModel({ name: name.value, loss, dim: dim.valueAsNumber || DIM_DEFAULT });
      form.reset();
      await created(model.name);
    });
  };
  const form = element(
    'form',
    { class: 'new-model', autocomplete: 'off', onsubmit: submit },
    field('Name', name),
    kinds(),
    field('Dimension (numbers per item)', dim),
    element('button', { class: 'act', 'data-testid': 'create-model' }, 'Create model'),
  );
  return form;
}
