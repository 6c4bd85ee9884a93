"""The baseline of `celeris evaluate --protocol context`: Vowpal Wabbit on the same clicks.

    python vw_context.py --first first.txt --second second.txt

Learns the rows of the first file, then predicts and learns each row of the second one. Prints one JSON object: the mean log
loss of these predictions by the best of the options below, which are chosen on the second file itself, in its favour.
"""

import argparse
import itertools
import json
import math
import pathlib

import vowpalwabbit

LEARNING_RATES = [0.05, 0.2, 0.5]

# Namespaces: u is the user, i the item, a its attributes, c the context.
INTERACTIONS = ["-q ac -q ua", "-q ac -q ua -q ic -q uc", "-q ac -q ua -q ui -q aa -q ic -q uc"]


def log_loss(label, probability):
    probability = min(max(probability, 1e-7), 1.0 - 1e-7)
    return -math.log(probability if label > 0 else 1.0 - probability)


def progressive(options, first, second):
    learner = vowpalwabbit.Workspace(f"--quiet --loss_function logistic --link logistic -b 22 --random_seed 1 {options}")
    for line in first:
        learner.learn(line)
    total = 0.0
    for line in second:
        total += log_loss(float(line.split(" ", 1)[0]), learner.predict(line))
        learner.learn(line)
    learner.finish()
    return total / len(second)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=pathlib.Path, required=True)
    parser.add_argument("--second", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    first, second = (path.read_text().splitlines() for path in (arguments.first, arguments.second))
    tried = [f"-l {rate} {interactions}" for rate, interactions in itertools.product(LEARNING_RATES, INTERACTIONS)]
    losses = [progressive(options, first, second) for options in tried]
    best = min(range(len(tried)), key=losses.__getitem__)
    print(json.dumps({"log_loss": losses[best], "options": tried[best], "tried": len(tried)}))


if __name__ == "__main__":
    main()
