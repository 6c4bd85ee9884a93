//! Generates `docs/benchmarks.md`: every target with its figure, and all cases.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::Bench;
use crate::report::{Report, Row, figures};
use celeris_cli::Failure;

/// The figure of a row that a target bounds.
#[derive(Clone, Copy)]
enum Figure {
    Ours,
    Ratio,
}

/// The bound of a figure.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    Between(f64, f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtMost(max) => figure <= max,
            Self::AtLeast(min) => figure >= min,
            Self::Between(min, max) => (min..=max).contains(&figure),
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtMost(max) => format!("≤ {max}"),
            Self::AtLeast(min) => format!("≥ {min}"),
            Self::Between(min, max) => format!("{min} to {max}"),
        }
    }
}

/// The target of a case.
struct Target {
    bench: &'static str,
    case: &'static str,
    figure: Figure,
    bound: Bound,
    what: &'static str,
}

const fn ours(bench: &'static str, case: &'static str, bound: Bound, what: &'static str) -> Target {
    Target { bench, case, figure: Figure::Ours, bound, what }
}

const fn ratio(bench: &'static str, case: &'static str, bound: Bound, what: &'static str) -> Target {
    Target { bench, case, figure: Figure::Ratio, bound, what }
}

use Bound::{AtLeast, AtMost, Between};

