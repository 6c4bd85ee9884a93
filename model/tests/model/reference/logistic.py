"""Writes logistic.json: clicks of several users, and scikit-learn's logistic regression of each under one Gaussian prior.

    python -m venv venv && venv/bin/pip install numpy scikit-learn && venv/bin/python logistic.py

The prior N(0, Lambda^-1) of the weights w becomes scikit-learn's L2 penalty |z|^2 / 2 (C = 1) on z = L^T w, where
Lambda = L L^T, if the features are whitened to L^-1 x: then x.w is unchanged and w^T Lambda w = |z|^2.
"""

import json
from pathlib import Path

import numpy as np
import sklearn
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

SEED, DIM, ITEMS, USERS, HELD_OUT = 7, 8, 60, 24, 200

random = np.random.default_rng(SEED)
# Numbers of few digits are the same in f32, f64 and JSON's decimals, except for the last bit.
items = np.round(random.uniform(-1.7, 1.7, (ITEMS, DIM)), 3)
items[:, -1] = 1.0
basis = random.normal(size=(DIM, DIM))
precision = np.round(basis @ basis.T / DIM + np.eye(DIM), 6)
lower = np.linalg.cholesky(precision)
whitened = np.linalg.solve(lower, items.T).T

users = []
for user in range(USERS):
    truth = np.linalg.solve(lower.T, random.normal(size=DIM))
    # The first two stop at a checkpoint, where the online posterior is solved from scratch.
    count = (64, 256)[user] if user < 2 else random.integers(20, 400)
    told, asked = random.integers(0, ITEMS, count), random.integers(0, ITEMS, HELD_OUT)
    chance = 1.0 / (1.0 + np.exp(-items @ truth))
    clicks, outcomes = (random.random(len(told)) < chance[told]), (random.random(HELD_OUT) < chance[asked])
    fit = LogisticRegression(C=1.0, fit_intercept=False, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    fit.fit(whitened[told], clicks)
    predicted = fit.predict_proba(whitened[asked])[:, 1]
    users.append(
        {
            "told": told.tolist(),
            "clicks": clicks.astype(int).tolist(),
            "asked": asked.tolist(),
            "outcomes": outcomes.astype(int).tolist(),
            "weights": np.linalg.solve(lower.T, fit.coef_[0]).tolist(),
            "log_loss": log_loss(outcomes, predicted, labels=[False, True]),
        }
    )

fixture = {
    "made_by": f"logistic.py, scikit-learn {sklearn.__version__}, numpy {np.__version__}",
    "dim": DIM,
    "precision": precision.flatten().tolist(),
    "items": items.flatten().tolist(),
    "users": users,
}
Path(__file__).with_suffix(".json").write_text(json.dumps(fixture) + "\n")
print("mean held-out log loss", np.mean([user["log_loss"] for user in users]))
