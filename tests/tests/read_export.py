"""Reads an export with pandas as docs/reference/export.md says, and prints what it found as one JSON object.

Usage: read_export.py FOLDER
"""

import json
import pathlib
import sys

import pandas as pd


def main():
    folder = pathlib.Path(sys.argv[1])
    observations = pd.read_parquet(folder / "observations")
    decisions = pd.read_parquet(folder / "decisions")
    versions = pd.read_parquet(folder / "versions.parquet")
    slots = decisions[["decision_id", "model", "shown"]].explode("shown")
    slots["propensity"] = [slot["propensity"] for slot in slots["shown"]]
    assert slots["propensity"].dropna().between(0, 1).all()
    newest = versions.sort_values("version").iloc[-1]
    features = pd.read_parquet(
        folder / "versions" / newest["model"] / str(newest["version"]) / "item_features.parquet"
    )
    found = {
        "observations": len(observations),
        "streams": [str(stream) for stream in observations["stream"].unique()],
        "labels": float(observations["label"].astype("float64").sum()),
        "decisions": len(decisions),
        "models": [str(model) for model in decisions["model"].unique()],
        "shown": len(slots),
        "seeds": [str(seed) for seed in decisions["seed"].unique()],
        "versions": [int(version) for version in versions["version"]],
        "active": [int(version) for version in versions[versions["active"]]["version"]],
        "items": len(features),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
