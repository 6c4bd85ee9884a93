//! The peers that predict ratings: myFM, river and Vowpal Wabbit, each a process.
//!
//! They get the rows as files of numbered users and items, in the order in which our own model gets
//! them. Labels of rows that myFM predicts are not in its files; river and Vowpal Wabbit predict a
//! row before they learn it.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use celeris_datasets::TemporaryFolder;
use celeris_retrain::Rating;
use serde::Deserialize;

use super::{Python, run};

const MYFM_SCRIPT: &str = include_str!("myfm_ratings.py");
const STREAM_SCRIPT: &str = include_str!("stream.py");
const RIVER_SCRIPT: &str = include_str!("river_stream.py");
const VW_SCRIPT: &str = include_str!("vw_stream.py");

/// Number of factors of myFM, and of iterations of its sampler.
const MYFM_RANK: usize = 10;
const MYFM_ITERATIONS: usize = 200;

/// What myFM knows of a user and an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Who they are.
    Ids,
    /// Also which items the user has rated in training, and which users the item.
    Blocks,
}

impl Known {
    pub(crate) const BOTH: [Self; 2] = [Self::Ids, Self::Blocks];

    /// The name of the peer in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ids => "myFM",
            Self::Blocks => "myFM with blocks",
        }
    }
}

/// A learner that predicts each row of a stream before it learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Online {
    River,
    VowpalWabbit,
}

impl Online {
    pub(crate) const BOTH: [Self; 2] = [Self::River, Self::VowpalWabbit];

    /// The name of the peer in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::River => "river's BiasedMF",
            Self::VowpalWabbit => "Vowpal Wabbit's --rank",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Self::River => "river",
            Self::VowpalWabbit => "vowpalwabbit",
        }
    }

    fn script(self) -> (&'static str, &'static str) {
        match self {
            Self::River => ("river_stream.py", RIVER_SCRIPT),
            Self::VowpalWabbit => ("vw_stream.py", VW_SCRIPT),
        }
    }
}

/// The predictions of a learner with the best of its settings.
#[derive(Debug, Deserialize)]
pub(crate) struct Streamed {
    pub(crate) predictions: Vec<f32>,
    pub(crate) options: String,
    pub(crate) tried: usize,
}

/// A peer in the environment that `cargo xtask peers` makes, with a folder for its files.
pub(crate) struct RatingPeer {
    python: Python,
    folder: TemporaryFolder,
}

impl RatingPeer {
    /// myFM; prints a message and returns `None` if it is not installed.
    pub(crate) fn myfm() -> anyhow::Result<Option<Self>> {
        Self::with("myfm")
    }

    /// The learner; prints a message and returns `None` if it is not installed.
    pub(crate) fn online(online: Online) -> anyhow::Result<Option<Self>> {
        Self::with(online.module())
    }

    fn with(module: &str) -> anyhow::Result<Option<Self>> {
        let Some(python) = Python::with(&[module]) else { return Ok(None) };
        Ok(Some(Self { python, folder: TemporaryFolder::new().context("no temporary folder")? }))
    }

    /// Trains myFM on the ratings `train`; returns its predictions of the users and items of `test`.
    ///
    /// # Errors
    /// If it fails, with the last lines of its output.
    pub(crate) fn fitted(
        &self,
        (train, test): (&[Rating], &[Rating]),
        known: Known,
        seed: u64,
    ) -> anyhow::Result<Vec<f32>> {
        #[derive(Deserialize)]
        struct Output {
            predictions: Vec<f32>,
        }
        let mut command = self.script("myfm_ratings.py", MYFM_SCRIPT)?;
        let [train_file, test_file] = ["train.csv", "test.csv"].map(|name| self.folder.path().join(name));
        std::fs::write(&train_file, labelled(train))?;
        std::fs::write(&test_file, pairs(test))?;
        command.arg("--train").arg(&train_file).arg("--test").arg(&test_file);
        command.args(["--rank", &MYFM_RANK.to_string(), "--iterations", &MYFM_ITERATIONS.to_string()]);
        command.args(["--seed", &small(seed).to_string()]);
        if known == Known::Blocks {
            command.arg("--blocks");
        }
        let output: Output =
            serde_json::from_slice(&run(&mut command)?).context("myfm_ratings.py printed no result")?;
        counted(output.predictions, test.len())
    }

