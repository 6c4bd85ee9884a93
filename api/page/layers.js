// The places of boxes in a graph: in columns from left to right, each right of all that it comes after. Edges over several
// columns get lanes between the boxes, so that they cross none.

/** Height of a lane. */
const LANE = 8;
const PASSES = 3;

/**
 * `boxes` are `{height, after}` with the indices of earlier boxes. Returns `places`, the `{x, y}` of each box; `edges` with the
 * `{x, y}` of the lanes that they pass, one for each column between their ends; and the size of it all.
 */
export function layout(boxes, { width, gapX, gapY }) {
  const depths = [];
  for (const { after } of boxes) depths.push(after.length === 0 ? 0 : 1 + Math.max(...after.map((other) => depths[other])));
  const cells = boxes.map(({ height }, index) => ({ height, column: depths[index], before: [], next: [] }));
  const columns = Array.from({ length: cells.length === 0 ? 0 : 1 + Math.max(...depths) }, () => []);
  for (const cell of cells) columns[cell.column].push(cell);
  const edges = boxes.flatMap(({ after }, to) => after.map((from) => ({ from, to, lanes: [] })));
  const lanes = new Map();
  for (const edge of edges) connect(edge, { cells, columns, lanes });
  order(columns);
  const height = stack(columns, gapY);
  const at = ({ column, y }) => ({ x: column * (width + gapX), y });
  return {
    places: cells.map(at),
    edges: edges.map((edge) => ({ ...edge, lanes: edge.lanes.map((lane) => ({ ...at(lane), y: lane.y + LANE / 2 })) })),
    width: columns.length * (width + gapX) - (columns.length > 0 ? gapX : 0),
    height,
  };
}

/** Leads an edge through the columns between its ends; edges from the same box share their lanes. */
function connect(edge, { cells, columns, lanes }) {
  let last = cells[edge.from];
  for (let column = last.column + 1; column < cells[edge.to].column; column += 1) {
    const key = `${edge.from} ${column}`;
    if (!lanes.has(key)) {
      lanes.set(key, { height: LANE, column, before: [], next: [] });
      columns[column].push(lanes.get(key));
      join(last, lanes.get(key));
    }
    last = lanes.get(key);
    edge.lanes.push(last);
  }
  join(last, cells[edge.to]);
}

function join(from, to) {
  from.next.push(to);
  to.before.push(from);
}

/** Moves cells near to those that they are joined with (the barycentre method of Sugiyama, 1981). */
function order(columns) {
  const number = () => columns.forEach((column) => column.forEach((cell, index) => (cell.rank = index)));
  const by = (side) => (column) => {
    const wanted = new Map(column.map((cell) => [cell, mean(cell[side].map(({ rank }) => rank)) ?? cell.rank]));
    column.sort((a, b) => wanted.get(a) - wanted.get(b));
    column.forEach((cell, index) => (cell.rank = index));
  };
  number();
  for (let pass = 0; pass < PASSES; pass += 1) {
    columns.forEach(by('before'));
    columns.toReversed().forEach(by('next'));
  }
  columns.forEach(by('before'));
}

const mean = (values) => (values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length);

/** Places the cells of each column below one another, in the middle of the height. */
function stack(columns, gap) {
  const tall = (column) => column.reduce((sum, { height }) => sum + height, gap * (column.length - 1));
  const height = Math.max(0, ...columns.map(tall));
  for (const column of columns) {
    let y = (height - tall(column)) / 2;
    for (const cell of column) {
      cell.y = y;
      y += cell.height + gap;
    }
  }
  return height;
}
