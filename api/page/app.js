// The page: its state, and the handling of user input.

import * as api from './api.js';
import { Browse } from './browse.js';
import { Card } from './card.js';
import { Catalog } from './catalog.js';
import { showErrors } from './chart.js';
import { byId, count, element } from './dom.js';
import { showExploration } from './exploration.js';
import { showLife } from './life.js';
import { retrain, showModel } from './model.js';
import { Ranking } from './ranking.js';
import { showRatings } from './ratings.js';
import { segmentOf, showSelection } from './selection.js';
import { freshUser, rememberUser, suggestedUsers } from './users.js';

const ROWS = 25;
const ROWS_MAX = 500;
/** The most candidates that one request may carry. */
const CANDIDATES_MAX = 10_000;
/** The maximum of the service, because all rated items leave the ranking; only the newest are drawn. */
const HISTORY_MAX = 10_000;
const EVENTS_MAX = 200;
const TYPING_MS = 120;
/** Polling interval of the model's state. */
const LIFE_MS = 2_000;

/** A short description of each policy; `chance` policies draw at random and show their propensities. */
const POLICIES = {
  greedy: { chance: false, does: 'always the best score first' },
  lin_ucb: { chance: false, does: 'with a bonus for what is uncertain' },
  thompson: { chance: true, does: 'by a taste that you might have' },
  epsilon_greedy: { chance: true, does: 'mostly the best, sometimes anything' },
  softmax: { chance: true, does: 'the better, the likelier' },
  squarecb: { chance: true, does: 'what seems worse less often, by how much worse' },
  regcb: { chance: false, does: 'as good as the past allows' },
};

const state = {
  model: null,
  user: null,
  policy: 'greedy',
  catalog: new Catalog(),
  history: [],
  rated: new Set(),
  /** Items whose rating was sent but not answered yet. */
  sending: new Set(),
  epoch: 0,
  genre: null,
  query: '',
  rows: ROWS,
  decision: null,
  asked: null,
};

const card = new Card(guarded);
const explain = (item) =>
  card.open(item, { model: learner(), user: state.user, epoch: state.epoch, catalog: state.catalog });
const ranking = new Ranking(byId('ranking'), { rate, explain });
const browse = new Browse(explain);

// --- opening -------------------------------------------------------------------------------------------------------

async function start() {
  ranking.wait(8);
  const { models } = await api.listModels();
  byId('no-model').hidden = models.length > 0;
  document.body.classList.toggle('empty', models.length === 0);
  if (models.length === 0) {
    byId('no-model-curl').textContent = createModelCommand();
    return;
  }
  const wanted = new URLSearchParams(location.search);
  state.user = wanted.get('user') || freshUser();
  const named = models.find((model) => model.name === wanted.get('model'));
  const model = named ?? models.find((model) => model.default) ?? models[0];
  byId('model').replaceChildren(...models.map(({ name }) => element('option', { value: name }, name)));
  byId('model-field').hidden = models.length < 2;
  byId('model').value = model.name;
  await openModel(model.name);
}

async function openModel(name) {
  ranking.wait(8);
  const model = await api.getModel(name);
  state.model = model;
  document.body.dataset.kind = model.kind;
  state.genre = null;
  const loaded = (items) => say(`loading titles: ${count(items)} of ${count(Math.max(items, model.items ?? 0))}`);
  loaded(0);
  const [catalog] = await Promise.all([Catalog.load(name, loaded), refreshModel()]);
  state.catalog = catalog;
  showGenres();
  await Promise.all([openUser(state.user), browse.show(name)]);
  const users = await suggestedUsers(learner());
  byId('users').replaceChildren(...users.map((user) => element('option', { value: user })));
}

async function openUser(user) {
  Object.assign(state, { user, epoch: 0, rows: ROWS, decision: null });
  Object.assign(state, { history: [], rated: new Set(), sending: new Set() });
  byId('user').value = user;
  byId('whose').textContent = user;
  const address = new URLSearchParams({ model: state.model.name, user });
  history.replaceState(null, '', `?${address}`);
  await refreshUser();
  await rank();
}

/** The model with user states: for a selection, its first arm; all arms learn from the same log. */
const learner = () => state.model.arms?.[0] ?? state.model.name;

// --- asking --------------------------------------------------------------------------------------------------------

