// Creates DOM elements. Texts are always added as text nodes, so titles and ids are never parsed as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** `element('li', {class: 'row', 'data-item': '7', onclick: f}, child, 'text')`; null children are omitted. */
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** An element of a drawing: as `element`, in SVG. */
export function drawing(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

/** A symbol of the sprite in the document: `star`, `up`, `down`. */
export function icon(name) {
  const attributes = { class: `icon ${name}`, viewBox: '0 0 24 24', 'aria-hidden': 'true' };
  return drawing('svg', attributes, drawing('use', { href: `#${name}` }));
}

export const byId = (id) => document.getElementById(id);

/** Fills a `dl` with `[name, value]` pairs; pairs whose value is null are omitted. */
export function facts(list, pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined);
  const pair = ([name, value]) =>
    element('div', {}, element('dt', {}, name), element('dd', { 'data-fact': name }, value));
  list.replaceChildren(...known.map(pair));
}

/** Reports a change to screen readers. */
export function announce(words) {
  byId('announcement').textContent = words;
}

/**
 * Replaces the rows of a list only if `key`, which stands for all that they show, has changed: a row keeps the focus
 * and its open details while nothing happens.
 */
export function showRows(list, key, rows) {
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren(...rows());
}
