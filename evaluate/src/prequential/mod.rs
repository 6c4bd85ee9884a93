//! `--protocol prequential`: the rows in the order of their time, each predicted before it is learnt.
//!
//! A first share of the rows is trained on. Then every row is predicted as a node would, and learnt
//! by its user's state: users and items that are new are included, from their first row on. Four
//! ways to go on are compared on the same rows:
//!
//! - *fixed*: the first version for the whole stream;
//! - *refreshed*: at given moments, a refresh of the version with all rows so far, as a node makes it
//!   (a training from nothing where it may not be refreshed);
//! - *retrained*: at the same moments, a training from nothing;
//! - *tuned*: as *retrained*, with the `dim` of three and the half-life of two that predict the
//!   latest tenth of the rows so far best.
//!
//! The peers get the same rows: river and Vowpal Wabbit predict and learn each row as it comes, with
//! the best of several settings; myFM is trained at the same moments and does not learn between
//! them.

mod report;
mod stream;
mod tuning;

use anyhow::ensure;
use celeris_datasets::Rating as NamedRating;
use celeris_model::Timestamp;
use celeris_retrain::{Rating, RetrainError, Trained};
use serde::Serialize;

use self::stream::{Rows, Scored, Segment, serve};
use self::tuning::Served;
use crate::accuracy::{Rmse, Squares, clamped_square};
use crate::peers::ratings::{Known, Online, RatingPeer};
use crate::progress::Part;
use crate::{EvaluateSettings, Numbered, ensure_times};

/// Number of parts of the stream for which the error so far is reported.
const TENTHS: usize = 10;

/// Largest number of retrainings.
pub const RETRAININGS_MAX: usize = 1000;

/// What is evaluated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PrequentialSettings {
    /// The share of the rows to train on before the stream begins, above 0 and below 1.
    pub first_share: f64,
    /// Number of retrainings, at equal distances in the stream; at most [`RETRAININGS_MAX`].
    pub retrainings: usize,
}

impl Default for PrequentialSettings {
    fn default() -> Self {
        Self { first_share: 0.3, retrainings: 10 }
    }
}

/// The report of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrequentialReport {
    /// `"prequential"`.
    pub protocol: &'static str,
    /// The name of the data set.
    pub dataset: String,
    /// The length of feature and weight vectors, except of *tuned*.
    pub dim: usize,
    /// The seed of the trainers.
    pub seed: u64,
    /// Number of rows that are trained on before the stream begins.
    pub train_ratings: usize,
    /// Number of rows of the stream, which are predicted and then learnt.
    pub stream_ratings: usize,
    /// Number of rows of the stream whose user has no row before the stream.
    pub stream_ratings_of_unseen_users: usize,
    /// Number of rows of the stream whose item has no row before the stream.
    pub stream_ratings_of_unseen_items: usize,
    pub retrainings: usize,
    /// Ours: `"fixed"`, `"refreshed"`, `"retrained"`, `"tuned"`.
    pub ours: Vec<Line>,
    /// The peers that are installed.
    pub peers: Vec<Line>,
    /// The names of the peers that are not.
    pub missing: Vec<&'static str>,
}

/// The errors of one way to learn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub name: &'static str,
    #[serde(flatten)]
    pub error: Rmse,
    /// The share of labels inside their 95 % interval; null for peers.
    pub coverage_95: Option<f64>,
    /// RMSE from the beginning of the stream to the end of each of its tenths.
    pub rmse_so_far: Vec<f64>,
    /// Settings that were chosen.
    pub chosen: Option<String>,
}

impl Line {
    /// The line of these predictions of a stream, with scores clamped to `range`.
    fn of(name: &'static str, stream: &[Rating], scores: &[f32], range: (f32, f32)) -> Self {
        let mut squares = Squares::default();
        let mut rmse_so_far = Vec::new();
        let mut done = 0;
        for tenth in 1..=TENTHS {
            let end = stream.len() * tenth / TENTHS;
            for (row, score) in stream[done..end].iter().zip(&scores[done..end]) {
                squares.add(row.user, clamped_square(range, row.label, *score));
            }
            done = end;
            rmse_so_far.push(squares.rmse().rmse);
        }
        Self { name, error: squares.rmse(), coverage_95: None, rmse_so_far, chosen: None }
    }
}