/** Ranks the items that match the filter. A newer request aborts an older one. */
async function rank({ moves = false, seed } = {}) {
  state.asked?.abort();
  const asked = new AbortController();
  state.asked = asked;
  const matching = state.catalog.select(state);
  if (!rankable(matching)) return;
  const started = performance.now();
  const list = byId('ranking');
  list.setAttribute('aria-busy', 'true');
  const body = {
    user: state.user,
    k: Math.min(state.rows, matching.length),
    policy: state.policy,
    min_epoch: state.epoch,
    ...(seed === undefined ? {} : { seed }),
    ...(segmentOf(state.model) === null ? {} : { segment: segmentOf(state.model) }),
  };
  try {
    const reply = await bestOf(matching, body, asked.signal);
    state.decision = reply;
    ranking.show(reply.items, { catalog: state.catalog, moves, chance: POLICIES[state.policy].chance });
    byId('more').hidden = reply.items.length >= matching.length || state.rows >= ROWS_MAX;
    const took = Math.round(performance.now() - started);
    say(`ranked ${count(matching.length)} titles in ${took} ms${circumstances(reply)}`);
    list.dataset.epoch = reply.user_epoch;
    list.setAttribute('aria-busy', 'false');
  } catch (problem) {
    // An aborted request leaves the list to the request that replaced it.
    if (problem.name === 'AbortError') return;
    list.setAttribute('aria-busy', 'false');
    throw problem;
  }
}

/**
 * The best items that the user has not rated. Text search happens on the page, and selections only rank given items: in
 * these cases the matching items are sent.
 */
function bestOf(matching, body, signal) {
  const { name, kind } = state.model;
  if (state.query || kind === 'selection') {
    return api.topk(name, { ...body, items: matching.slice(0, CANDIDATES_MAX) }, signal);
  }
  const filter = state.genre === null ? {} : { filter: { eq: { field: 'genres', value: state.genre } } };
  return api.recommend(name, { ...body, ...filter, exclude: [...state.sending], exclude_seen: true }, signal);
}

/** Replaces the placeholder rows by a message after an error. */
function withoutRanking() {
  if (ranking.order.length > 0) return;
  showNothing('There is no ranking to show. Choose something else, or reload the page to try again.');
}

/** Whether there is anything to rank; otherwise shows a message. */
function rankable(matching) {
  const { model, catalog } = state;
  let missing = null;
  if (catalog.size === 0) {
    missing = `“${model.name}” has no titles yet. Put some with PUT /v1/models/${model.name}/items/{item}.`;
  } else if (matching.length === 0) {
    missing = state.query ? `No title left to rate matches “${state.query}”.` : 'You have rated everything here.';
  }
  if (missing !== null) {
    showNothing(missing);
    return false;
  }
  byId('nothing').hidden = true;
  return true;
}

function showNothing(words) {
  byId('nothing').textContent = words;
  byId('nothing').hidden = false;
  ranking.show([], { catalog: state.catalog, moves: false, chance: false });
  byId('ranking').setAttribute('aria-busy', 'false');
  byId('more').hidden = true;
  say('');
}

function circumstances({ arm, arms, cold, pool }) {
  if (arm) return ` · by ${arm}`;
  if (arms) return ` · by ${arms.length} models together`;
  if (pool) return ' · drawn at random for the validation pool';
  return cold ? ' · everyone’s taste so far' : '';
}

async function refreshUser() {
  const { user, catalog } = state;
  const reply = await api.getUser(learner(), user, HISTORY_MAX);
  if (user !== state.user) return;
  // Deleted observations have no item.
  state.history = reply.history.filter((event) => event.item !== null);
  state.epoch = Math.max(state.epoch, reply.user_epoch);
  for (const { item } of state.history) state.rated.add(item);
  showRatings(state.history.slice(0, EVENTS_MAX), { total: reply.observations, catalog });
  drawErrors();
}

function drawErrors() {
  const everyone = state.model.recent_loss?.rmse ?? null;
  showErrors(state.history.slice(0, EVENTS_MAX), { everyone, title: (item) => state.catalog.get(item).name });
}

async function refreshModel() {
  const { name, kind } = state.model;
  if (kind === 'selection') {
    byId('untrained').hidden = true;
    await showSelection(state.model, state.user);
    return;
  }
  const asked = [api.getModel(name), api.listVersions(name), showLife(name), showExploration(name)];
  const [model, { versions }] = await Promise.all(asked);
  if (name !== state.model.name) return;
  state.model = model;
  const untrained = versions.some((version) => version.active && version.algorithm === 'untrained');
  byId('untrained').hidden = !untrained;
  showModel(model, versions, (version) => guarded(() => serve(version)));
}

/** Polls for changes that happen without user input: training, activations, the loss. */
async function follow() {
  const { model } = state;
  if (model === null || document.visibilityState !== 'visible') return;
  if (model.kind === 'selection') {
    await showSelection(model, state.user);
    return;
  }
  const [version] = await Promise.all([showLife(model.name), showExploration(model.name)]);
  if (state.model.name === model.name && version !== state.model.active_version) await refreshModel();
}