/// All targets.
const TARGETS: [Target; 118] = [
    ratio("update", "resolve/d=50", AtMost(0.01), "of re-solving 50 observations by Cholesky"),
    ratio("update", "pass/d=50", AtMost(3.5), "of a read-and-write pass over the matrix"),
    ratio("update", "pass/d=128", AtMost(2.8), "of a read-and-write pass over the matrix"),
    ratio("update", "pass/d=512", AtMost(2.2), "of a read-and-write pass over the matrix"),
    ratio("update", "choices/d=50", AtMost(1.5), "of the update of a user whose items have no choice vectors"),
    ours("topk", "greedy/n=1000/d=50", AtMost(60.0), "µs, median"),
    ours("topk", "uncertainty/n=1000/d=50", AtMost(200.0), "µs, median"),
    ours("topk", "greedy/n=1000/d=50/catalog=1000000", AtMost(200.0), "µs, median"),
    ours("topk", "uncertainty/n=1000/d=50/catalog=1000000", AtMost(350.0), "µs, median"),
    ratio("topk", "linear/greedy", AtMost(1.5), "of the cost an item at a tenth of the items"),
    ratio("topk", "linear/uncertainty", AtMost(1.5), "of the cost an item at a tenth of the items"),
    ratio("topk", "default/n=1000/d=50", AtMost(1.5), "of a ranking with the uncertainty of every item"),
    ratio("topk", "logging/n=100/d=50", AtMost(1.1), "of a ranking that leaves no decision"),
    ratio("topk", "logging/n=1000/d=50", AtMost(1.1), "of a ranking that leaves no decision"),
    ratio("topk", "decisions/bytes", AtMost(1.0), "of what decisions may take, at 10,000 a second"),
    ratio("observe", "http/c=64", AtLeast(0.35), "of the bare handler's rate"),
    ours("observe", "ndjson", AtLeast(100_000.0), "lines a second"),
    ours("observe", "bytes/id=none", AtMost(200.0), "bytes of write-ahead log and flush"),
    ours("observe", "bytes/id=32", AtMost(300.0), "bytes of write-ahead log and flush"),
    ratio("serve", "predict", AtLeast(0.75), "of the bare handler's rate"),
    ratio("serve", "predict/p99", AtMost(2.0), "of the bare handler's p99"),
    ratio("serve", "topk/n=100", AtLeast(0.4), "of the bare handler's rate"),
    ratio("secured", "predict", AtLeast(0.85), "of the rate without keys and TLS, on kept connections"),
    ratio("secured", "topk/n=100", AtLeast(0.85), "of the rate without keys and TLS, on kept connections"),
    ratio("secured", "observe", AtLeast(0.85), "of the rate without keys and TLS, on kept connections"),
    ratio("switch", "switch/second/worst", AtMost(2.0), "of the p99 between switches, in the worst second of any"),
    ratio("switch", "training/second/worst", AtMost(3.0), "of the p99 between switches, in the worst second"),
    ratio("size", "estimate/memory", Between(0.8, 1.2), "of the memory measured"),
    ratio("size", "estimate/disk", Between(0.8, 1.2), "of the disk measured"),
    ratio("memory", "resident/users=1000000", AtMost(1.25), "of the budget of 2 GiB, at any moment"),
    ours("memory", "restart/observations=2000000", AtMost(1.0), "s from process start to ready"),
    ours("memory", "restart/observations=20000000", AtMost(1.0), "s from process start to ready"),
    ratio("memory", "restart/observations=20000000", AtMost(1.25), "of the time with 2 million observations"),
    ours("memory", "first_touch/p99", AtMost(2.0), "ms for a user who is not in memory, by HTTP"),
    ratio("train", "als/ml-latest-small", AtMost(0.125), "of Spark's time, end to end"),
    ratio("train", "als/ml-latest-small/rmse", AtMost(1.01), "of Spark's test RMSE"),
    ratio("train", "als/synthetic-5m", AtMost(0.125), "of Spark's time, end to end"),
    ratio("train", "als/synthetic-5m/rmse", AtMost(1.01), "of Spark's test RMSE"),
    ratio("train", "implicit/ml-latest-small/iteration", AtMost(1.3), "of an iteration of implicit"),
    ratio("train", "implicit/synthetic-5m/iteration", AtMost(1.3), "of an iteration of implicit"),
    ratio("train", "refresh/ml-latest-small", AtMost(0.25), "of a training from nothing, end to end"),
    ratio("train", "refresh/synthetic-5m", AtMost(0.25), "of a training from nothing, end to end"),
    ratio("train", "refresh/synthetic-5m/rmse", AtMost(1.002), "of its test RMSE"),
    ratio("bandits", "regret/lin_ucb", AtMost(1.05), "of MABWiser's regret, one model for each arm"),
    ratio("bandits", "regret/thompson", AtMost(1.05), "of MABWiser's regret, one model for each arm"),
    ratio("bandits", "regret/epsilon_greedy", AtMost(1.0), "of Vowpal Wabbit's regret, one model for all arms"),
    ratio("bandits", "regret/softmax", AtMost(1.0), "of Vowpal Wabbit's regret, each at its best of three lambdas"),
    ratio("bandits", "regret/squarecb", AtMost(1.0), "of Vowpal Wabbit's regret, one model for all arms"),
    ratio("bandits", "regret/regcb", AtMost(1.0), "of Vowpal Wabbit's regret, one model for all arms"),
    ratio("bandits", "regret/shared/lin_ucb", AtMost(1.0), "of the least regret of Vowpal Wabbit's policies"),
    ratio("bandits", "regret/shared/thompson", AtMost(1.0), "of the least regret of Vowpal Wabbit's policies"),
    ratio("bandits", "sublinear/disjoint/lin_ucb", AtMost(0.7), "of the first half's regret in the second"),
    ratio("bandits", "sublinear/disjoint/thompson", AtMost(0.7), "of the first half's regret in the second"),
    ratio("bandits", "sublinear/lin_ucb", AtMost(0.7), "of the first half's regret in the second"),
    ratio("bandits", "sublinear/regcb", AtMost(0.7), "of the first half's regret in the second"),
    ratio("bandits", "sublinear/squarecb", AtMost(0.7), "of the first half's regret in the second"),
    ratio("bandits", "sublinear/thompson", AtMost(0.7), "of the first half's regret in the second"),
    ratio("bandits", "lock_in/epsilon_greedy", AtMost(0.5), "of greedy's regret in a feedback loop"),
    ratio("selection", "failure/exp3", AtMost(1.0), "of the best single model's mean error, one model failing"),
    ratio("selection", "failure/exp4", AtMost(1.0), "of the best single model's mean error, one model failing"),
    ratio("selection", "failure/tsallis_inf", AtMost(1.0), "of the best single model's mean error, one model failing"),
    ratio("selection", "failure/exp3/readopted", AtLeast(2.0), "of an equal share for the model that recovered"),
    ratio("selection", "failure/exp4/readopted", AtLeast(2.0), "of an equal share for the model that recovered"),
    ratio("selection", "failure/tsallis_inf/readopted", AtLeast(2.0), "of an equal share for the model that recovered"),
    ratio("selection", "dialects/exp4", AtMost(0.9), "of one state's mean error, where users differ"),
    ratio("selection", "dialects/tsallis_inf", AtMost(0.9), "of one state's mean error, where users differ"),
    ours("ope", "difference/largest", AtMost(1e-6), "from an estimate of obp"),
    ratio("ope", "seconds/random/men/tilted", AtMost(1.0), "of obp's time for all estimates and intervals"),
    ratio("recommend", "exact/n=1000000/d=50", AtMost(1.2), "of faiss's IndexFlatIP, one thread"),
    ratio("recommend", "exact/n=1000000/d=50/norms=equal", AtMost(1.2), "of faiss's IndexFlatIP, one thread"),
    ratio("recommend", "quantized_scan/n=1000000/d=50", AtMost(0.4), "of faiss's IndexFlatIP, with the same results"),
    ratio(
        "recommend",
        "quantized_scan/n=1000000/d=50/norms=equal",
        AtMost(0.4),
        "of faiss's IndexFlatIP, with the same results",
    ),
    ratio("recommend", "hnsw/n=1000000/d=50", AtMost(0.5), "of faiss's HNSW, which finds 99 % of the results"),
    ours("recommend", "http/n=1000000/d=50", AtMost(2.0), "ms, median"),
    ratio("recommend", "http/exclude_seen=5000/n=1000000/d=50", AtMost(1.2), "of the same request without"),
    ratio("recommend", "filter/keeps=50%/n=1000000/d=50", AtMost(1.0), "of the exact search of everything"),
    ratio("recommend", "filter/keeps=5%/n=1000000/d=50", AtMost(1.0), "of the exact search of everything"),
    ratio("recommend", "filter/keeps=0.5%/n=1000000/d=50", AtMost(1.0), "of the exact search of everything"),
    ratio("recommend", "filter/keeps=10/n=1000000/d=50", AtMost(1.0), "of the exact search of everything"),
    ratio("recommend", "filter/keeps=50%/n=1000000/d=50/norms=equal", AtMost(1.0), "of the exact search of everything"),
    ratio("recommend", "filter/keeps=5%/n=1000000/d=50/norms=equal", AtMost(1.0), "of the exact search of everything"),
    ratio(
        "recommend",
        "filter/keeps=0.5%/n=1000000/d=50/norms=equal",
        AtMost(1.0),
        "of the exact search of everything",
    ),
    ratio("recommend", "filter/keeps=10/n=1000000/d=50/norms=equal", AtMost(1.0), "of the exact search of everything"),
    ratio("recommend", "exclude=10000/n=1000000/d=50", AtMost(1.2), "of the same search without"),
    ratio("recommend", "exclude=10000/n=1000000/d=50/norms=equal", AtMost(1.2), "of the same search without"),
    ratio(
        "pipelines",
        "sa/hot/p99",
        AtMost(0.31),
        "of the same operators one at a time, fresh buffers for each record",
    ),
    ratio("pipelines", "sa/cold/p99", AtMost(0.18), "of the same, nothing shared: the first run after loading"),
    ratio("pipelines", "sa/sklearn", AtMost(0.02), "of scikit-learn's `predict` of one text"),
    ratio("pipelines", "memory/sa=250", AtMost(0.1), "of the memory without sharing"),
    ratio("pipelines", "memory/sa=250/sklearn", AtMost(0.04), "of the memory of scikit-learn's pipelines"),
    ratio("pipelines", "load/250", AtMost(0.02), "of the time to unpickle scikit-learn's pipelines"),
    ratio("pipelines", "ac/hot/p99", AtMost(0.5), "of the same operators one at a time, fresh buffers for each record"),
    ratio("pipelines", "memory/ac=250", AtMost(0.2), "of the memory without sharing"),
    ratio("pipelines", "subplans/sa", AtMost(0.5), "of the mean without results that are kept"),
    ratio("pipelines", "threads=2", AtLeast(1.8), "of the throughput of one thread"),
    ratio("pipelines", "trees/rows=100", AtMost(0.7), "of ONNX Runtime, one thread"),
    ratio("pipelines", "reserved/p99", AtMost(1.5), "of the same pipeline's p99 without the overload of the others"),
    ours(
        "pipelines",
        "shortlist=200/added",
        AtMost(1.0),
        "ms that candidates with crosses add to the median recommendation",
    ),
    ratio("tuning", "sampler/gp/sphere", AtMost(1.0), "of the distance to the minimum that Optuna's TPE leaves"),
    ratio("tuning", "sampler/gp/rosenbrock", AtMost(1.0), "of the distance to the minimum that Optuna's TPE leaves"),
    ratio("tuning", "sampler/gp/hartmann", AtMost(1.0), "of the distance to the minimum that Optuna's TPE leaves"),
    ratio(
        "tuning",
        "costudy/time_to_best",
        AtMost(0.6),
        "of the time in which trials from nothing find as good settings",
    ),
    ratio("tuning", "workers=2", AtLeast(1.6), "times as fast as one worker"),
    ratio("tuning", "tuned/loss", AtMost(1.0), "of the held-out loss with the default settings"),
    ratio("cluster", "observe/c=1/p50", AtMost(1.5), "of a raw replicated append of 200 bytes"),
    ratio("cluster", "observe/c=64", AtLeast(0.5), "of a raw group commit by as many clients to as many streams"),
    ratio("cluster", "observe/c=256", AtLeast(0.5), "of a raw group commit by as many clients to as many streams"),
    ratio("cluster", "lines", AtLeast(0.4), "of raw appends of 64 KiB to as many streams"),
    ratio("cluster", "predict/owner", AtLeast(0.9), "of the rate of a node on its own"),
    ratio("cluster", "predict/forwarded", AtLeast(0.4), "of the rate of a node on its own"),
    ours("cluster", "lag/p99", AtMost(100.0), "ms until another node has an observation, at half load"),
    ours("cluster", "release/writes", AtMost(250.0), "ms without a write to some shard, while a node stops"),
    ours("cluster", "release/failed_reads", AtMost(0.0), "reads that failed meanwhile"),
    ours("cluster", "killed_owner/writes", AtMost(6.0), "s without a write to some shard, after SIGKILL of a node"),
    ours("cluster", "killed_server/writes", AtMost(10.0), "s without a write, after SIGKILL of a NATS server"),
    ours("cluster", "killed_server/failed_reads", AtMost(0.0), "reads that failed meanwhile"),
    ours("cluster", "stopped_server/writes", AtMost(0.3), "s without a write, while a NATS server stops"),
    ratio("cluster", "users_in_memory", AtLeast(2.9), "of the users that one node holds"),
];