    /// Has the learner learn the first rows, then predict and learn each of the others.
    ///
    /// # Errors
    /// If it fails, with the last lines of its output.
    pub(crate) fn streamed(
        &self,
        online: Online,
        (rows, first): (&[Rating], usize),
        seed: u64,
    ) -> anyhow::Result<Streamed> {
        let (name, text) = online.script();
        // Both import it.
        std::fs::write(self.folder.path().join("stream.py"), STREAM_SCRIPT)?;
        let mut command = self.script(name, text)?;
        let file = self.folder.path().join("rows.csv");
        std::fs::write(&file, labelled(rows))?;
        command.arg("--rows").arg(&file).args(["--first", &first.to_string(), "--seed", &small(seed).to_string()]);
        let output: Streamed = serde_json::from_slice(&run(&mut command)?).context("a script printed no result")?;
        let predictions = counted(output.predictions, rows.len() - first)?;
        Ok(Streamed { predictions, ..output })
    }

    fn script(&self, name: &str, text: &str) -> anyhow::Result<Command> {
        let script = self.folder.path().join(Path::new(name));
        std::fs::write(&script, text)?;
        let mut command = Command::new(self.python.program("python"));
        command.arg(script);
        Ok(command)
    }
}

/// The seed as the libraries take it.
fn small(seed: u64) -> u64 {
    seed % (1 << 31)
}

fn counted(predictions: Vec<f32>, expected: usize) -> anyhow::Result<Vec<f32>> {
    let received = predictions.len();
    ensure!(received == expected, "a peer predicted {received} of {expected} rows");
    Ok(predictions)
}

fn labelled(rows: &[Rating]) -> String {
    lines(rows, |text, row| write!(text, ",{}", row.label))
}

fn pairs(rows: &[Rating]) -> String {
    lines(rows, |_, _| Ok(()))
}

fn lines(rows: &[Rating], end: impl Fn(&mut String, &Rating) -> std::fmt::Result) -> String {
    let mut text = String::new();
    for row in rows {
        let line = write!(text, "{},{}", row.user, row.item).and_then(|()| end(&mut text, row));
        line.expect("text in memory can be written");
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use celeris_datasets::synthetic::SyntheticSettings;
    use celeris_skip::{self as skip, Need};

    use super::*;
    use crate::Numbered;

    fn rows() -> Vec<Rating> {
        let settings = SyntheticSettings { users: 60, items: 90, ratings: 1800, ..SyntheticSettings::default() };
        Numbered::default().number(&settings.generate().unwrap().dataset.ratings)
    }

    fn error(rows: &[Rating], scores: impl IntoIterator<Item = f32>) -> f32 {
        let squares = rows.iter().zip(scores).map(|(row, score)| (row.label - score).powi(2));
        squares.sum::<f32>() / rows.len() as f32
    }

    /// What the mean of the first rows is wrong by.
    fn error_of_mean((first, rest): (&[Rating], &[Rating])) -> f32 {
        let mean = first.iter().map(|row| row.label).sum::<f32>() / first.len() as f32;
        error(rest, rest.iter().map(|_| mean))
    }

    #[test]
    fn files_hold_the_rows_in_their_order_and_labels_only_where_they_are_learnt() {
        let row = |user, item, label| Rating { user, item, label, weight: 1.0 };
        let rows = [row(3, 1, 4.5), row(0, 2, 3.0)];
        assert_eq!(labelled(&rows), "3,1,4.5\n0,2,3\n");
        assert_eq!(pairs(&rows), "3,1\n0,2\n");
    }

    #[test]
    fn myfm_predicts_better_than_the_mean() {
        let found = RatingPeer::myfm().unwrap();
        let Some(myfm) = skip::unless(Need::Peers, found, "no Python with myfm") else { return };
        let rows = rows();
        // In the order of time, the last users would be unknown.
        let part = |tested: bool| -> Vec<Rating> {
            rows.iter().enumerate().filter(|(row, _)| (row % 6 == 0) == tested).map(|(_, row)| *row).collect()
        };
        let (train, test) = (&part(false), &part(true));
        for known in Known::BOTH {
            let predictions = myfm.fitted((train, test), known, 3).unwrap();
            assert_eq!(predictions, myfm.fitted((train, test), known, 3).unwrap(), "the same by the same seed");
            assert!(error(test, predictions) < error_of_mean((train, test)), "{known:?}");
        }
    }

    #[test]
    fn learners_predict_every_row_after_the_first_ones() {
        for online in Online::BOTH {
            let found = RatingPeer::online(online).unwrap();
            let Some(peer) = skip::unless(Need::Peers, found, "no Python with this learner") else { return };
            let rows = rows();
            let (first, stream) = rows.split_at(600);
            let streamed = peer.streamed(online, (&rows, first.len()), 3).unwrap();
            assert_eq!(streamed.tried, 4, "{}", streamed.options);
            assert_eq!(streamed.predictions.len(), stream.len());
            assert!(error(stream, streamed.predictions) < error_of_mean((first, stream)), "{online:?}");
        }
    }
}
