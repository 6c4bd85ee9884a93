// Creates DOM elements. Texts are always added as text nodes, so titles and ids are never parsed as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** `element('li', {class: 'row', 'data-item': '7', onclick: f}, child, 'text')`; null children are omitted. */
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function drawn(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
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

/** A star from the sprite in the document. */
export function star() {
  return drawn('svg', { class: 'star', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, drawn('use', { href: '#star' }));
}

export const byId = (id) => document.getElementById(id);

/** Formats 9742 as "9,742", in the locale of the browser. */
export const count = (number) => number.toLocaleString();
