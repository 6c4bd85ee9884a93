"""The least distance to the minimum that Optuna's TPE finds: FUNCTION TRIALS SEEDS."""

import json
import math
import sys
import time

import optuna

ALPHA = [1.0, 1.2, 3.0, 3.2]
A = [
    [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
    [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
    [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
    [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
]
P = [
    [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
    [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
    [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
    [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
]


def hartmann(x):
    return -sum(
        ALPHA[row] * math.exp(-sum(A[row][axis] * (x[axis] - P[row][axis]) ** 2 for axis in range(6)))
        for row in range(4)
    )


def rosenbrock(x):
    return sum(100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2 for a, b in zip(x, x[1:]))


# Axes, lowest and highest coordinate, minimum, function.
FUNCTIONS = {
    "sphere": (5, -5.0, 5.0, 0.0, lambda x: sum(v * v for v in x)),
    "rosenbrock": (4, -5.0, 10.0, 0.0, rosenbrock),
    "hartmann": (6, 0.0, 1.0, -3.32236801, hartmann),
}


def main():
    name, trials, seeds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    axes, low, high, minimum, function = FUNCTIONS[name]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    started = time.perf_counter()
    regrets = []
    for seed in range(seeds):
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        study.optimize(
            lambda trial: function([trial.suggest_float(f"x{axis}", low, high) for axis in range(axes)]),
            n_trials=trials,
        )
        regrets.append(study.best_value - minimum)
    milliseconds = (time.perf_counter() - started) * 1000.0 / (trials * seeds)
    print(json.dumps({"regrets": regrets, "milliseconds": milliseconds}))


main()
