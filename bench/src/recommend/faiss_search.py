"""The baseline of `celeris-bench recommend`: faiss on the same rows and queries, one thread per search.

    python faiss_search.py --folder FOLDER --dim N --threads N

Reads `rows.f32` and `queries.f32` in the folder, row-major. Then reads one command per line and prints one JSON object for
each, so that both sides of a comparison can take turns:

    flat FIRST COUNT   seconds of each of these queries with IndexFlatIP
    grow               builds an HNSW graph; its recall@10 with the smallest efSearch that reaches 0.99
    graph FIRST COUNT  seconds of each of these queries with the graph
"""

import argparse
import json
import pathlib
import sys
import time

import faiss
import numpy

K = 10
RECALL_MIN = 0.99
CONNECTIVITY = 16
EXPANSION_ADD = 64
EXPANSIONS = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024]


def searched(index, queries, first, count):
    seconds, found = [], []
    for query in queries[first : first + count]:
        started = time.perf_counter()
        _, rows = index.search(query[None, :], K)
        seconds.append(time.perf_counter() - started)
        found.append(rows[0].tolist())
    return {"seconds": seconds, "found": found}


def grown(rows, queries, flat, threads):
    truth = searched(flat, queries, 0, len(queries))["found"]
    graph = faiss.IndexHNSWFlat(rows.shape[1], CONNECTIVITY, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = EXPANSION_ADD
    faiss.omp_set_num_threads(threads)
    graph.add(rows)
    faiss.omp_set_num_threads(1)
    for expansion in EXPANSIONS:
        graph.hnsw.efSearch = expansion
        found = searched(graph, queries, 0, len(queries))["found"]
        same = sum(len(set(ours) & set(exact)) for ours, exact in zip(found, truth))
        recall = same / (K * len(queries))
        if recall >= RECALL_MIN:
            break
    return graph, {"recall": recall}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--dim", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    settings = parser.parse_args()
    read = lambda name: numpy.fromfile(settings.folder / name, dtype=numpy.float32).reshape(-1, settings.dim)
    rows, queries = read("rows.f32"), read("queries.f32")
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(settings.dim)
    flat.add(rows)
    graph = None
    for line in sys.stdin:
        what, *numbers = line.split()
        if what == "grow":
            graph, answer = grown(rows, queries, flat, settings.threads)
        else:
            first, count = map(int, numbers)
            answer = searched(flat if what == "flat" else graph, queries, first, count)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
