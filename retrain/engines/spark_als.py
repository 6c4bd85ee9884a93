"""Trainer of the engine `spark`: alternating least squares of MLlib, following the trainer contract of Celeris.

    spark-submit [--master URL] spark_als.py --job job.json

Reads the `observations` of the job and writes `item_features.parquet`, `user_weights.parquet`, `metrics.json` and,
last, `_SUCCESS` into its `output` folder. The contract is described in docs/rfcs/003-trainer-contract.md of Celeris.

Everything is computed in the JVM, so executors need no Python. On a cluster, the folder of the job must be on storage
that the driver and the executors mount under the same path.
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import threading
import time

from pyspark.ml.feature import IndexToString, StringIndexer
from pyspark.ml.recommendation import ALS
from pyspark.sql import SparkSession, functions

# Defaults for settings that the job does not set: those of MLlib, except for the regularization, which suits ratings
# from 1 to 5.
ITERATIONS = 10
REGULARIZATION = 0.1
ALPHA = 1.0

# Smallest excess confidence of a taken pair: a normal float.
EXCESS_MIN = 1.2e-38

# Seconds between two polls of the progress of Spark.
LOOK_EVERY = 2.0


def report(phase, fraction):
    """Prints one line of progress, which the node also counts as a heartbeat."""
    print(json.dumps({"phase": phase, "fraction": round(fraction, 4)}), flush=True)


class Heartbeat:
    """Reports progress during one long call, but only if Spark has completed tasks since the last poll."""

    def __init__(self, context, phase, stages_expected):
        self.tracker = context.statusTracker()
        self.phase = phase
        self.stages_expected = stages_expected
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        report(self.phase, 0.0)
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def watch(self):
        first, last = None, None
        while not self.ended.wait(LOOK_EVERY):
            stages = [self.tracker.getStageInfo(stage) for stage in self.tracker.getActiveStageIds()]
            seen = sorted((stage.stageId, stage.numCompletedTasks) for stage in stages if stage is not None)
            if seen and seen != last:
                last = seen
                first = seen[0][0] if first is None else first
                report(self.phase, min((seen[-1][0] - first) / self.stages_expected, 0.99))


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def indexed(frame, column):
    """Returns the frame with a column `{column}_index`, and the ids by index."""
    model = StringIndexer(inputCol=column, outputCol=f"{column}_index", stringOrderType="alphabetAsc").fit(frame)
    return model.transform(frame), model.labelsArray[0]


def pairs_of(observations, loss):
    """Returns one rating per pair: MLlib supports neither weights nor, under implicit feedback, repeated pairs."""
    if loss == "implicit":
        taken = observations.where("label > 0")
        excess = functions.sum(functions.expr("double(weight) * double(label)"))
        # MLlib stores it as a float, where a smaller value would be 0, which means not taken.
        return taken.groupBy("user", "item").agg(functions.greatest(excess, functions.lit(EXCESS_MIN)).alias("label"))
    weighted = observations.where("weight != 1").limit(1).count() > 0
    if not weighted:
        return observations.select("user", "item", "label")
    mean = functions.expr("sum(weight * label) / sum(weight)").alias("label")
    return observations.groupBy("user", "item").agg(mean)


def write_factors(factors, ids, columns, path):
    """Writes the rows `id`, `features` of MLlib as one Parquet file with text ids, and returns their number."""
    named = IndexToString(inputCol="id", outputCol="name", labels=list(ids))
    part_folder = path.with_suffix(".parts")
    rows = named.transform(factors.withColumn("id", factors["id"].cast("double"))).select(*columns)
    rows.coalesce(1).write.mode("overwrite").parquet(part_folder.as_uri())
    (part,) = part_folder.glob("part-*.parquet")
    part.rename(path)
    shutil.rmtree(part_folder)
    return factors.count()


def train(spark, job, folder):
    algorithm = job["algorithm"]
    implicit = job["loss"] == "implicit"
    if job["loss"] == "logistic":
        raise SystemExit("MLlib's ALS minimises no logistic loss; retrain with the engine als, or choose another loss")
    seconds, started = {}, time.monotonic()
    report("reading", 0.0)
    source = folder / job["observations"]["path"]
    if sha256(source) != job["observations"]["sha256"]:
        raise SystemExit(f"{source}: its SHA-256 is not what the job says; write the file and the job again")
    observations = spark.read.parquet(source.as_uri()).select("user", "item", "label", "weight")
    pairs = pairs_of(observations, job["loss"])
    mean = 0.0
    if algorithm.get("centre", True) and not implicit:
        mean = pairs.select(functions.avg("label")).first()[0]
        pairs = pairs.withColumn("label", pairs["label"] - functions.lit(mean))
    pairs, users = indexed(pairs, "user")
    pairs, items = indexed(pairs, "item")
    columns = {"user_index": "int", "item_index": "int", "label": "float"}
    pairs = pairs.select(*(functions.col(name).cast(kind) for name, kind in columns.items())).cache()
    ratings = pairs.count()
    seconds["read_seconds"] = time.monotonic() - started

    started = time.monotonic()
    iterations = algorithm.get("iterations") or ITERATIONS
    regularization = algorithm.get("regularization")
    als = ALS(
        rank=algorithm.get("rank") or job["dim"] - 1,
        maxIter=iterations,
        regParam=REGULARIZATION if regularization is None else regularization,
        implicitPrefs=implicit,
        alpha=algorithm.get("alpha") or ALPHA,
        userCol="user_index",
        itemCol="item_index",
        ratingCol="label",
        seed=job["seed"],
    )
    # Each iteration has two shuffles of one or two stages each.
    with Heartbeat(spark.sparkContext, "training", stages_expected=4 * iterations):
        model = als.fit(pairs)
    seconds["fit_seconds"] = time.monotonic() - started

    started = time.monotonic()
    report("writing", 0.0)
    output = folder / job["output"]
    output.mkdir(parents=True, exist_ok=True)
    offset = functions.lit(mean).cast("float").alias("offset")
    name, features = functions.col("name"), functions.col("features")
    item_file, user_file = output / "item_features.parquet", output / "user_weights.parquet"
    item_rows = write_factors(model.itemFactors, items, [name.alias("item"), offset, features], item_file)
    report("writing", 0.5)
    user_rows = write_factors(model.userFactors, users, [name.alias("user"), features.alias("weights")], user_file)
    seconds["write_seconds"] = time.monotonic() - started
    figures = {"ratings": ratings, "iterations": iterations, "regularization": als.getRegParam(), **seconds}
    (output / "metrics.json").write_text(json.dumps(figures))
    files = {item_file.name: item_rows, user_file.name: user_rows}
    manifest = {
        "format": 1,
        "files": {name: {"rows": rows, "sha256": sha256(output / name)} for name, rows in files.items()},
    }
    unfinished = output / "_SUCCESS.tmp"
    unfinished.write_text(json.dumps(manifest))
    unfinished.rename(output / "_SUCCESS")
    report("writing", 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", type=pathlib.Path, required=True, help="the job file")
    path = parser.parse_args().job.resolve()
    job = json.loads(path.read_text())
    spark = SparkSession.builder.appName(f"celeris {job['model']} version {job['version']}").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    try:
        train(spark, job, path.parent)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
