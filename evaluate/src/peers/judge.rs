//! Evaluation of trained versions on held-out ratings: root mean squared errors and ranks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use celeris_datasets::Rating;
use celeris_features::read_version;
use celeris_formats::{ParquetFile, item_features, user_weights};
use celeris_model::preference::Takings;
use celeris_model::{Example, Learning, Loss, Timestamp, UserModel};

use super::data::Data;
use crate::accuracy::clamped_square;

/// Maximum number of predicted ratings; the standard error of the mean is then about a thousandth.
const RATINGS_MAX: usize = 200_000;

/// Maximum number of users for whom the catalog is ranked.
const USERS_MAX: usize = 500;

/// Vectors with offsets, by id.
pub struct Vectors(HashMap<String, (f32, Vec<f32>)>);

impl Vectors {
    /// Reads the features of items that a version or an engine has written to `folder`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_items(folder: &Path, length: usize) -> anyhow::Result<Self> {
        Self::read(&folder.join(item_features::FILE), item_features::ITEM, item_features::FEATURES, length)
    }

    /// Reads the user weights that an engine has written to `folder`.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn of_users(folder: &Path, length: usize) -> anyhow::Result<Self> {
        Self::read(&folder.join(user_weights::FILE), user_weights::USER, user_weights::WEIGHTS, length)
    }

    /// Reads a table of ids and vectors, and offsets if there is such a column.
    fn read(path: &Path, id: &str, vector: &str, length: usize) -> anyhow::Result<Self> {
        let mut rows = HashMap::new();
        let mut file = ParquetFile::open(path)?;
        while let Some(batch) = file.next_batch()? {
            let ids = batch.text(id)?;
            let values = batch.lists::<f32>(vector, length)?;
            let offsets = batch.numbers::<f32>(item_features::OFFSET).ok();
            for (row, (id, vector)) in ids.iter().flatten().zip(values.chunks_exact(length)).enumerate() {
                let offset = offsets.as_ref().map_or(0.0, |offsets| offsets[row]);
                rows.insert(id.to_owned(), (offset, vector.to_vec()));
            }
        }
        Ok(Self(rows))
    }

    /// The offset and the vector of an id.
    pub fn get(&self, id: &str) -> Option<(f32, &[f32])> {
        self.0.get(id).map(|(offset, vector)| (*offset, vector.as_slice()))
    }
}

fn range(ratings: &[Rating]) -> (f32, f32) {
    let start = (f32::INFINITY, f32::NEG_INFINITY);
    ratings.iter().fold(start, |(low, high), rating| (low.min(rating.label), high.max(rating.label)))
}

struct Errors {
    range: (f32, f32),
    squares: f64,
    count: f64,
}

impl Errors {
    fn add(&mut self, label: f32, score: f32) {
        self.squares += clamped_square(self.range, label, score);
        self.count += 1.0;
    }

    fn rmse(&self) -> f64 {
        (self.squares / self.count).sqrt()
    }
}

/// The RMSE of the version in `dir` as served, on the held-out ratings: with every user's posterior
/// over the first `learnt` training ratings.
///
/// # Errors
/// If the version cannot be read.
pub fn served_rmse(dir: &Path, data: &Data, learnt: usize) -> anyhow::Result<f64> {
    let version = read_version(dir)?;
    let learning = Learning::from(version.prior.clone());
    let mut tested: HashMap<&str, Vec<&Rating>> = HashMap::new();
    for rating in data.test.iter().take(RATINGS_MAX) {
        tested.entry(rating.user.as_str()).or_default().push(rating);
    }
    let example = |rating: &Rating| {
        let row = version.theta.get(&rating.item).unwrap_or_else(|| version.theta.cold_item());
        let timestamp = Timestamp::default();
        Example {
            features: row.features,
            label: rating.label,
            offset: row.offset,
            weight: 1.0,
            timestamp,
            taken_before: None,
            choice: &[],
        }
    };
    let mut histories: HashMap<&str, Vec<Example>> = HashMap::new();
    for rating in data.train[..learnt].iter().filter(|rating| tested.contains_key(rating.user.as_str())) {
        histories.entry(rating.user.as_str()).or_default().push(example(rating));
    }
    let mut errors = Errors { range: range(&data.train), squares: 0.0, count: 0.0 };
    for (user, tested) in tested {
        let history = histories.remove(user).unwrap_or_default();
        let model = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64)?;
        for rating in tested {
            let example = example(rating);
            errors.add(rating.label, model.estimate(&learning, example.offset, example.features).score);
        }
    }
    Ok(errors.rmse())
}

