//! `--protocol density`: predictions by the number of ratings that are known of each user.
//!
//! For every density `n`, features are trained on `n` random ratings of each user (*initial*), users
//! then learn seven more online (*online*), and a version is trained on all of them (*retrained*).
//! All three predict the same other ratings. Users with too few ratings for a density are left out
//! of it. The baseline is the library myFM, trained twice on the same ratings: with users and items
//! alone, and with what users have rated (`crate::peers::ratings`).
//!
//! Items with one to five training labels are also reported apart: their features are the least
//! certain.

mod report;

use anyhow::ensure;
use celeris_datasets::Rating as NamedRating;
use celeris_retrain::{Rating, Trained};
use serde::Serialize;

use crate::accuracy::{Accuracy, Collected, Rmse, Squares, clamped_square};
use crate::orders::{Order, Parts};
use crate::peers::ratings::{Known, RatingPeer};
use crate::progress::Part;
use crate::{EvaluateSettings, Numbered, Prediction, by_user, predict};

/// Ratings of a user that are learnt online.
const THEN: usize = 7;

/// Largest number of densities, and of orders.
pub const DENSITIES_MAX: usize = 20;
pub const ORDERS_MAX: usize = 100;

/// What is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DensitySettings {
    /// Numbers of training ratings of a user, each at least 1; at most [`DENSITIES_MAX`].
    pub densities: Vec<usize>,
    /// Number of random orders of each user's ratings, over which squared errors are averaged; 1 to
    /// [`ORDERS_MAX`].
    pub orders: usize,
}

impl Default for DensitySettings {
    fn default() -> Self {
        Self { densities: vec![5, 10, 20, 40, 80], orders: 1 }
    }
}

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DensityReport {
    /// `"density"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors.
    pub dim: usize,
    /// The seed of orders and trainers.
    pub seed: u64,
    /// Number of orders.
    pub orders: usize,
    /// Number of ratings of a user that are learnt online.
    pub then: usize,
    /// One entry for every density that some user has enough ratings for.
    pub densities: Vec<Density>,
}

/// The figures at one density.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Density {
    /// Number of training ratings of each user.
    pub ratings_per_user: usize,
    /// Number of included users.
    pub users: usize,
    /// Number of users excluded because they have too few ratings.
    pub users_left_out: usize,
    /// Number of ratings that are trained on, learnt online and predicted, in each order.
    pub ratings: [usize; 3],
    /// The served predictions after the first training.
    pub initial: Accuracy,
    /// The served predictions after seven more ratings.
    pub online: Accuracy,
    /// The served predictions after training on all of these.
    pub retrained: Accuracy,
    /// RMSE of the trainer's own weights after the first training, and after the second.
    pub own_weights: [Rmse; 2],
    /// The peers; empty if they are not installed.
    pub peers: Vec<Peer>,
}

/// The figures of one peer, which does not learn online.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peer {
    pub name: &'static str,
    pub initial: Rmse,
    pub retrained: Rmse,
}

/// Runs the protocol.
///
/// # Errors
/// If no user has enough ratings for any density, or a trainer fails.
pub fn evaluate_density(
    dataset: &str,
    ratings: &[NamedRating],
    protocol: &DensitySettings,
    settings: &EvaluateSettings,
) -> anyhow::Result<DensityReport> {
    evaluate_beside(RatingPeer::myfm()?.as_ref(), (dataset, ratings), protocol, settings)
}

/// Runs the protocol, beside myFM if it is given.
fn evaluate_beside(
    myfm: Option<&RatingPeer>,
    (dataset, ratings): (&str, &[NamedRating]),
    protocol: &DensitySettings,
    settings: &EvaluateSettings,
) -> anyhow::Result<DensityReport> {
    let mut numbered = Numbered::default();
    let listed = numbered.number(ratings);
    let rows = by_user(numbered.users.len(), &listed);
    let most = rows.iter().map(Vec::len).max().unwrap_or_default();
    let densities: Vec<usize> =
        protocol.densities.iter().copied().filter(|density| cut(*density)(most).is_some()).collect();
    ensure!(
        !densities.is_empty(),
        "no user has enough ratings: a density of n needs n + {} ratings of a user, and the most that one has are {most}",
        THEN + 1
    );
    let scene = Scene { numbered: &numbered, rows: &rows, myfm, orders: protocol.orders, settings };
    Ok(DensityReport {
        protocol: "density",
        dataset: dataset.to_owned(),
        dim: settings.dim,
        seed: settings.seed,
        orders: protocol.orders,
        then: THEN,
        densities: densities.into_iter().map(|density| scene.at(density)).collect::<anyhow::Result<_>>()?,
    })
}

/// The sizes of a user's parts at a density; `None` for a user with too few ratings.
fn cut(density: usize) -> impl Fn(usize) -> Option<(usize, usize)> {
    move |ratings| (ratings > density + THEN).then_some((density, THEN))
}

struct Scene<'a> {
    numbered: &'a Numbered,
    rows: &'a [Vec<Rating>],
    myfm: Option<&'a RatingPeer>,
    orders: usize,
    settings: &'a EvaluateSettings<'a>,
}

/// The predictions of one order.
struct Stages {
    initial: Vec<Prediction>,
    online: Vec<Prediction>,
    retrained: Vec<Prediction>,
}

