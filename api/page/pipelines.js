// The view "Pipelines": the pipelines of the node, and of one its stages, what the optimizer has changed, and its objects.

import * as api from './api.js';
import { command } from './command.js';
import { byId, element, facts, showRows } from './dom.js';
import { flowOf } from './flow.js';
import { ago, count, listed, moment, plural, size } from './format.js';
import { DEPENDS, draw } from './graph.js';
import { asked, linkTo } from './route.js';
import { RunForm } from './run.js';

/** Most stages of a drawing. */
const DRAWN_MAX = 60;
/** Hexadecimal digits of the name of an object that are shown. */
const DIGITS = 10;

const NONE = [
  element('p', { class: 'hint' }, 'None yet. A pipeline is declared from a file, or from a folder that a fit has written:'),
  command('declare a pipeline', `celeris pipelines declare FOLDER --url ${location.origin}`),
];

export class Pipelines {
  /** The name of the pipeline that is shown, or to be shown; null before there is one. */
  open = null;
  #guarded;
  #opened;
  #run;
  /** Name and revision of what is shown, as JSON. */
  #shown = null;

  /** `opened()` is called when another pipeline is open; `context()` is that of the rankings, or null. */
  constructor({ guarded, opened, context }) {
    this.#guarded = guarded;
    this.#opened = opened;
    this.#run = new RunForm({ context });
  }

  /** Fetches and shows the list, and the open pipeline if it has another revision. */
  async refresh() {
    const { pipelines } = await api.listPipelines();
    pipelines.sort((a, b) => a.name.localeCompare(b.name));
    if (this.open === null && pipelines.length > 0) this.#choose(pipelines[0].name);
    this.#list(pipelines);
    const found = pipelines.find(({ name }) => name === this.open);
    const isGone = this.open !== null && found === undefined;
    byId('pipeline-gone').hidden = !isGone;
    byId('pipeline-gone').textContent = isGone ? `There is no pipeline “${this.open}”.` : '';
    if (found === undefined) this.#hide();
    else if (this.#shown !== keyOf(found)) await this.#describe(found.name);
  }

  #choose(name) {
    this.open = name;
    this.#opened();
  }

  #hide() {
    this.#shown = null;
    for (const part of ['pipeline', 'pipeline-try']) byId(part).hidden = true;
  }

  #list(pipelines) {
    const key = JSON.stringify([pipelines, this.open]);
    showRows(byId('pipelines'), key, () => pipelines.map((pipeline) => this.#row(pipeline)));
    showRows(byId('pipelines-none'), String(pipelines.length === 0), () => (pipelines.length === 0 ? NONE : []));
    byId('pipelines')
      .querySelectorAll('.when')
      .forEach((when, index) => {
        when.textContent = ago(pipelines[index].declared);
      });
  }

  #row({ name, revision, nodes }) {
    const here = name === this.open;
    const choose = (event) => {
      // As of any link, a new tab is the browser's matter.
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.#choose(name);
      this.#guarded(async () => {
        await this.refresh();
        byId('pipelines').querySelector('[aria-current]')?.focus();
      });
    };
    const { model, user } = asked();
    return element(
      'li',
      { 'data-testid': 'pipeline', 'data-pipeline': name },
      element(
        'a',
        { href: linkTo('pipelines', { model, user, pipeline: name }), 'aria-current': here ? 'true' : null, onclick: choose },
        name,
      ),
      element('span', { class: 'figure' }, `revision ${count(revision)}`),
      element('span', { class: 'why' }, `${plural(nodes, 'node')} · declared `, element('span', { class: 'when' })),
    );
  }

  async #describe(name) {
    const described = await api.getPipeline(name);
    if (name !== this.open) return;
    this.#shown = keyOf(described);
    byId('pipeline').hidden = false;
    byId('pipeline-name').textContent = name;
    facts(byId('pipeline-facts'), factsOf(described));
    const { plan, unfitted } = described;
    byId('pipeline-unfitted').hidden = plan !== null;
    byId('pipeline-unfitted').textContent =
      plan === null ? `It has no stages and cannot be run before it is fitted: it lacks ${listed(unfitted)}.` : '';
    byId('pipeline-plan').hidden = plan === null;
    if (plan !== null) showPlan(described);
    this.#run.offer(described);
  }
}

const keyOf = ({ name, revision, declared }) => JSON.stringify([name, revision, declared]);

const named = (names) => (names.length === 0 ? 'none' : listed(names));

function factsOf({ revision, declared, dim, depends_on: depends, item_fields: item, context_fields: context, declaration }) {
  return [
    ['Revision', count(revision)],
    ['Declared', moment(declared)],
    ['Dimension', dim === null ? 'known once it is fitted' : count(dim)],
    ['Depends on', DEPENDS[depends].words],
    ['Attributes of items', named(item)],
    ['Fields of contexts', named(context)],
    ['Nodes', count(Object.keys(declaration.nodes).length)],
    ['Output', declaration.output],
  ];
}

function showPlan(described) {
  const { rewrites, objects } = described.plan;
  const flow = flowOf(described);
  const isDrawn = flow.length > 0 && flow.length <= DRAWN_MAX;
  byId('pipeline-graph').hidden = !isDrawn;
  byId('pipeline-graph').replaceChildren(...(isDrawn ? [draw(flow)] : []));
  byId('pipeline-undrawn').hidden = isDrawn;
  byId('pipeline-undrawn').textContent =
    flow.length === 0 ? 'Nothing is left to compute: the output is a constant.' : 'There are too many stages to draw them.';
  byId('pipeline-stages').replaceChildren(...flow.map((stage) => stageRow(stage, flow)));
  byId('pipeline-rewrites-none').hidden = rewrites.length > 0;
  byId('pipeline-rewrites').hidden = rewrites.length === 0;
  byId('pipeline-rewrites').replaceChildren(...rewrites.map((rewrite) => element('li', { 'data-testid': 'rewrite' }, rewrite)));
  byId('pipeline-objects-none').hidden = objects.length > 0;
  byId('pipeline-objects-table').hidden = objects.length === 0;
  byId('pipeline-objects').replaceChildren(...objects.map(objectRow));
}

function stageRow({ stage, ops, nodes, reads, after, depends_on: depends, computed, shared_by: shared }, flow) {
  const read = [...after.map((index) => flow[index].stage), ...reads];
  const words = [
    `gives ${listed(nodes)}`,
    read.length === 0 ? null : `reads ${listed(read)}`,
    shared > 1 ? `shared by ${plural(shared, 'pipeline')}` : null,
  ];
  return element(
    'li',
    { 'data-testid': 'stage', 'data-stage': stage, class: `of-${depends}` },
    element('b', {}, `${stage}: ${ops.join(' → ')}`),
    element('span', { class: 'when' }, DEPENDS[depends].words),
    element('span', { class: 'why' }, `computed ${computed}; ${words.filter((part) => part !== null).join('; ')}`),
  );
}

function objectRow({ sha256, kind, bytes, shared_by: shared }) {
  return element(
    'tr',
    { 'data-testid': 'object', 'data-object': sha256 },
    element('th', { scope: 'row' }, kind),
    element('td', {}, element('code', { title: sha256 }, `${sha256.replace('sha256:', '').slice(0, DIGITS)}…`)),
    element('td', { 'data-fact': 'size' }, size(bytes)),
    element('td', { 'data-fact': 'shared' }, plural(shared, 'use')),
  );
}
