// The cluster as the node of this page knows it: its nodes, the owners of the logs, and what is wrong with them.

import * as api from './api.js';
import { byId, element, facts, showRows } from './dom.js';
import { clock, count, duration, plural } from './format.js';

/** When the node answered last. */
let answered = null;

/** Fetches and shows the cluster; shows nothing if the node is in none. Never throws: an old card says that it is old. */
export async function showCluster() {
  try {
    const reply = await api.getCluster();
    answered = Date.now();
    byId('cluster').hidden = !reply.enabled;
    if (reply.enabled) show(reply);
  } catch {
    if (answered !== null) {
      byId('cluster-caption').textContent = `As of ${clock(answered, { seconds: true })}: the node has not answered since.`;
    }
  }
}

function show({ map, status }) {
  byId('cluster-caption').textContent = `As node ${map.node} knows it.`;
  facts(byId('cluster-facts'), [
    ['Cluster', status.cluster],
    ['Nodes', nodesWords(status.nodes)],
    ['Coordinator', map.coordinator ?? 'none'],
    ['Shards', shardsWords(map.shards)],
    ['Map', `${map.revision.epoch}.${map.revision.number}`],
    ['Incarnation', count(status.incarnation)],
  ]);
  const problems = problemsOf(status);
  byId('cluster').dataset.problems = problems.length;
  showRows(byId('cluster-problems'), JSON.stringify(problems), () => problems.map(problemRow));
  const nodes = status.nodes.map((node) => describeNode(node, map));
  showRows(byId('cluster-nodes'), JSON.stringify(nodes), () => nodes.map(nodeRow));
  const logs = status.logs.map((log) => describeLog(log, map));
  showRows(byId('cluster-logs'), JSON.stringify(logs), () => logs.map(logRow));
}

const nodesWords = (nodes) => `${count(nodes.filter(({ live }) => live).length)} of ${count(nodes.length)} live`;

function shardsWords(shards) {
  const unowned = shards.filter(({ owner }) => owner === null).length;
  return unowned === 0 ? count(shards.length) : `${count(shards.length)}, ${count(unowned)} without an owner`;
}

/** What needs an operator: the node itself, and then its copies of the logs. */
function problemsOf({ failure, logs }) {
  const ofLogs = logs.filter(({ problem }) => problem !== null).map(({ log, problem }) => ({ of: log, problem }));
  return failure === null ? ofLogs : [{ of: 'this node', problem: failure }, ...ofLogs];
}

function problemRow({ of, problem }) {
  return element(
    'li',
    { 'data-testid': 'cluster-problem', 'data-of': of, class: 'fault' },
    element('b', {}, of),
    element('span', { class: 'why' }, problem),
  );
}

function describeNode({ node, url, live, starting, draining, owns }, map) {
  const state = live ? (draining ? 'draining' : 'live') : starting ? 'starting' : 'down';
  const roles = [node === map.coordinator ? 'coordinator' : null, node === map.node ? 'this node' : null];
  // A dead node owns nothing, whatever it said last.
  return { node, url, state, roles: roles.filter((role) => role !== null), owns: live ? owns : 0 };
}

function nodeRow({ node, url, state, roles, owns }) {
  const badges = roles.map((role) => element('span', { class: 'badge' }, role));
  return element(
    'tr',
    { 'data-testid': 'cluster-node', 'data-node': node, 'data-state': state },
    element('th', { scope: 'row' }, element('a', { href: `${url}/#operate`, title: url }, node), ...badges),
    element('td', { class: 'state' }, state),
    element('td', {}, plural(owns, 'log')),
  );
}

/** A shard is named with its partitions, the catalog is alone. */
function describeLog({ log, owner, epoch, lag, staleness_seconds: age, problem, phase }, map) {
  const shard = map.shards.find((other) => nameOf(other.shard) === log);
  const placed = shard ? shard.owner : map.coordinator;
  return {
    log,
    about: shard ? `partitions ${shard.first}–${shard.last}` : 'models and items',
    owner: ownerWords(owner, placed),
    epoch: count(epoch),
    lag: lag === null ? 'unknown' : count(lag),
    age: phase === 'owning' ? 'owned here' : ageWords(age),
    state: problem === null ? phase : 'fault',
  };
}

const nameOf = (shard) => `s${String(shard).padStart(2, '0')}`;

/** `owner` is that of the log, `placed` the node that is to own it. */
function ownerWords(owner, placed) {
  if (placed === owner) return owner ?? 'none';
  if (placed === null) return `none, was ${owner}`;
  return owner === null ? `none, next ${placed}` : `${owner}, next ${placed}`;
}

function ageWords(age) {
  if (age === null) return 'unknown';
  return age < 1 ? 'under 1 s' : duration(Math.floor(age));
}

function logRow({ log, about, owner, epoch, lag, age, state }) {
  return element(
    'tr',
    { 'data-testid': 'cluster-log', 'data-log': log, 'data-state': state },
    element('th', { scope: 'row' }, log, element('span', { class: 'hint' }, about)),
    element('td', { 'data-fact': 'owner' }, owner),
    element('td', {}, epoch),
    element('td', {}, lag),
    element('td', { 'data-fact': 'age' }, age),
  );
}
