// What both views show: the model with its versions, catalog and form of labels, and the user.

import * as api from './api.js';
import { Catalog } from './catalog.js';
import { feedbackOf } from './feedback.js';

export class Session {
  /** The model or selection; null before one is open. */
  model = null;
  /** The model with user states: for a selection, its first arm; all arms learn from the same log. */
  learner = null;
  /** Versions of a model, newest first. */
  versions = [];
  catalog = new Catalog();
  user = null;
  /** The form of the labels, replaced only if another is needed. */
  feedback = feedbackOf('squared', null);
  #form = null;

  /** Opens a model; `progress(loaded, total)` reports on the catalog. */
  async open(name, progress) {
    await this.refresh(name);
    await this.reload(progress);
  }

  /** Loads the catalog again. */
  async reload(progress) {
    const { name } = this.model;
    const catalog = await Catalog.load(name, progress);
    if (name === this.model.name) this.catalog = catalog;
  }

  /** Fetches the model and its versions; resolves to whether another version serves than before. */
  async refresh(name = this.model.name) {
    const model = await api.getModel(name);
    const learner = model.kind === 'selection' ? await api.getModel(model.arms[0]) : model;
    const { versions } = await api.listVersions(learner.name);
    const changed = this.learner?.name !== learner.name || this.learner.active_version !== learner.active_version;
    Object.assign(this, { model, learner, versions });
    this.#shape();
    return changed;
  }

  get active() {
    return this.versions.find((version) => version.active);
  }

  get untrained() {
    return this.active?.algorithm === 'untrained';
  }

  /** The fields that contexts of the stream have had, with their types. */
  get contextFields() {
    return this.learner.context_fields ?? [];
  }

  get isSelection() {
    return this.model.kind === 'selection';
  }

  #shape() {
    const range = this.model.label_range ?? this.learner.label_range ?? this.active?.label_range ?? null;
    const form = JSON.stringify([this.learner.loss, range]);
    if (form === this.#form) return;
    this.#form = form;
    this.feedback = feedbackOf(this.learner.loss, range);
  }
}
