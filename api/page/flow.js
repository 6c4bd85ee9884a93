// Which stages of a pipeline read which. The plan names the nodes that each stage gives. What they are computed from is in the
// declaration, and in the names of the nodes that the optimizer adds for a linear model: `MODEL.INPUT` is its part over one
// of its inputs, `MODEL.total` the sum of the parts, and `MODEL.total.the item` that of those which depend on the item.

const SUM = 'total';
const OF_SUM = 'total.the ';

/**
 * The stages of a described pipeline in their order, each with `reads`, the fields that it reads itself, and `after`, the
 * indices of the stages that it reads.
 */
export function flowOf({ declaration: { nodes }, plan: { stages } }) {
  const names = new Names(nodes, stages);
  return stages.map((stage, index) => {
    const [reads, after, seen] = [new Set(), new Set(), new Set()];
    const follow = (name) => {
      if (seen.has(name)) return;
      seen.add(name);
      const giver = names.giver(name);
      // A stage follows those that it reads. A later one gives the node to others; here it is part of the work.
      if (giver !== undefined && giver < index) after.add(giver);
      else if (names.isField(name)) reads.add(names.field(name));
      else names.inputs(name).forEach(follow);
    };
    stage.nodes.forEach(follow);
    return { ...stage, reads: [...reads], after: [...after].sort((a, b) => a - b) };
  });
}

/** The nodes of a pipeline, declared and added. */
class Names {
  #nodes;
  /** The stage that gives each node. */
  #givers;
  #dependences;
  /** A number for each declared node, equal for nodes that compute the same: the plan keeps one of them. */
  #numbers = new Map();
  #numbered = new Map();
  /** The stage that gives a node of each number. */
  #kept = new Map();

  constructor(nodes, stages) {
    this.#nodes = nodes;
    this.#givers = new Map(stages.flatMap((stage, index) => stage.nodes.map((name) => [name, index])));
    this.#dependences = stages.map((stage) => stage.depends_on);
    for (const [name, giver] of this.#givers) {
      if (Object.hasOwn(nodes, name)) this.#kept.set(this.#number(name), giver);
    }
  }

  giver(name) {
    return this.#givers.get(name) ?? (Object.hasOwn(this.#nodes, name) ? this.#kept.get(this.#number(name)) : undefined);
  }

  isField(name) {
    if (Object.hasOwn(this.#nodes, name)) return this.#nodes[name].op === 'field';
    return /^(item|context)\./.test(name);
  }

  /** `item.NAME` or `context.NAME`. */
  field(name) {
    const node = Object.hasOwn(this.#nodes, name) ? this.#nodes[name] : null;
    return node === null ? name : `${node.of}.${node.name}`;
  }

  /** The nodes that a node is computed from. */
  inputs(name) {
    if (Object.hasOwn(this.#nodes, name)) {
      const added = this.#addedTo(name);
      // A model over parts reads their sum, or the only one.
      if (added.length > 0) return added.includes(`${name}.${SUM}`) ? [`${name}.${SUM}`] : added;
      return declared(this.#nodes[name]);
    }
    const dot = name.indexOf('.');
    if (dot < 0) return [];
    const [model, rest] = [name.slice(0, dot), name.slice(dot + 1)];
    if (rest === SUM) return this.#summands(model);
    if (rest.startsWith(OF_SUM)) return this.#partsOf(model, rest.slice(OF_SUM.length));
    return [rest];
  }

  #addedTo(model) {
    return [...this.#givers.keys()].filter((name) => name.startsWith(`${model}.`));
  }

  /** The parts of a model, or those of one dependence. */
  #partsOf(model, dependence = null) {
    const isPart = (name) => name !== `${model}.${SUM}` && !name.startsWith(`${model}.${OF_SUM}`);
    const fits = (name) => dependence === null || this.#dependences[this.#givers.get(name)] === dependence;
    return this.#addedTo(model).filter((name) => isPart(name) && fits(name));
  }

  /** The sums by dependence, and the parts that are in none of them. */
  #summands(model) {
    const sums = this.#addedTo(model).filter((name) => name.startsWith(`${model}.${OF_SUM}`));
    const added = new Set(sums.flatMap((sum) => this.inputs(sum)));
    return [...sums, ...this.#partsOf(model).filter((part) => !added.has(part))];
  }

  #number(name) {
    if (!Object.hasOwn(this.#nodes, name)) return name;
    if (!this.#numbered.has(name)) {
      const node = this.#nodes[name];
      const inputs = declared(node).map((input) => this.#number(input));
      const key = JSON.stringify({ ...node, input: null, inputs });
      if (!this.#numbers.has(key)) this.#numbers.set(key, this.#numbers.size);
      this.#numbered.set(name, this.#numbers.get(key));
    }
    return this.#numbered.get(name);
  }
}

const declared = ({ input, inputs }) => inputs ?? (input === undefined ? [] : [input]);
