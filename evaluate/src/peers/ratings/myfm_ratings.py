"""The baseline of `celeris evaluate` for ratings: a Bayesian factorization machine, by Gibbs sampling of the library myFM.

    python myfm_ratings.py --train train.csv --test test.csv --rank N --iterations N --seed N [--blocks]

Lines of the first file are user, item and label, of the second user and item; users and items are numbers from 0. With
`--blocks` a user also has the features of the items that they rated in training, and an item those of its users, each
1 / sqrt(their number) (Rendle's "iu" and "ii", after SVD++). Prints one JSON object with the predicted labels.
"""

import argparse
import json
import pathlib

import myfm
import numpy
import scipy.sparse


def taken(rows, columns, shape):
    """Who has taken what in training, each row scaled to unit length; repeated pairs count once."""
    pairs = scipy.sparse.csr_matrix((numpy.ones(len(rows)), (rows, columns)), shape=shape)
    pairs.data[:] = 1.0
    counts = numpy.maximum(pairs.getnnz(axis=1), 1)
    return (scipy.sparse.diags(1.0 / numpy.sqrt(counts)) @ pairs).tocsr()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=pathlib.Path, required=True)
    parser.add_argument("--test", type=pathlib.Path, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--blocks", action="store_true")
    settings = parser.parse_args()
    train = numpy.loadtxt(settings.train, delimiter=",", ndmin=2)
    test = numpy.loadtxt(settings.test, delimiter=",", ndmin=2).astype(int)
    users, items, labels = train[:, 0].astype(int), train[:, 1].astype(int), train[:, 2]
    count_users = max(users.max(), test[:, 0].max()) + 1
    count_items = max(items.max(), test[:, 1].max()) + 1
    of_user = scipy.sparse.identity(count_users, format="csr")
    of_item = scipy.sparse.identity(count_items, format="csr")
    groups = [count_users, count_items]
    if settings.blocks:
        of_user = scipy.sparse.hstack([of_user, taken(users, items, (count_users, count_items))]).tocsr()
        of_item = scipy.sparse.hstack([of_item, taken(items, users, (count_items, count_users))]).tocsr()
        groups = [count_users, count_items, count_items, count_users]
    model = myfm.MyFMRegressor(rank=settings.rank, random_seed=settings.seed)
    blocks = [myfm.RelationBlock(users, of_user), myfm.RelationBlock(items, of_item)]
    model.fit(None, labels, X_rel=blocks, n_iter=settings.iterations, n_kept_samples=settings.iterations, group_shapes=groups)
    predicted = model.predict(None, [myfm.RelationBlock(test[:, 0], of_user), myfm.RelationBlock(test[:, 1], of_item)])
    print(json.dumps({"predictions": [round(float(value), 6) for value in predicted]}))


if __name__ == "__main__":
    main()
