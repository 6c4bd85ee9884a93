//! Finding items by a piece of text, for people who look through a catalog.

use super::postings::Rows;
use super::{Catalog, Selection};
use crate::CandidateSet;
use crate::filter::Filter;
use celeris_model::ItemId;

/// What is looked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Search<'a> {
    /// Text in the id or in one of the text attributes that filters find; letters of either case are the same.
    pub text: Option<&'a str>,
    /// What must hold.
    pub filter: Option<&'a Filter>,
}

/// Which of the items found, in the order of their ids: shorter ones first, then by their bytes.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Those behind this one.
    pub after: Option<&'a ItemId>,
    /// How many.
    pub limit: usize,
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The page of items.
    pub items: Vec<ItemId>,
    /// How many there are on all pages.
    pub total: usize,
}

/// The order of ids in the store.
fn key(item: &ItemId) -> (usize, &str) {
    (item.as_str().len(), item.as_str())
}

impl Catalog {
    /// Looks through ids and texts of all items that live, available or not. Takes time in proportion to their number:
    /// tenths of a second for a million.
    #[must_use]
    pub fn search(&self, search: Search<'_>, page: Page<'_>) -> Found {
        let selection: Selection = self.select_always(search.filter);
        let mut matching = selection.allowed();
        if let Some(text) = search.text.filter(|text| !text.is_empty()) {
            matching = self.with_text(&matching, &text.to_lowercase());
        }
        let mut items: Vec<&ItemId> = matching.rows().map(|row| self.item(row)).collect();
        let total = items.len();
        if let Some(after) = page.after {
            items.retain(|item| key(item) > key(after));
        }
        if items.len() > page.limit && page.limit > 0 {
            items.select_nth_unstable_by(page.limit - 1, |a, b| key(a).cmp(&key(b)));
        }
        items.truncate(page.limit);
        items.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        Found { items: items.into_iter().cloned().collect(), total }
    }

    /// Those of `among` with `text`, which is in lower case, in their id or in a text.
    fn with_text(&self, among: &CandidateSet, text: &str) -> CandidateSet {
        let mut found = CandidateSet::none();
        let mut find = |row| {
            if among.contains(row) {
                found.insert(row);
            }
        };
        for (keyword, rows) in self.postings.keywords() {
            if holds(keyword, text) {
                match rows {
                    Rows::None => {}
                    Rows::One(row) => find(*row),
                    Rows::Many(rows) => rows.iter().for_each(&mut find),
                }
            }
        }
        among.rows().filter(|row| holds(self.item(*row).as_str(), text)).for_each(&mut find);
        found
    }
}

/// Whether `text`, which is in lower case, is a part of `whole` in lower case.
fn holds(whole: &str, text: &str) -> bool {
    if whole.is_ascii() {
        // Without a copy in lower case, which is most of the time.
        let (whole, text) = (whole.as_bytes(), text.as_bytes());
        return whole.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text));
    }
    whole.to_lowercase().contains(text)
}
