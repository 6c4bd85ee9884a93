"""Vowpal Wabbit trains a policy on a log in dsjson, and values it.

    vowpal_wabbit.py LOG FOLDER [OPTION…]

trains on LOG, then reads it again without learning (`-t`), so that the policy is fixed. Writes `FOLDER/predictions`, a line
of `ACTION:PROBABILITY,…` for each decision with all digits (`-p` prints six), and prints {"decisions", "ips"}: minus the
average loss that Vowpal Wabbit reports, which for `--cb_explore_adf` is the mean of `cost * policy / probability`.
"""

import json
import sys

from vowpalwabbit import Workspace


def main():
    log, folder, *options = sys.argv[1:]
    model = f"{folder}/model.vw"
    trained = Workspace(f"--dsjson --cb_explore_adf --quiet {' '.join(options)} -d {log} -f {model}")
    trained.finish()
    tested = Workspace(f"--dsjson --quiet -t -i {model} -d {log}")
    decisions = tested.get_weighted_examples()
    ips = -tested.get_sum_loss() / decisions
    tested.finish()
    predicting = Workspace(f"--dsjson --quiet -t -i {model}")
    with open(f"{folder}/predictions", "w", encoding="utf-8") as out:
        for line in open(log, encoding="utf-8"):
            if not line.startswith("{") or '"RewardValue"' in line or '"_skipLearn":true' in line:
                continue
            examples = predicting.parse(line.strip())
            probabilities = predicting.predict(examples)
            predicting.finish_example(examples)
            out.write(",".join(f"{action}:{share!r}" for action, share in enumerate(probabilities)) + "\n\n")
    predicting.finish()
    print(json.dumps({"decisions": decisions, "ips": ips}))


main()
