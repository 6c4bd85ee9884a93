"""The baseline of `celeris evaluate --protocol prequential`: matrix factorization by Vowpal Wabbit's `--rank`.

    python vw_stream.py --rows rows.csv --first N --seed N

Lines are user, item and label, in the order of their time. Learns the first N rows, then predicts each of the others before
it learns it. Prints one JSON object: the predictions by the best of the options below, which are chosen on these rows
themselves, in its favour.
"""

import functools

import vowpalwabbit

from stream import print_best

RANK = 10
REGULARIZATION = 1e-3
RATES = [0.02, 0.05, 0.1, 0.2]


def predictions(options, rows, first, seed):
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


if __name__ == "__main__":
    tries = {f"-l {rate}": functools.partial(predictions, f"-l {rate}") for rate in RATES}
    print_best(__doc__.splitlines()[0], tries)
