"""The baseline of `celeris-bench pipelines`: the same sentiment pipelines in scikit-learn.

    python sklearn_pipelines.py --folder FOLDER

Reads `items.json`, `sentiment.json` and `weights-N.f32` in the folder, with what our pipelines have learnt. Then reads one command a line
and prints one JSON object for each:

    make                    makes a fitted `Pipeline` of each and pickles it into a file of its own
    load                    unpickles all of them: seconds, growth of the resident memory after a prediction of each, the
                            seconds of these predictions and their probabilities
    predict NUMBER TEXT …   seconds of `predict` of a pipeline for each of these texts alone, and the probabilities
"""

import argparse
import json
import pathlib
import pickle
import sys
import time

import numpy
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline


def vectorizer(analyzer, grams, dictionaries):
    made = CountVectorizer(analyzer=analyzer, ngram_range=tuple(grams["n"]))
    made.fixed_vocabulary_ = False
    made.vocabulary_ = {string: column for column, string in enumerate(dictionaries[grams["dictionary"]])}
    return made


def make(folder):
    problem = json.loads((folder / "sentiment.json").read_text(encoding="utf-8"))
    for number, grams in enumerate(problem["pipelines"]):
        words = vectorizer("word", grams["word_grams"], problem["dictionaries"])
        chars = vectorizer("char", grams["char_grams"], problem["dictionaries"])
        weights = numpy.fromfile(folder / f"weights-{number}.f32", dtype="<f4").astype(numpy.float64)
        model = LogisticRegression()
        model.classes_ = numpy.array([0, 1])
        model.intercept_, model.coef_ = weights[:1], weights[None, 1:].copy()
        model.n_features_in_ = weights.size - 1
        pipeline = Pipeline([("features", FeatureUnion([("words", words), ("chars", chars)])), ("model", model)])
        with open(folder / f"pipeline-{number}.pickle", "wb") as file:
            pickle.dump(pipeline, file, protocol=pickle.HIGHEST_PROTOCOL)
    return {"pipelines": len(problem["pipelines"])}


def resident_bytes():
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def predict(pipeline, text):
    started = time.perf_counter()
    pipeline.predict([text])
    return time.perf_counter() - started


def probability(pipeline, text):
    return float(pipeline.predict_proba([text])[0, 1])


def load(folder, texts):
    files = sorted(folder.glob("pipeline-*.pickle"), key=lambda file: int(file.stem.split("-")[1]))
    before = resident_bytes()
    started = time.perf_counter()
    pipelines = []
    for file in files:
        with open(file, "rb") as opened:
            pipelines.append(pickle.load(opened))
    seconds = time.perf_counter() - started
    pairs = [(pipeline, texts[number % len(texts)]) for number, pipeline in enumerate(pipelines)]
    first_runs = [predict(pipeline, text) for pipeline, text in pairs]
    answer = {"seconds": seconds, "bytes": resident_bytes() - before, "first_runs": first_runs}
    answer["values"] = [probability(pipeline, text) for pipeline, text in pairs]
    return pipelines, answer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    folder = parser.parse_args().folder
    texts, pipelines = [item["text"] for item in json.loads((folder / "items.json").read_text(encoding="utf-8"))], []
    for line in sys.stdin:
        what, *numbers = line.split()
        if what == "make":
            answer = make(folder)
        elif what == "load":
            pipelines, answer = load(folder, texts)
        else:
            number, *positions = map(int, numbers)
            pipeline, chosen = pipelines[number], [texts[position] for position in positions]
            seconds = [predict(pipeline, text) for text in chosen]
            answer = {"seconds": seconds, "probabilities": [probability(pipeline, text) for text in chosen]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