/// The two versions of one order.
struct Versions {
    early: Trained,
    late: Trained,
}

impl Versions {
    fn train(numbered: &Numbered, parts: &Parts, settings: &EvaluateSettings, part: Part) -> anyhow::Result<Self> {
        let early = numbered.train(&parts.first.concat(), settings, Part::unreported())?;
        part.at(0.5);
        let late = numbered.train(&parts.learnt().concat(), settings, Part::unreported())?;
        part.at(1.0);
        Ok(Self { early, late })
    }

    fn predict(&self, parts: &Parts, settings: &EvaluateSettings) -> anyhow::Result<Stages> {
        let learnt = parts.learnt();
        let stage = |version: &Trained, learnt: &[Vec<Rating>]| {
            predict(version, settings.loss, Part::unreported(), (learnt, &parts.tested))
        };
        Ok(Stages {
            initial: stage(&self.early, &parts.first)?,
            online: stage(&self.early, &learnt)?,
            retrained: stage(&self.late, &learnt)?,
        })
    }
}

/// The figures of one density, over its orders.
#[derive(Default)]
struct Sums {
    stages: [Collected; 3],
    own: [Squares; 2],
    peers: [[Squares; 2]; 2],
    sizes: [usize; 3],
}

impl Sums {
    fn add(&mut self, versions: &Versions, parts: &Parts, (of, items): (&Stages, usize)) {
        let labels = [counts(items, &parts.first), counts(items, &parts.learnt())];
        let ranges = [versions.early.label_range, versions.late.label_range];
        self.stages[0].add(ranges[0], &of.initial, &labels[0]);
        self.stages[1].add(ranges[0], &of.online, &labels[0]);
        self.stages[2].add(ranges[1], &of.retrained, &labels[1]);
        for (place, predictions) in [&of.initial, &of.retrained].into_iter().enumerate() {
            add(&mut self.own[place], ranges[place], predictions.iter().map(|one| (one.user, one.label, one.own)));
        }
        self.sizes = parts.sizes();
    }
}

/// Number of training labels of each item.
fn counts(items: usize, rows: &[Vec<Rating>]) -> Vec<u32> {
    let mut counts = vec![0; items];
    rows.iter().flatten().for_each(|row| counts[row.item as usize] += 1);
    counts
}

fn add(squares: &mut Squares, range: (f32, f32), scored: impl Iterator<Item = (u32, f32, f32)>) {
    for (user, label, score) in scored {
        squares.add(user, clamped_square(range, label, score));
    }
}

impl Scene<'_> {
    fn at(&self, density: usize) -> anyhow::Result<Density> {
        let settings = self.settings;
        let users = self.rows.iter().filter(|row| cut(density)(row.len()).is_some()).count();
        settings.stage(&format!("training on {density} ratings a user, in orders"), Some(self.orders));
        let mut sums = Sums::default();
        let mut drawn = Vec::new();
        for number in 0..self.orders {
            let order = Order { seed: settings.seed, number: number as u64 };
            let parts = Parts::of(self.rows, cut(density), order);
            let versions = Versions::train(self.numbered, &parts, settings, settings.part(number, self.orders))?;
            let stages = versions.predict(&parts, settings)?;
            sums.add(&versions, &parts, (&stages, self.numbered.items.len()));
            drawn.push((parts, [versions.early.label_range, versions.late.label_range]));
        }
        if let Some(myfm) = self.myfm {
            let part =
                settings.stage(&format!("myFM on {density} ratings a user, in trainings"), Some(4 * self.orders));
            for (number, (parts, ranges)) in drawn.iter().enumerate() {
                self.of_peer(myfm, parts, (*ranges, &mut sums.peers), number)?;
                part.at((number + 1) as f64 / self.orders as f64);
            }
        }
        let Sums { stages: [initial, online, retrained], own, peers, sizes } = &sums;
        let of_peer = |(known, [initial, retrained]): (Known, &[Squares; 2])| Peer {
            name: known.name(),
            initial: initial.rmse(),
            retrained: retrained.rmse(),
        };
        Ok(Density {
            ratings_per_user: density,
            users,
            users_left_out: self.rows.len() - users,
            ratings: *sizes,
            initial: initial.accuracy(),
            online: online.accuracy(),
            retrained: retrained.accuracy(),
            own_weights: [own[0].rmse(), own[1].rmse()],
            peers: self.myfm.map_or_else(Vec::new, |_| Known::BOTH.into_iter().zip(peers).map(of_peer).collect()),
        })
    }

    /// Trains the peer on the same ratings, and adds its squared errors.
    fn of_peer(
        &self,
        myfm: &RatingPeer,
        parts: &Parts,
        (ranges, sums): ([(f32, f32); 2], &mut [[Squares; 2]; 2]),
        number: usize,
    ) -> anyhow::Result<()> {
        let tested = parts.tested.concat();
        let trained = [parts.first.concat(), parts.learnt().concat()];
        let seed = self.settings.seed.wrapping_add(number as u64);
        for (known, squares) in Known::BOTH.into_iter().zip(sums) {
            for ((train, range), squares) in trained.iter().zip(ranges).zip(squares) {
                let predicted = myfm.fitted((train, &tested), known, seed)?;
                add(squares, range, tested.iter().zip(predicted).map(|(row, score)| (row.user, row.label, score)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
