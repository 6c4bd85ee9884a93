// Building elements. Text always arrives as text nodes, so no title or id from the service is ever read as markup.

const SVG = 'http://www.w3.org/2000/svg';

/** `element('li', {class: 'row', 'data-item': '7', onclick: f}, child, 'text')`; what is null is left out. */
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

/** 9742 as "9,742", in the reader's own way of writing numbers. */
export const count = (number) => number.toLocaleString();
