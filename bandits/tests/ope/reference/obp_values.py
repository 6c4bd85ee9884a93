"""Writes obp.json: small logs, and the estimates of the Open Bandit Pipeline for them.

    python -m venv venv && venv/bin/pip install numpy scikit-learn pandas scipy tqdm
    venv/bin/pip install --no-deps --ignore-requires-python obp==0.5.7
    venv/bin/python obp_values.py

The estimators are plain numpy; only other modules of the package import torch and plotting, so these are left out.
"""

import json
import sys
import types
from importlib.metadata import version
from pathlib import Path

import numpy as np

SEED, ROUNDS, ACTIONS, POSITIONS, SLOTS = 11, 150, 5, 3, 3
SWITCH_THRESHOLD = 2.0

for name in ["torch", "obp", "obp.ope"]:
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch"].Tensor = sys.modules["torch"].tensor = type("Tensor", (), {})
for folder in map(Path, sys.path):
    if (folder / "obp" / "ope" / "estimators.py").exists():
        sys.modules["obp"].__path__ = [str(folder / "obp")]
        sys.modules["obp.ope"].__path__ = [str(folder / "obp" / "ope")]
from obp.ope import estimators as single  # noqa: E402
from obp.ope import estimators_slate as slate  # noqa: E402

random = np.random.default_rng(SEED)


def rounded(values):
    """Rounds numbers so that JSON decimals represent them exactly."""
    return np.array(json.loads(json.dumps(np.round(values, 6).tolist())))


def distributions(*shape):
    """Probabilities of few digits that sum to 1 along the last axis."""
    draws = random.dirichlet(np.ones(shape[-1]), shape[:-1])
    digits = np.round(draws * 0.9 + 0.1 / shape[-1], 4)
    digits[..., 0] += 1.0 - digits.sum(axis=-1)
    return rounded(digits)


def drawn(probabilities):
    return np.array([random.choice(len(row), p=row / row.sum()) for row in probabilities])


def one_slot(target, deterministic):
    """A log of impressions at three positions; `target` is the policy to evaluate."""
    rows = np.arange(ROUNDS)
    position = random.integers(0, POSITIONS, ROUNDS)
    logging = distributions(ROUNDS, ACTIONS)
    action = drawn(logging)
    model = rounded(random.uniform(0.0, 1.0, (ROUNDS, ACTIONS)))
    reward = (random.random(ROUNDS) < 0.3).astype(float)
    # The values of a round apply at its logged position.
    dist = np.repeat(target[:, :, None], POSITIONS, axis=2)
    q_hat = np.zeros((ROUNDS, ACTIONS, POSITIONS))
    q_hat[rows, :, position] = model
    pscore = logging[rows, action]
    log = {"reward": reward, "action": action, "position": position, "action_dist": dist}
    weighted = {**log, "pscore": pscore}
    modelled = {**weighted, "estimated_rewards_by_reg_model": q_hat}
    values = {
        "replay": single.ReplayMethod().estimate_policy_value(**log) if deterministic else None,
        "ips": single.InverseProbabilityWeighting().estimate_policy_value(**weighted),
        "snips": single.SelfNormalizedInverseProbabilityWeighting().estimate_policy_value(**weighted),
        "dm": single.DirectMethod().estimate_policy_value(
            action_dist=dist, position=position, estimated_rewards_by_reg_model=q_hat
        ),
        "dr": single.DoublyRobust().estimate_policy_value(**modelled),
        "sndr": single.SelfNormalizedDoublyRobust().estimate_policy_value(**modelled),
        "switch_dr": single.SwitchDoublyRobust(lambda_=SWITCH_THRESHOLD).estimate_policy_value(**modelled),
    }
    return {
        "action": action.tolist(),
        "reward": reward.tolist(),
        "propensity": pscore.tolist(),
        "target": target.tolist(),
        "model": model.tolist(),
        "values": values,
    }


def rankings():
    """A log of rankings of three slots: cascade weights."""
    rows = ROUNDS * SLOTS
    logging, target = distributions(rows, ACTIONS), distributions(rows, ACTIONS)
    action = drawn(logging)
    reward = (random.random(rows) < 0.3).astype(float)
    model = rounded(random.uniform(0.0, 1.0, (rows, ACTIONS)))
    of_shown = [probabilities[np.arange(rows), action] for probabilities in (logging, target)]
    logged, judged = [np.cumprod(one.reshape(ROUNDS, SLOTS), axis=1).flatten() for one in of_shown]
    ids = {"slate_id": np.repeat(np.arange(ROUNDS), SLOTS), "position": np.tile(np.arange(SLOTS), ROUNDS)}
    weighted = {**ids, "reward": reward, "pscore_cascade": logged, "evaluation_policy_pscore_cascade": judged}
    doubly = slate.SlateCascadeDoublyRobust(len_list=SLOTS, n_unique_action=ACTIONS)
    values = {
        "ips": slate.SlateRewardInteractionIPS(len_list=SLOTS).estimate_policy_value(**weighted),
        "snips": slate.SelfNormalizedSlateRewardInteractionIPS(len_list=SLOTS).estimate_policy_value(**weighted),
        "dr": doubly.estimate_policy_value(
            **weighted, action=action, q_hat=model.flatten(), evaluation_policy_action_dist=target.flatten()
        ),
    }
    return {
        "action": action.tolist(),
        "reward": reward.tolist(),
        "propensity": of_shown[0].tolist(),
        "target": target.tolist(),
        "model": model.tolist(),
        "values": values,
    }


fixed = np.zeros((ROUNDS, ACTIONS))
fixed[np.arange(ROUNDS), random.integers(0, ACTIONS, ROUNDS)] = 1.0
fixture = {
    "made_by": f"obp_values.py, obp {version('obp')}, numpy {np.__version__}",
    "slots": SLOTS,
    "switch_threshold": SWITCH_THRESHOLD,
    "drawing": one_slot(distributions(ROUNDS, ACTIONS), deterministic=False),
    "deterministic": one_slot(fixed, deterministic=True),
    "rankings": rankings(),
}
Path(__file__).with_name("obp.json").write_text(json.dumps(fixture) + "\n")
for kind in ["drawing", "deterministic", "rankings"]:
    print(kind, fixture[kind]["values"])
