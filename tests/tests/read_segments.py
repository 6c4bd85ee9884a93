"""Reads a stream's sealed segments with every reader that is installed.

Usage: read_segments.py FOLDER, where FOLDER is `observations` in a data directory. Prints one JSON object: for each
reader the number of rows, of users and of predictions, the sum of the labels, and the streams.
"""

import glob
import json
import sys


def with_duckdb(folder):
    import duckdb

    query = """
        select count(*), count(distinct "user"), sum(len(predictions)), sum(label::double), list(distinct stream)
        from read_parquet(?, hive_partitioning = true, hive_types_autocast = false)
    """
    return duckdb.execute(query, [f"{folder}/*/*.parquet"]).fetchone()


def with_pandas(folder):
    import pandas

    frame = pandas.read_parquet(folder)
    predictions = sum(len(row) for row in frame["predictions"])
    streams = [str(stream) for stream in frame["stream"].unique()]
    return len(frame), frame["user"].nunique(), predictions, frame["label"].astype("float64").sum(), streams


def with_pyarrow(folder):
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
    predictions = sum(len(row) for row in table["predictions"])
    labels = sum(table["label"].to_pylist())
    return len(table), len(set(table["user"].to_pylist())), predictions, labels, table["stream"].unique().to_pylist()


def with_spark(folder):
    from pyspark.sql import SparkSession, functions

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    frame = spark.read.parquet(folder)
    row = frame.select(
        functions.count("*"),
        functions.countDistinct("user"),
        functions.sum(functions.size("predictions")),
        functions.sum(functions.col("label").cast("double")),
        functions.collect_set("stream"),
    ).first()
    spark.stop()
    return tuple(row)


def main():
    folder = sys.argv[1]
    assert glob.glob(f"{folder}/*/*.parquet"), f"no segments in {folder}"
    found = {}
    readers = {"duckdb": with_duckdb, "pandas": with_pandas, "pyarrow": with_pyarrow, "spark": with_spark}
    for name, read in readers.items():
        try:
            rows, users, predictions, labels, streams = read(folder)
        except ImportError as missing:
            print(f"{name}: not installed ({missing})", file=sys.stderr)
            continue
        counts = {"rows": int(rows), "users": int(users), "predictions": int(predictions)}
        found[name] = {**counts, "labels": float(labels), "streams": list(streams)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
