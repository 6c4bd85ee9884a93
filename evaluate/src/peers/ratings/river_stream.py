"""The baseline of `celeris evaluate --protocol prequential`: BiasedMF of the library river.

    python river_stream.py --rows rows.csv --first N --seed N

Lines are user, item and label, in the order of their time. Learns the first N rows, then predicts each of the others before
it learns it. Prints one JSON object: the predictions by the best of the settings below, which are chosen on these rows
themselves, in its favour.
"""

import functools
import itertools

from river import optim, reco

from stream import print_best

FACTORS = 10
RATES = [0.025, 0.05]
REGULARIZATIONS = [0.02, 0.1]


def predictions(rate, regularization, rows, first, seed):
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


if __name__ == "__main__":
    tries = {
        f"rate {rate}, l2 {regularization}": functools.partial(predictions, rate, regularization)
        for rate, regularization in itertools.product(RATES, REGULARIZATIONS)
    }
    print_best(__doc__.splitlines()[0], tries)
