// The models and selections of the node: what each is, the way to it, and their creation and deletion.

import * as api from './api.js';
import { confirmed } from './confirm.js';
import { announce, byId, element, showRows } from './dom.js';
import { percent, plural } from './format.js';
import { newModelForm } from './newmodel.js';
import { linkTo } from './route.js';

export class Models {
  #guarded;
  #deleted;
  #listed = [];

  /** `created(name)` opens a new model; `deleted(name)` is called after a deletion. */
  constructor({ guarded, created, deleted }) {
    this.#guarded = guarded;
    this.#deleted = deleted;
    const made = async (name) => {
      byId('new-model').open = false;
      await created(name);
    };
    byId('new-model').append(newModelForm({ guarded, created: made }));
  }

  /** Lists `models`, of which `open` is the one on the page. */
  show(models, { open, user }) {
    this.#listed = models;
    const key = JSON.stringify([models.map(({ name, kind }) => [name, kind]), open, user]);
    showRows(byId('models'), key, () => models.map((model) => this.#row(model, { open, user })));
    byId('models')
      .querySelectorAll('.why')
      .forEach((why, index) => {
        why.textContent = about(models[index]);
      });
  }

  #row({ name, kind }, { open, user }) {
    const here = name === open;
    const remove = () => this.#guarded(() => this.#delete(this.#listed.find((model) => model.name === name)));
    return element(
      'li',
      { 'data-testid': 'model', 'data-model': name },
      element('a', { href: linkTo('operate', { model: name, user }), 'aria-current': here ? 'true' : null }, name),
      element(
        'button',
        { type: 'button', class: 'quiet', 'aria-label': `Delete ${kind} ${name}…`, onclick: remove },
        'delete…',
      ),
      element('span', { class: 'why' }),
    );
  }

  async #delete({ name, kind, stream, versions }) {
    const answer = await confirmed({
      title: `Delete ${kind} ${name}?`,
      says:
        kind === 'selection'
          ? ['Requests to it are answered 404 from then on. The models that it selects from stay.']
          : [
              `Its ${plural(versions ?? 0, 'version')} and its events are deleted for good; requests to it are answered 404.`,
              `The observations of the stream ${stream ?? name} stay in the log.`,
            ],
      action: `Delete ${name}`,
    });
    if (answer === null) return;
    await api.deleteModel(name);
    announce(`${name} is deleted`);
    await this.#deleted(name);
  }
}

function about(model) {
  if (model.unavailable) return `out of service: ${model.unavailable}`;
  const observations = plural(model.observations, 'observation');
  if (model.kind === 'selection') {
    const weight = (arm) => (model.weights?.[arm] === undefined ? arm : `${arm} ${percent(model.weights[arm], 0)}`);
    return `selection by ${model.strategy.name} among ${model.arms.map(weight).join(', ')} · ${observations}`;
  }
  const stream = model.stream === model.name ? '' : ` · stream ${model.stream}`;
  return `${model.loss} loss · dimension ${model.dim} · v${model.active_version} serves · ${observations}${stream}`;
}
