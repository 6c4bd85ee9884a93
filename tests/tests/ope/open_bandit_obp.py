"""Writes open_bandit_obp.json: the Open Bandit Pipeline's estimates for fixed policies on its own sample.

    python open_bandit_obp.py PATH/TO/open-bandit

Needs numpy, pandas, scikit-learn and obp 0.5.7, installed as `cargo xtask peers` does.
"""

import json
import pathlib
import sys
import types
from importlib.metadata import version

import numpy
import pandas

for name in ["torch", "obp", "obp.ope"]:
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch"].Tensor = sys.modules["torch"].tensor = type("Tensor", (), {})
for folder in map(pathlib.Path, sys.path):
    if (folder / "obp" / "ope" / "estimators.py").exists():
        sys.modules["obp"].__path__ = [str(folder / "obp")]
        sys.modules["obp.ope"].__path__ = [str(folder / "obp" / "ope")]
from obp.ope import estimators  # noqa: E402

ITEMS, POSITIONS, ALWAYS = 34, 3, 17

weights = numpy.arange(1, ITEMS + 1)
policies = {
    "uniform": numpy.full(ITEMS, 1 / ITEMS),
    "tilted": weights / weights.sum(),
    "always": (numpy.arange(ITEMS) == ALWAYS).astype(float),
}
found = {"made_by": f"open_bandit_obp.py, obp {version('obp')}", "always": ALWAYS, "logs": {}}
for log in ["random", "bts"]:
    rows = pandas.read_csv(pathlib.Path(sys.argv[1]) / log / "men" / "men.csv")
    logged = {
        "reward": rows["click"].to_numpy(),
        "action": rows["item_id"].to_numpy(),
        "position": rows["position"].to_numpy() - 1,
        "pscore": rows["propensity_score"].to_numpy(),
    }
    found["logs"][log] = {}
    for name, policy in policies.items():
        dist = numpy.repeat(numpy.tile(policy, (len(rows), 1))[:, :, None], POSITIONS, axis=2)
        chosen = {
            "ips": estimators.InverseProbabilityWeighting(),
            "snips": estimators.SelfNormalizedInverseProbabilityWeighting(),
        }
        if name == "always":
            chosen["replay"] = estimators.ReplayMethod()
        found["logs"][log][name] = {
            key: float(estimator.estimate_policy_value(**logged, action_dist=dist)) for key, estimator in chosen.items()
        }
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(found, indent=2) + "\n")
