"""The baseline of `celeris-bench bandits`: the policies of Vowpal Wabbit's `--cb_explore_adf`, over shared weights.

    python vw_regret.py --problem problem.json

Prints one JSON object: for each policy and seed, the regret at the problem's checkpoints. It runs as many seeds as it
can start within the problem's `budget_seconds`. Learning rates are Vowpal Wabbit's defaults; costs are negated rewards.
"""

import argparse
import json
import multiprocessing
import pathlib
import time

import numpy
import vowpalwabbit

import problem as problems


def play(task):
    problem, seed = task
    if time.time() > problem["deadline"]:
        return seed, None
    options = "--cb_explore_adf --noconstant --quiet --random_seed 1 "
    learners = {name: vowpalwabbit.Workspace(options + given) for name, given in problem["vw"].items()}
    regrets = {name: problems.Regret(problem) for name in learners}
    theta = problems.weights(problem, seed, 1)[0]
    draws = numpy.random.default_rng(seed)
    for turn in range(problem["rounds"]):
        rows = problems.contexts(problem, seed, turn, problem["arms"])
        lines = ["|f " + " ".join([f"{index}:{value:.8f}" for index, value in enumerate(row)]) for row in rows.tolist()]
        means = rows @ theta
        noise = problems.noise(problem, seed, turn)
        for name, learner in learners.items():
            propensities = numpy.array(learner.predict(lines))
            propensities /= propensities.sum()
            arm = int(draws.choice(len(propensities), p=propensities))
            shown = f"0:{-(means[arm] + noise):.6f}:{propensities[arm]:.6f} {lines[arm]}"
            learner.learn(lines[:arm] + [shown] + lines[arm + 1 :])
            regrets[name].add(turn, means, arm)
    return seed, {name: regret.curve for name, regret in regrets.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", type=pathlib.Path, required=True)
    problem = json.loads(parser.parse_args().problem.read_text())
    problem["deadline"] = time.time() + problem["budget_seconds"]
    curves = {name: {} for name in problem["vw"]}
    with multiprocessing.Pool(problem["processes"]) as pool:
        for seed, of_seed in pool.imap_unordered(play, [(problem, seed) for seed in problem["seeds"]]):
            for name, curve in (of_seed or {}).items():
                curves[name][seed] = curve
    print(json.dumps(curves))


if __name__ == "__main__":
    main()
