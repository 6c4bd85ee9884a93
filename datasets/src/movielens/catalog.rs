//! Titles and genres, from the file next to the ratings.

use std::collections::HashSet;
use std::path::Path;

use celeris_model::ItemId;

use super::ITEMS_MAX;
use super::ids::EXPECTED_ID;
use super::locate::{find, folder_of};
use super::ratings::column_of_header;
use crate::rows::{Column, Encoding, Layout, Rows};
use crate::{DatasetError, ItemInfo};

/// The genres of `u.item`'s flags in their order, if `u.genre` is missing.
const FLAG_GENRES: [&str; 19] = [
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
];

/// Fields of `u.item` before the flags: id, title, release date, video release date, address.
const FIELDS_BEFORE_FLAGS: usize = 5;

/// Placeholders in published files for an item without genres.
const NO_GENRE: [&str; 2] = ["(no genres listed)", "unknown"];

/// The items of the titles file next to `ratings_file`; empty if there is no such file.
///
/// # Errors
/// A [`DatasetError`] with the file, and the line and field if known.
pub fn read_beside(ratings_file: &Path) -> Result<Vec<ItemInfo>, DatasetError> {
    let folder = folder_of(ratings_file);
    if let Some(file) = find(folder, "movies.csv") {
        return read_csv(&file);
    }
    if let Some(file) = find(folder, "movies.dat") {
        let rows = Rows::open(&file, Layout::Separated("::"), Encoding::Utf8OrLatin1)?;
        let genres = Genres::Joined(Column::at(2, "genres"));
        return Catalog::new(rows, Column::at(0, "movieId"), Column::at(1, "title"), genres).read_all();
    }
    if let Some(file) = find(folder, "u.item") {
        let rows = Rows::open(&file, Layout::Separated("|"), Encoding::Utf8OrLatin1)?;
        let genres = Genres::Flags(flag_columns(folder)?);
        return Catalog::new(rows, Column::at(0, "movie id"), Column::at(1, "movie title"), genres).read_all();
    }
    Ok(Vec::new())
}

fn read_csv(file: &Path) -> Result<Vec<ItemInfo>, DatasetError> {
    let mut rows = Rows::open(file, Layout::Csv, Encoding::Utf8)?;
    let has_header = rows.advance()?;
    let column = |names: &[&str]| column_of_header(&rows, names).filter(|_| has_header);
    let (Some(id), Some(title)) = (column(&["movieid", "itemid", "item"]), column(&["title"])) else {
        return Err(DatasetError::UnknownFormat {
            file: file.to_owned(),
            first_line: rows.texts().map(|(_, text)| text).collect::<Vec<_>>().join(","),
            known: "CSV whose header names movieId, title and possibly genres",
        });
    };
    let genres = column(&["genres"]).map_or(Genres::Absent, Genres::Joined);
    Catalog::new(rows, id, title, genres).read_all()
}

/// The flags of `u.item`, named by `u.genre` (rows `name|number`) if that file exists.
fn flag_columns(folder: &Path) -> Result<Vec<Column>, DatasetError> {
    let mut names: Vec<String> = FLAG_GENRES.map(str::to_owned).to_vec();
    if let Some(file) = find(folder, "u.genre") {
        names.clear();
        let mut rows = Rows::open(&file, Layout::Separated("|"), Encoding::Utf8OrLatin1)?;
        while rows.advance()? {
            let number = Column::at(1, "number");
            let text = rows.text(&number)?;
            if text.parse() != Ok(names.len()) {
                return Err(rows.unexpected(&number, "the genres numbered from 0 in order", text));
            }
            names.push(rows.text(&Column::at(0, "genre"))?.to_owned());
        }
    }
    let columns = names.into_iter().enumerate();
    Ok(columns.map(|(flag, name)| Column { index: FIELDS_BEFORE_FLAGS + flag, name: name.into() }).collect())
}

/// The columns with a row's genres.
enum Genres {
    Absent,
    /// One column, with genres separated by `|`.
    Joined(Column),
    /// One column of 0 or 1 for each genre, named by the genre.
    Flags(Vec<Column>),
}

struct Catalog {
    rows: Rows,
    id: Column,
    title: Column,
    genres: Genres,
}

impl Catalog {
    fn new(rows: Rows, id: Column, title: Column, genres: Genres) -> Self {
        Self { rows, id, title, genres }
    }

    fn read_all(mut self) -> Result<Vec<ItemInfo>, DatasetError> {
        let mut items = Vec::new();
        let mut seen = HashSet::new();
        while self.rows.advance()? {
            if items.len() == ITEMS_MAX {
                let file = self.rows.file().to_owned();
                return Err(DatasetError::TooMany { file, what: "titles", max: ITEMS_MAX });
            }
            let item = self.item()?;
            if !seen.insert(item.id.clone()) {
                return Err(self.rows.unexpected(&self.id, "an id that no earlier row has", item.id.as_str()));
            }
            items.push(item);
        }
        Ok(items)
    }

    fn item(&self) -> Result<ItemInfo, DatasetError> {
        let text = self.rows.text(&self.id)?;
        let id = ItemId::new(text).map_err(|_| self.rows.unexpected(&self.id, EXPECTED_ID, text))?;
        let title = self.rows.text(&self.title)?;
        if title.trim().is_empty() {
            return Err(self.rows.unexpected(&self.title, "a title", title));
        }
        Ok(ItemInfo { id, title: title.to_owned(), genres: self.item_genres()? })
    }

    fn item_genres(&self) -> Result<Vec<String>, DatasetError> {
        let mut genres = Vec::new();
        match &self.genres {
            Genres::Absent => {}
            Genres::Joined(column) => genres.extend(self.rows.text(column)?.split('|').map(str::to_owned)),
            Genres::Flags(columns) => {
                for column in columns {
                    match self.rows.text(column)? {
                        "1" => genres.push(column.name.to_string()),
                        "0" => {}
                        text => return Err(self.rows.unexpected(column, "0 or 1", text)),
                    }
                }
                self.rows.ends_after(FIELDS_BEFORE_FLAGS + columns.len())?;
            }
        }
        genres.retain(|genre| !genre.is_empty() && !NO_GENRE.contains(&genre.as_str()));
        Ok(genres)
    }
}