// --- doing ---------------------------------------------------------------------------------------------------------

function rate(item, label) {
  const place = ranking.focusedPlace();
  ranking.mark(item, label);
  // Added before the reply, so that a ranking after another rating does not contain it.
  state.rated.add(item);
  state.sending.add(item);
  return guarded(async () => {
    const { model, user, decision } = state;
    const shown = decision?.logged && decision.items.some((slot) => slot.item === item);
    let reply;
    try {
      reply = await api.observe(model.name, {
        user,
        item,
        label,
        ...(shown ? { decision_id: decision.decision_id } : {}),
      });
    } catch (problem) {
      ranking.mark(item, 0);
      state.rated.delete(item);
      throw problem;
    } finally {
      state.sending.delete(item);
    }
    if (user === state.user) {
      rememberUser(user);
      state.epoch = Math.max(state.epoch, reply.user_epoch);
      announce(item, label, reply.predicted);
      await Promise.all([rank({ moves: true }), refreshUser()]);
      if (place !== null) ranking.focus(place);
    }
    await refreshModel();
    drawErrors();
  });
}

function announce(item, label, predicted) {
  const guess = typeof predicted === 'number' ? `, predicted ${predicted.toFixed(1)}` : '';
  byId('announcement').textContent =
    `${state.catalog.get(item).name}: ${label} of 5${guess}. The ranking has changed.`;
}

async function serve(version) {
  await api.activate(state.model.name, version);
  await refreshModel();
  await refreshUser();
  await rank({ moves: true });
}

async function retrainModel() {
  const { name } = state.model;
  const job = await retrain(name);
  if (name !== state.model.name || job.state !== 'succeeded') return;
  await refreshModel();
  await refreshUser();
  await rank({ moves: true });
}

// --- showing -------------------------------------------------------------------------------------------------------

function say(words) {
  byId('status').textContent = words;
}

function showGenres() {
  const chip = (genre, words) =>
    element(
      'button',
      { type: 'button', class: 'chip', 'aria-pressed': String(state.genre === genre), onclick: () => pickGenre(genre) },
      words,
    );
  const genres = state.catalog.genres();
  byId('genres').hidden = genres.length === 0;
  byId('genres').replaceChildren(chip(null, 'All'), ...genres.map((genre) => chip(genre, genre)));
}

function pickGenre(genre) {
  state.genre = genre;
  state.rows = ROWS;
  const chips = byId('genres').children;
  for (const chip of chips) chip.setAttribute('aria-pressed', String(chip.textContent === (genre ?? 'All')));
  return guarded(rank);
}

function showPolicy() {
  byId('policy-does').textContent = POLICIES[state.policy].does;
}

function createModelCommand() {
  const lines = [
    `curl -X POST ${location.origin}/v1/models`,
    "  -H 'content-type: application/json'",
    `  -d '{"name": "movies", "dim": 20}'`,
  ];
  return lines.join(' \\\n');
}

/** Runs `work` and displays its errors. */
async function guarded(work) {
  try {
    byId('notice').hidden = true;
    await work();
  } catch (problem) {
    if (problem.name === 'AbortError') return;
    withoutRanking();
    byId('notice-title').textContent = problem.title ?? 'Something went wrong on this page';
    byId('notice-detail').textContent = problem.detail ?? problem.message;
    byId('notice').hidden = false;
  }
}

// --- listening -----------------------------------------------------------------------------------------------------

let typing;
byId('search').addEventListener('input', (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    state.query = event.target.value.trim();
    state.rows = ROWS;
    guarded(rank);
  }, TYPING_MS);
});
byId('who').addEventListener('submit', (event) => {
  event.preventDefault();
  const user = byId('user').value.trim();
  if (user && user !== state.user && state.model) guarded(() => openUser(user));
});
byId('user').addEventListener('change', () => byId('who').requestSubmit());
byId('new-user').addEventListener('click', () => state.model && guarded(() => openUser(freshUser())));
byId('model').addEventListener('change', (event) => guarded(() => openModel(event.target.value)));
byId('policy').addEventListener('change', (event) => {
  state.policy = event.target.value;
  showPolicy();
  guarded(rank);
});
byId('more').addEventListener('click', () => {
  state.rows = Math.min(state.rows + ROWS, ROWS_MAX);
  // The same seed repeats the same draw, so the rows above do not change.
  guarded(() => rank({ seed: state.decision.seed }));
});
byId('retrain').addEventListener('click', () => guarded(retrainModel));
byId('notice-close').addEventListener('click', () => (byId('notice').hidden = true));

// A failed poll is retried at the next interval, so its error is not displayed.
setInterval(() => follow().catch(() => null), LIFE_MS);

showPolicy();
guarded(start);
