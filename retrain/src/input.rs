//! Input of a training: observations in log order, and the features supplied by callers.
//!
//! | file | columns that training reads |
//! |---|---|
//! | observations | `user: utf8, item: utf8, label: float, weight: float, timestamp: int64` (Unix milliseconds), and, for a warm start, `partition: int32, sequence: int64` if present |
//! | pinned items | `item: utf8, features: list<float>` |
//!
//! Other columns are ignored, so sealed segments and exports ([`celeris_formats::observations`])
//! can be used directly.

use std::hash::BuildHasher;
use std::path::{Path, PathBuf};

use celeris_features::table::check_features;
use celeris_formats::observations::{ITEM, LABEL, PARTITION, SEQUENCE, TIMESTAMP, TRAINING_COLUMNS, USER, WEIGHT};
use celeris_formats::{Batch, FormatError, ParquetFile, pinned_items, sha256_of};
use celeris_model::observation::check_label;
use celeris_model::{ItemId, ModelError, UserId};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use serde::{Deserialize, Serialize};

use crate::error::RetrainError;
use crate::learn::Pinned;
use crate::ratings::{Rating, Ratings, check_weight};

/// A file and its expected checksum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputFile {
    /// Path of the file; relative paths are resolved against the folder of the job file.
    pub path: PathBuf,
    /// SHA-256 in lower-case hexadecimal.
    pub sha256: String,
}

impl InputFile {
    /// The finished file at `path`, with its current checksum.
    ///
    /// # Errors
    /// [`RetrainError::Format`] if it cannot be read.
    pub fn sealed(path: &Path) -> Result<Self, RetrainError> {
        Ok(Self { path: path.to_owned(), sha256: sha256_of(path)? })
    }

    /// Checks the file's checksum and returns its path resolved against `folder`.
    ///
    /// # Errors
    /// `Checksum`, or [`RetrainError::Format`] if it cannot be read.
    pub(crate) fn verified(&self, folder: &Path) -> Result<PathBuf, RetrainError> {
        let path = folder.join(&self.path);
        let received = sha256_of(&path)?;
        if received == self.sha256 {
            return Ok(path);
        }
        Err(RetrainError::Checksum { path, expected: self.sha256.clone(), received })
    }
}

/// Ids in the order of their first appearance.
#[derive(Debug)]
pub(crate) struct Numbering<Id> {
    ids: Vec<Id>,
    numbers: HashTable<u32>,
    hasher: RandomState,
}

/// An id that is validated once, on its first appearance.
pub(crate) trait TextId: Sized {
    fn checked(text: &str) -> Result<Self, ModelError>;
    fn text(&self) -> &str;
}

impl TextId for UserId {
    fn checked(text: &str) -> Result<Self, ModelError> {
        Self::new(text)
    }
    fn text(&self) -> &str {
        self.as_str()
    }
}

impl TextId for ItemId {
    fn checked(text: &str) -> Result<Self, ModelError> {
        Self::new(text)
    }
    fn text(&self) -> &str {
        self.as_str()
    }
}

impl<Id: TextId> Numbering<Id> {
    fn new() -> Self {
        Self { ids: Vec::new(), numbers: HashTable::new(), hasher: RandomState::default() }
    }

    fn number(&mut self, text: &str) -> Result<u32, ModelError> {
        let hash = self.hasher.hash_one(text);
        if let Some(known) = self.find(hash, text) {
            return Ok(known);
        }
        let next = u32::try_from(self.ids.len()).expect("distinct ids in memory are fewer than 2^32");
        self.ids.push(Id::checked(text)?);
        let (ids, hasher) = (&self.ids, &self.hasher);
        self.numbers.insert_unique(hash, next, |number| hasher.hash_one(ids[*number as usize].text()));
        Ok(next)
    }

    fn find(&self, hash: u64, text: &str) -> Option<u32> {
        self.numbers.find(hash, |number| self.ids[*number as usize].text() == text).copied()
    }

    /// The number of an id, if it has one.
    fn known(&self, text: &str) -> Option<u32> {
        self.find(self.hasher.hash_one(text), text)
    }

    /// Numbers a column.
    fn column(&mut self, batch: &Batch, column: &str) -> Result<Vec<u32>, FormatError> {
        batch.parsed(column, |text| self.number(text))
    }
}

impl Numbering<ItemId> {
    /// The items in the order of their numbers.
    pub(crate) fn into_ids(self) -> Vec<ItemId> {
        self.ids
    }

    /// The number of an item by its id.
    pub(crate) fn item(&self, text: &str) -> Option<u32> {
        self.known(text)
    }
}

/// Contents of the input files, with numbered users and items.
#[derive(Debug)]
pub(crate) struct TrainingInput {
    pub(crate) users: Vec<UserId>,
    /// Observed items, then pinned items without observations.
    pub(crate) items: Numbering<ItemId>,
    pub(crate) ratings: Ratings,
    pub(crate) pinned: Pinned,
    /// For every rating, whether it is beyond the given watermark; `None` without a watermark, or
    /// if the file has no log positions.
    pub(crate) fresh: Option<Vec<bool>>,
}

