"""A trainer of one's own for Celeris: a truncated singular value decomposition, with numpy and pyarrow.

    python3 trainer.py --job job.json

Shows all that the trainer contract asks for (docs/rfcs/003-trainer-contract.md): read the observations, write
`item_features.parquet`, say what was measured, and write `_SUCCESS` last. Celeris adds the constant, the offsets and the
prior, and checks everything. A model uses it with

    {"name": "films", "dim": 16, "trainer": {"engine": "svd"}}

once the node's configuration names it:

    [training.trainers]
    svd = ["python3", "/opt/trainer.py", "--job", "{job}"]
"""

import argparse
import hashlib
import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Power iterations of the randomised decomposition (Halko, Martinsson and Tropp 2011).
ITERATIONS = 4

# Observations that an item's and a user's mean are drawn towards the overall mean by.
SHRINKAGE = 5.0


def report(phase, fraction):
    print(json.dumps({"phase": phase, "fraction": fraction}), flush=True)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Residuals:
    """What is left of labels once the means of items and users are taken off: a sparse matrix, users by items.

    Under implicit feedback there are no labels to take means of: what was taken is 1, however often, everything else 0.
    """

    def __init__(self, observations, loss):
        users = observations["user"].combine_chunks().dictionary_encode()
        items = observations["item"].combine_chunks().dictionary_encode()
        self.items = items.dictionary.to_pylist()
        self.rows, self.columns = users.indices.to_numpy(), items.indices.to_numpy()
        self.shape = (len(users.dictionary), len(self.items))
        labels = observations["label"].to_numpy().astype(np.float64)
        weights = observations["weight"].to_numpy().astype(np.float64)
        self.mean, self.item_means = 0.0, np.zeros(self.shape[1])
        if loss == "implicit":
            taken = labels > 0
            pairs = np.unique(np.stack([self.rows[taken], self.columns[taken]]), axis=1)
            self.rows, self.columns = pairs[0], pairs[1]
            self.values = np.ones(pairs.shape[1])
            return
        self.mean = np.average(labels, weights=weights)
        values = labels - self.mean
        self.item_means = self.means(self.columns, values, weights, self.shape[1])
        values -= self.item_means[self.columns]
        values -= self.means(self.rows, values, weights, self.shape[0])[self.rows]
        self.values = values * np.sqrt(weights)

    @staticmethod
    def means(places, values, weights, count):
        sums = np.bincount(places, values * weights, minlength=count)
        return sums / (np.bincount(places, weights, minlength=count) + SHRINKAGE)

    def times(self, right):
        product = np.zeros((self.shape[0], right.shape[1]))
        np.add.at(product, self.rows, self.values[:, None] * right[self.columns])
        return product

    def transposed_times(self, right):
        product = np.zeros((self.shape[1], right.shape[1]))
        np.add.at(product, self.columns, self.values[:, None] * right[self.rows])
        return product


def decompose(residuals, rank, seed):
    """The first right singular vectors times their singular values, items by rank."""
    random = np.random.default_rng(seed)
    basis = random.standard_normal((residuals.shape[1], rank))
    for step in range(ITERATIONS):
        basis, _ = np.linalg.qr(residuals.transposed_times(residuals.times(basis)))
        report("training", (step + 1) / ITERATIONS)
    _, sizes, turned = np.linalg.svd(residuals.times(basis), full_matrices=False)
    factors = np.zeros((residuals.shape[1], rank))
    factors[:, : basis.shape[1]] = basis @ turned.T * sizes
    return factors, sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", type=pathlib.Path, required=True)
    path = parser.parse_args().job
    job, folder = json.loads(path.read_text()), path.parent

    report("reading", 0.0)
    source = folder / job["observations"]["path"]
    if sha256(source) != job["observations"]["sha256"]:
        raise SystemExit(f"{source} is not the file that the job was written for")
    observations = pq.read_table(source, columns=["user", "item", "label", "weight"])
    residuals = Residuals(observations, job["loss"])
    factors, sizes = decompose(residuals, job["algorithm"]["rank"], job["seed"])

    report("writing", 0.0)
    output = folder / job["output"]
    table = pa.table(
        {
            "item": pa.array(residuals.items, pa.string()),
            "offset": pa.array(residuals.mean + residuals.item_means, pa.float32()),
            "features": pa.array(list(factors.astype(np.float32)), pa.list_(pa.float32())),
        }
    )
    features = output / "item_features.parquet"
    pq.write_table(table, features)
    (output / "metrics.json").write_text(json.dumps({"largest_singular_value": float(sizes[0])}))
    files = {features.name: {"rows": table.num_rows, "sha256": sha256(features)}}
    (output / "_SUCCESS").write_text(json.dumps({"format": 1, "files": files}))


if __name__ == "__main__":
    main()
