"""The baseline of `celeris-bench pipelines`: a LightGBM model in ONNX Runtime and in LightGBM, on one thread.

    python lightgbm_onnx.py --folder FOLDER

Reads one command a line and prints one JSON object for each, so that both sides of a comparison can take turns:

    train                 trains 100 trees of 31 leaves over 28 columns; writes `model.txt`, `rows.f32` and `expected.f64`
    onnx ROWS PASSES      seconds of the fastest of some passes over the first rows, as an ONNX model
    lightgbm ROWS PASSES  the same in LightGBM, with a tenth of the passes
"""

import argparse
import json
import pathlib
import sys
import time

import lightgbm
import numpy
import onnxmltools
import onnxruntime
from onnxmltools.convert.common.data_types import FloatTensorType

TREES, LEAVES, COLUMNS, ROWS = 100, 31, 28, 10_000


def train(folder):
    draws = numpy.random.default_rng(1)
    x = draws.normal(size=(2 * ROWS, COLUMNS)).astype(numpy.float32)
    y = x[:, 0] * x[:, 1] + numpy.sin(2 * x[:, 2]) + 0.05 * x[:, 3:].sum(1) + 0.1 * draws.normal(size=len(x))
    parameters = {"objective": "regression", "num_leaves": LEAVES, "verbose": -1, "num_threads": 1}
    model = lightgbm.train(parameters, lightgbm.Dataset(x, y), TREES)
    rows = x[:ROWS]
    model.save_model(folder / "model.txt")
    rows.astype("<f4").tofile(folder / "rows.f32")
    model.predict(rows).astype("<f8").tofile(folder / "expected.f64")
    exported = onnxmltools.convert_lightgbm(model, initial_types=[("x", FloatTensorType([None, COLUMNS]))])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(exported.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return model, session, rows


def fastest(run, passes):
    least = float("inf")
    for _ in range(passes):
        started = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - started)
    return {"seconds": least}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    folder = parser.parse_args().folder
    model = session = rows = None
    for line in sys.stdin:
        what, *numbers = line.split()
        if what == "train":
            model, session, rows = train(folder)
            answer = {"trees": TREES}
        else:
            count, passes = map(int, numbers)
            batch = numpy.ascontiguousarray(rows[:count])
            if what == "onnx":
                answer = fastest(lambda: session.run(None, {"x": batch}), passes)
            else:
                answer = fastest(lambda: model.predict(batch, num_threads=1), max(passes // 10, 1))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
