//! Logs of the Open Bandit Dataset (Saito et al. 2021): items shown by a policy in a fashion shop,
//! with the propensity and click of each impression.
//!
//! A log is a folder such as `random/men/` with the impressions, `men.csv`, and `item_context.csv`,
//! which has one row for each item. Every row of the log is one impression: one item at one of
//! three positions of a page.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use celeris_model::observation::check_label;

use crate::DatasetError;
use crate::rows::{Column, Encoding, Layout, Rows};

/// Maximum number of impressions; about 200 MB. The largest log of a uniform policy has 1.4
/// million.
pub const IMPRESSIONS_MAX: usize = 2_000_000;

/// Maximum number of items of a campaign.
pub const ITEMS_MAX: usize = 1024;

/// Maximum number of positions.
pub const POSITIONS_MAX: usize = 64;

/// Maximum number of user feature columns, and of values of one.
const USER_FEATURES_MAX: usize = 16;
const LEVELS_MAX: usize = 64;

const ITEMS_FILE: &str = "item_context.csv";

/// One item shown at one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Impression {
    /// Item, below [`OpenBandit::items`].
    pub item: usize,
    /// Position from 0, in the order of the file's position numbers, below the length of
    /// [`OpenBandit::positions`].
    pub position: usize,
    /// 1 if it was clicked, else 0.
    pub click: f32,
    /// The probability with which the logging policy showed this item at this position.
    pub propensity: f64,
}

/// A log in memory.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpenBandit {
    /// Its name: policy and campaign, such as `random/men`.
    pub name: String,
    /// Number of items of the campaign.
    pub items: usize,
    /// The position numbers of the file, ascending.
    pub positions: Vec<usize>,
    /// In the order of the file.
    pub impressions: Vec<Impression>,
    /// Number of values of each user feature column.
    pub levels: Vec<usize>,
    /// Row-major `impressions x levels.len()`: the value of each user feature.
    user_features: Vec<u16>,
    /// Non-zero affinities by impression: items and how often the user has clicked them before.
    affinities: Vec<(u16, f32)>,
    /// End of each impression's range in `affinities`.
    affinity_ends: Vec<usize>,
}

impl OpenBandit {
    /// Loads a log from its folder, or from the file of impressions.
    ///
    /// # Errors
    /// A [`DatasetError`] with the file, and the line and field if known.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, DatasetError> {
        let file = locate(path.as_ref())?;
        let folder = file.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let items = count_items(&folder.join(ITEMS_FILE))?;
        let mut log = Self { name: name_of(&file), items, ..Self::default() };
        log.read(&file)?;
        Ok(log)
    }

    /// The values of an impression's user features; that of feature `f` is below `levels[f]`.
    #[must_use]
    pub fn user_features(&self, impression: usize) -> &[u16] {
        let width = self.levels.len();
        &self.user_features[impression * width..(impression + 1) * width]
    }

    /// The items for which an impression's user has an affinity, with its size.
    #[must_use]
    pub fn affinities(&self, impression: usize) -> &[(u16, f32)] {
        let start = if impression == 0 { 0 } else { self.affinity_ends[impression - 1] };
        &self.affinities[start..self.affinity_ends[impression]]
    }

    fn read(&mut self, file: &Path) -> Result<(), DatasetError> {
        let mut rows = Rows::open(file, Layout::Csv, Encoding::Utf8)?;
        if !rows.advance()? {
            return Err(DatasetError::Empty { file: file.to_owned(), what: "impressions" });
        }
        let columns = Columns::of_header(&rows, file, self.items)?;
        let mut levels: Vec<HashMap<String, u16>> = vec![HashMap::new(); columns.user_features.len()];
        while rows.advance()? {
            if self.impressions.len() == IMPRESSIONS_MAX {
                return Err(too_many(file, "impressions", IMPRESSIONS_MAX));
            }
            self.impressions.push(columns.impression(&rows, self.items)?);
            for (column, levels) in columns.user_features.iter().zip(&mut levels) {
                let level = match rows.text(column)? {
                    text if levels.contains_key(text) => levels[text],
                    _ if levels.len() == LEVELS_MAX => {
                        return Err(too_many(file, "values of one user feature", LEVELS_MAX));
                    }
                    text => {
                        let next = levels.len() as u16;
                        levels.insert(text.to_owned(), next);
                        next
                    }
                };
                self.user_features.push(level);
            }
            for (item, column) in columns.affinities.iter().enumerate() {
                let affinity = number(&rows, column)? as f32;
                if affinity != 0.0 {
                    self.affinities.push((item as u16, affinity));
                }
            }
            self.affinity_ends.push(self.affinities.len());
            rows.ends_after(columns.width)?;
        }
        if self.impressions.is_empty() {
            return Err(DatasetError::Empty { file: file.to_owned(), what: "impressions" });
        }
        self.levels = levels.iter().map(HashMap::len).collect();
        self.number_positions();
        Ok(())
    }

    /// Replaces the file's position numbers by 0, 1, ….
    fn number_positions(&mut self) {
        let mut there = [false; POSITIONS_MAX];
        self.impressions.iter().for_each(|impression| there[impression.position] = true);
        self.positions = (0..POSITIONS_MAX).filter(|position| there[*position]).collect();
        for impression in &mut self.impressions {
            impression.position = self.positions.iter().take_while(|number| **number < impression.position).count();
        }
    }
}

