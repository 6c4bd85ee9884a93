// The trainings of the model, newest first, found by its events.

import * as api from './api.js';
import { byId, element, showRows } from './dom.js';
import { clock, day, duration, percent } from './format.js';
import { jobWords } from './training.js';

const LISTED_MAX = 8;

/** Finished jobs do not change. */
const finished = new Map();

async function jobOf(id) {
  if (finished.has(id)) return finished.get(id);
  // Old jobs are forgotten by the service, while their events remain.
  const job = await api.getJob(id).catch((problem) => {
    if (problem.status === 404) return null;
    throw problem;
  });
  if (job === null || job.finished !== null) finished.set(id, job);
  return job;
}

export async function showJobs(events) {
  const ids = events.filter((event) => event.kind === 'training_started').map((event) => event.details.job);
  const jobs = (await Promise.all(ids.slice(0, LISTED_MAX).map(jobOf))).filter((job) => job !== null);
  byId('jobs-empty').hidden = jobs.length > 0;
  const key = JSON.stringify(jobs.map(({ job, state, phase, progress }) => [job, state, phase, progress]));
  showRows(byId('jobs'), key, () => jobs.map(row));
}

function row(job) {
  const { job: id, state, why, created, finished: ended, progress, engine } = job;
  const took = ended === null ? `${percent(progress, 0)} of this phase` : `took ${duration((ended - created) / 1000)}`;
  return element(
    'li',
    { 'data-testid': 'job-row', 'data-job': id, 'data-state': state, class: state === 'failed' ? 'fault' : null },
    element('b', {}, jobWords({ ...job, gate: null, why: 'see its gate event' })),
    element('span', { class: 'when' }, `${day(created)}, ${clock(created)}`),
    element('span', { class: 'why' }, `${engine}, ${took}${why === 'on request' ? '' : `; ${why}`}`),
  );
}
