//! `--protocol velox`: the share of full retraining's gain that online updates achieve (Velox
//! §2.4).
//!
//! Both experiments compare three states on the same unseen ratings: *initial*, features and user
//! states from early ratings only; *online*, the same features, with user states updated by later
//! ratings; *retrained*, features and user states from all of these ratings. A user's ratings are
//! in random order, so that only their number changes over time.
//!
//! The second experiment has a fourth state, *refreshed*: the later ratings arrive as a stream in
//! random order over users, and after each twentieth of it a training warm-starts from the previous
//! version (`celeris_retrain::refresh`), the last time after the whole stream.

use std::fmt;
use std::time::Instant;

use anyhow::ensure;
use celeris_datasets::Rating as NamedRating;
use celeris_retrain::{Rating, Trained};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::orders::{Order, Parts};
use super::progress::Part;
use super::{EvaluateSettings, Numbered, by_user, mean_square, predict};

/// Ratings per user before the features of [`VeloxReport::ten_plus_seven`] are trained, and after.
const FIRST: usize = 10;
const THEN: usize = 7;

/// Number of rating orders over which squared errors are averaged. With few users, the gain of
/// seven ratings per user varies by a sixth between orders; the gain of half of the data hardly
/// varies.
const ORDERS_TEN_PLUS_SEVEN: usize = 5;
const ORDERS_HALF: usize = 2;

/// The number of equal parts of the stream; each is followed by a refresh.
const REFRESH_PARTS: usize = 20;

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VeloxReport {
    /// `"velox"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of orders and trainer.
    pub seed: u64,
    /// Features from ten ratings per user, seven more online; users with fewer than eighteen are
    /// excluded.
    pub ten_plus_seven: Experiment,
    /// Features from half of every user's ratings, 70 % of the rest online.
    pub half: Experiment,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Experiment {
    /// Number of included users.
    pub users: usize,
    /// Number of users excluded because they have too few ratings.
    pub users_left_out: usize,
    /// Number of rating orders.
    pub orders: usize,
    /// Number of ratings before the features are trained, after it, and predicted, in each order.
    pub ratings: [usize; 3],
    /// RMSE of the served predictions before the later ratings.
    pub rmse_initial: f64,
    /// RMSE of the served predictions after the later ratings.
    pub rmse_online: f64,
    /// RMSE of the served predictions after training on all.
    pub rmse_retrained: f64,
    /// `(initial - online) / initial`.
    pub gain: f64,
    /// `(initial - online) / (initial - retrained)`.
    pub recovered: f64,
    /// RMSE of the trainer's own weights after the first training.
    pub rmse_initial_own_weights: f64,
    /// RMSE of the trainer's own weights after the second training.
    pub rmse_retrained_own_weights: f64,
    /// The results of refreshes along the stream; only in the second experiment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refreshes: Option<Refreshes>,
}

/// Results of warm-started trainings while the later ratings arrive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Refreshes {
    /// Number of refreshes per order.
    pub count: usize,
    /// The share of the later ratings between two refreshes.
    pub every: f64,
    /// RMSE of the served predictions after the last refresh.
    pub rmse: f64,
    /// `(initial - refreshed) / (initial - retrained)`.
    pub recovered: f64,
    /// RMSE of the served predictions just before the last refresh: under the previous refresh,
    /// with later ratings learnt online.
    pub rmse_before_last: f64,
    /// `(initial - before last) / (initial - retrained)`.
    pub recovered_before_last: f64,
    /// Median time of a refresh, as a share of the time of a cold start on all ratings.
    pub time: f64,
}

/// Runs both experiments.
///
/// # Errors
/// If no user has enough ratings, or the trainer rejects them.
pub fn evaluate_velox(
    dataset: &str,
    ratings: &[NamedRating],
    settings: &EvaluateSettings,
) -> anyhow::Result<VeloxReport> {
    Ok(VeloxReport {
        protocol: "velox",
        dataset: dataset.to_owned(),
        dim: settings.dim,
        seed: settings.seed,
        ten_plus_seven: Experiment::run(ratings, settings, TEN_PLUS_SEVEN)?,
        half: Experiment::run(ratings, settings, HALF)?,
    })
}