const ABOUT: &str = "\
# Benchmarks

This page and its figures are written by `celeris-bench all --docs docs`, or one bench at a time by
`celeris-bench NAME --docs docs`, which replaces that bench's figures. Every ratio is `ours / baseline`, both sides measured
in turn in the same run; for figures of your machine, run it there. `--json` prints a report for programs, as the files
in [benchmarks/](benchmarks/) hold it; `--quick` only tries a bench out.

";

const HOW: &str = "\
## How it is measured

- **update**: a user with 50 observations absorbs the next, by `UserModel::absorb`, at counts where no solve is due.
  `resolve` forms `Lambda + X^T X` of 50 observations with nalgebra, factorises it by Cholesky and solves, in `f32` or
  `f64`, whichever is faster. `pass` reads and writes every entry of the same matrix with one addition in between,
  compiled for the kernel's instruction set. A step takes off the matrix what the step before has left, and leaves its own
  share to the next; a read in between adds one product of two vectors. `choices` is an update where items have choice
  vectors, which move the user's prior mean, compared with one without. Each figure is the smallest of many samples, all
  taken in turn.
- **topk**: `Predictor::topk` over a real store, ten slots of `n` given items, 64 warm users of 50 observations, random
  ids of 12 characters that are made just before they are asked for, the decision record included; medians and p99 of
  both sides in turns of twenty rankings. The prediction cache is off. The baseline finds the same rows through a
  `HashMap<String, usize>` and sums up each score, with uncertainty by one `x^T A^-1 x` an item. The original prototype
  of this service needed 118 ms for 1,000 items. `linear` compares the cost an item at 10,000 and 1,000 items. `default`
  is a ranking that names no policy, validation pool included; its baseline computes the uncertainty of every item, by
  `lin_ucb`. `logging` is the same in a node that records decisions and in one that does not, in turns; of 1,000
  candidates a hundredth is recorded in full. `decisions` offers 10,000 decisions of 100 candidates a second to the
  store for six seconds: bytes written, from the second second on, against the default bound, and how many were accepted
  of those offered. `lookup` asks for the same ranking of 100 items again, with uncertainty: once out of the prediction
  cache, once computed. `lookup/n=…` predicts 1 to 16 items each for 1,000 users, whose states do not all lie next to a
  core, and `fill` does the same where every look-up misses and the predictions are put into the cache. A setting of
  `memory.prediction_items` pays where repeated requests save more by `lookup` than the others lose by `fill`. `zipf` asks by a Zipf law of exponent 1 and gives a cache a share of the bytes
  that everything would take; the baseline is the hit ratio of a cache that knows the most popular ones beforehand.
  `cold` is the first prediction for a user of whom nothing is in memory, of five the median: their history resumed from
  the snapshot, against all of it read and solved.
