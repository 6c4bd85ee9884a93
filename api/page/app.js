// The page: opens the node's models, keeps both views up to date, and handles the controls that they share.

import * as api from './api.js';
import { announce, byId, element } from './dom.js';
import { count } from './format.js';
import { storeKey } from './login.js';
import { Operate } from './operate.js';
import { Pipelines } from './pipelines.js';
import * as route from './route.js';
import { Session } from './session.js';
import { Setup } from './setup.js';
import { completeSignIn } from './signin.js';
import { Try } from './try.js';
import { freshUser, suggestedUsers } from './users.js';

/** Polling interval of the model's state. */
const FOLLOW_MS = 2_000;

/** Whether a sign-in that the address tells of was completed. */
let signedIn = false;

const session = new Session();
const trying = new Try(session, { guarded, remember });
const operate = new Operate(session, {
  guarded,
  explain: (item) => trying.explain(item),
  created: openModel,
  deleted: afterDeletion,
  changed: afterChange,
});
const pipelines = new Pipelines({ guarded, opened: remember, context: () => trying.context });
const setup = new Setup({ guarded, created: openModel, model: () => session.learner, trained: afterChange });

// --- opening -------------------------------------------------------------------------------------------------------

async function start() {
  if (!signedIn) {
    signedIn = true;
    await completeSignIn(storeKey);
  }
  const wanted = route.asked();
  session.user = wanted.user || freshUser();
  trying.context = wanted.context;
  const models = await listModels();
  if (models.length === 0) {
    welcome();
    return;
  }
  const named = models.find(({ name }) => name === wanted.model);
  if (wanted.model !== null && named === undefined) {
    unknown(wanted.model, models);
    return;
  }
  await openModel((named ?? models.find((model) => !model.unavailable) ?? models[0]).name);
}

/** Lists the models in the menu. */
async function listModels() {
  const { models } = await api.listModels();
  byId('model').replaceChildren(...models.map(({ name }) => element('option', { value: name }, name)));
  return models;
}

/** A node without models: only the first steps, until there is one. */
function welcome() {
  document.body.dataset.state = 'empty';
  setup.show(null);
}

/** The address names a model that the node does not have. */
function unknown(name, models) {
  document.body.dataset.state = 'unknown';
  byId('unknown').hidden = false;
  byId('unknown-title').textContent = `There is no model “${name}”`;
  const link = (model) =>
    element('a', { href: route.linkTo(route.view(), { model: model.name, user: session.user }) }, model.name);
  byId('unknown-models').replaceChildren(...models.map((model) => element('li', {}, link(model))));
}

async function openModel(name) {
  document.body.dataset.state = 'open';
  byId('unknown').hidden = true;
  if (![...byId('model').options].some((option) => option.value === name)) await listModels();
  byId('model').value = name;
  trying.wait();
  const loaded = (items, total) => trying.say(`loading items: ${count(items)} of ${count(total)}`);
  await session.open(name, loaded);
  trying.offerContext();
  remember();
  setup.show(session);
  byId('user').value = session.user;
  await Promise.all([trying.openModel(), operate.openModel()]);
  const users = await suggestedUsers(session.learner.name);
  byId('users').replaceChildren(...users.map((user) => element('option', { value: user })));
}

async function openUser(user) {
  session.user = user;
  byId('user').value = user;
  remember();
  await Promise.all([trying.openUser(), operate.refresh()]);
}

/** Puts what is shown into the address. */
function remember() {
  const { model, user } = session;
  const { context } = trying;
  route.remember({ model: model?.name ?? route.asked().model, user, context, pipeline: pipelines.open });
}

// --- following -----------------------------------------------------------------------------------------------------

/** After a training or a switch: another version may serve, and other items may be known. */
async function afterChange() {
  await session.refresh();
  await session.reload(() => null);
  setup.show(session);
  await Promise.all([trying.refresh(), operate.openModel()]);
}

async function afterDeletion(name) {
  const models = await listModels();
  if (models.length === 0) location.assign('/');
  else if (name === session.model.name) await openModel(models[0].name);
  else await operate.refresh();
}

/** Polls for changes that happen without user input: observations, trainings, switches. */
async function follow() {
  if (document.visibilityState !== 'visible') return;
  if (document.body.dataset.state === 'empty') await start();
  if (route.view() === 'pipelines') await pipelines.refresh();
  if (session.model === null) return;
  const { name } = session.model;
  const seen = session.learner.observations;
  const changed = await session.refresh(name).catch(async (problem) => {
    if (route.view() === 'operate') await operate.refreshCluster();
    throw problem;
  });
  if (byId('model').value !== name) return;
  trying.offerContext();
  if (changed) await afterChange();
  else if (session.untrained && session.learner.observations !== seen) await afterChange();
  else if (route.view() === 'operate') await operate.refresh();
}

/** One poll after the other, however long each takes. */
async function keepFollowing() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, FOLLOW_MS));
    // A failed poll is repeated, so its error is not displayed.
    await follow().catch(() => null);
  }
}

// --- errors --------------------------------------------------------------------------------------------------------

/** Runs `work` and displays its errors. */
async function guarded(work) {
  try {
    byId('notice').hidden = true;
    await work();
  } catch (problem) {
    if (problem.name === 'AbortError') return;
    byId('notice-title').textContent = problem.title ?? 'Something went wrong on this page';
    byId('notice-detail').textContent = problem.detail ?? problem.message;
    byId('notice').hidden = false;
  }
}

// --- listening -----------------------------------------------------------------------------------------------------

byId('who').addEventListener('submit', (event) => {
  event.preventDefault();
  const user = byId('user').value.trim();
  if (user && user !== session.user && session.model) guarded(() => openUser(user));
});
byId('user').addEventListener('change', () => byId('who').requestSubmit());
byId('new-user').addEventListener('click', () => session.model && guarded(() => openUser(freshUser())));
byId('model').addEventListener('change', (event) => guarded(() => openModel(event.target.value)));
byId('notice-close').addEventListener('click', () => (byId('notice').hidden = true));

route.follow((view) => {
  announce(route.titleOf(view));
  if (view === 'pipelines') guarded(() => pipelines.refresh());
  if (session.model === null) return;
  remember();
  if (view === 'operate') guarded(() => operate.refresh());
});
pipelines.open = route.asked().pipeline;
guarded(start);
if (route.view() === 'pipelines') guarded(() => pipelines.refresh());
keepFollowing();