fn too_many(file: &Path, what: &'static str, max: usize) -> DatasetError {
    DatasetError::TooMany { file: file.to_owned(), what, max }
}

/// The file of impressions: `path` itself, or the one in the folder `path`.
fn locate(path: &Path) -> Result<PathBuf, DatasetError> {
    if !path.metadata().map_err(DatasetError::io(path))?.is_dir() {
        return Ok(path.to_owned());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(DatasetError::io(path))? {
        let file = entry.map_err(DatasetError::io(path))?.path();
        let is_csv = file.extension().is_some_and(|extension| extension == "csv");
        if is_csv && file.file_name().is_some_and(|name| name != ITEMS_FILE) && file.is_file() {
            files.push(file);
        }
    }
    match files.pop() {
        Some(file) if files.is_empty() => Ok(file),
        other => {
            let found = files.len() + usize::from(other.is_some());
            Err(DatasetError::NoImpressions { folder: path.to_owned(), found })
        }
    }
}

/// The names of the last two folders of the file's path.
fn name_of(file: &Path) -> String {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let folders = file.parent().into_iter().flat_map(Path::components);
    let names: Vec<String> = folders.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    names[names.len().saturating_sub(2)..].join("/")
}

/// Counts the items, which must be numbered from 0.
fn count_items(file: &Path) -> Result<usize, DatasetError> {
    let mut rows = Rows::open(file, Layout::Csv, Encoding::Utf8)?;
    if !rows.advance()? {
        return Err(DatasetError::Empty { file: file.to_owned(), what: "items" });
    }
    let item = column(&rows, file, "item_id")?;
    let mut there = Vec::new();
    while rows.advance()? {
        let id = whole(&rows, &item, ITEMS_MAX, "an item's number, below 1024")?;
        if there.len() <= id {
            there.resize(id + 1, false);
        }
        there[id] = true;
    }
    if there.is_empty() { Err(DatasetError::Empty { file: file.to_owned(), what: "items" }) } else { Ok(there.len()) }
}

/// Tolerance of the sum of a position's probabilities, for rounding in files.
const SUM_TOLERANCE: f64 = 1e-6;

/// Reads a policy's distribution over the items of a log, by position: a CSV file with the columns
/// `item_id` and `probability`, and `position` if it depends on the position, numbered as in the
/// log. Missing pairs have probability 0.
///
/// Returns the probabilities row-major, `positions x items`.
///
/// # Errors
/// A [`DatasetError`] with the file, and the line and field if known.
pub fn read_distribution(file: &Path, log: &OpenBandit) -> Result<Vec<f64>, DatasetError> {
    let mut rows = Rows::open(file, Layout::Csv, Encoding::Utf8)?;
    if !rows.advance()? {
        return Err(DatasetError::Empty { file: file.to_owned(), what: "probabilities" });
    }
    let (item, probability) = (column(&rows, file, "item_id")?, column(&rows, file, "probability")?);
    let (position, width) = (find(&rows, "position"), rows.width());
    let mut read = vec![None; log.items * log.positions.len()];
    while rows.advance()? {
        let shown = whole(&rows, &item, log.items, "an item of the log")?;
        let likely = number(&rows, &probability)?;
        if !(0.0..=1.0).contains(&likely) {
            return Err(rows.unexpected(&probability, "a probability from 0 to 1", &likely.to_string()));
        }
        let places = match &position {
            None => 0..log.positions.len(),
            Some(column) => {
                let number = whole(&rows, column, POSITIONS_MAX, "a position of the log")?;
                let place = log.positions.iter().position(|known| *known == number);
                let got = number.to_string();
                let place = place.ok_or_else(|| rows.unexpected(column, "a position of the log", &got))?;
                place..place + 1
            }
        };
        for place in places {
            if read[place * log.items + shown].replace(likely).is_some() {
                return Err(rows.unexpected(&item, "each item once for a position", &shown.to_string()));
            }
        }
        rows.ends_after(width)?;
    }
    let mut read: Vec<f64> = read.into_iter().map(Option::unwrap_or_default).collect();
    for (position, probabilities) in log.positions.iter().zip(read.chunks_exact_mut(log.items)) {
        let sum: f64 = probabilities.iter().sum();
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(DatasetError::Sum { file: file.to_owned(), position: *position, sum });
        }
        probabilities.iter_mut().for_each(|probability| *probability /= sum);
    }
    Ok(read)
}