- **serve** and **observe**: a node and a bare axum handler, each a process of this binary. The bare handler parses the
  same bodies into the same types and serialises replies of the same types, and does nothing else. The load comes from
  [hyper](https://hyper.rs)'s client over keep-alive connections on one thread, each of which waits for its answer
  before it asks again; latencies are kept by hdrhistogram. Node and bare handler take turns in rounds of a tenth of a
  second, so that both see the same machine; rate and p99 are over all rounds, of which `http/c=64` has 200, for two busy
  servers' ratio to settle. On few cores the load generator and the server share them, on both sides alike. `ndjson` is
  a stream over 10,000 warm users that have 32 observations each and, in two streams, get 32 more, with given ids of 32
  characters; the solve that is due at 64 is in the figure.
- **secured**: two nodes with the same catalog and users, one with keys and a certificate (TLS 1.3, P-256, requests of a key
  with two roles), one open and in the clear, in turns of a tenth of a second on 32 kept connections each. `cpu/node` and
  `cpu/client` are the processor time of a request on either side, by the scheduler's own count: the load generator
  encrypts and decrypts as much as the node does, and where both share two processors that lowers the rate as well.
- **switch**: a node with 5,000 warm users of 20 observations each at `d = 50`, under 1,200 requests a second at fixed
  times, a third each of predict, topk of 100 items and observe; latencies count from the time at which a request was to
  be sent. Ten switches between two versions and five rollbacks, two seconds apart, then a training on the log. A switch's
  seconds are those from its request until a second after its answer; `second` is the p99 of all requests of one second,
  its median and its worst. The baseline is the p99 of the seconds in which nothing else happens, and `steady/second` shows
  how much these seconds differ from it, which is the variation of the machine itself.
- **bytes**: RocksDB's count of bytes written to the write-ahead log, and the sorted files that the node leaves when it
  stops, by observation.
- **size**: 20,000 users with 20 observations each at `d = 50`, ids given: what `celeris estimate-size` says against the
  node's resident memory after the load and its data directory after the stop.
- **memory**: a million users with 20 observations each at `d = 50`, streamed to a node with budgets of 2 GiB (user states
  1664 MiB, blocks 224, features and predictions 32 each, writes 64 and 32), then 200,000 predictions for users by a Zipf
  law; the largest resident memory of all moments, read 20 times a second. Then a stop, the time from the start of the
  process to readiness, and 20,000 predictions over one connection for users whom the new process has not seen.
- **train**: a random 90 % of `ml-latest-small` and of five million invented ratings (50,000 users, 10,000 items) to train
  on, the rest to predict; two threads on every side. `als` is a process from its start to its end, reading and writing
  Parquet included: `celeris train` and `spark-submit --master local[2]` of MLlib's ALS on the same job, 20 factors, 10
  iterations, MLlib's `regParam` 0.1 on centred labels. Ours has as many weights a user, three of them for what is known of
  items beforehand, and estimates its ridge; its time includes the tuning of the prior and the noise on a held-out tenth.
  Its RMSE is that of what is served, MLlib's that of its factors. `implicit` is one iteration of the library
  [implicit](https://github.com/benfred/implicit) and one of our iterations on the same pairs and the same objective, 64
  numbers a row, three steps of conjugate gradients a row on both sides, at the median of 12; `rank` is the expected
  percentile rank of what was kept, 0 at best. `refresh` goes on from a version that lacks the last hundredth of the
  observations; its baseline is a training of everything from nothing. The fastest of three runs counts, of Spark the only
  one.
- **bandits**: regret, in the mean of 20 seeds, over 10,000 rounds of 100 arms at `d = 20`, of which one is shown; neither
  validation pool nor floor. All sides draw the same weights, features and noise from the same short generator. `regret`
  of `lin_ucb` and `thompson`: all arms see the same features, each has a `UserModel` of its own, against
  [MABWiser](https://github.com/fidelity/mabwiser)'s LinUCB and LinTS with the same `alpha` 1 and `l2` 1. The other cases
  learn one `UserModel` from features of each arm, against [Vowpal Wabbit](https://vowpalwabbit.org)'s
  `--cb_explore_adf` with the policy of the same name and parameters (`mellowness` in its own unit), its learner at its
  defaults; `shared` against the best of all its policies. `softmax` multiplies estimated scores by `lambda`, and the
  estimates of Vowpal Wabbit's learner spread wider than a posterior mean, so that the same `lambda` makes it greedier:
  the case without a `lambda` holds the best of ours against the best of theirs. A peer plays as many of the seeds as it
  can begin in five minutes, or in `CELERIS_PEER_SECONDS`, and the ratio is over those; `all_seeds` is ours over all. `sublinear` compares the regret of the second half of the rounds with that of the
  first: 1 is linear growth, 0.41 that of a square root. `lock_in` is a feedback loop: twenty genres that say nothing of
  each other, all of them liked somewhat, where greedy never leaves the first one that it happened to show; `stuck` is the
  share of runs that end in the belief that another genre than the best is the best.
- **selection**: Clipper's figures 8, 10 and 7 with simulated models, in the mean of ten runs. `failure`: 20,000 queries,
  labels uniform from one to five stars, five models whose errors are normal with deviations of 1.3, 1.2, 1.1, 1.0 and 0.4
  stars; that of the last is 4.0 from the 5,000th query to the 10,000th. Feedback is immediate, what was learnt loses half
  of its weight in 1,000 queries, and errors are absolute. `readopted` is the weight of the model that failed over the last
  1,000 queries. `dialects`: 50 users of four kinds, each with a model of its own that errs by 0.4 and by 1.2 for others; a
  state for each user against one for all. `agreement`: the error where at least four of five models agree with the
  combined answer, against that of all answers. `choose` is a choice by a state as full as it gets, with and without
  records since the last.

- **ope**: every estimator on the 10,000 impressions of each log of the Open Bandit sample and on as many invented
  ones, for a uniform policy, one that prefers later items, and one that always shows what the log shows most; both
  sides get the same log, policy and expectations of our reward model, and SWITCH-DR the threshold 2. The baseline is
  [obp](https://github.com/st-tech/zr-obp) 0.5.7. `seconds` is for all values with intervals from 1,000 resamples,
  without the reward model; of ours the fastest of three runs counts. `difference` is the largest between two values.
- **recommend**: the ten best of a million items of any direction at `d = 50`, by `Table::search` in process, with weights
  drawn from the prior; the features' lengths have a gamma distribution of shape 2, or (`norms=equal`) are all the same.
  The baseline is [faiss](https://github.com/facebookresearch/faiss) 1.15.1 in a process that takes turns of twenty queries
  with ours, on the same rows and queries; one thread on both sides, medians. `exact` computes every score, as
  `IndexFlatIP` does, and `quantized_scan` bounds them by 8-bit codes first; both have to find the same, hit by hit, or the bench
  fails, as in all cases below. `hnsw` is the quantized scan against `IndexHNSWFlat` of 16 neighbours and 64 candidates while
  building, with the least number of candidates that finds 99 % of the ten best. `filter` keeps a random share of the
  items, against the scan of all; `exclude` takes 10,000 random rows out, against the same search without. `http` is a greedy
  recommendation of a node with a million items of spread lengths, over one connection, for users of 50 observations; of
  users with 5,000 with what they have seen left out, and with it. See
  [retrieval.md](ideas/retrieval.md).
- **pipelines**: the experiments of PRETZEL (OSDI 2018). `sa` are 250 sentiment pipelines: counts of n-grams of words
  and of characters by two of seven shared dictionaries, concatenated, and a logistic model. Dictionaries and a model
  for each of the twelve pairs are learnt from film reviews (10,662 sentences, Pang and Lee 2005), or from invented
  texts if there are none; each pipeline has the weights of its pair, each times a random factor around 1 with a
  standard deviation of 0.1. They are run on texts that nothing was learnt from. `ac` are 250 pipelines over 40 invented
  columns: standardised; ten principal components, distances to ten clusters and ten outputs of 100 trees of 64 leaves,
  of four sets of these that the pipelines share; and a forest of its own for each, 20 trees of 32 leaves with random
  splits. `hot`: each pipeline runs ten records that do not count and 100 that do, one at a time; median and p99 are
  over all runs of all pipelines. The baseline has the same functions for each operator and the same objects, in a plan
  that is not optimised: a stage for each declared operator, called one after the other, in buffers that are allocated
  for each record. `hot/interpreter` compares with the interpreter of the tests, which also makes a string of each word
  and n-gram. `cold`, `memory` and `load` are processes of their own, five of each side in turns, that load all
  pipelines from files, then run each once. Ours share objects and stages; of the baseline every pipeline has its own,
  with a stage for each operator and buffers for each record. `cold` are those first runs, `memory` is what the resident
  memory has grown by after them, `load` the fastest time to read, check and compile; `load/250` and `memory/…/sklearn`
  compare with one Python process that unpickles the same pipelines, a file each, and predicts once. `sklearn` is the
  median of `Pipeline.predict` of one text, called from Python, of four texts for each pipeline; its probabilities must
  be ours to 1e-5. `subplans`: 200 texts go through all pipelines, with n-grams of earlier pipelines kept within 8 MiB,
  and without. `threads` is the batch engine with 512 texts for every pipeline, on two threads and on one. `reserved`:
  one text every 500 µs for a pipeline that has an executor of its own, while batches of 64 texts for the others, chosen
  by a Zipf law of exponent 2, come at twice the rate that the other executor can take; and without them. `trees` is a
  LightGBM model of 100 trees of 31 leaves over 28 columns, its export by onnxmltools in [ONNX
  Runtime](https://onnxruntime.ai), and itself, one thread each, the fastest pass of many in turns; `difference` is the
  largest one from LightGBM's outputs of 10,000 rows. `shortlist` are recommendations of two nodes in turn, over HTTP: 10,000
  items of 50 columns, and one of the nodes computes one column more for the best 200, a linear model of the combinations
  of genre with device and with hour.
- **tuning**: studies of three functions whose minima are known: the sum of squares in 5 dimensions from -5 to 5,
  Rosenbrock's valley in 4 from -5 to 10, and Hartmann's hills in 6 from 0 to 1. `sampler` is the distance of the best of
  30 trials to the minimum, the median of 20 seeds; the baseline is the `TPESampler` of
  [Optuna](https://optuna.org) 5.0.0 with its defaults. `time` is the mean time to choose a trial. The others are studies
  of a node with the ratings of ml-latest-small, all at the default `dim` of 20 but the last. `costudy/time_to_best`: the time of the
  trials up to the first whose loss is within 0.1 % of the best of 20 trials that start from nothing, for a collaborative study and for that
  one. `workers=2`: the time of eight trials and that of the present settings, by one worker and by two. `tuned` searches `dim` and
  regularization.
- **cluster**: three nodes of six shards over three [NATS](https://nats.io) servers that sync every write
  (`sync_interval: always`, three copies of each stream), all processes on this machine, which share its processors and its
  disk. `observe` is a number of clients, each of which waits for its answer before it sends the next observation, in turns
  of half a second with a raw group commit: as many clients, a record of 200 bytes each, six streams (one for `c=1`), each
  with one writer that appends one message at a time on the condition that the stream ends where it believes, all records
  that wait in one message. Clients send to the owner of the user; `any` are clients that send to another node. `lines` is one
  stream of observations with given ids to one node: bytes of text a second, against messages of 64 KiB to six streams;
  `lines/alone` compares its rate with that of a node on its own. `predict` is as in `serve`, against a node on its own.
  `lag` is the time from an observation's acknowledgement until another node's copy has it (`?staleness=`), while 32
  clients send half of the rate of `observe/c=64`. The other cases write to and read from every shard once in 10 ms, by
  nodes that stay: `writes` is the longest time between two acknowledged writes of a shard, and each node or server is
  lost in turn, the worst is reported. `release` is SIGTERM to a node, `killed_owner` SIGKILL, `stopped_server` and
  `killed_server` the same of a NATS server. `users_in_memory` counts the users of 16,000 whose states are found in memory,
  with a budget of 24 MiB for each node. The raw baselines parse no requests, learn nothing and have no copies on nodes: where all
  processes share two busy processors, as here, that work is the difference. A node on its own takes lines at a fifth of
  the baseline of `lines`.
";

/// Stores a report as JSON below `folder`, and regenerates `benchmarks.md` there from all stored
/// reports.
///
/// # Errors
/// If a file cannot be written, or a stored report cannot be read.
pub fn keep(folder: &Path, report: &Report) -> Result<(), Failure> {
    let reports = folder.join("benchmarks");
    let file = |bench: &str| reports.join(format!("{bench}.json"));
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::bad_input(format!("{}: {error} (remove it to go on without)", path.display()))
    };
    let path = file(&report.bench);
    let mut text = serde_json::to_string_pretty(report).map_err(Failure::other)?;
    text.push('\n');
    fs::create_dir_all(&reports).and_then(|()| fs::write(&path, text)).map_err(|error| failed(&path, &error))?;
    let mut kept = Vec::new();
    for bench in Bench::ALL {
        let path = file(bench.name());
        match fs::read_to_string(&path) {
            Ok(text) => kept.push(serde_json::from_str(&text).map_err(|error| failed(&path, &error))?),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&path, &error)),
        }
    }
    let path = folder.join("benchmarks.md");
    fs::write(&path, page(&kept)).map_err(|error| failed(&path, &error))
}

fn page(reports: &[Report]) -> String {
    let mut text = ABOUT.to_owned();
    text.push_str("## Targets\n\n| bench | case | figure | target | | met |\n|---|---|---:|---:|---|---|\n");
    for target in &TARGETS {
        text.push_str(&target_line(target, reports));
    }
    text.push_str("\n![Update latency against dimension](benchmarks/update-latency.svg)\n\n");
    text.push_str("![topK latency against items asked for](benchmarks/topk-latency.svg)\n\n");
    text.push_str("![Regret with one model for each arm](benchmarks/regret-disjoint.svg)\n\n");
    text.push_str("![Regret with one model for all arms](benchmarks/regret-shared.svg)\n\n");
    text.push_str("![Mean error while a model fails and recovers](benchmarks/selection-failure.svg)\n\n");
    text.push_str("![Weight of the model that fails and recovers](benchmarks/selection-weights.svg)\n\n");
    text.push_str(HOW);
    text.push_str("## All cases\n");
    for report in reports {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "\n### {}\n\nMeasured on {}: {}.\n\n| case | unit | ours | baseline | ratio |\n|---|---|---:|---:|---:|\n",
            report.bench, report.date, report.machine
        );
        for Row { case, unit, ours, baseline, ratio } in &report.rows {
            let [ours, baseline, ratio] = [ours, baseline, ratio].map(|value| value.map_or("–".to_owned(), figures));
            let _ = writeln!(text, "| `{case}` | {unit} | {ours} | {baseline} | {ratio} |");
        }
    }
    text
}

fn target_line(target: &Target, reports: &[Report]) -> String {
    let Target { bench, case, figure, bound, what } = target;
    let row = reports.iter().find(|report| report.bench == *bench).and_then(|report| report.row(case));
    let value = row.and_then(|row| match figure {
        Figure::Ours => row.ours,
        Figure::Ratio => row.ratio,
    });
    let met = value.map_or("not measured", |value| if bound.holds(value) { "yes" } else { "**no**" });
    let value = value.map_or_else(|| "–".to_owned(), figures);
    format!("| {bench} | `{case}` | {value} | {} | {what} | {met} |\n", bound.text())
}
