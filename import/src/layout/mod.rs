//! Layouts of files that other programs write, and how they are recognised.

pub mod gorse;
pub mod personalize;

use serde_json::{Map, Value};

/// A layout that is known in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// As the file says.
    Open,
    /// Ratings of MovieLens, with times in seconds; titles may lie beside them.
    MovieLens {
        /// Whether the first line names the columns.
        header: bool,
    },
    /// An export, a dump or a table of Gorse.
    Gorse(Subject),
    /// A CSV file of a dataset of Amazon Personalize.
    Personalize(Subject),
}

/// What the rows of a file are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Feedback,
    Items,
    Users,
}

impl Layout {
    /// What the rows are about, if the layout says it.
    #[must_use]
    pub fn subject(self) -> Option<Subject> {
        match self {
            Self::Open | Self::MovieLens { .. } => None,
            Self::Gorse(subject) | Self::Personalize(subject) => Some(subject),
        }
    }
}

/// A program whose files have layouts of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Gorse,
    Personalize,
}

impl Program {
    pub const ALL: [Self; 2] = [Self::Gorse, Self::Personalize];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gorse => "gorse",
            Self::Personalize => "personalize",
        }
    }

    /// The layout of a file of this program, by its columns.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn layout(self, columns: &[String]) -> Result<Layout, String> {
        match self {
            Self::Gorse => gorse::subject_of(columns).map(Layout::Gorse),
            Self::Personalize => personalize::subject_of(columns).map(Layout::Personalize),
        }
    }
}

/// Recognises a file by its first line, where that can mean nothing else.
pub(crate) fn of_first_line(line: &str) -> Layout {
    let fields: Vec<&str> = line.split('\t').collect();
    let is_number = |field: &&str| field.parse::<f64>().is_ok();
    let double_colons: Vec<&str> = line.split("::").collect();
    if line.starts_with("userId,movieId,rating") {
        return Layout::MovieLens { header: true };
    }
    if fields.len() == 4 && fields[2..].iter().all(is_number)
        || double_colons.len() == 4 && double_colons[2..].iter().all(is_number)
    {
        return Layout::MovieLens { header: false };
    }
    let columns = columns_of(line);
    let gorse = gorse::recognised(&columns).map(Layout::Gorse);
    gorse.or_else(|| personalize::recognised(&columns).map(Layout::Personalize)).unwrap_or(Layout::Open)
}

/// The names of the columns in a first line: the fields of an object, or a header.
fn columns_of(line: &str) -> Vec<String> {
    if line.starts_with('{') {
        let object: Map<String, Value> = serde_json::from_str(line).unwrap_or_default();
        return object.into_iter().map(|(name, _)| name).collect();
    }
    let names = line.split([',', '\t', ';']);
    names.map(|name| name.trim().trim_matches('"').to_owned()).collect()
}
