// The context of the rankings on this page: an input for each field that the contexts of the stream have had.

import { byId, element, showRows } from './dom.js';
import { plural } from './format.js';
import { rememberTyped, typedBefore } from './typed.js';

const TYPING_MS = 250;
/** Fields beside one another; the others are folded, since a stream may have 256. */
const OPEN_MAX = 8;

const words = (value) => (typeof value === 'object' ? JSON.stringify(value) : String(value));
const separated = (value) => (Array.isArray(value) ? value.join(', ') : words(value));
const split = (text) => text.split(',').map((part) => part.trim()).filter(Boolean);

/** How values of a type are written and read. What is no number is sent as it is: the node says what is wrong with it. */
const TYPES = {
  number: { name: 'number', write: words, read: (text) => (Number.isFinite(Number(text)) ? Number(text) : text) },
  text: { name: 'text', write: words, read: (text) => text },
  texts: { name: 'texts, with commas', write: separated, read: split },
  boolean: { name: 'yes or no', write: words, read: (text) => (text === 'true' || text === 'false' ? text === 'true' : text) },
};

/** The type of a field that the stream does not have yet. */
function typeOf(value) {
  if (Array.isArray(value)) return 'texts';
  return typeof value in TYPES ? typeof value : 'text';
}

export class ContextBar {
  #changed;
  #stream = null;
  #fields = [];
  #values = {};
  /** What `changed` was called for, as JSON. */
  #applied = 'null';
  #controls = new Map();
  #typing;

  /** `changed()` is called when another context is set. */
  constructor(changed) {
    this.#changed = changed;
    byId('context').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#apply();
    });
    byId('context-clear').addEventListener('click', () => {
      this.set(null);
      this.#apply();
      // The button is hidden now.
      this.#controls.values().next().value.focus();
    });
  }

  /** The fields that are set, by name, or null if none is. */
  get value() {
    const set = Object.entries(this.#values).sort(([a], [b]) => (a < b ? -1 : 1));
    return set.length === 0 ? null : Object.fromEntries(set);
  }

  /** Sets these fields and no others; the caller ranks. */
  set(context) {
    const given = Object.entries(context ?? {}).filter(([, value]) => value !== null);
    this.#values = Object.fromEntries(given);
    for (const [name, control] of this.#controls) write(control, this.#fieldOf(name), this.#values[name]);
    this.#showClear();
  }

  /** Shows the fields of a stream. Another stream begins without a context, unless it is the first one. */
  offer(stream, fields) {
    if (this.#stream !== null && this.#stream !== stream) {
      this.set(null);
      this.#applied = 'null';
    }
    if (this.#stream === null) this.#applied = JSON.stringify(this.value);
    // The address may name fields that no observation has had so far; they stay while the stream does.
    const given = Object.entries(this.#values).map(([name, value]) => ({ name, type: typeOf(value) }));
    const before = this.#stream === stream ? this.#fields : [];
    this.#fields = unique([...fields, ...before, ...given]);
    this.#stream = stream;
    byId('context').hidden = this.#fields.length === 0;
    const focused = document.activeElement?.dataset.field;
    const key = JSON.stringify([stream, this.#fields]);
    if (byId('context-fields').dataset.key === key) return;
    this.#controls = new Map();
    const rows = this.#fields.map((field, index) => this.#row(field, index));
    showRows(byId('context-fields'), key, () => rows.slice(0, OPEN_MAX));
    byId('context-folded').replaceChildren(...rows.slice(OPEN_MAX));
    byId('context-more').hidden = rows.length <= OPEN_MAX;
    byId('context-more-title').textContent = `${plural(rows.length - OPEN_MAX, 'more field')}`;
    this.#say('');
    this.set(this.#values);
    if (focused !== undefined) this.#controls.get(focused)?.focus();
  }

  /** Reports how the ranking follows the context. */
  accepted(report) {
    for (const control of this.#controls.values()) {
      control.removeAttribute('aria-invalid');
      control.removeAttribute('aria-describedby');
    }
    this.#say(report);
  }

  /** Shows what the node says of the context; false if the problem is another. */
  refused({ pointer, detail }) {
    if (this.value === null || !/^\/context(\/|$)/.test(pointer ?? '')) return false;
    this.accepted('');
    const isOf = ({ name }) => pointer === `/context/${name}` || detail.startsWith(`${name}: `);
    const control = this.#controls.get(this.#fields.find(isOf)?.name);
    control?.setAttribute('aria-invalid', 'true');
    control?.setAttribute('aria-describedby', 'context-says');
    if (byId('context-more').contains(control ?? null)) byId('context-more').open = true;
    this.#say(`Not ranked in this context: ${detail}`, 'wrong');
    return true;
  }

  #say(report, kind = '') {
    byId('context-says').textContent = report;
    byId('context-says').classList.toggle('wrong', kind === 'wrong');
  }

  #fieldOf(name) {
    return this.#fields.find((field) => field.name === name);
  }

  #row(field, index) {
    const control = field.type === 'boolean' ? choice(field) : this.#input(field, index);
    this.#controls.set(field.name, control);
    control.addEventListener('input', () => {
      this.#take(field, control.value);
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.#apply(), TYPING_MS);
    });
    control.addEventListener('change', () => {
      this.#take(field, control.value);
      this.#remember(field, index);
      this.#apply();
    });
    const name = element('span', {}, field.name, element('small', {}, TYPES[field.type].name));
    const datalist = field.type === 'boolean' ? null : suggestions(this.#stream, field, index);
    return element('label', { class: 'labelled' }, name, control, datalist);
  }

  #input({ name, type }, index) {
    return element('input', {
      'data-field': name,
      list: `context-typed-${index}`,
      inputmode: type === 'number' ? 'decimal' : null,
      placeholder: 'absent',
      spellcheck: 'false',
      autocapitalize: 'none',
      enterkeyhint: 'go',
    });
  }

  #take({ name, type }, text) {
    const value = text.trim() === '' ? null : TYPES[type].read(text.trim());
    if (value === null || value.length === 0) delete this.#values[name];
    else this.#values[name] = value;
    this.#showClear();
  }

  #remember(field, index) {
    const text = this.#controls.get(field.name).value.trim();
    if (field.type === 'boolean' || text === '') return;
    rememberTyped(this.#stream, field.name, text);
    byId(`context-typed-${index}`).replaceWith(suggestions(this.#stream, field, index));
  }

  #apply() {
    clearTimeout(this.#typing);
    const now = JSON.stringify(this.value);
    if (now === this.#applied) return;
    this.#applied = now;
    this.#changed();
  }

  #showClear() {
    byId('context-clear').hidden = this.value === null;
  }
}

/** The first field of each name. */
function unique(fields) {
  const names = fields.map(({ name }) => name);
  return fields.filter(({ name }, index) => names.indexOf(name) === index);
}

function suggestions(stream, { name }, index) {
  const options = typedBefore(stream, name).map((value) => element('option', { value }));
  return element('datalist', { id: `context-typed-${index}` }, ...options);
}

function choice({ name }) {
  const options = [['', 'absent'], ['true', 'yes'], ['false', 'no']];
  return element(
    'select',
    { 'data-field': name },
    ...options.map(([value, text]) => element('option', { value }, text)),
  );
}

/** Writes a value, or none, into its control. */
function write(control, { type }, value) {
  const text = value === undefined ? '' : TYPES[type].write(value);
  const isOffered = control.options === undefined || [...control.options].some((option) => option.value === text);
  // A value of another type, from the address: it is shown, so that it can be unset.
  if (!isOffered) control.append(element('option', { value: text }, text));
  control.value = text;
}
