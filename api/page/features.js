// The parts of a model's features, and what a ranking has lacked of them.

import { byId, element, showRows } from './dom.js';
import { count, listed, plural } from './format.js';
import { linkTo } from './route.js';

/** Shows the parts of the features of a model, if its description has them. */
export function showFeatures({ name, features }, user) {
  const parts = features ?? [];
  byId('features').hidden = parts.length === 0;
  showRows(byId('features-parts'), JSON.stringify([name, parts, user]), () => parts.map((part) => row(part, name, user)));
}

function row({ part, pipeline, from, dim }, model, user) {
  const source = pipeline
    ? element('a', { href: linkTo('pipelines', { model, user, pipeline }) }, `pipeline ${pipeline}`)
    : words(from);
  return element(
    'tr',
    { 'data-testid': 'part', 'data-part': part },
    element('th', { scope: 'row' }, part),
    element('td', {}, source),
    element('td', {}, typeof dim === 'number' ? count(dim) : '–'),
  );
}

const words = (from) => (typeof from === 'string' ? from.replaceAll('_', ' ') : JSON.stringify(from ?? null));

/** Notes the parts that the scores of a ranking lack, if its reply names any. */
export function showMissing(missing) {
  const parts = missing ?? [];
  byId('missing').hidden = parts.length === 0;
  byId('missing').textContent =
    parts.length === 0
      ? ''
      : `Scored without ${plural(parts.length, 'part')} of the features: ${listed(parts)}. ` +
        `The fields of the context that ${parts.length === 1 ? 'it is' : 'they are'} computed from are absent.`;
}
