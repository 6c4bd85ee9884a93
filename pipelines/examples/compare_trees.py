"""Compares tree ensembles with LightGBM and ONNX Runtime on one thread, in alternating rounds of one run.

    cargo build --release --example trees
    python compare_trees.py PATH_OF_THE_EXAMPLE

Prints, for 1, 100 and 1,000 rows, the least time of a pass in each program, and ours as a share of ONNX Runtime's. The model has 100 trees
of 31 leaves over 28 columns.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import lightgbm
import numpy as np
import onnxmltools
import onnxruntime
from onnxmltools.convert.common.data_types import FloatTensorType

COLUMNS, ROUNDS = 28, 3
random = np.random.default_rng(1)
X = random.normal(size=(20_000, COLUMNS)).astype(np.float32)
y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.05 * X[:, 3:].sum(1) + 0.1 * random.normal(size=len(X))
parameters = {"objective": "regression", "num_leaves": 31, "verbose": -1, "num_threads": 1}
model = lightgbm.train(parameters, lightgbm.Dataset(X, y), 100)
exported = onnxmltools.convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, COLUMNS]))])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(exported.SerializeToString(), options, providers=["CPUExecutionProvider"])


def least(run, repeats):
    """The least time of a call, in microseconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    model.save_model(folder / "model.txt")
    X[:10_000].astype("<f4").tofile(folder / "rows")
    model.predict(X[:10_000]).astype("<f8").tofile(folder / "expected")
    times = {}
    for _ in range(ROUNDS):
        command = [sys.argv[1], folder / "model.txt", folder / "rows", folder / "expected"]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        for line in lines:
            if line.startswith("rows="):
                rows, ours = line.removeprefix("rows=").removesuffix(" us").split(": ")
                batch = np.ascontiguousarray(X[: int(rows)])
                repeats = 3000 if len(batch) <= 100 else 300
                runtime = least(lambda: session.run(None, {"x": batch}), repeats)
                booster = least(lambda: model.predict(batch, num_threads=1), repeats // 10)
                earlier = times.get(int(rows), [float("inf")] * 3)
                times[int(rows)] = [min(pair) for pair in zip(earlier, [float(ours), runtime, booster])]
    print(lines[0], lines[-1], sep="\n")
    for rows, (ours, runtime, booster) in times.items():
        print(f"rows={rows}: {ours:.2f} us, ONNX Runtime {runtime:.2f} us, LightGBM {booster:.2f} us, ours / ONNX Runtime {ours / runtime:.2f}")
