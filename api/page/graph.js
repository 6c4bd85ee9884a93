// A drawing of the stages of a pipeline. It is a picture; the list beside it has the same in words.

import { drawing } from './dom.js';
import { plural } from './format.js';
import { layout } from './layers.js';

const WIDTH = 174;
const LINE = 15;
const PAD = 9;
const EDGE = 1;
const LINES_MAX = 3;
/** Characters of a line that fit in a box, also in wide fonts. */
const FITTING = 21;

/** What a stage depends on, and in short when it is computed. */
export const DEPENDS = {
  nothing: { words: 'nothing', when: 'with the plan' },
  item: { words: 'item', when: 'with the version' },
  context: { words: 'context', when: 'once a request' },
  item_and_context: { words: 'item and context', when: 'for each candidate' },
};

/** Draws the stages of `flowOf`. */
export function draw(flow) {
  const boxes = flow.map((stage) => ({ stage, lines: linesOf(stage) }));
  const sized = boxes.map(({ stage, lines }) => ({ height: lines.length * LINE + 2 * PAD, after: stage.after }));
  const { places, edges, width, height } = layout(sized, { width: WIDTH, gapX: 32, gapY: 16 });
  const middle = (index) => places[index].y + sized[index].height / 2;
  const words = `${plural(flow.length, 'stage')} and ${plural(edges.length, 'connection')}, as in the list of stages`;
  const [w, h] = [width + 2 * EDGE, height + 2 * EDGE];
  return drawing(
    'svg',
    { class: 'flow', role: 'img', 'aria-label': words, width: w, height: h, viewBox: `${-EDGE} ${-EDGE} ${w} ${h}` },
    ...edges.map((edge) => line(edge, { places, middle })),
    ...boxes.map(({ stage, lines }, index) => box(stage, lines, { ...places[index], height: sized[index].height })),
  );
}

/** The lines of text in a box, with their classes. */
function linesOf({ stage, ops, nodes, reads, depends_on: depends }) {
  const line = (kind) => (text) => ({ kind, text });
  return [
    { kind: 'head', text: `${stage} · ${DEPENDS[depends].words}` },
    ...wrapped(ops.join(' → ')).map(line('ops')),
    ...(reads.length === 0 ? [] : wrapped(`reads ${reads.join(', ')}`).map(line('about'))),
    ...wrapped(`gives ${nodes.at(-1) ?? ''}`).map(line('about')),
    { kind: 'when', text: DEPENDS[depends].when },
  ];
}

/** Lines of whole words as far as they fit, and not too many of them. */
function wrapped(text) {
  const lines = [];
  for (const word of text.split(' ')) {
    const longer = lines.length === 0 ? word : `${lines.at(-1)} ${word}`;
    if (lines.length > 0 && longer.length <= FITTING) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  const kept = lines.slice(0, LINES_MAX);
  if (lines.length > LINES_MAX) kept[LINES_MAX - 1] = `${kept[LINES_MAX - 1].slice(0, FITTING - 2)} …`;
  return kept.map((line) => (line.length > FITTING ? `${line.slice(0, FITTING - 1)}…` : line));
}

function box({ stage, ops, nodes, depends_on: depends }, lines, { x, y, height }) {
  const stripe = (kind, from, share) =>
    drawing('rect', { class: `stripe of-${kind}`, x, y: y + from * height, width: 5, height: share * height });
  const stripes =
    depends === 'item_and_context'
      ? [stripe('item', 0, 0.5), stripe('context', 0.5, 0.5)]
      : [stripe(depends, 0, 1)];
  return drawing(
    'g',
    { class: 'stage', 'data-testid': 'stage-box', 'data-stage': stage, 'data-depends': depends },
    drawing('title', {}, `${stage}: ${ops.join(' → ')}; gives ${nodes.join(', ')}`),
    drawing('rect', { class: 'ground', x, y, width: WIDTH, height, rx: 6 }),
    ...stripes,
    ...lines.map(({ kind, text }, index) =>
      drawing('text', { class: kind, x: x + 14, y: y + PAD + (index + 0.76) * LINE }, text),
    ),
  );
}

/** A curve from the right of one box to the left of another, through the lanes between them. */
function line({ from, to, lanes }, { places, middle }) {
  const [begin, end] = [places[from].x + WIDTH, places[to].x];
  let path = `M${begin} ${middle(from)}`;
  let last = { x: begin, y: middle(from) };
  const bend = (x, y) => {
    const half = (x - last.x) / 2;
    path += ` C${last.x + half} ${last.y} ${x - half} ${y} ${x} ${y}`;
  };
  for (const lane of lanes) {
    bend(lane.x, lane.y);
    path += ` H${lane.x + WIDTH}`;
    last = { x: lane.x + WIDTH, y: lane.y };
  }
  bend(end - 6, middle(to));
  const tip = `M${end - 7} ${middle(to) - 4} L${end - 1} ${middle(to)} L${end - 7} ${middle(to) + 4} Z`;
  return drawing(
    'g',
    { class: 'edge', 'data-testid': 'edge', 'data-from': from, 'data-to': to },
    drawing('path', { class: 'way', d: path }),
    drawing('path', { class: 'tip', d: tip }),
  );
}
