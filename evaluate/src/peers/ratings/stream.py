"""What the learners of a stream share: the rows, and the choice of the best settings."""

import argparse
import json
import pathlib


def squared_error(predicted, labels, low, high):
    return sum((min(max(one, low), high) - label) ** 2 for one, label in zip(predicted, labels))


def print_best(description, tries):
    """Reads the arguments and the rows. `tries` maps the words for some settings to their predictions, given the rows,
    the number of the first ones and the seed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rows", type=pathlib.Path, required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    settings = parser.parse_args()
    rows = []
    for line in settings.rows.read_text().splitlines():
        user, item, label = line.split(",")
        rows.append((user, item, float(label)))
    first = settings.first
    known, labels = [label for _, _, label in rows[:first]], [label for _, _, label in rows[first:]]
    tried = []
    for options, predictions in tries.items():
        predicted = predictions(rows, first, settings.seed)
        tried.append((squared_error(predicted, labels, min(known), max(known)), options, predicted))
    _, options, best = min(tried)
    print(json.dumps({"predictions": [round(one, 6) for one in best], "options": options, "tried": len(tried)}))
