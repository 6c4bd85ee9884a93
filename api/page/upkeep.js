// What comes in and what is kept: sources that the node reads, how far behind it is, and its backups. A node that has none
// of these says so by 404, and nothing is shown.

import * as api from './api.js';
import { byId, element, showRows } from './dom.js';
import { ago, count, moment, size } from './format.js';

/** Between two requests, and before a node is asked again that has answered 404. */
const EVERY_MS = 10_000;
const ABSENT_MS = 300_000;

/** A list of the node that it may not have: asked for at most every few seconds. */
class Listing {
  #ask;
  #show;
  #next = 0;

  constructor(ask, show) {
    this.#ask = ask;
    this.#show = show;
  }

  async refresh() {
    if (Date.now() < this.#next) return;
    this.#next = Date.now() + EVERY_MS;
    try {
      this.#show(await this.#ask());
    } catch (problem) {
      if (problem.status !== 404 && problem.status !== 403) throw problem;
      this.#next = Date.now() + ABSENT_MS;
      this.#show(null);
    }
  }
}

const ingests = new Listing(api.listIngests, showIngests);
const backups = new Listing(api.listBackups, showBackups);

/** Fetches and shows both. */
export function showUpkeep() {
  return Promise.all([ingests.refresh(), backups.refresh()]);
}

/** Shows what the node has answered; null if it has no such list. */
export function showIngests(reply) {
  const listed = reply?.ingests ?? [];
  byId('ingests').hidden = listed.length === 0;
  const rows = listed.map((ingest) => {
    const partitions = ingest.partitions ?? [];
    const lags = partitions.map(({ lag }) => lag).filter((lag) => lag !== null && lag !== undefined);
    const lag = lags.length === 0 ? null : lags.reduce((sum, each) => sum + each, 0);
    return { ...ingest, lag, count: partitions.length };
  });
  showRows(byId('ingests-rows'), JSON.stringify(rows), () => rows.map(ingestRow));
}

function ingestRow({ name, source, state, problem, lag, count: partitions, observations, dead_letters: dead }) {
  const broken = problem !== null && problem !== undefined;
  return element(
    'tr',
    { 'data-testid': 'ingest', 'data-ingest': name, 'data-state': broken ? 'down' : state },
    element('th', { scope: 'row' }, name, element('span', { class: 'hint' }, wordsOf(source))),
    element('td', { class: 'state' }, broken ? `${state}: ${problem}` : state),
    element(
      'td',
      { 'data-fact': 'lag' },
      lag === null ? 'unknown' : count(lag),
      partitions > 1 ? element('span', { class: 'hint' }, `in ${count(partitions)} partitions`) : null,
    ),
    element('td', {}, count(observations ?? 0)),
    element('td', {}, count(dead ?? 0)),
  );
}

/** A source is named by a text, or by an object with a kind. */
function wordsOf(source) {
  if (typeof source === 'string') return source;
  return source?.kind ?? source?.type ?? '';
}

/** As `showIngests`. */
export function showBackups(reply) {
  byId('backups').hidden = reply === null;
  if (reply === null) return;
  const { backups: made, running } = reply;
  byId('backups-none').hidden = made.length + running.length > 0;
  byId('backups-table').hidden = made.length + running.length === 0;
  const rows = [
    ...running.map((copy) => ({ ...copy, to: 'being made', state: 'running' })),
    ...made.map((copy) => ({ ...copy, state: 'complete' })),
  ];
  const key = JSON.stringify(rows.map((copy) => [copy.id, copy.state, ago(copy.at)]));
  showRows(byId('backups-rows'), key, () => rows.map(backupRow));
}

function backupRow({ id, at, to, state, bytes, sent_bytes: sent }) {
  const sizes = bytes === undefined ? '–' : `${size(bytes)}, ${size(sent)} of it new`;
  return element(
    'tr',
    { 'data-testid': 'backup', 'data-backup': id, 'data-state': state },
    element('th', { scope: 'row', title: moment(at) }, ago(at)),
    element('td', {}, to),
    element('td', {}, sizes),
  );
}
