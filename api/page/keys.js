// The API keys of the node: what each may do, the form that makes one, and its secret, which is shown once.

import * as api from './api.js';
import { confirmed } from './confirm.js';
import { announce, byId, element, showRows } from './dom.js';
import { ago, count, day, moment, plural } from './format.js';
import { storeKey, storedKey } from './login.js';

/** Keys that are listed; of more than that the latest. */
const LISTED_MAX = 200;
const DAY_MS = 86_400_000;
/** Between two requests for the list. */
const EVERY_MS = 10_000;

const ROLES = {
  predict: 'predictions and rankings',
  observe: 'observations and items',
  operate: 'models, versions, quality, users; and predict',
  admin: 'keys, deletions, erasure; and all of the others',
};

export class Keys {
  #guarded;
  #asked = 0;

  constructor({ guarded }) {
    this.#guarded = guarded;
    byId('new-key').append(newKeyForm({ guarded, create: (key) => this.#create(key) }));
    byId('key-hide').addEventListener('click', () => this.#hide());
  }

  /** Lists the keys, if the key of the page may see them; at most every few seconds. */
  async refresh({ now = false } = {}) {
    if (!now && Date.now() - this.#asked < EVERY_MS) return;
    this.#asked = Date.now();
    const keys = await api.listKeys().catch((problem) => {
      // 403: the key of the page is for something else.
      if (problem.status === 403) return null;
      throw problem;
    });
    byId('keys').hidden = keys === null;
    if (keys !== null) this.#show(keys.keys);
  }

  #show(keys) {
    const valid = keys.filter((key) => stateOf(key) === 'valid').length;
    byId('keys-caption').textContent =
      keys.length === 0
        ? 'None: everybody who reaches this node may do everything. The first key closes it.'
        : `${plural(valid, 'key')} in force, ${count(keys.length - valid)} revoked or expired.`;
    byId('keys-table').hidden = keys.length === 0;
    const listed = keys.slice(0, LISTED_MAX);
    byId('keys-more').hidden = keys.length <= LISTED_MAX;
    byId('keys-more').textContent = `The latest ${count(LISTED_MAX)} are listed; all by: celeris keys list`;
    const key = JSON.stringify(listed.map((entry) => [entry.id, stateOf(entry), aboutOf(entry)]));
    showRows(byId('keys-list'), key, () => listed.map((entry) => this.#row(entry)));
  }

  #row(key) {
    const state = stateOf(key);
    const revoke = () => this.#guarded(() => this.#revoke(key));
    const button = element(
      'button',
      { type: 'button', class: 'quiet', 'aria-label': `Revoke the key ${key.name}, ${key.id}…`, onclick: revoke },
      'revoke…',
    );
    return element(
      'tr',
      { 'data-testid': 'key', 'data-key': key.id, 'data-state': state },
      element('th', { scope: 'row' }, key.name, element('span', { class: 'hint' }, key.id)),
      element('td', {}, key.roles.join(', '), element('span', { class: 'hint about' }, aboutOf(key))),
      element('td', { class: 'state' }, state === 'valid' ? button : state),
    );
  }

  async #create(key) {
    const isFirst = storedKey() === null;
    const made = await api.createKey(key);
    // The node needs a key from now on, so the page takes the first one.
    if (isFirst) storeKey(made.key);
    byId('key-made').hidden = false;
    byId('key-secret').value = made.key;
    byId('key-made-name').textContent = made.name;
    byId('key-made-first').hidden = !isFirst;
    byId('key-secret').focus();
    byId('key-secret').select();
    announce(`The key ${made.name} is made`);
    await this.refresh({ now: true });
  }

  /** Takes the secret out of the page. */
  #hide() {
    byId('key-made').hidden = true;
    byId('key-secret').value = '';
  }

  async #revoke({ id, name }) {
    const answer = await confirmed({
      title: `Revoke the key ${name}?`,
      says: [`Requests by ${id} are answered 401 from then on, and its open streams end.`, 'It cannot be taken back.'],
      action: 'Revoke',
    });
    if (answer === null) return;
    await api.revokeKey(id);
    announce(`The key ${name} is revoked`);
    await this.refresh({ now: true });
  }
}

function stateOf({ revoked, expires }) {
  if (revoked !== null) return 'revoked';
  return expires !== null && expires <= Date.now() ? 'expired' : 'valid';
}

/** What bounds a key, and where it comes from. */
function aboutOf(key) {
  const bounds = [...key.models.map((name) => `model ${name}`), ...key.streams.map((name) => `stream ${name}`)];
  const rates = [
    key.requests_per_second === null ? null : `${key.requests_per_second} requests/s`,
    key.observations_per_second === null ? null : `${key.observations_per_second} observations/s`,
  ];
  const until = key.expires === null ? null : `until ${moment(key.expires)}`;
  const ends = key.revoked === null ? until : `revoked ${ago(key.revoked)}`;
  const made = `made ${day(key.created)}${key.created_by === null ? '' : ` by ${key.created_by}`}`;
  return [...bounds, ...rates, ends, made].filter((words) => words !== null).join(' · ');
}

const field = (words, input) => element('label', { class: 'labelled' }, element('span', {}, words), input);

const names = (text) => text.split(/[\s,]+/).filter((name) => name !== '');

const rate = (input) => (input.value === '' ? undefined : input.valueAsNumber);

/** `create(key)` makes a key of these fields; `guarded(work)` runs `work` and displays its errors. */
function newKeyForm({ guarded, create }) {
  const text = (attributes) => element('input', { spellcheck: 'false', autocapitalize: 'none', ...attributes });
  const name = text({ required: true, maxlength: '64', placeholder: 'shop', 'data-testid': 'new-key-name' });
  const models = text({ placeholder: 'all', 'data-testid': 'new-key-models' });
  const streams = text({ placeholder: 'all' });
  const number = () => element('input', { type: 'number', min: '0.01', step: 'any', placeholder: 'unlimited' });
  const [requests, observations] = [number(), number()];
  const days = element('input', { type: 'number', min: '1', max: '36500', step: '1', placeholder: 'never' });
  const choice = ([role, about]) =>
    element(
      'label',
      { class: 'choice' },
      element('input', { type: 'checkbox', name: 'role', value: role, 'data-testid': `new-key-${role}` }),
      element('span', {}, element('b', {}, role), element('span', { class: 'hint' }, about)),
    );
  const roles = element(
    'fieldset',
    { class: 'choices' },
    element('legend', {}, 'What is it for?'),
    ...Object.entries(ROLES).map(choice),
  );
  const submit = (event) => {
    event.preventDefault();
    return guarded(async () => {
      await create({
        name: name.value,
        roles: new FormData(form).getAll('role'),
        models: names(models.value),
        streams: names(streams.value),
        requests_per_second: rate(requests),
        observations_per_second: rate(observations),
        expires: days.value === '' ? undefined : Date.now() + days.valueAsNumber * DAY_MS,
      });
      form.reset();
      byId('new-key').open = false;
    });
  };
  const form = element(
    'form',
    { class: 'new-model', autocomplete: 'off', onsubmit: submit },
    field('Name', name),
    roles,
    field('Models, by name', models),
    field('Streams, by name', streams),
    field('Requests a second, on each node', requests),
    field('Observations a second, on each node', observations),
    field('Expires after days', days),
    element('button', { class: 'act', 'data-testid': 'create-key' }, 'Create key'),
  );
  return form;
}
