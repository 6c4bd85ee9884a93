"""The problems of `celeris-bench bandits`, with the same numbers as the Rust side generates (`problem.rs`)."""

import numpy

THETA, CONTEXT, NOISE = range(3)


def mix(z):
    """The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), over arrays."""
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return z ^ (z >> numpy.uint64(31))


def uniform(seed, stream, start, count):
    """The numbers `start` to `start + count` of a stream: multiples of 2^-24 in [0, 1), the same in every language."""
    golden = numpy.uint64(0x9E3779B97F4A7C15)
    key = mix(numpy.array([seed * 4 + stream], dtype=numpy.uint64))
    index = numpy.arange(start + 1, start + count + 1, dtype=numpy.uint64)
    return (mix(key + index * golden) >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-24


def signed(seed, stream, start, count):
    return 2.0 * uniform(seed, stream, start, count) - 1.0


def noise(problem, seed, turn):
    """Noise of standard deviation `problem["noise"]`: twelve uniform numbers minus their mean, approximately normal."""
    return problem["noise"] * (uniform(seed, NOISE, 12 * turn, 12).sum() - 6.0)


def weights(problem, seed, count):
    """`count` rows of true weights; the last of each row is `constant`."""
    dim = problem["dim"]
    rows = problem["scale"] * signed(seed, THETA, 0, count * (dim - 1)).reshape(count, dim - 1)
    return numpy.hstack([rows, numpy.full((count, 1), problem["constant"])])


def contexts(problem, seed, turn, count):
    """`count` rows of features, the last of each the constant 1."""
    dim = problem["dim"]
    size = count * (dim - 1)
    rows = signed(seed, CONTEXT, turn * size, size).reshape(count, dim - 1)
    return numpy.hstack([rows, numpy.ones((count, 1))])


class Regret:
    """The cumulative regret, recorded at the checkpoints."""

    def __init__(self, problem):
        self.checkpoints = set(problem["checkpoints"])
        self.sum = 0.0
        self.curve = []

    def add(self, turn, means, arm):
        self.sum += float(means.max() - means[arm])
        if turn + 1 in self.checkpoints:
            self.curve.append(self.sum)
