"""The baseline of `celeris evaluate --protocol prequential`: matrix factorization by Vowpal Wabbit's `--rank`.

    python vw_stream.py --rows rows.csv --first N --seed N

Lines are user, item and label, in the order of their time. Learns the first N rows, then predicts each of the others before
it learns it. Prints one JSON object: the predictions by the best of the options below, which are chosen on these rows
themselves, in its favour.
"""

import argparse
import json
import pathlib

import vowpalwabbit

RANK = 10
REGULARIZATION = 1e-3
RATES = [0.02, 0.05, 0.1, 0.2]


def predictions(rows, first, options, seed):
    learner = vowpalwabbit.Workspace(
        f"--quiet -b 22 --random_seed {seed} -q ui --rank {RANK} --l2 {REGULARIZATION} --power_t 0 --decay_learning_rate 1 {options}"
    )
    predicted = []
    for number, (user, item, label) in enumerate(rows):
        line = f"|u u{user} |i i{item}"
        if number >= first:
            predicted.append(learner.predict(line))
        learner.learn(f"{label} {line}")
    learner.finish()
    return predicted


def squared_error(predicted, labels, low, high):
    return sum((min(max(one, low), high) - label) ** 2 for one, label in zip(predicted, labels))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    settings = parser.parse_args()
    rows = []
    for line in settings.rows.read_text().splitlines():
        user, item, label = line.split(",")
        rows.append((user, item, float(label)))
    first = settings.first
    known, labels = [label for _, _, label in rows[:first]], [label for _, _, label in rows[first:]]
    tried = []
    for rate in RATES:
        options = f"-l {rate}"
        predicted = predictions(rows, first, options, settings.seed)
        tried.append((squared_error(predicted, labels, min(known), max(known)), options, predicted))
    _, options, best = min(tried)
    print(json.dumps({"predictions": [round(one, 6) for one in best], "options": options, "tried": len(tried)}))


if __name__ == "__main__":
    main()
