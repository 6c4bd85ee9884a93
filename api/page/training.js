// Retraining on request: the question before it, and its progress.

import * as api from './api.js';
import { confirmed } from './confirm.js';
import { announce, element } from './dom.js';
import { plural } from './format.js';

const POLL_MS = 300;
const FINAL = ['succeeded', 'rejected', 'failed'];

const WORDS = {
  queued: () => 'waiting for its turn',
  running: ({ phase }) => phase || 'running',
  succeeded: ({ version }) => (version === null ? 'done' : `done: v${version} serves`),
  rejected: ({ error, gate, why }) => `the new version does not serve: ${error || gate?.why || why}`,
  failed: ({ error, why }) => `it failed: ${error || why || 'see the log of the node'}`,
};

export const jobWords = (job) => (WORDS[job.state] ?? (() => job.state))(job);

/** A button with the progress of the training that it starts. */
export class Training {
  #button;
  #bar = element('progress', { max: '1', value: '0', 'aria-label': 'Progress of the training' });
  #words = element('span', { class: 'hint' });
  #job = element('div', { class: 'job', role: 'status', 'data-testid': 'job', hidden: true }, this.#bar, this.#words);
  #running = false;

  /** `guarded(work)` runs `work` and displays its errors; `done(job)` is called at the end of a training. */
  constructor(host, { model, guarded, done }) {
    const start = () => guarded(() => this.#start(model(), done));
    const button = { type: 'button', class: 'act', 'data-testid': 'retrain', onclick: start, disabled: true };
    this.#button = element('button', button, 'Retrain…');
    host.replaceChildren(this.#button, this.#job);
  }

  /** Whether there is something to train on. */
  enable(possible) {
    this.#button.disabled = this.#running || !possible;
  }

  async #start(model, done) {
    const { name, stream, observations, active_version: active } = model;
    const answer = await confirmed({
      title: `Retrain ${name}?`,
      says: [
        `A new version is trained in the background, on ${plural(observations, 'observation')} of the stream ${stream}.`,
        `v${active} serves meanwhile. The new version serves only if the gate does not find it worse on held-out data.`,
      ],
      action: 'Retrain',
      option: 'from scratch, without what the serving version has learnt (slower)',
    });
    if (answer === null) return;
    this.#running = true;
    this.#button.disabled = true;
    try {
      const job = await this.#follow(name, answer.option);
      announce(`Training of ${name}: ${jobWords(job)}`);
      await done(job);
    } catch (problem) {
      this.#job.hidden = true;
      throw problem;
    } finally {
      this.#running = false;
      this.#button.disabled = false;
    }
  }

  async #follow(name, cold) {
    this.#show({ state: 'queued', progress: 0 });
    const { job } = await api.retrain(name, cold);
    for (;;) {
      const status = await api.getJob(job);
      this.#show(status);
      if (FINAL.includes(status.state)) return status;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  #show(job) {
    this.#job.hidden = false;
    this.#job.dataset.state = job.state;
    this.#bar.value = job.state === 'succeeded' ? 1 : (job.progress ?? 0);
    this.#words.textContent = jobWords(job);
  }
}
