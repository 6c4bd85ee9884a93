"""The baseline of `celeris-bench train`: ALS of the library `implicit` on the observations of a train job.

    python implicit_als.py --job job.json --factors N --regularization X --iterations N --threads N [--seed N]

Prints one JSON object: the seconds of each iteration. Writes `item_features.parquet` and `user_weights.parquet` beside
the job, for evaluation.
"""

import argparse
import json
import pathlib

import numpy
import pandas
import pyarrow
import pyarrow.parquet
import scipy.sparse
from implicit.als import AlternatingLeastSquares
from threadpoolctl import threadpool_limits


def write(path, name, ids, values_name, values):
    lists = pyarrow.array(list(values.astype(numpy.float32)), type=pyarrow.list_(pyarrow.float32()))
    pyarrow.parquet.write_table(pyarrow.table({name: pyarrow.array(list(ids), type=pyarrow.string()), values_name: lists}), path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", type=pathlib.Path, required=True)
    parser.add_argument("--factors", type=int, required=True)
    parser.add_argument("--regularization", type=float, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    settings = parser.parse_args()
    job = json.loads(settings.job.read_text())
    source = settings.job.parent / job["observations"]["path"]
    columns = ["user", "item", "label", "weight"]
    observations = pyarrow.parquet.read_table(source, columns=columns).to_pandas()
    observations = observations[observations["label"] > 0]
    users, user_ids = pandas.factorize(observations["user"])
    items, item_ids = pandas.factorize(observations["item"])
    excess = (observations["label"] * observations["weight"]).to_numpy(numpy.float32)
    pairs = scipy.sparse.csr_matrix((excess, (users, items)), shape=(len(user_ids), len(item_ids)))
    # The library expects the total confidence of a pair, which includes 1 once, however often the pair was observed; missing
    # pairs have 1.
    pairs.sum_duplicates()
    pairs.data += 1.0
    model = AlternatingLeastSquares(
        factors=settings.factors,
        regularization=settings.regularization,
        alpha=1.0,
        iterations=settings.iterations,
        num_threads=settings.threads,
        calculate_training_loss=False,
        random_state=settings.seed,
    )
    seconds = []
    # The library recommends one BLAS thread, because it has its own threads.
    with threadpool_limits(1, "blas"):
        model.fit(pairs, show_progress=False, callback=lambda _iteration, elapsed, *_: seconds.append(elapsed))
    write(settings.job.parent / "item_features.parquet", "item", item_ids, "features", model.item_factors)
    write(settings.job.parent / "user_weights.parquet", "user", user_ids, "weights", model.user_factors)
    print(json.dumps({"iteration_seconds": seconds}))


if __name__ == "__main__":
    main()
