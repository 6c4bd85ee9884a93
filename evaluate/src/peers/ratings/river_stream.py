"""The baseline of `celeris evaluate --protocol prequential`: BiasedMF of the library river.

    python river_stream.py --rows rows.csv --first N --seed N

Lines are user, item and label, in the order of their time. Learns the first N rows, then predicts each of the others before
it learns it. Prints one JSON object: the predictions by the best of the settings below, which are chosen on these rows
themselves, in its favour.
"""

import argparse
import itertools
import json
import pathlib

from river import optim, reco

FACTORS = 10
RATES = [0.025, 0.05]
REGULARIZATIONS = [0.02, 0.1]


def predictions(rows, first, rate, regularization, seed):
    model = reco.BiasedMF(
        n_factors=FACTORS,
        bias_optimizer=optim.SGD(rate),
        latent_optimizer=optim.SGD(rate),
        weight_initializer=optim.initializers.Zeros(),
        latent_initializer=optim.initializers.Normal(mu=0.0, sigma=0.1, seed=seed),
        l2_bias=regularization,
        l2_latent=regularization,
    )
    predicted = []
    for number, (user, item, label) in enumerate(rows):
        if number >= first:
            predicted.append(model.predict_one(user=user, item=item))
        model.learn_one(user=user, item=item, y=label)
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
    for rate, regularization in itertools.product(RATES, REGULARIZATIONS):
        predicted = predictions(rows, first, rate, regularization, settings.seed)
        error = squared_error(predicted, labels, min(known), max(known))
        tried.append((error, f"rate {rate}, l2 {regularization}", predicted))
    _, options, best = min(tried)
    print(json.dumps({"predictions": [round(one, 6) for one in best], "options": options, "tried": len(tried)}))


if __name__ == "__main__":
    main()
