// The ranking policies: their usual names, what each does, and the menu of them.

import { byId, element } from './dom.js';

/** Policies with `chance` draw at random, and their rows show propensities. */
export const POLICIES = {
  greedy: { name: 'Greedy', chance: false, does: 'Best score first, without exploration.' },
  epsilon_greedy: {
    name: 'ε-greedy',
    chance: true,
    does: 'Best score first, but each place goes to a random item with a probability of 5 %.',
  },
  softmax: { name: 'Softmax', chance: true, does: 'Drawn at random: the better the score, the more likely.' },
  squarecb: {
    name: 'SquareCB',
    chance: true,
    does: 'Drawn at random: the further below the best score, the less likely. Fades with the user’s observations.',
  },
  lin_ucb: { name: 'LinUCB', chance: false, does: 'Score plus one standard error: uncertain items rise.' },
  regcb: { name: 'RegCB', chance: false, does: 'The highest score that agrees with what the user said so far.' },
  thompson: {
    name: 'Thompson sampling',
    chance: true,
    does: 'Scores by weights drawn from the user’s posterior: the more uncertain an item, the more its score varies.',
  },
};

/** Why a policy cannot rank for `model`, or null if it can. */
function obstacle(policy, model) {
  const combines = model?.kind === 'selection' && model.strategy.name === 'exp4';
  if (policy !== 'thompson' || !combines) return null;
  return 'needs a single model; here several answer together';
}

/** The menu of policies; `chosen` is called after a choice. */
export class PolicyMenu {
  #menu = byId('policy');

  constructor(chosen) {
    const option = ([value, { name }]) => element('option', { value }, name);
    this.#menu.replaceChildren(...Object.entries(POLICIES).map(option));
    this.#menu.addEventListener('change', () => {
      this.#describe();
      chosen();
    });
    this.#describe();
  }

  get value() {
    return this.#menu.value;
  }

  get chance() {
    return POLICIES[this.value].chance;
  }

  /** Disables what cannot rank for `model`. */
  offer(model) {
    for (const option of this.#menu.options) {
      const { name } = POLICIES[option.value];
      const why = obstacle(option.value, model);
      option.disabled = why !== null;
      option.textContent = why === null ? name : `${name} (${why})`;
    }
    if (this.#menu.selectedOptions[0].disabled) this.#menu.value = 'greedy';
    this.#describe();
  }

  #describe() {
    byId('policy-does').textContent = POLICIES[this.value].does;
  }
}