struct Columns {
    item: Column,
    position: Column,
    click: Column,
    propensity: Column,
    user_features: Vec<Column>,
    /// One for each item, in order, or none.
    affinities: Vec<Column>,
    width: usize,
}

impl Columns {
    fn of_header(header: &Rows, file: &Path, items: usize) -> Result<Self, DatasetError> {
        let numbered = |prefix: &str, max: usize| -> Vec<Column> {
            let named = |number: usize| find(header, &format!("{prefix}{number}"));
            (0..max).map_while(named).collect()
        };
        Ok(Self {
            item: column(header, file, "item_id")?,
            position: column(header, file, "position")?,
            click: column(header, file, "click")?,
            propensity: column(header, file, "propensity_score")?,
            user_features: numbered("user_feature_", USER_FEATURES_MAX),
            affinities: numbered("user-item_affinity_", items),
            width: header.width(),
        })
    }

    fn impression(&self, rows: &Rows, items: usize) -> Result<Impression, DatasetError> {
        let item = whole(rows, &self.item, items, "an item that item_context.csv lists")?;
        let position = whole(rows, &self.position, POSITIONS_MAX, "a position below 64")?;
        let click = number(rows, &self.click)? as f32;
        check_label(click)
            .map_err(|_| rows.unexpected(&self.click, "a number between -1e6 and 1e6", &click.to_string()))?;
        let propensity = number(rows, &self.propensity)?;
        if !(propensity > 0.0 && propensity <= 1.0) {
            let got = propensity.to_string();
            return Err(rows.unexpected(&self.propensity, "a probability above 0 and at most 1", &got));
        }
        Ok(Impression { item, position, click, propensity })
    }
}

fn find(header: &Rows, name: &str) -> Option<Column> {
    let (index, text) = header.texts().find(|(_, text)| text.trim() == name)?;
    Some(Column { index, name: Cow::Owned(text.trim().to_owned()) })
}

fn column(header: &Rows, file: &Path, name: &'static str) -> Result<Column, DatasetError> {
    find(header, name).ok_or_else(|| DatasetError::NoColumn { file: file.to_owned(), column: name })
}

/// A whole number below `end`.
fn whole(rows: &Rows, column: &Column, end: usize, expected: &'static str) -> Result<usize, DatasetError> {
    let text = rows.text(column)?;
    let value = text.parse::<usize>().ok().filter(|value| *value < end);
    value.ok_or_else(|| rows.unexpected(column, expected, text))
}

fn number(rows: &Rows, column: &Column) -> Result<f64, DatasetError> {
    let text = rows.text(column)?;
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
    value.ok_or_else(|| rows.unexpected(column, "a finite number", text))
}
