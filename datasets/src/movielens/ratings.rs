//! Streaming reader for ratings files of all known formats.

use std::borrow::Cow;
use std::path::Path;

use celeris_model::observation::check_label;
use celeris_model::{ItemId, Timestamp, UserId};

use super::ids::{EXPECTED_ID, SharedIds};
use super::locate::locate_ratings;
use crate::lines::Lines;
use crate::rows::{Column, Encoding, Layout, Rows, quoted};
use crate::{DatasetError, Rating};

const KNOWN_FORMATS: &str = "`user<tab>item<tab>rating<tab>seconds` (u.data), `user::item::rating::seconds` \
     (ratings.dat), and CSV whose header names userId, movieId, rating and possibly timestamp (ratings.csv)";

/// The end of the year 9999, in seconds.
const SECONDS_MAX: i64 = 253_402_300_799;

/// The ratings of a file in its order, in constant memory.
///
/// Ends after the first error: the rest of a damaged file cannot be trusted.
pub struct RatingReader {
    rows: Rows,
    columns: Columns,
    users: SharedIds<UserId>,
    items: SharedIds<ItemId>,
    progress: Progress,
}

enum Progress {
    BeforeFirst,
    Reading,
    Ended,
}

struct Columns {
    user: Column,
    item: Column,
    label: Column,
    seconds: Option<Column>,
    width: usize,
}

/// Opens a ratings file, or the one in a folder, and recognises its format by its first line.
///
/// # Errors
/// [`DatasetError::Io`], [`DatasetError::NoRatingsFile`], [`DatasetError::Empty`] or
/// [`DatasetError::UnknownFormat`].
pub fn read_ratings(path: impl AsRef<Path>) -> Result<RatingReader, DatasetError> {
    let file = locate_ratings(path.as_ref())?;
    let mut lines = Lines::open(&file)?;
    match lines.advance_to_text() {
        Ok(true) => {}
        Ok(false) => return Err(DatasetError::Empty { file, what: "ratings" }),
        // A very long first line means another kind of file, not a bad row.
        Err(DatasetError::RowTooLong { .. }) => return Err(unknown_format(&lines)),
        Err(error) => return Err(error),
    }
    let layout = recognise(lines.current()).ok_or_else(|| unknown_format(&lines))?;
    let unknown = unknown_format(&lines);
    let mut rows = Rows::from_current_line(lines, layout, Encoding::Utf8);
    let columns = match layout {
        Layout::Separated(_) => Columns {
            user: Column::at(0, "user"),
            item: Column::at(1, "item"),
            label: Column::at(2, "rating"),
            seconds: Some(Column::at(3, "timestamp")),
            width: 4,
        },
        Layout::Csv => {
            rows.advance()?;
            Columns::of_header(&rows).ok_or(unknown)?
        }
    };
    let (users, items) = (SharedIds::new(), SharedIds::new());
    Ok(RatingReader { rows, columns, users, items, progress: Progress::BeforeFirst })
}

fn recognise(first_line: &[u8]) -> Option<Layout> {
    let holds = |separator: &[u8]| first_line.windows(separator.len()).any(|window| window == separator);
    [("::", Layout::Separated("::")), ("\t", Layout::Separated("\t")), (",", Layout::Csv)]
        .into_iter()
        .find_map(|(separator, layout)| holds(separator.as_bytes()).then_some(layout))
}

fn unknown_format(lines: &Lines) -> DatasetError {
    let first_line = quoted(&String::from_utf8_lossy(lines.current()));
    DatasetError::UnknownFormat { file: lines.file().to_owned(), first_line, known: KNOWN_FORMATS }
}

/// The column of a CSV header with one of these names, ignoring case and underscores.
pub(super) fn column_of_header(header: &Rows, names: &[&str]) -> Option<Column> {
    header.texts().find_map(|(index, text)| {
        let name = text.trim();
        let plain = name.replace('_', "").to_ascii_lowercase();
        names.contains(&plain.as_str()).then(|| Column { index, name: Cow::Owned(name.to_owned()) })
    })
}

impl Columns {
    fn of_header(header: &Rows) -> Option<Self> {
        Some(Self {
            user: column_of_header(header, &["userid", "user"])?,
            item: column_of_header(header, &["movieid", "itemid", "item"])?,
            label: column_of_header(header, &["rating", "label"])?,
            seconds: column_of_header(header, &["timestamp"]),
            width: header.width(),
        })
    }
}

impl RatingReader {
    /// The file being read.
    #[must_use]
    pub fn file(&self) -> &Path {
        self.rows.file()
    }

    fn read(&mut self) -> Result<Option<Rating>, DatasetError> {
        if !self.rows.advance()? {
            return match self.progress {
                Progress::BeforeFirst => Err(DatasetError::Empty { file: self.file().to_owned(), what: "ratings" }),
                Progress::Reading | Progress::Ended => Ok(None),
            };
        }
        let (rows, columns) = (&self.rows, &self.columns);
        let user = rows.text(&columns.user)?;
        let user = self.users.get(user).map_err(|_| rows.unexpected(&columns.user, EXPECTED_ID, user))?;
        let item = rows.text(&columns.item)?;
        let item = self.items.get(item).map_err(|_| rows.unexpected(&columns.item, EXPECTED_ID, item))?;
        let label = label(rows, &columns.label)?;
        let timestamp = match &columns.seconds {
            Some(column) => timestamp(rows, column)?,
            None => Timestamp::default(),
        };
        rows.ends_after(columns.width)?;
        Ok(Some(Rating { user, item, label, weight: 1.0, timestamp }))
    }
}

fn label(rows: &Rows, column: &Column) -> Result<f32, DatasetError> {
    let text = rows.text(column)?;
    let label = text.parse::<f32>().ok().filter(|label| label.is_finite());
    let label = label.ok_or_else(|| rows.unexpected(column, "a finite number", text))?;
    check_label(label).map_err(|_| rows.unexpected(column, "a number between -1e6 and 1e6", text))?;
    Ok(label)
}

fn timestamp(rows: &Rows, column: &Column) -> Result<Timestamp, DatasetError> {
    let text = rows.text(column)?;
    match text.parse::<i64>() {
        Ok(seconds @ 0..=SECONDS_MAX) => Ok(Timestamp(seconds * 1000)),
        _ => Err(rows.unexpected(column, "whole seconds since 1970, up to the year 9999", text)),
    }
}

impl Iterator for RatingReader {
    type Item = Result<Rating, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.progress, Progress::Ended) {
            return None;
        }
        let result = self.read().transpose();
        self.progress = match result {
            Some(Ok(_)) => Progress::Reading,
            Some(Err(_)) | None => Progress::Ended,
        };
        result
    }
}
