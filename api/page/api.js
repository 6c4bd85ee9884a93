// Client of the HTTP API: one function per call. Failures throw a `Problem` that can be displayed.

import { askForKey, storedKey } from './login.js';

/** A problem detail (RFC 9457) of the service, or an equivalent for network errors. */
export class Problem extends Error {
  constructor({ title, detail, status, pointer = null }) {
    super(detail || title);
    this.title = title;
    this.detail = detail;
    this.status = status;
    /** The place in the body of what is wrong, as a JSON pointer, or null. */
    this.pointer = pointer;
  }
}

async function call(method, path, { body, signal } = {}) {
  const request = { method, signal, headers: { accept: 'application/json, application/problem+json' } };
  const key = storedKey();
  if (key !== null) request.headers.authorization = `Bearer ${key}`;
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers['content-type'] = 'application/json';
  }
  let response;
  try {
    response = await fetch(path, request);
  } catch (failure) {
    if (failure.name === 'AbortError') throw failure;
    throw new Problem({
      title: 'The service cannot be reached',
      detail: 'It may have been stopped. Start it again and reload this page.',
      status: 0,
    });
  }
  const reply = await response.json().catch(() => null);
  if (response.status === 401 && (await askForKey(key, reply?.detail))) return call(method, path, { body, signal });
  if (response.ok && (reply !== null || response.status === 204)) return reply;
  throw new Problem({
    title: reply?.title || `The service answered ${response.status}`,
    detail: reply?.detail || response.statusText,
    status: response.status,
    pointer: reply?.errors?.[0]?.pointer,
  });
}

const at = (...segments) => ['/v1', ...segments.map(encodeURIComponent)].join('/');

export const getCluster = () => call('GET', at('cluster'));
export const listKeys = () => call('GET', at('keys'));
export const createKey = (key) => call('POST', at('keys'), { body: key });
export const revokeKey = (key) => call('DELETE', at('keys', key));
/** Nodes that read no sources, or know no backups, answer 404. */
export const listIngests = () => call('GET', at('ingests'));
export const listBackups = () => call('GET', at('backups'));
export const listModels = () => call('GET', at('models'));
export const createModel = (model) => call('POST', at('models'), { body: model });
export const deleteModel = (model) => call('DELETE', at('models', model));
export const getModel = (model) => call('GET', at('models', model));
export const listVersions = (model) => call('GET', at('models', model, 'versions'));
export const getQuality = (model) => call('GET', at('models', model, 'quality'));
export const getRewards = (model, days) => call('GET', `${at('models', model, 'rewards')}?days=${days}`);
export const getExploration = (model) => call('GET', at('models', model, 'exploration'));
export const listEvents = (model, limit) => call('GET', `${at('models', model, 'events')}?limit=${limit}`);

/** The state of a selection; `user` and `segment` are null unless it has a state for each. */
export function getSelection(model, { user, segment }) {
  const asked = Object.entries({ user, segment }).filter(([, value]) => value !== null);
  return call('GET', `${at('models', model, 'selection')}?${new URLSearchParams(asked)}`);
}
export const activate = (model, version) =>
  call('POST', at('models', model, 'versions', version, 'activate'), { body: {} });
export const retrain = (model, cold) => call('POST', at('models', model, 'retrain'), { body: { cold } });
export const listStudies = (model) => call('GET', at('models', model, 'studies'));
export const getStudy = (study) => call('GET', at('studies', study));
export const getJob = (job) => call('GET', at('jobs', job));
export const topk = (model, body, signal) => call('POST', at('models', model, 'topk'), { body, signal });
/** Recommends items from the whole catalog. */
export const recommend = (model, body, signal) => call('POST', at('models', model, 'recommend'), { body, signal });
export const observe = (model, body) => call('POST', at('models', model, 'observe'), { body });
export const getUser = (model, user, history) =>
  call('GET', `${at('models', model, 'users', user)}?history=${history}`);

/** Explains the score of `item` for `user`, reflecting at least `epoch` events. */
export function why(model, { user, epoch }, { item, limit }, signal) {
  const asked = new URLSearchParams({ limit, min_epoch: epoch });
  return call('GET', `${at('models', model, 'users', user, 'why', item)}?${asked}`, { signal });
}

/** The `k` items most similar to `item`. */
export const similar = (model, item, k, signal) =>
  call('GET', `${at('models', model, 'items', item, 'similar')}?${new URLSearchParams({ k })}`, { signal });

/** One page of the items that contain the text `q` and match the JSON `filter`; null parameters are omitted. */
export function findItems(model, question, signal) {
  const asked = Object.entries(question).filter(([, value]) => value !== null);
  return call('GET', `${at('models', model, 'items')}?${new URLSearchParams(asked)}`, { signal });
}

export const listPipelines = () => call('GET', at('pipelines'));
/** A pipeline with its stages, rewrites and objects. */
export const getPipeline = (pipeline) => call('GET', `${at('pipelines', pipeline)}?explain=true`);
/** Runs a pipeline on one item in one context. */
export const runPipeline = (pipeline, record) =>
  call('POST', at('pipelines', pipeline, 'run'), { body: { records: [record] } });

/** The filter that every item matches. Without a filter or a text, only items with attributes are listed. */
const EVERY_ITEM = JSON.stringify({ all: [] });

/** One page of the whole catalog, with `total`; `after` is the last item of the previous page. */
export const listItems = (model, limit, after) => findItems(model, { limit, after, filter: EVERY_ITEM });

/** Formats a filter for `findItems`; null asks for the whole catalog. */
export const filterText = (filter) => (filter === null ? EVERY_ITEM : JSON.stringify(filter));