/// The schedule of an experiment.
#[derive(Clone, Copy)]
struct Schedule {
    /// The experiment in progress reports.
    name: &'static str,
    orders: usize,
    /// Number of a user's ratings before and after the first training; `None` excludes the user.
    parts: fn(ratings: usize) -> Option<(usize, usize)>,
    /// Whether refreshes along the stream are measured too.
    refreshed: bool,
}

const TEN_PLUS_SEVEN: Schedule = Schedule {
    name: "ten ratings a user, then seven",
    orders: ORDERS_TEN_PLUS_SEVEN,
    parts: ten_plus_seven,
    refreshed: false,
};
const HALF: Schedule =
    Schedule { name: "half of the ratings, then most of the rest", orders: ORDERS_HALF, parts: half, refreshed: true };

fn ten_plus_seven(ratings: usize) -> Option<(usize, usize)> {
    (ratings > FIRST + THEN).then_some((FIRST, THEN))
}

/// At least four ratings are needed for every part to be non-empty.
fn half(ratings: usize) -> Option<(usize, usize)> {
    let first = ratings / 2;
    (ratings >= 4).then_some((first, (ratings - first) * 7 / 10))
}

/// Mean squared errors of one order.
#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    initial: f64,
    online: f64,
    retrained: f64,
    initial_own: f64,
    retrained_own: f64,
    refreshed: f64,
    before_last: f64,
}

impl Experiment {
    fn run(ratings: &[NamedRating], settings: &EvaluateSettings, schedule: Schedule) -> anyhow::Result<Self> {
        let orders = schedule.orders;
        let mut numbered = Numbered::default();
        let listed = numbered.number(ratings);
        let rows = by_user(numbered.users.len(), &listed);
        let users = rows.iter().filter(|row| (schedule.parts)(row.len()).is_some()).count();
        ensure!(users > 0, "no user has enough ratings for this experiment; it needs {} of one user", FIRST + THEN + 1);
        let steps = orders * Self::steps(schedule);
        settings.stage(schedule.name, Some(steps));
        let mut sum = Squares::default();
        let mut counts = [0; 3];
        let mut times = Vec::new();
        for order in 0..orders {
            let parts = Parts::of(&rows, schedule.parts, Order { seed: settings.seed, number: order as u64 });
            counts = parts.sizes();
            let refreshed = schedule.refreshed.then_some(&mut times);
            let step = |step| settings.part(order * Self::steps(schedule) + step, steps);
            let squares = Self::order(&numbered, &parts, settings, (&step, refreshed))?;
            sum.initial += squares.initial;
            sum.online += squares.online;
            sum.retrained += squares.retrained;
            sum.initial_own += squares.initial_own;
            sum.retrained_own += squares.retrained_own;
            sum.refreshed += squares.refreshed;
            sum.before_last += squares.before_last;
        }
        let rmse = |sum: f64| (sum / orders as f64).sqrt();
        let [initial, online, retrained] = [sum.initial, sum.online, sum.retrained].map(rmse);
        Ok(Self {
            users,
            users_left_out: rows.len() - users,
            orders,
            ratings: counts,
            rmse_initial: initial,
            rmse_online: online,
            rmse_retrained: retrained,
            gain: (initial - online) / initial,
            recovered: (initial - online) / (initial - retrained),
            rmse_initial_own_weights: rmse(sum.initial_own),
            rmse_retrained_own_weights: rmse(sum.retrained_own),
            refreshes: schedule.refreshed.then(|| Refreshes {
                count: REFRESH_PARTS,
                every: 1.0 / REFRESH_PARTS as f64,
                rmse: rmse(sum.refreshed),
                recovered: (initial - rmse(sum.refreshed)) / (initial - retrained),
                rmse_before_last: rmse(sum.before_last),
                recovered_before_last: (initial - rmse(sum.before_last)) / (initial - retrained),
                time: median(&mut times),
            }),
        })
    }

    /// Number of trainings of an order.
    fn steps(schedule: Schedule) -> usize {
        2 + if schedule.refreshed { REFRESH_PARTS } else { 0 }
    }

