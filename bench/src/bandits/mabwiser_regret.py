"""The baseline of `celeris-bench bandits`: LinUCB and LinTS of MABWiser, one ridge regression per arm.

    python mabwiser_regret.py --problem problem.json

Prints one JSON object: for each policy and seed, the regret at the problem's checkpoints. It runs as many seeds as it
can start within the problem's `budget_seconds`.

MABWiser's `partial_fit` iterates over all arms for each reward, which takes most of its time. Here only the regression of
the shown arm is updated: the results are the same, and faster.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy
from mabwiser.mab import MAB, LearningPolicy

import problem as problems

POLICIES = {"lin_ucb": LearningPolicy.LinUCB, "thompson": LearningPolicy.LinTS}


def play(task):
    problem, policy, seed = task
    if time.time() > problem["deadline"]:
        return policy, seed, None
    arms = list(range(problem["arms"]))
    bandit = MAB(arms, POLICIES[policy](alpha=problem["alpha"], l2_lambda=problem["l2"]), seed=seed)
    models = [bandit._imp.arm_to_model[arm] for arm in arms]
    for model in models:
        model.init(problem["dim"])
    theta = problems.weights(problem, seed, len(arms))
    regret = problems.Regret(problem)
    for turn in range(problem["rounds"]):
        context = problems.contexts(problem, seed, turn, 1)
        arm = bandit._imp.predict(context)
        means = theta @ context[0]
        reward = means[arm] + problems.noise(problem, seed, turn)
        models[arm].fit(context, numpy.array([reward]))
        regret.add(turn, means, arm)
    return policy, seed, regret.curve


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", type=pathlib.Path, required=True)
    problem = json.loads(parser.parse_args().problem.read_text())
    problem["deadline"] = time.time() + problem["budget_seconds"]
    tasks = [(problem, policy, seed) for seed in problem["seeds"] for policy in POLICIES]
    curves = {policy: {} for policy in POLICIES}
    with multiprocessing.Pool(problem["processes"]) as pool:
        for policy, seed, curve in pool.imap_unordered(play, tasks):
            if curve is not None:
                curves[policy][seed] = curve
    print(json.dumps(curves))


if __name__ == "__main__":
    main()
