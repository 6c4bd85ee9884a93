"""The value of a policy on a log in dsjson by inverse propensities, from the file alone.

    reference.py LOG uniform|first|PREDICTIONS

prints {"decisions", "ips", "snips", "logged"}. It reads nothing but the fields of the format, and shares no code with
Celeris or Vowpal Wabbit.
"""

import json
import sys


def slots(decision):
    """(candidates, action, probability, reward) of each slot."""
    actions = decision["c"]["_multi"]
    if "_outcomes" not in decision:
        yield range(len(actions)), decision["_labelIndex"], decision["_label_probability"], -decision["_label_cost"]
        return
    above = []
    for outcome in decision["_outcomes"]:
        candidates = [action for action in range(len(actions)) if action not in above]
        yield candidates, outcome["_a"][0], outcome["_p"][0], -outcome["_label_cost"]
        above.append(outcome["_a"][0])


def main():
    log, policy = sys.argv[1:]
    predictions = None
    if policy not in ("uniform", "first"):
        text = open(policy, encoding="utf-8").read()
        predictions = iter([line for line in text.splitlines() if line.strip()])
    decisions, lines, ips, weighted, weights, logged = 0, 0, 0.0, {}, {}, 0.0
    for line in open(log, "rb"):
        decision = json.loads(line) if line.startswith(b"{") else {}
        if "c" not in decision or decision.get("_skipLearn"):
            continue
        count = 1 / (1 - decision.get("pdrop", 0))
        decisions += count
        lines += 1
        likely = None
        if predictions is not None:
            pairs = (pair.split(":") for pair in next(predictions).split(","))
            likely = {int(action): float(probability) for action, probability in pairs}
        weight = count
        for slot, (candidates, action, probability, reward) in enumerate(slots(decision)):
            if policy == "uniform":
                target = 1 / len(candidates)
            elif policy == "first":
                target = 1.0 if action == candidates[0] else 0.0
            else:
                target = likely.get(action, 0.0)
            weight *= target / probability
            ips += weight * reward
            weighted[slot] = weighted.get(slot, 0.0) + weight * reward
            weights[slot] = weights.get(slot, 0.0) + weight
            logged += count * reward
    snips = sum(weighted[slot] / weights[slot] for slot in weighted if weights[slot] > 0)
    print(json.dumps({"decisions": lines, "ips": ips / decisions, "snips": snips, "logged": logged / decisions}))


main()
