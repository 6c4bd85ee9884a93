"""Action probabilities of Vowpal Wabbit, with the scores they are computed from.

Writes vowpal_wabbit.json next to this file. Needs vowpalwabbit 9.11.9, for example in the environment of `cargo xtask peers`:

    ~/.cache/celeris/peers/bin/python vowpal_wabbit.py

An exploring learner does not output its scores, so a second learner without exploration learns the same examples.
"""

import json
import pathlib
import random

import vowpalwabbit

POLICIES = {
    "softmax": [("--softmax --lambda 1", {"lambda": 1}), ("--softmax --lambda 7.5", {"lambda": 7.5})],
    "squarecb": [
        ("--squarecb", {}),
        ("--squarecb --gamma_scale 50 --gamma_exponent 0.25", {"gamma_scale": 50, "gamma_exponent": 0.25}),
    ],
    "epsilon_greedy": [("--epsilon 0.05", {}), ("--epsilon 0.3", {"epsilon": 0.3})],
}


def main():
    rng = random.Random(1)
    cases = []
    for name, variants in POLICIES.items():
        for options, parameters in variants:
            explorer = vowpalwabbit.Workspace(f"--cb_explore_adf --cb_type mtr --quiet {options}")
            twin = vowpalwabbit.Workspace("--cb_adf --cb_type mtr --quiet")
            for learnt in range(40):
                rows = [" ".join(f"{i}:{rng.uniform(-1, 1):.6f}" for i in range(4)) for _ in range(5)]
                lines = [f"|f {row}" for row in rows]
                if learnt in (1, 4, 9, 39):
                    costs, probabilities = twin.predict(lines), explorer.predict(lines)
                    spec = {"name": name, **parameters}
                    scores = [-cost for cost in costs]
                    cases.append({"policy": spec, "learnt": learnt, "scores": scores, "probabilities": probabilities})
                shown = rng.randrange(5)
                lines[shown] = f"0:{rng.uniform(-1, 0):.6f}:1 {lines[shown]}"
                explorer.learn(lines)
                twin.learn(lines)
    path = pathlib.Path(__file__).with_suffix(".json")
    made_by = f"vowpal_wabbit.py, vowpalwabbit {vowpalwabbit.__version__}"
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"made_by": "{made_by}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
