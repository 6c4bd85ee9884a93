// A line chart over uPlot, in the colours of the page, with a line of text for the point under the pointer.

import uPlot from './vendor/uPlot.esm.js';

import { element } from './dom.js';
import { clock, count, day } from './format.js';

const FONT = '12px system-ui, sans-serif';
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
/** Pixels between the labels of two marks. */
const GAP = 6;

const dark = matchMedia('(prefers-color-scheme: dark)');
const charts = new Set();
dark.addEventListener('change', () => charts.forEach((chart) => chart.redraw()));

/** Labels of a time axis in 24 hours; the date where a day begins. */
function times(_, splits, __, ___, step) {
  return splits.map((time, index) => {
    const dated = index === 0 || day(splits[index - 1]) !== day(time);
    if (step >= DAY_MS) return day(time);
    const hour = clock(time, { seconds: step < MINUTE_MS });
    return dated ? `${hour}\n${day(time)}` : hour;
  });
}

/**
 * Places for texts of the given `widths` centred at `at` within `[left, right]`; null for those that would touch one
 * that is placed already. The last ones are placed first.
 */
export function placed(texts, [left, right]) {
  let free = Infinity;
  return texts
    .toReversed()
    .map(({ at, width }) => {
      const start = Math.min(Math.max(at - width / 2, left), right - width);
      if (start + width + GAP > free) return null;
      free = start;
      return start;
    })
    .reverse();
}

/** Points without a neighbour on either side: a line alone would not show them. */
function lonely(plot, series) {
  const values = plot.data[series];
  const known = (index) => values[index] !== null && values[index] !== undefined;
  return values.flatMap((_, index) => (known(index) && !known(index - 1) && !known(index + 1) ? [index] : []));
}

export class Chart {
  #host;
  #canvas = element('div', { class: 'canvas', role: 'img' });
  #readout = element('figcaption', { class: 'readout' });
  #options;
  #plot = null;
  #shown = null;
  #key = null;

  /** `host` is a `figure`; `x` is `{time: true}` for Unix milliseconds, or `{whole: true}` for counts. */
  constructor(host, { height, x }) {
    this.#host = host;
    this.#options = { height, x };
    host.replaceChildren(this.#canvas, this.#readout);
    new ResizeObserver(() => this.#fit()).observe(this.#canvas);
    charts.add(this);
  }

  /**
   * Shows `series` of `{values, colour, dots, dash, width}` over `x`; null values are gaps. `marks` are vertical lines
   * `{at, colour, dash, label}`; `levels` are values that the scale must include, and `ceiling` its end.
   */
  show(shown) {
    this.#shown = { marks: [], levels: [], ...shown };
    // The point under the pointer stays while nothing has changed.
    const key = JSON.stringify(this.#shown);
    if (key === this.#key) return;
    this.#key = key;
    this.#canvas.setAttribute('aria-label', shown.summary);
    this.#host.dataset.points = shown.x.length;
    this.redraw();
  }

  redraw() {
    this.#plot?.destroy();
    this.#plot = null;
    const width = Math.floor(this.#canvas.clientWidth);
    // A hidden chart is drawn when its view is shown.
    if (width === 0 || this.#shown === null) return;
    const { x, series } = this.#shown;
    this.#plot = new uPlot(this.#described(width), [x, ...series.map(({ values }) => values)], this.#canvas);
    this.#say();
  }

  #fit() {
    const width = Math.floor(this.#canvas.clientWidth);
    if (width === 0) return;
    if (this.#plot === null) this.redraw();
    else if (width !== this.#plot.width) this.#plot.setSize({ width, height: this.#options.height });
  }

  #described(width) {
    const colour = this.#colours();
    const { x: points, series, xRange, levels, ceiling, xLabel, yLabel } = this.#shown;
    const { height, x } = this.#options;
    const grid = { stroke: colour('--line'), width: 1 };
    const axis = { stroke: colour('--soft'), font: FONT, labelFont: FONT, labelSize: 18, grid, ticks: { show: false } };
    const whole = { incrs: [1, 2, 5].flatMap((step) => [...Array(12).keys()].map((power) => step * 10 ** power)) };
    whole.incrs.sort((a, b) => a - b);
    const xAxis = x.time
      ? { values: times, size: 40 }
      : { ...whole, values: (_, splits) => splits.map(count), size: 26 };
    return {
      width,
      height,
      ms: 1,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false },
      padding: [18, 26, 0, 0],
      scales: {
        x: { time: Boolean(x.time), range: () => xRange ?? spread(points[0], points.at(-1)) },
        y: { range: (_, low, high) => this.#heights(low, high, levels, ceiling) },
      },
      axes: [
        { ...axis, ...xAxis, label: xLabel, space: 70 },
        { ...axis, label: yLabel, size: 46, space: 32 },
      ],
      series: [{}, ...series.map((line) => described(line, colour))],
      hooks: {
        draw: [(plot) => this.#mark(plot, colour)],
        setCursor: [() => this.#say()],
      },
    };
  }

  #heights(low, high, levels, ceiling) {
    const values = [low, high, ...levels].filter((value) => Number.isFinite(value));
    const [least, most] = [Math.min(0, ...values), Math.max(...values, 1e-6)];
    return [least, ceiling ?? most * 1.08];
  }

  #mark(plot, colour) {
    const { ctx, bbox } = plot;
    const { marks } = this.#shown;
    const scale = devicePixelRatio;
    const inside = marks.map((mark) => ({ ...mark, x: plot.valToPos(mark.at, 'x', true) }));
    ctx.save();
    ctx.font = `600 ${11 * scale}px system-ui, sans-serif`;
    ctx.lineWidth = 1.5 * scale;
    for (const { x, colour: name, dash } of inside) {
      ctx.strokeStyle = colour(name);
      ctx.setLineDash((dash ?? []).map((length) => length * scale));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    const named = inside.filter(({ label }) => label);
    const texts = named.map(({ x, label }) => ({ at: x, width: ctx.measureText(label).width }));
    const places = placed(texts, [bbox.left, bbox.left + bbox.width]);
    ctx.textBaseline = 'bottom';
    named.forEach(({ label, colour: name }, index) => {
      if (places[index] === null) return;
      ctx.fillStyle = colour(name);
      ctx.fillText(label, places[index], bbox.top - 3 * scale);
    });
    ctx.restore();
  }

  /** Shows the point under the pointer, or the last one. */
  #say() {
    const { x, readout } = this.#shown;
    const under = this.#plot?.cursor.idx;
    const index = Number.isInteger(under) ? under : x.length - 1;
    this.#readout.textContent = index >= 0 ? (readout(index) ?? '') : '';
  }

  /** Custom properties of the page, as colours for the canvas. */
  #colours() {
    const style = getComputedStyle(this.#host);
    return (name) => style.getPropertyValue(name).trim();
  }
}

/** The range of a time axis; a single time gets some room around it. */
const spread = (low, high) => (high > low ? [low, high] : [low - MINUTE_MS / 2, high + MINUTE_MS / 2]);

function described({ colour: name, dots = false, dash, width = 2 }, colour) {
  const stroke = colour(name);
  if (dots) return { stroke, paths: () => null, points: { show: true, size: 7, fill: stroke, stroke } };
  const points = { show: true, size: 6, fill: stroke, stroke, filter: lonely };
  return { stroke, width, dash, points: dash ? { show: false } : points };
}
