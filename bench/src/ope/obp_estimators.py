"""The baseline of `celeris-bench ope`: the estimators of the Open Bandit Pipeline on one log.

    python obp_estimators.py --problem problem.json

Prints one JSON object: the values by name, and the seconds that values and 95 % intervals took. The estimators only need
numpy; the rest of the package imports torch and plotting, so it is replaced by empty modules.
"""

import argparse
import json
import pathlib
import sys
import time
import types

import numpy

for name in ["torch", "obp", "obp.ope"]:
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch"].Tensor = sys.modules["torch"].tensor = type("Tensor", (), {})
for folder in map(pathlib.Path, sys.path):
    if (folder / "obp" / "ope" / "estimators.py").exists():
        sys.modules["obp"].__path__ = [str(folder / "obp")]
        sys.modules["obp.ope"].__path__ = [str(folder / "obp" / "ope")]
from obp.ope import estimators  # noqa: E402


def at_every_position(by_round, positions):
    """Shape (rounds, actions, positions); obp only reads the position at which a round was logged."""
    return numpy.repeat(by_round[:, :, None], positions, axis=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", type=pathlib.Path, required=True)
    problem = json.loads(parser.parse_args().problem.read_text())
    dist = at_every_position(numpy.array(problem["target"]), problem["positions"])
    logged = {
        "reward": numpy.array(problem["reward"]),
        "action": numpy.array(problem["action"]),
        "position": numpy.array(problem["position"]),
        "pscore": numpy.array(problem["propensity"]),
        "action_dist": dist,
        "estimated_rewards_by_reg_model": at_every_position(numpy.array(problem["expected"]).T, problem["positions"]),
    }
    asked = {
        "ips": estimators.InverseProbabilityWeighting(),
        "snips": estimators.SelfNormalizedInverseProbabilityWeighting(),
        "dm": estimators.DirectMethod(),
        "dr": estimators.DoublyRobust(),
        "sndr": estimators.SelfNormalizedDoublyRobust(),
        "switch_dr": estimators.SwitchDoublyRobust(lambda_=problem["switch_threshold"]),
        "replay": estimators.ReplayMethod(),
    }
    values = {}
    started = time.perf_counter()
    for name, estimator in asked.items():
        values[name] = float(estimator.estimate_policy_value(**logged))
        estimator.estimate_interval(**logged, alpha=0.05, n_bootstrap_samples=problem["resamples"], random_state=1)
    print(json.dumps({"values": values, "seconds": time.perf_counter() - started}))


main()