/// Runs the protocol.
///
/// # Errors
/// If rows have no time, one part would be too small, or a trainer fails.
pub fn evaluate_prequential(
    dataset: &str,
    ratings: &[NamedRating],
    protocol: PrequentialSettings,
    settings: &EvaluateSettings,
) -> anyhow::Result<PrequentialReport> {
    let mut ordered = ratings.to_vec();
    ensure_times(&ordered, "the protocol prequential")?;
    // A stable sort, so that rows of one time keep the order of the file.
    ordered.sort_by_key(|rating| rating.timestamp);
    let mut report = ours(dataset, &ordered, protocol, settings)?;
    let scene = Scene::new(&ordered, protocol, settings)?;
    for online in Online::BOTH {
        match RatingPeer::online(online)? {
            Some(peer) => report.peers.push(scene.of_online(&peer, online)?),
            None => report.missing.push(online.name()),
        }
    }
    match RatingPeer::myfm()? {
        Some(myfm) => {
            for known in Known::BOTH {
                report.peers.push(scene.of_myfm(&myfm, known)?);
            }
        }
        None => report.missing.push("myFM"),
    }
    Ok(report)
}

/// Our lines of the report; `ordered` are the rows in the order of their time.
fn ours(
    dataset: &str,
    ordered: &[NamedRating],
    protocol: PrequentialSettings,
    settings: &EvaluateSettings,
) -> anyhow::Result<PrequentialReport> {
    let scene = Scene::new(ordered, protocol, settings)?;
    let (known, stream) = scene.ratings.split_at(scene.first);
    let (mut users, mut items) = (vec![false; scene.numbered.users.len()], vec![false; scene.numbered.items.len()]);
    for row in known {
        users[row.user as usize] = true;
        items[row.item as usize] = true;
    }
    Ok(PrequentialReport {
        protocol: "prequential",
        dataset: dataset.to_owned(),
        dim: settings.dim,
        seed: settings.seed,
        train_ratings: known.len(),
        stream_ratings: stream.len(),
        stream_ratings_of_unseen_users: stream.iter().filter(|row| !users[row.user as usize]).count(),
        stream_ratings_of_unseen_items: stream.iter().filter(|row| !items[row.item as usize]).count(),
        retrainings: protocol.retrainings,
        ours: Way::ALL.into_iter().map(|way| scene.of_ours(way)).collect::<anyhow::Result<_>>()?,
        peers: Vec::new(),
        missing: Vec::new(),
    })
}

/// How our model goes on along the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Fixed,
    Refreshed,
    Retrained,
    Tuned,
}

impl Way {
    const ALL: [Self; 4] = [Self::Fixed, Self::Refreshed, Self::Retrained, Self::Tuned];

    fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Refreshed => "refreshed",
            Self::Retrained => "retrained",
            Self::Tuned => "tuned",
        }
    }
}

/// The rows in the order of their time, and where versions are trained.
struct Scene<'a> {
    numbered: Numbered,
    ratings: Vec<Rating>,
    times: Vec<Timestamp>,
    /// Number of rows before the stream.
    first: usize,
    /// The rows that each version serves, in turn, as positions where they begin; then the end.
    bounds: Vec<usize>,
    settings: &'a EvaluateSettings<'a>,
}

impl<'a> Scene<'a> {
    fn new(
        ordered: &[NamedRating],
        protocol: PrequentialSettings,
        settings: &'a EvaluateSettings<'a>,
    ) -> anyhow::Result<Self> {
        let mut numbered = Numbered::default();
        let ratings = numbered.number(ordered);
        let times = ordered.iter().map(|rating| rating.timestamp).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is a count")]
        let first = (ratings.len() as f64 * protocol.first_share) as usize;
        let (stream, segments) = (ratings.len() - first, protocol.retrainings + 1);
        ensure!(
            first > 0 && stream >= segments.max(TENTHS),
            "{} rows are too few for a stream of {TENTHS} parts with {} retrainings after the first {first}; give more rows, \
             or another --first-share or fewer --retrainings",
            ratings.len(),
            protocol.retrainings
        );
        let bounds = (0..=segments).map(|segment| first + stream * segment / segments).collect();
        Ok(Self { numbered, ratings, times, first, bounds, settings })
    }