/// The served weights, under the implicit-feedback version in `dir`, of users with held-out
/// ratings: of as many users as are ranked.
///
/// # Errors
/// If the version cannot be read.
pub fn served_weights(dir: &Path, data: &Data) -> anyhow::Result<Vectors> {
    let version = read_version(dir)?;
    let learning = Learning::new(version.prior.clone(), Loss::Implicit, None);
    let tested: HashSet<&str> = data.test.iter().map(|rating| rating.user.as_str()).collect();
    let mut histories: BTreeMap<&str, Vec<Example>> = BTreeMap::new();
    let mut takings = Takings::default();
    for rating in data.train.iter().filter(|rating| tested.contains(rating.user.as_str())) {
        let row = version.theta.get(&rating.item).unwrap_or_else(|| version.theta.cold_item());
        let timestamp = Timestamp::default();
        let taken_before = takings.next((rating.user.as_str(), rating.item.as_str()), rating.label, timestamp);
        let (features, offset) = (row.features, row.offset);
        let example =
            Example { features, label: rating.label, offset, weight: 1.0, timestamp, taken_before, choice: &[] };
        histories.entry(rating.user.as_str()).or_default().push(example);
    }
    let weights = |(user, history): (&str, Vec<Example>)| {
        let model = UserModel::rebuild(&learning, history.as_slice(), history.len() as u64)?;
        Ok((user.to_owned(), (0.0, model.weights().iter().map(|weight| *weight as f32).collect())))
    };
    Ok(Vectors(histories.into_iter().take(USERS_MAX).map(weights).collect::<anyhow::Result<_>>()?))
}

/// The RMSE of a peer's own factors. Users or items without factors are predicted by the mean
/// label, as a service would.
pub fn own_rmse(items: &Vectors, users: &Vectors, data: &Data) -> f64 {
    let mean = data.train.iter().map(|rating| f64::from(rating.label)).sum::<f64>() / data.train.len() as f64;
    let mut errors = Errors { range: range(&data.train), squares: 0.0, count: 0.0 };
    for rating in data.test.iter().take(RATINGS_MAX) {
        let known = items.get(rating.item.as_str()).zip(users.get(rating.user.as_str()));
        let score = known.map(|((offset, item), (_, user))| offset + celeris_model::linear::dot(user, item));
        errors.add(rating.label, score.unwrap_or(mean as f32));
    }
    errors.rmse()
}

/// The expected percentile rank (Hu et al. 2008, eq. 8) of the held-out items among all items that
/// the user is not known to have taken: 0 is best, 0.5 is chance.
pub fn percentile_rank(items: &Vectors, users: &Vectors, data: &Data) -> f64 {
    let mut tested: HashMap<&str, Vec<&Rating>> = HashMap::new();
    for rating in &data.test {
        tested.entry(rating.user.as_str()).or_default().push(rating);
    }
    let mut evaluated: Vec<&str> = tested.keys().copied().filter(|user| users.get(user).is_some()).collect();
    evaluated.sort_unstable();
    evaluated.truncate(USERS_MAX);
    let mut known: HashMap<&str, HashSet<&str>> = HashMap::new();
    let wanted: HashSet<&str> = evaluated.iter().copied().collect();
    for rating in data.train.iter().filter(|rating| wanted.contains(rating.user.as_str())) {
        known.entry(rating.user.as_str()).or_default().insert(rating.item.as_str());
    }
    let (mut ranks, mut weight) = (0.0, 0.0);
    for user in evaluated {
        let Some((_, weights)) = users.get(user) else { continue };
        let taken = known.get(user);
        let scores: HashMap<&str, f32> = items
            .0
            .iter()
            .filter(|(item, _)| taken.is_none_or(|taken| !taken.contains(item.as_str())))
            .map(|(item, (_, features))| (item.as_str(), celeris_model::linear::dot(weights, features)))
            .collect();
        let mut ordered: Vec<f32> = scores.values().copied().collect();
        ordered.sort_unstable_by(f32::total_cmp);
        for rating in &tested[user] {
            if let Some(score) = scores.get(rating.item.as_str()) {
                let above = ordered.len() - ordered.partition_point(|other| other <= score);
                ranks += f64::from(rating.label) * above as f64 / (ordered.len().max(2) - 1) as f64;
                weight += f64::from(rating.label);
            }
        }
    }
    ranks / weight
}
