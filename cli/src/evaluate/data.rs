//! The data set of an evaluation: whatever `celeris import` reads.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::hash::Hash;
use std::path::Path;
use std::str::FromStr;

use celeris_datasets::movielens::{LOADED_RATINGS_MAX, read_beside};
use celeris_datasets::{Dataset, DatasetError, ItemInfo, Rating};
use celeris_evaluate::Progress;
use celeris_import::error::Fault;
use celeris_import::inputs::STDIN;
use celeris_import::layout::Subject;
use celeris_import::{Finding, Input, Observations, Origin, Rules, Taken, find};
use celeris_model::{ItemId, Loss, ModelError, Timestamp, UserId};

use super::stages::Stages;
use crate::Failure;
use crate::import::bad_rows::BadRowsFile;
use crate::import::report::first_bad;
use crate::import::row_args::RowArgs;

/// Rows between two reports of the progress.
const PROGRESS_ROWS: usize = 4096;

/// Reads data sets under the options of the command line.
pub struct Reader<'a> {
    rules: Rules,
    finding: Finding<'static>,
    bad_rows: Option<BadRowsFile>,
    stages: &'a Stages,
}

impl<'a> Reader<'a> {
    /// A reader of these paths. `loss` decides which labels are valid.
    ///
    /// # Errors
    /// If options contradict each other, or the file of bad rows cannot be written or is one of the data sets.
    pub fn new(args: &RowArgs, paths: &[&Path], loss: Loss, stages: &'a Stages) -> Result<Self, Failure> {
        let rules = Rules { loss: Some(loss), ..args.rules()? };
        let finding = Finding { program: args.program(), ..Finding::default() };
        let mut inputs = Vec::new();
        for path in paths {
            inputs.extend(find(&[(*path).to_owned()], finding)?);
        }
        let bad_rows = args.skip_bad.as_deref().map(|file| BadRowsFile::new(file, &inputs)).transpose()?;
        Ok(Self { rules, finding, bad_rows, stages })
    }

    /// The observations of the files behind a path.
    ///
    /// # Errors
    /// If they cannot be read, or a row is bad and bad rows are not set aside.
    pub fn read(&mut self, path: &Path) -> Result<Dataset, Failure> {
        let (mut users, mut items) = (Shared::default(), Shared::default());
        let mut dataset = Dataset { name: name_of(path), ratings: Vec::new(), items: Vec::new() };
        for input in find(&[path.to_owned()], self.finding)? {
            // Of a dump or a folder, feedback is what is evaluated.
            if matches!(input.layout.subject(), Some(Subject::Items | Subject::Users)) {
                continue;
            }
            self.read_input(&input, &mut dataset.ratings, (&mut users, &mut items))?;
        }
        Ok(dataset)
    }

    fn read_input(
        &mut self,
        input: &Input,
        ratings: &mut Vec<Rating>,
        (users, items): (&mut Shared<UserId>, &mut Shared<ItemId>),
    ) -> Result<(), Failure> {
        let shown = input.shown();
        // The whole path may be longer than the line of a terminal.
        let short = Path::new(&shown).file_name().map_or(shown.as_str().into(), OsStr::to_string_lossy);
        self.stages.begin(&format!("reading {short}"), None);
        let mut reader = Observations::open_without_ids(input, &self.rules)?;
        self.stages.say(&format!("{}: {}", input.shown(), reader.mapping()));
        let bytes = input.bytes().filter(|bytes| *bytes > 0);
        let mut bad = 0;
        loop {
            match reader.advance() {
                Ok(None) => break,
                Ok(Some(_)) if ratings.len() == LOADED_RATINGS_MAX => {
                    let file = input.shown().into();
                    return Err(DatasetError::TooMany { file, what: "rows", max: LOADED_RATINGS_MAX }.into());
                }
                Ok(Some(taken)) => ratings.push(rating(&taken, users, items).map_err(Failure::other)?),
                Err(Fault::File(error)) => return Err(error.into()),
                Err(Fault::Row(row)) => match &mut self.bad_rows {
                    None => return Err(first_bad(&row, 1)),
                    Some(file) => {
                        file.write(&row)?;
                        bad += 1;
                    }
                },
            }
            if let Some(bytes) = bytes.filter(|_| ratings.len().is_multiple_of(PROGRESS_ROWS)) {
                self.stages.at(reader.bytes_read() as f64 / bytes as f64);
            }
        }
        if bad > 0 {
            self.stages.say(&format!("{}: {bad} bad rows were set aside", input.shown()));
        }
        Ok(())
    }
}

/// Titles and genres beside the ratings; empty if there are none.
///
/// # Errors
/// If they cannot be read.
pub fn titles(path: &Path) -> Result<Vec<ItemInfo>, Failure> {
    let mut titles = Vec::new();
    for input in find(&[path.to_owned()], Finding::default())? {
        if let Origin::File(file) = &input.origin {
            titles.extend(read_beside(file)?);
        }
    }
    Ok(titles)
}

fn rating(taken: &Taken, users: &mut Shared<UserId>, items: &mut Shared<ItemId>) -> Result<Rating, ModelError> {
    Ok(Rating {
        user: users.get(&taken.user)?,
        item: items.get(&taken.item)?,
        label: taken.label,
        weight: taken.weight.unwrap_or(1.0),
        timestamp: taken.timestamp.map_or_else(Timestamp::default, Timestamp),
    })
}

/// The name of a file or folder, without the ending of compressed files.
pub fn name_of(path: &Path) -> String {
    if path.as_os_str() == STDIN {
        return "standard input".to_owned();
    }
    let whole = path.canonicalize().unwrap_or_default();
    let name = whole.file_name().or(path.file_name()).unwrap_or_default().to_string_lossy();
    name.strip_suffix(".gz").unwrap_or(&name).to_owned()
}

/// The ids that occurred, so that all rows of a user hold one copy of a long one.
struct Shared<T> {
    known: HashSet<T>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { known: HashSet::new() }
    }
}

impl<T: FromStr<Err = ModelError> + Borrow<str> + Eq + Hash + Clone> Shared<T> {
    fn get(&mut self, text: &str) -> Result<T, ModelError> {
        if let Some(id) = self.known.get(text) {
            return Ok(id.clone());
        }
        let id: T = text.parse()?;
        self.known.insert(id.clone());
        Ok(id)
    }
}
