// The view "Operate": the cluster, sources and backups, quality over time, rewards, versions, trainings, exploration, the
// catalog, the models of the node and its keys.

import * as api from './api.js';
import { Browse } from './browse.js';
import { showCluster } from './cluster.js';
import { byId, facts } from './dom.js';
import { showEvents } from './events.js';
import { ExplorationChart } from './exploration.js';
import { showFeatures } from './features.js';
import { count, duration } from './format.js';
import { showJobs } from './jobs.js';
import { Keys } from './keys.js';
import { Models } from './models.js';
import { QualityChart } from './quality.js';
import { Rewards } from './rewards.js';
import { SelectionChart, stateOf } from './selection.js';
import { StudyChart } from './studies.js';
import { Training } from './training.js';
import { showTriggers } from './triggers.js';
import { showUpkeep } from './upkeep.js';
import { serveVersion, showVersions } from './versions.js';

const EVENTS_MAX = 200;

export class Operate {
  #session;
  #guarded;
  #changed;
  #quality = new QualityChart();
  #exploration = new ExplorationChart();
  #selection = new SelectionChart();
  #rewards = new Rewards();
  #study = new StudyChart();
  #keys;
  #models;
  #browse;
  #training;

  /**
   * `explain(item)` opens the card of an item, `created(name)` a model, `deleted(name)` is called after a deletion, and
   * `changed()` after another version may serve.
   */
  constructor(session, { guarded, explain, created, deleted, changed }) {
    this.#session = session;
    this.#guarded = guarded;
    this.#changed = changed;
    this.#browse = new Browse(explain);
    this.#keys = new Keys({ guarded });
    this.#models = new Models({ guarded, created, deleted });
    this.#training = new Training(byId('retraining'), { model: () => session.model, guarded, done: changed });
  }

  /** Shows the model of the session from the start. */
  async openModel() {
    const { model, catalog } = this.#session;
    await Promise.all([this.refresh(), this.#browse.show(model.name, catalog)]);
  }

  /** Fetches and shows what changes without the user. */
  async refresh() {
    await Promise.all([showCluster(), showUpkeep(), this.#keys.refresh(), this.#refreshModels()]);
  }

  /** Fetches and shows the cluster, which can be shown while no model can be reached. */
  refreshCluster() {
    return showCluster();
  }

  async #refreshModels() {
    const { model, user } = this.#session;
    byId('model-name').textContent = model.name;
    document.body.dataset.kind = model.kind;
    const { models } = await api.listModels();
    this.#models.show(models, { open: model.name, user });
    const rewards = this.#rewards.show(model.name);
    if (this.#session.isSelection) await this.#refreshSelection();
    else await this.#refreshModel();
    await rewards;
  }

  async #refreshSelection() {
    const { model, user } = this.#session;
    const report = await api.getSelection(model.name, stateOf(model, user));
    if (model.name !== this.#session.model.name) return;
    facts(byId('model-facts'), [
      ['Kind', 'selection'],
      ['Models', model.arms.join(', ')],
      ['Observations', count(model.observations)],
    ]);
    this.#selection.show(model, report, user);
  }

  async #refreshModel() {
    const { model, versions, feedback, catalog, user } = this.#session;
    const [quality, { events }, explored] = await Promise.all([
      api.getQuality(model.name),
      api.listEvents(model.name, EVENTS_MAX),
      api.getExploration(model.name),
    ]);
    if (model.name !== this.#session.model.name) return;
    facts(byId('model-facts'), [
      ['Serving', `v${model.active_version}`],
      ['Loss', model.loss],
      ['Labels', labelWords(this.#session)],
      ['Dimension', count(model.dim)],
      ['Observations', count(model.observations)],
      ['Items', count(catalog.total)],
      ['Half-life', model.half_life === null ? null : duration(model.half_life)],
    ]);
    this.#training.enable(model.observations > 0);
    showFeatures(model, user);
    showVersions(versions, (version) => this.#guarded(() => this.#serve(version)));
    this.#quality.show(quality, events, feedback.unit);
    this.#exploration.show(explored);
    showEvents(events);
    showTriggers(model);
    await Promise.all([showJobs(events), this.#study.refresh(model.name)]);
  }

  async #serve(version) {
    if (await serveVersion(this.#session.model, version)) await this.#changed();
  }
}

function labelWords({ model, active }) {
  const range = model.label_range ?? active?.label_range;
  return range ? `from ${range[0]} to ${range[1]}` : 'none seen by a training yet';
}
