// Tests of the built client against a real node: the program that the variable CELERIS_BINARY names.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';

import { CelerisError, createClient } from '../dist/index.js';

let folder;
let node;
let url;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'celeris-'));
  const args = ['serve', '--listen', '127.0.0.1:0', '--data-dir', join(folder, 'data')];
  node = spawn(process.env.CELERIS_BINARY, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface(node.stdout)) {
    url = line.split(' ')[1];
    break;
  }
});

after(async () => {
  const ended = new Promise((resolve) => node.once('exit', resolve));
  node.kill();
  await ended;
  await rm(folder, { recursive: true });
});

const of = (model) => ({ params: { path: { model } } });

async function model(name, client = createClient({ url })) {
  const { response } = await client.POST('/v1/models', { body: { name, dim: 4, loss: 'logistic', triggers: {} } });
  assert.equal(response.status, 201);
  return client;
}

const observations = async (client, name, user) =>
  (await client.GET('/v1/models/{model}/users/{user}', { params: { path: { model: name, user } } })).data.observations;

test('an observation changes a prediction', async () => {
  const client = await model('changes');
  const predict = async () =>
    (await client.POST('/v1/models/{model}/predict', { ...of('changes'), body: { user: 'u', items: ['i'] } })).data.scores[0].score;
  const first = await predict();
  const replies = [];
  for (let k = 0; k < 3; k += 1) replies.push(await client.observe('changes', { user: 'u', item: 'i', label: 1 }));
  assert.deepEqual(replies.map((reply) => reply.user_epoch), [1, 2, 3]);
  assert.ok((await predict()) > first);
});

test('errors name the field', async () => {
  const client = await model('errors');
  await assert.rejects(client.observe('errors', { user: 'u', item: 'i', label: 7 }), (error) => {
    assert.ok(error instanceof CelerisError);
    assert.equal(error.status, 422);
    assert.equal(error.problem.errors[0].pointer, '/label');
    return true;
  });
  const missing = await client.GET('/v1/models/{model}', of('nothing'));
  assert.equal(missing.error.status, 404);
  await assert.rejects(createClient({ url: 'http://127.0.0.1:1', retries: 0 }).GET('/v1/models'), /no node answers/);
});

test('many observations are counted, and what is refused has its place', async () => {
  const client = await model('many');
  function* rows() {
    for (let k = 0; k < 12_000; k += 1) yield { user: `u${k % 50}`, item: 'i', label: k % 1000 === 0 ? 7 : 1 };
  }
  const summary = await client.observeMany('many', rows());
  assert.equal(summary.taken, 12_000 - 12);
  assert.deepEqual(summary.rejected.map(({ place }) => place), Array.from({ length: 12 }, (_, k) => k * 1000));
  const named = [{ user: 'w', item: 'i', label: 1, observation_id: 'once' }];
  assert.equal((await client.observeMany('many', named)).taken, 1);
  assert.equal((await client.observeMany('many', named)).duplicates, 1);
});

test('a repeated request counts once', async () => {
  let requests = 0;
  // Every second response is lost after the node has answered.
  const losing = async (request) => {
    const response = await fetch(request);
    requests += 1;
    if (requests % 2 === 1) {
      await response.arrayBuffer();
      throw new TypeError('the response was lost');
    }
    return response;
  };
  const sure = await model('lost');
  const client = createClient({ url, fetch: losing });
  for (let k = 0; k < 4; k += 1) await client.observe('lost', { user: 'u', item: 'i', label: 1 });
  const summary = await client.observeMany('lost', Array.from({ length: 100 }, () => ({ user: 'v', item: 'i', label: 1 })));
  assert.equal(requests, 10);
  assert.equal(summary.taken + summary.duplicates, 100);
  assert.deepEqual([await observations(sure, 'lost', 'u'), await observations(sure, 'lost', 'v')], [4, 100]);
});

test('the key is sent', async () => {
  const seen = [];
  const answer = async (request) => {
    seen.push(request.headers.get('authorization'));
    return Response.json({ models: [] });
  };
  await createClient({ apiKey: 'k', fetch: answer }).GET('/v1/models');
  assert.deepEqual(seen, ['Bearer k']);
});
