// What the rankings of the model have earned: by day a line for each version and policy, and the sums of the days.

import * as api from './api.js';
import { Chart } from './chart.js';
import { byId, element, showRows } from './dom.js';
import { count, day, figure, plural } from './format.js';
import { POLICIES } from './policies.js';

const DAYS = 30;
const DAY_MS = 86_400_000;
/** The node counts once a minute at most. */
const EVERY_MS = 60_000;
/** Lines of the chart: those with the most rankings. */
const LINES = ['--accent', '--amber', '--down', '--soft'];

export class Rewards {
  #chart = new Chart(byId('rewards-chart'), { height: 190, x: { time: true } });
  #asked = { model: null, at: 0 };

  /** Shows the rewards of a model or selection, counted again at most once a minute. */
  async show(model) {
    const { model: before, at } = this.#asked;
    if (before === model && Date.now() - at < EVERY_MS) return;
    this.#asked = { model, at: Date.now() };
    const reply = await api.getRewards(model, DAYS).catch((problem) => {
      // The node counts for another request, or this key may not see them.
      if (problem.status !== 503 && problem.status !== 403) throw problem;
      this.#asked = { model: problem.status === 503 ? null : model, at: Date.now() };
      return null;
    });
    if (this.#asked.model !== model && this.#asked.model !== null) return;
    if (reply !== null) this.#draw(reply);
  }

  #draw(reply) {
    const lines = linesOf(reply.rows);
    const rewards = lines.reduce((sum, line) => sum + line.rewards, 0);
    const drawn = lines.filter((line) => line.rewards > 0).slice(0, LINES.length);
    byId('rewards-caption').textContent =
      reply.decisions === 0
        ? `No ranking on record in the last ${DAYS} days.`
        : `${plural(reply.decisions, 'ranking')} of the last ${DAYS} days` +
          `${reply.complete ? '' : ', a sample of more'}: ${plural(rewards, 'reward')}.`;
    byId('rewards-chart').hidden = rewards === 0;
    byId('rewards-table').hidden = lines.length === 0;
    const key = JSON.stringify(lines);
    showRows(byId('rewards-rows'), key, () => lines.map((line) => row(line, drawn.indexOf(line))));
    if (rewards > 0) this.#chart.show(described(reply.rows, drawn));
  }
}

const nameOf = ({ scored_by: by, version, policy, pool }) =>
  `${by} v${version} · ${pool ? 'validation pool' : (POLICIES[policy]?.name ?? policy)}`;

/** Sums over the days by version and policy, those with the most rankings first. */
function linesOf(rows) {
  const lines = new Map();
  for (const of of rows) {
    const name = nameOf(of);
    const line = lines.get(name) ?? { name, decisions: 0, slots: 0, rewards: 0, defaults: 0, reward: 0 };
    for (const what of ['decisions', 'slots', 'rewards', 'defaults', 'reward']) line[what] += of[what];
    lines.set(name, line);
  }
  return [...lines.values()].sort((one, other) => other.decisions - one.decisions);
}

function described(rows, drawn) {
  const days = rows.map((of) => of.day);
  const [first, last] = [Math.min(...days), Math.max(...days)];
  const x = Array.from({ length: (last - first) / DAY_MS + 1 }, (_, index) => first + index * DAY_MS);
  const valueOn = (name, time) => {
    const of = rows.filter((other) => other.day === time && nameOf(other) === name);
    const sum = (what) => of.reduce((all, other) => all + other[what], 0);
    return sum('rewards') === 0 ? null : sum('reward') / sum('rewards');
  };
  const series = drawn.map(({ name }, index) => ({
    values: x.map((time) => valueOn(name, time)),
    colour: LINES[index],
    width: 2.5,
  }));
  return {
    x,
    yLabel: 'mean reward (labels)',
    series,
    summary: `Mean reward by day of ${drawn.map(({ name }) => name).join(', ')}`,
    readout: (index) => {
      const known = series.map(({ values }, line) => [drawn[line].name, values[index]]);
      const words = known.filter(([, value]) => value !== null).map(([name, value]) => `${name} ${figure(value)}`);
      return `${day(x[index])} (UTC): ${words.length === 0 ? 'no reward' : words.join(', ')}`;
    },
  };
}

const swatch = (index) => element('span', { class: `swatch line-${index}`, 'aria-hidden': 'true' });

/** `line` is the number of its line in the chart, or -1. */
function row({ name, decisions, rewards, defaults, reward }, line) {
  return element(
    'tr',
    { 'data-testid': 'rewards-row', 'data-name': name },
    element(
      'th',
      { scope: 'row' },
      line >= 0 ? swatch(line) : null,
      name,
    ),
    element('td', {}, count(decisions)),
    element('td', {}, defaults > 0 ? `${count(rewards)} (${count(defaults)} by default)` : count(rewards)),
    element('td', { 'data-fact': 'mean' }, rewards === 0 ? '–' : figure(reward / rewards)),
    element('td', {}, figure(reward / Math.max(decisions, 1))),
  );
}