    /// Evaluates one order of the ratings, whose trainings are reported as steps. If refreshes are
    /// measured, their times are added to `times`, as shares of a training's.
    fn order<'a>(
        numbered: &Numbered,
        parts: &Parts,
        settings: &EvaluateSettings,
        (step, times): (&dyn Fn(usize) -> Part<'a>, Option<&mut Vec<f64>>),
    ) -> anyhow::Result<Squares> {
        let learnt = parts.learnt();
        let early = numbered.train(&parts.first.concat(), settings, step(0))?;
        let started = Instant::now();
        let late = numbered.train(&learnt.concat(), settings, step(1))?;
        let of_training = started.elapsed().as_secs_f64();
        let predict = |version: &Trained, learnt: &[Vec<Rating>]| {
            predict(version, settings.loss, Part::unreported(), (learnt, &parts.tested))
        };
        let initial = predict(&early, &parts.first)?;
        let online = predict(&early, &learnt)?;
        let retrained = predict(&late, &learnt)?;
        let served = |range, predictions: &[super::Prediction]| {
            mean_square(range, predictions.iter().map(|one| (one.label, one.served.score)))
        };
        let own = |range, predictions: &[super::Prediction]| {
            mean_square(range, predictions.iter().map(|one| (one.label, one.own)))
        };
        let [refreshed, before_last] = match times {
            None => [0.0; 2],
            Some(times) => {
                let before = times.len();
                let took = |seconds: f64| {
                    times.push(seconds / of_training);
                    step(1 + times.len() - before).at(1.0);
                };
                let [last, before] = refreshed(numbered, parts, &early, settings, took)?;
                let square = |version: &Trained| -> anyhow::Result<f64> {
                    Ok(served(version.label_range, &predict(version, &learnt)?))
                };
                [square(&last)?, square(&before)?]
            }
        };
        Ok(Squares {
            refreshed,
            before_last,
            initial: served(early.label_range, &initial),
            online: served(early.label_range, &online),
            retrained: served(late.label_range, &retrained),
            initial_own: own(early.label_range, &initial),
            retrained_own: own(late.label_range, &retrained),
        })
    }
}

/// Refreshes along the stream of later ratings; returns the last version and the previous one.
/// Calls `took` with the seconds of each refresh.
fn refreshed(
    numbered: &Numbered,
    parts: &Parts,
    early: &Trained,
    settings: &EvaluateSettings,
    mut took: impl FnMut(f64),
) -> anyhow::Result<[Trained; 2]> {
    let mut ratings = parts.first.concat();
    let mut stream = parts.then.concat();
    stream.shuffle(&mut ChaCha8Rng::seed_from_u64(settings.seed));
    let first = ratings.len();
    let until = |part: usize| stream.len() * part / REFRESH_PARTS;
    let (mut version, mut before) = (early.clone(), early.clone());
    for part in 1..=REFRESH_PARTS {
        ratings.extend(&stream[until(part - 1)..until(part)]);
        let started = Instant::now();
        before = numbered.refresh(&version, &ratings, first, settings)?;
        std::mem::swap(&mut before, &mut version);
        took(started.elapsed().as_secs_f64());
    }
    Ok([version, before])
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

impl fmt::Display for VeloxReport {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { dataset, dim, seed, .. } = self;
        writeln!(out, "velox on {dataset}, dim {dim}, seed {seed}")?;
        writeln!(out, "                        initial  online   retrained  gain     recovered")?;
        writeln!(out, "  10 + 7 ratings        {}", self.ten_plus_seven)?;
        write!(out, "  half, then 70 %       {}", self.half)
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { rmse_initial, rmse_online, rmse_retrained, .. } = self;
        writeln!(
            out,
            "{rmse_initial:.4}   {rmse_online:.4}   {rmse_retrained:.4}     {:.2} %   {:.2}",
            100.0 * self.gain,
            self.recovered
        )?;
        let (initial, retrained) = (self.rmse_initial_own_weights, self.rmse_retrained_own_weights);
        writeln!(out, "    own weights         {initial:.4}            {retrained:.4}")?;
        if let Some(refreshes) = &self.refreshes {
            let Refreshes { count, every, rmse, recovered, recovered_before_last: before, time, .. } = refreshes;
            let every = 100.0 * every;
            writeln!(
                out,
                "    {count} refreshes        {rmse:.4}, one after each {every:.0} % of the later ratings; recovered \
                 {recovered:.2} ({before:.2} before the last); one takes {time:.2} of a training",
            )?;
        }
        let [first, then, tested] = self.ratings;
        let Self { users, users_left_out, orders, .. } = self;
        write!(
            out,
            "    {users} users ({users_left_out} left out), {first} + {then} ratings learnt, {tested} predicted, {orders} orders"
        )
    }
}
