// The versions of the model: what the gate measured of each, which one serves, and the switch to another.

import * as api from './api.js';
import { confirmed } from './confirm.js';
import { announce, byId, element, showRows } from './dom.js';
import { ago, count, figure, metricName } from './format.js';

const METRICS = {
  train_rmse: 'RMSE on the training data',
  validation_rmse: 'RMSE on validation data',
  validation_recall_at_10: 'recall at 10 on validation data',
  validation_percentile_rank: 'mean rank on validation data',
};

/** `use(version)` is called to serve another version. */
export function showVersions(versions, use) {
  showRows(byId('versions'), JSON.stringify(versions), () => versions.map((version) => row(version, use)));
  byId('versions')
    .querySelectorAll('.origin')
    .forEach((origin, index) => {
      origin.textContent = originOf(versions[index]);
    });
}

/** Asks, and then lets `version` serve; resolves to whether it does. */
export async function serveVersion(model, { version, warning }) {
  const answer = await confirmed({
    title: `Serve version ${version} of ${model.name}?`,
    says: [
      `All answers of ${model.name} come from v${version} from then on, instead of v${model.active_version}.`,
      'No observation is lost: the states of users are computed under the version that serves. You can switch back.',
      ...(warning ? [warning] : []),
    ],
    action: `Serve v${version}`,
  });
  if (answer === null) return false;
  await api.activate(model.name, version);
  announce(`v${version} of ${model.name} serves`);
  return true;
}

function row(version, use) {
  const { version: number, active, metrics } = version;
  const choose = active
    ? element('span', { class: 'badge' }, 'serving')
    : element(
        'button',
        { type: 'button', class: 'quiet', 'aria-label': `Serve version ${number}…`, onclick: () => use(version) },
        'serve…',
      );
  const measured = Object.entries(metrics ?? {}).filter(([, value]) => typeof value === 'number');
  return element(
    'li',
    { 'data-testid': 'version', 'data-version': number },
    element(
      'details',
      {},
      element(
        'summary',
        {},
        element('span', { class: 'number' }, `v${number}`),
        element('span', { class: 'about' }, element('b', {}, verdict(version)), element('span', { class: 'origin' })),
      ),
      element('dl', { class: 'facts' }, ...measured.map(fact)),
    ),
    choose,
  );
}

const originOf = ({ algorithm, created, pinned }) =>
  [algorithm, ago(created), pinned ? 'pinned' : null].filter(Boolean).join(' · ');

/** Only figures of the same held-out data are comparable; the errors that trainers report are in the details. */
function verdict({ gate, algorithm }) {
  if (algorithm === 'untrained') return 'not trained';
  const held = gate?.holdout;
  if (!held || held.candidate === null) return 'not compared by the gate';
  const name = metricName(held.metric);
  const against = held.incumbent === null ? '' : `, v${gate.incumbent} had ${figure(held.incumbent)}`;
  return `${name} ${figure(held.candidate)} on held-out data${against}`;
}

const shown = (value) => (Number.isInteger(value) ? count(value) : value.toPrecision(3));

function fact([name, value]) {
  const words = METRICS[name] ?? name.replaceAll('_', ' ');
  return element('div', {}, element('dt', {}, words), element('dd', {}, shown(value)));
}
