// The events of the model: creation, trainings, verdicts of the gate, switches of versions.

import { byId, element, showRows } from './dom.js';
import { ago, moment } from './format.js';

const LISTED_MAX = 60;

const GATE = {
  passed: (version) => `v${version} passed the gate`,
  not_judged: (version) => `v${version} passed the gate: too little data to compare`,
  forced: (version) => `v${version} serves although it is worse: the gate is forced`,
};

/** Texts of the event kinds; kinds with a `mark` are also drawn in the chart, with a `label` if they have one. */
const KINDS = {
  created: { words: () => 'model created' },
  triggered: { words: ({ details }) => `trigger: ${details.trigger ?? 'fired'}`, mark: 'cause' },
  training_started: { words: () => 'training started' },
  training_failed: { words: () => 'training failed', mark: 'fault' },
  gate_refused: { words: ({ after, details }) => `v${after ?? details.version} refused by the gate`, mark: 'fault' },
  gate_passed: {
    words: ({ after, details }) => (GATE[details.report?.verdict] ?? GATE.passed)(after ?? details.version),
  },
  activated: { words: ({ after }) => `v${after} serves`, mark: 'switch', label: ({ after }) => `v${after}` },
  rolled_back: {
    words: ({ after }) => `rolled back to v${after}`,
    mark: 'fault',
    label: ({ after }) => `↩ v${after}`,
  },
  pinned: { words: ({ after }) => `v${after} pinned` },
  unpinned: { words: ({ after }) => `v${after} unpinned` },
  pruned: { words: ({ before, after }) => `v${after ?? before} removed` },
  registered: { words: ({ after }) => `v${after} registered` },
  configured: { words: () => 'settings changed' },
  study_started: { words: () => 'study started' },
  study_ended: { words: () => 'study ended' },
  study_data_sent: { words: () => 'observations sent to a worker' },
  tuned: { words: () => 'settings of a study applied' },
};
const COLOURS = { cause: '--amber', fault: '--down', switch: '--accent' };

const kindOf = (event) => KINDS[event.kind] ?? { words: () => event.kind.replaceAll('_', ' ') };

/** The mark of an event in the chart; null if it has none. */
export function markOf(event) {
  const { mark, label } = kindOf(event);
  const at = event.details.observations;
  if (!mark || at === undefined) return null;
  const dash = mark === 'cause' ? [3, 3] : null;
  return { kind: event.kind, at, colour: COLOURS[mark], dash, label: label?.(event) };
}

/** Lists `events`, newest first. */
export function showEvents(events) {
  const key = JSON.stringify(events.map((event) => [event.number, ago(event.at)]));
  showRows(byId('events'), key, () => events.slice(0, LISTED_MAX).map(row));
}

function whyOf({ kind, by, why, details }) {
  // The event before it has the same reason: the trigger, or the verdict of the gate.
  if ((kind === 'training_started' && by === 'trigger') || (kind === 'activated' && by === 'job')) return '';
  if (kind !== 'configured') return why === 'on request' ? '' : why;
  return Object.keys(details)
    .filter((name) => name !== 'observations')
    .join(', ');
}

function row(event) {
  const { words, mark } = kindOf(event);
  return element(
    'li',
    { 'data-testid': 'event', 'data-kind': event.kind, class: mark ?? null },
    element('b', {}, words(event)),
    element('span', { class: 'when', title: moment(event.at) }, `by ${event.by}, ${ago(event.at)}`),
    element('span', { class: 'why' }, whyOf(event)),
  );
}