    fn rows(&self) -> Rows<'_> {
        Rows { ratings: &self.ratings, times: &self.times }
    }

    fn stream(&self) -> &[Rating] {
        &self.ratings[self.first..]
    }

    /// The range of the labels before the stream, to which scores are clamped.
    fn range(&self) -> (f32, f32) {
        let start = (f32::INFINITY, f32::NEG_INFINITY);
        self.ratings[..self.first].iter().fold(start, |(low, high), row| (low.min(row.label), high.max(row.label)))
    }

    /// The rows that each version serves.
    fn segments(&self) -> impl ExactSizeIterator<Item = (usize, usize)> {
        self.bounds.windows(2).map(|bounds| (bounds[0], bounds[1]))
    }

    fn of_ours(&self, way: Way) -> anyhow::Result<Line> {
        let (scored, chosen) = self.scored(way)?;
        let scores: Vec<f32> = scored.iter().map(|one| one.score).collect();
        let covered = scored.iter().filter(|one| one.covered).count();
        Ok(Line {
            coverage_95: Some(covered as f64 / scored.len() as f64),
            chosen,
            ..Line::of(way.name(), self.stream(), &scores, self.range())
        })
    }

    /// The predictions of the stream, and the settings that were chosen last.
    fn scored(&self, way: Way) -> anyhow::Result<(Vec<Scored>, Option<String>)> {
        let count = self.bounds.len() - 1;
        self.settings.stage(&format!("{}: rows of the stream", way.name()), Some(self.stream().len()));
        let mut scored = Vec::new();
        let mut served: Option<Served> = None;
        for (number, (from, to)) in self.segments().enumerate() {
            let next = self.version(way, served.take(), from)?;
            let part = self.settings.part(number, count);
            scored.extend(serve(&next.version, &next.learning(), (self.rows(), Segment { from, to }), part)?);
            served = Some(next);
        }
        let chosen = served.filter(|_| way == Way::Tuned).map(|served| format!("in the end {}", served.described()));
        Ok((scored, chosen))
    }

    /// What serves the rows from `from` on.
    fn version(&self, way: Way, previous: Option<Served>, from: usize) -> anyhow::Result<Served> {
        let known = &self.ratings[..from];
        match (way, previous) {
            (Way::Fixed, Some(previous)) => Ok(previous),
            (Way::Refreshed, Some(previous)) => self.refreshed(&previous, known),
            (Way::Tuned, _) => tuning::tuned(&self.numbered, (self.rows(), from), self.settings),
            (Way::Fixed | Way::Refreshed | Way::Retrained, _) => self.trained(known),
        }
    }

    fn trained(&self, known: &[Rating]) -> anyhow::Result<Served> {
        let version = self.numbered.train(known, self.settings, Part::unreported())?;
        Ok(Served { version, half_life: None, cold: known.len() })
    }

    fn refreshed(&self, previous: &Served, known: &[Rating]) -> anyhow::Result<Served> {
        let refreshed: Result<Trained, RetrainError> =
            self.numbered.refresh(&previous.version, known, previous.cold, self.settings);
        match refreshed {
            Ok(version) => Ok(Served { version, half_life: previous.half_life, cold: previous.cold }),
            Err(RetrainError::WarmStart { .. }) => self.trained(known),
            Err(error) => Err(error.into()),
        }
    }

    fn of_online(&self, peer: &RatingPeer, online: Online) -> anyhow::Result<Line> {
        self.settings.stage(&format!("{}: rows of the stream", online.name()), Some(self.stream().len()));
        let streamed = peer.streamed(online, (&self.ratings, self.first), self.settings.seed)?;
        let line = Line::of(online.name(), self.stream(), &streamed.predictions, self.range());
        Ok(Line { chosen: Some(format!("{}, the best of {}", streamed.options, streamed.tried)), ..line })
    }

    fn of_myfm(&self, myfm: &RatingPeer, known: Known) -> anyhow::Result<Line> {
        let part = self.settings.stage(&format!("{}, in trainings", known.name()), Some(self.bounds.len() - 1));
        let mut scores = Vec::new();
        for (from, to) in self.segments() {
            let rows = (&self.ratings[..from], &self.ratings[from..to]);
            scores.extend(myfm.fitted(rows, known, self.settings.seed)?);
            part.at(scores.len() as f64 / self.stream().len() as f64);
        }
        Ok(Line::of(known.name(), self.stream(), &scores, self.range()))
    }
}

#[cfg(test)]
mod tests;