impl TrainingInput {
    /// The items in the order of their numbers.
    pub(crate) fn item_ids(&self) -> &[ItemId] {
        &self.items.ids
    }
}

/// Upper bound of the capacity reserved for ratings, whatever number of rows a file declares.
const ROWS_EXPECTED_MAX: usize = 1 << 24;

/// Reads an observations file and an optional pinned items file of `dim` features each. `seen` is a
/// watermark: the last sequence of every partition that an earlier training has read.
///
/// # Errors
/// `NoRatings`, or [`RetrainError::Format`] with the file and the position in it.
pub(crate) fn read_input(
    observations: &Path,
    pinned_items: Option<&Path>,
    dim: usize,
    seen: Option<&[u64]>,
) -> Result<TrainingInput, RetrainError> {
    let (mut users, mut items) = (Numbering::new(), Numbering::new());
    let mut fresh = seen.map(|_| Vec::new());
    let mut file = ParquetFile::open_columns(observations, &TRAINING_COLUMNS)?;
    let mut list = Vec::with_capacity(file.rows().min(ROWS_EXPECTED_MAX));
    let mut next = file.next_batch()?;
    while let Some(batch) = next {
        // Decode the next batch in parallel.
        let (read, following) =
            rayon::join(|| read_observations(&batch, &mut users, &mut items, &mut list), || file.next_batch());
        read?;
        next = following?;
        if let (Some(rows), Some(seen)) = (&mut fresh, seen) {
            match read_fresh(&batch, seen) {
                Some(more) => rows.extend(more),
                None => fresh = None,
            }
        }
    }
    let mut pinned = Pinned::default();
    if let Some(path) = pinned_items {
        let mut file = ParquetFile::open(path)?;
        while let Some(batch) = file.next_batch()? {
            read_pinned(&batch, dim, &mut items, &mut pinned)?;
        }
    }
    let ratings = Ratings::new(users.ids.len(), items.ids.len(), list)?;
    Ok(TrainingInput { users: users.ids, items, ratings, pinned, fresh })
}

/// Marks the rows beyond a watermark; `None` if the file has no log positions.
fn read_fresh(batch: &Batch, seen: &[u64]) -> Option<Vec<bool>> {
    let partitions = batch.numbers::<i64>(PARTITION).ok()?;
    let sequences = batch.numbers::<i64>(SEQUENCE).ok()?;
    let places = partitions.iter().zip(sequences.iter());
    places
        .map(|(partition, sequence)| {
            let seen = seen.get(usize::try_from(*partition).ok()?)?;
            Some(u64::try_from(*sequence).ok()? > *seen)
        })
        .collect()
}

/// Observations held out from a training, with ids instead of numbers.
#[derive(Debug)]
pub(crate) struct HeldOutInput {
    pub(crate) users: Vec<UserId>,
    pub(crate) items: Vec<ItemId>,
    /// By position in `users` and `items`; may be empty.
    pub(crate) list: Vec<Rating>,
}

/// Reads an observations file, which may be empty.
///
/// # Errors
/// [`RetrainError::Format`] with the file and the position in it.
pub(crate) fn read_held_out(observations: &Path) -> Result<HeldOutInput, RetrainError> {
    let (mut users, mut items, mut list) = (Numbering::new(), Numbering::new(), Vec::new());
    let mut file = ParquetFile::open_columns(observations, &TRAINING_COLUMNS)?;
    while let Some(batch) = file.next_batch()? {
        read_observations(&batch, &mut users, &mut items, &mut list)?;
    }
    Ok(HeldOutInput { users: users.ids, items: items.ids, list })
}

fn read_observations(
    batch: &Batch,
    users: &mut Numbering<UserId>,
    items: &mut Numbering<ItemId>,
    list: &mut Vec<Rating>,
) -> Result<(), RetrainError> {
    // These two columns take most of the reading time and are independent.
    let (users, items) = rayon::join(|| users.column(batch, USER), || items.column(batch, ITEM));
    let (users, items) = (users?, items?);
    let (labels, weights) = (batch.numbers::<f32>(LABEL)?, batch.numbers::<f32>(WEIGHT)?);
    // Training does not use the timestamp, but a valid file has the column.
    batch.numbers::<i64>(TIMESTAMP)?;
    for (row, (user, item)) in users.into_iter().zip(items).enumerate() {
        let (label, weight) = (labels[row], weights[row]);
        check_label(label).map_err(|problem| batch.value_error(row, LABEL, &problem))?;
        check_weight(weight).map_err(|problem| batch.value_error(row, WEIGHT, &problem))?;
        list.push(Rating { user, item, label, weight });
    }
    Ok(())
}

fn read_pinned(
    batch: &Batch,
    dim: usize,
    items: &mut Numbering<ItemId>,
    pinned: &mut Pinned,
) -> Result<(), RetrainError> {
    let numbers = items.column(batch, pinned_items::ITEM)?;
    let features = batch.lists::<f32>(pinned_items::FEATURES, dim)?;
    for (row, features) in features.chunks_exact(dim).enumerate() {
        check_features(features, dim).map_err(|problem| batch.value_error(row, pinned_items::FEATURES, &problem))?;
    }
    pinned.items.extend(numbers);
    pinned.features.extend(features);
    Ok(())
}
