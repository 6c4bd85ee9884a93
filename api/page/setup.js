// The way from nothing to a trained model, step by step: for a node without models and for a model without a training.

import { command, curl } from './command.js';
import { byId, element, showRows } from './dom.js';
import { plural } from './format.js';
import { newModelForm } from './newmodel.js';
import { Training } from './training.js';

const EXAMPLES = { squared: 4, logistic: 1, implicit: 1 };

export class Setup {
  #form;
  #training;
  #train = element('div', { class: 'retraining' });

  /** `created(name)` opens a new model; `trained(job)` is called at the end of a training. */
  constructor({ guarded, created, model, trained }) {
    this.#form = newModelForm({ guarded, created });
    this.#training = new Training(this.#train, { model, guarded, done: trained });
  }

  /** Shows what is done and what comes next; `session` is null on a node without models. */
  show(session) {
    const model = session?.learner ?? null;
    const needed = model === null || (session.untrained && !session.isSelection);
    byId('setup').hidden = !needed;
    if (!needed) return;
    byId('setup-title').textContent = model === null ? 'Start with your own data' : `Set up ${model.name}`;
    this.#training.enable(model !== null && model.observations > 0);
    const described = (session?.catalog.attributes().size ?? 0) > 0;
    const key = JSON.stringify([model?.name, model?.observations, described]);
    showRows(byId('setup-steps'), key, () => this.#steps(model, described));
  }

  #steps(model, described) {
    const observed = (model?.observations ?? 0) > 0;
    return [
      this.#create(model),
      observe(model, observed),
      describe(model, described),
      step({
        name: 'train',
        title: 'Train',
        done: false,
        next: observed,
        body: [
          element(
            'p',
            { class: 'hint' },
            'A training learns from all observations what items have in common. Until then, scores are rough.',
          ),
          this.#train,
        ],
      }),
    ];
  }

  #create(model) {
    const made = model !== null;
    const body = made
      ? [element('p', { class: 'hint' }, `${model.name}, ${model.loss} loss, dimension ${model.dim}`)]
      : [this.#form];
    return step({ name: 'create', title: 'Create a model', done: made, next: !made, body });
  }
}

function step({ name, title, done, next, body }) {
  const state = done ? element('span', { class: 'badge' }, 'done') : null;
  return element(
    'li',
    { class: done ? 'done' : next ? 'next' : null, 'data-testid': `step-${name}`, 'data-done': String(done) },
    element('h2', {}, title, ' ', state),
    ...body,
  );
}

function observe(model, observed) {
  const name = model?.name ?? 'MODEL';
  const file = `celeris import --url ${location.origin} --model ${name} feedback.csv`;
  const label = EXAMPLES[model?.loss] ?? 1;
  const single = curl('POST', `/v1/models/${name}/observe`, { user: 'ada', item: 'item-1', label });
  const got = model === null ? 'none so far' : `${plural(model.observations, 'observation')} so far`;
  return step({
    name: 'observe',
    title: 'Send observations',
    done: observed,
    next: model !== null && !observed,
    body: [
      element('p', { class: 'hint' }, 'From a file of CSV, JSON lines or Parquet; columns are found by usual names, and --dry-run shows which:'),
      command('import a file', file),
      element('p', { class: 'hint' }, 'Or one at a time, as they happen:'),
      command('send one observation', single),
      element('p', { class: 'hint', role: 'status', 'data-testid': 'observed' }, got),
    ],
  });
}

function describe(model, described) {
  const path = `/v1/models/${model?.name ?? 'MODEL'}/items/item-1`;
  const body = { attributes: { title: 'The Third Man (1949)', genres: ['Drama'] } };
  return step({
    name: 'describe',
    title: 'Describe items, if you like',
    done: described,
    next: false,
    body: [
      element('p', { class: 'hint' }, 'Titles are shown instead of ids, and attributes can be filtered by.'),
      command('describe an item', curl('PUT', path, body)),
    ],
  });
}
