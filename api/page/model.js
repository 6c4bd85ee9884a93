// The model of the ranking: its facts, its versions, and retraining.

import * as api from './api.js';
import { byId, count, element } from './dom.js';

const POLL_MS = 300;
const ERRORS_MAX = 1;
const FINAL = ['succeeded', 'rejected', 'failed'];
const SPANS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
];

/** Shows a model and its versions; `use(version)` is called to activate another version. */
export function showModel(model, versions, use) {
  const facts = [
    ['Version', `v${model.active_version}`],
    ['Dimension', count(model.dim)],
    ['Observations', count(model.observations)],
    ['Titles', count(model.items)],
    ['Recent error', model.recent_loss ? `${model.recent_loss.rmse.toFixed(3)} RMSE` : 'no feedback yet'],
  ];
  byId('model-name').textContent = model.name;
  byId('model-facts').replaceChildren(
    ...facts.flatMap(([name, value]) => [element('dt', {}, name), element('dd', { 'data-fact': name }, value)]),
  );
  byId('versions').replaceChildren(...versions.map((version) => versionRow(version, use)));
  byId('retrain').disabled = false;
}

function versionRow({ version, active, algorithm, created, metrics }, use) {
  const measured = Object.entries(metrics ?? {}).filter(([, value]) => typeof value === 'number');
  const choose = active
    ? element('span', { class: 'badge' }, 'serving')
    : element(
        'button',
        { type: 'button', class: 'quiet', 'aria-label': `Serve version ${version}`, onclick: () => use(version) },
        'serve',
      );
  const all = measured.flatMap(([name, value]) => [element('dt', {}, spaced(name)), element('dd', {}, figure(value))]);
  return element(
    'li',
    { 'data-testid': 'version', 'data-version': version },
    element(
      'details',
      {},
      element(
        'summary',
        {},
        element('span', { class: 'number' }, `v${version}`),
        element(
          'span',
          { class: 'about' },
          element('b', {}, errors(measured).join(' · ')),
          element('span', {}, [algorithm, ago(created)].filter(Boolean).join(' · ')),
        ),
      ),
      element('dl', { class: 'facts' }, ...all),
    ),
    choose,
  );
}

/** Error metrics of a version, those on held-out data first. */
function errors(measured) {
  const heldOut = (name) => /valid|test|held/.test(name);
  return measured
    .filter(([name]) => /rmse|mae/.test(name))
    .sort(([a], [b]) => heldOut(b) - heldOut(a))
    .slice(0, ERRORS_MAX)
    .map(([name, value]) => `${spaced(name)} ${figure(value)}`);
}

const spaced = (name) => name.replaceAll('_', ' ');
const figure = (value) => (Number.isInteger(value) ? count(value) : value.toPrecision(3));

/** Formats a time in Unix milliseconds relative to now. */
export function ago(created) {
  const passed = Date.now() - created;
  const [unit, length] = SPANS.find(([, span]) => passed >= span) ?? [];
  if (!unit) return 'just now';
  return new Intl.RelativeTimeFormat('en', { numeric: 'auto' }).format(-Math.floor(passed / length), unit);
}

/** Retrains and shows the progress; resolves to the finished job. */
export async function retrain(model) {
  const button = byId('retrain');
  button.disabled = true;
  showProgress({ state: 'queued', progress: 0 });
  try {
    const { job } = await api.retrain(model);
    let status = await api.getJob(job);
    while (!FINAL.includes(status.state)) {
      showProgress(status);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      status = await api.getJob(job);
    }
    showProgress(status);
    return status;
  } catch (problem) {
    byId('job').hidden = true;
    throw problem;
  } finally {
    button.disabled = false;
  }
}

function showProgress({ state, phase, progress, version, why, error }) {
  byId('job').hidden = false;
  byId('job').dataset.state = state;
  byId('job-progress').value = state === 'succeeded' ? 1 : (progress ?? 0);
  const words = {
    queued: 'waiting for its turn',
    running: phase || 'running',
    succeeded: version === null ? 'done' : `done: v${version} is serving`,
    rejected: `the new version was not taken: ${error || why || 'it was not better'}`,
    failed: `it failed: ${error || why || 'see the log of the node'}`,
  };
  byId('job-words').textContent = words[state] ?? state;
}
