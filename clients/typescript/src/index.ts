/**
 * Client of Celeris: every operation of its API, typed by its description, with the key of the caller and with repeats while
 * a node cannot answer.
 */

import createFetchClient, { type Client, type Middleware } from 'openapi-fetch';
import type { components, paths } from './api.js';

export type { components, paths };

/** A problem detail (RFC 9457): what is wrong, and with which field. */
export type Problem = components['schemas']['Problem'];

/** One observation. */
export type Observation = components['schemas']['ObserveBody'];

/** What became of many observations. */
export interface Summary {
  taken: number;
  duplicates: number;
  /** What was refused, with its place among the observations. */
  rejected: { place: number; problem: Problem }[];
}

export interface Options {
  /** The address of the node; `http://127.0.0.1:7117` by default. */
  url?: string;
  /** An API key or a token. */
  apiKey?: string;
  /** How often a request is sent again while the node cannot answer; 5 by default. */
  retries?: number;
  /** In place of the global `fetch`. */
  fetch?: (request: Request) => Promise<Response>;
}

/** A request that a node has refused, or that no node has answered. */
export class CelerisError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem | null,
    message: string,
  ) {
    super(message);
    this.name = 'CelerisError';
  }
}

const PASSING = [429, 502, 503, 504];
const WAIT_FIRST = 100;
const WAIT_MAX = 10_000;
/** Lines of one request. The next are sent when these are answered. */
const LINES_A_REQUEST = 5_000;

const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Operations that have the same effect twice as once, or whose body has an id by which they have. */
function mayRepeat(request: Request): boolean {
  const { pathname } = new URL(request.url);
  if (request.method !== 'POST') return request.method !== 'DELETE' || !/^\/v1\/models\/[^/]+$/.test(pathname);
  return /\/(predict|topk|recommend|observe|observations|evaluate-policy|run|items)$/.test(pathname);
}

/** Sends a request, and again while no node can answer it. */
async function patiently(
  send: (request: Request) => Promise<Response>,
  request: Request,
  retries: number,
): Promise<Response> {
  let wait = WAIT_FIRST;
  for (let attempt = 0; ; attempt += 1) {
    try {
      const response = await send(request.clone());
      const isOfLines = response.headers.get('content-type')?.startsWith('application/x-ndjson') ?? false;
      if (attempt >= retries || isOfLines || !PASSING.includes(response.status)) return response;
      const mayBeDone = response.status === 504 || (await response.clone().text()).includes('unknown-fate');
      if (mayBeDone && !mayRepeat(request)) return response;
      wait = Math.max(wait, Number(response.headers.get('retry-after') ?? 0) * 1000);
    } catch (failure) {
      if (attempt >= retries || !mayRepeat(request)) {
        const reason = failure instanceof Error ? String(failure.cause ?? failure.message) : String(failure);
        throw new CelerisError(0, null, `no node answers at ${new URL(request.url).origin}: ${reason}`);
      }
    }
    await sleep(Math.min(wait, WAIT_MAX));
    wait *= 2;
  }
}

/** An id by which a node learns an observation once, however often it is sent. */
export const newId = (): string => crypto.randomUUID();

export interface Celeris extends Client<paths> {
  /** Learns from one observation, which is on disk when this resolves. */
  observe(model: string, observation: Observation): Promise<components['schemas']['ObserveReply']>;
  /** Learns from many observations. The next are sent when those before are on disk. */
  observeMany(model: string, observations: Iterable<Observation>): Promise<Summary>;
}

/** A client of a node. Its `GET`, `POST` and so on are those of openapi-fetch: each resolves to `data` or `error`. */
export function createClient(options: Options = {}): Celeris {
  const { url = 'http://127.0.0.1:7117', apiKey, retries = 5, fetch: send = (request) => fetch(request) } = options;
  const client = createFetchClient<paths>({ baseUrl: url, fetch: (request) => patiently(send, request, retries) });
  const authorize: Middleware = {
    onRequest({ request }) {
      if (apiKey) request.headers.set('authorization', `Bearer ${apiKey}`);
      return request;
    },
  };
  client.use(authorize);

  async function observe(model: string, observation: Observation) {
    const body = { ...observation, observation_id: observation.observation_id ?? newId() };
    const reply = await client.POST('/v1/models/{model}/observe', { params: { path: { model } }, body });
    if (reply.data) return reply.data;
    throw errorOf(reply.response.status, (reply.error as Problem | undefined) ?? null);
  }

  async function observeMany(model: string, observations: Iterable<Observation>) {
    const summary: Summary = { taken: 0, duplicates: 0, rejected: [] };
    const prefix = newId();
    let place = 0;
    let batch: { place: number; line: string }[] = [];
    for (const observation of observations) {
      const named = { ...observation, observation_id: observation.observation_id ?? `${prefix}-${place}` };
      batch.push({ place, line: JSON.stringify(named) });
      place += 1;
      if (batch.length === LINES_A_REQUEST) {
        await sendBatch(model, batch, summary);
        batch = [];
      }
    }
    if (batch.length > 0) await sendBatch(model, batch, summary);
    return summary;
  }

  async function sendBatch(model: string, batch: { place: number; line: string }[], summary: Summary) {
    let left = batch;
    for (let attempt = 0; left.length > 0; attempt += 1) {
      if (attempt > retries) throw errorOf(503, null);
      if (attempt > 0) await sleep(Math.min(WAIT_FIRST * 2 ** attempt, WAIT_MAX));
      const headers: Record<string, string> = { 'content-type': 'application/x-ndjson' };
      if (apiKey) headers['authorization'] = `Bearer ${apiKey}`;
      const path = `${url.replace(/\/$/, '')}/v1/models/${encodeURIComponent(model)}/observations`;
      const body = left.map(({ line }) => line).join('\n');
      const response = await patiently(send, new Request(path, { method: 'POST', headers, body }), retries);
      const text = await response.text();
      if (!response.headers.get('content-type')?.startsWith('application/x-ndjson')) {
        throw errorOf(response.status, parsed(text));
      }
      left = counted(text, left, summary);
    }
  }

  return Object.assign(client, { observe, observeMany });
}

/** Counts the replies to lines. Returns the lines to send again. */
function counted<Line extends { place: number }>(text: string, lines: Line[], summary: Summary): Line[] {
  const again: Line[] = [];
  text.split('\n').forEach((reply, number) => {
    const line = lines[number];
    if (line === undefined || reply === '') return;
    const { error, duplicate } = JSON.parse(reply) as { error?: Problem; duplicate?: boolean };
    if (error === undefined) summary[duplicate ? 'duplicates' : 'taken'] += 1;
    else if (PASSING.includes(error.status)) again.push(line);
    else summary.rejected.push({ place: line.place, problem: error });
  });
  return again;
}

function parsed(text: string): Problem | null {
  try {
    return JSON.parse(text) as Problem;
  } catch {
    return null;
  }
}

function errorOf(status: number, problem: Problem | null): CelerisError {
  return new CelerisError(status, problem, problem?.detail ?? `the node answered ${status}`);
}
