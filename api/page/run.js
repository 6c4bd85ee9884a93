// The form that runs a pipeline on one item in one context.

import * as api from './api.js';
import { byId } from './dom.js';
import { count, plural } from './format.js';

/** Most columns of the output that are written. */
const COLUMNS_MAX = 200;

/** An input that is not JSON, or no object. */
class Unreadable extends Error {
  constructor(input, problem) {
    super(problem);
    this.input = input;
  }
}

export class RunForm {
  #context;
  #name = null;
  /** The fields that the inputs were written for, as JSON. */
  #written = null;

  /** `context()` is the context of the rankings, or null. */
  constructor({ context }) {
    this.#context = context;
    byId('run').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit();
    });
  }

  /** Shows the form for a pipeline, with the fields that it reads. What was typed stays while they are the same. */
  offer({ name, item_fields: item, context_fields: fields }) {
    byId('pipeline-try').hidden = false;
    const written = JSON.stringify([name, item, fields]);
    if (this.#written === written) return;
    this.#written = written;
    this.#name = name;
    const known = this.#context() ?? {};
    byId('run-item').value = template(item, {});
    byId('run-context').value = template(fields, known);
    this.#say('', '');
  }

  async #submit() {
    const name = this.#name;
    byId('run-do').disabled = true;
    try {
      const record = { item: objectIn('run-item'), context: objectIn('run-context') };
      const { outputs } = await api.runPipeline(name, record);
      if (name === this.#name) this.#say(...wordsOf(outputs[0]));
    } catch (problem) {
      this.#fail(problem);
    } finally {
      byId('run-do').disabled = false;
    }
  }

  #fail(problem) {
    const [, , , side] = (problem.pointer ?? '').split('/');
    this.#say(problem.detail ?? problem.message, '', problem.input ?? `run-${side}`);
  }

  /** `wrong` is the id of the input that is not valid. */
  #say(words, output, wrong = null) {
    byId('run-says').textContent = words;
    byId('run-says').classList.toggle('wrong', wrong !== null);
    byId('run-output').hidden = output === '';
    byId('run-output').textContent = output;
    for (const input of ['run-item', 'run-context']) byId(input).setAttribute('aria-invalid', String(input === wrong));
  }
}

/** An object with these fields; null stands for a field that is not given. */
const template = (fields, known) =>
  JSON.stringify(Object.fromEntries(fields.map((field) => [field, known[field] ?? null])), null, 1).replaceAll(/\n\s*/g, ' ');

function objectIn(input) {
  const text = byId(input).value.trim() || '{}';
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Unreadable(input, `This is not JSON yet: ${error.message}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Unreadable(input, 'This is no JSON object, such as {"title": "Heat"}.');
  }
  return value;
}

/** The columns that are not 0, which are few where the output is sparse. */
function wordsOf(numbers) {
  const columns = numbers.map((number, column) => ({ number, column })).filter(({ number }) => number !== 0);
  const shown = columns.slice(0, COLUMNS_MAX);
  const rest = columns.length - shown.length;
  const says = `${count(columns.length)} of ${plural(numbers.length, 'column')} ${columns.length === 1 ? 'is' : 'are'} not 0`;
  const width = String(numbers.length - 1).length;
  const lines = shown.map(({ number, column }) => `${String(column).padStart(width)}  ${number}`);
  return [says, [...lines, ...(rest > 0 ? [`… and ${count(rest)} more`] : [])].join('\n')];
}
