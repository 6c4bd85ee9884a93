//! Text search over a catalog, for catalog browsers.

use super::postings::Rows;
use super::{Catalog, CompiledFilter};
use crate::CandidateSet;
use crate::filter::Filter;
use celeris_model::ItemId;

/// A search query.
#[derive(Debug, Clone, Copy, Default)]
pub struct Search<'a> {
    /// Substring of the id or of a string attribute that filters match; case-insensitive.
    pub text: Option<&'a str>,
    pub filter: Option<&'a Filter>,
}

/// A page of the results in the order of ids: shorter ones first, then bytewise.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The last item of the previous page.
    pub after: Option<&'a ItemId>,
    /// Maximum number of items.
    pub limit: usize,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The items of the page.
    pub items: Vec<ItemId>,
    /// The number of items on all pages.
    pub total: usize,
}

/// The order of ids in the store.
fn key(item: &ItemId) -> (usize, &str) {
    (item.as_str().len(), item.as_str())
}

impl Catalog {
    /// Searches ids and strings of all items that are alive, available or not. Takes time in
    /// proportion to their number: tenths of a second for a million.
    #[must_use]
    pub fn search(&self, search: Search<'_>, page: Page<'_>) -> Found {
        let compiled: CompiledFilter = self.compile_always(search.filter);
        let mut matching = compiled.allowed();
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

    /// The rows of `among` with `text`, given in lower case, in their id or in a string.
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

/// Whether `text`, given in lower case, is a substring of `whole` in lower case.
fn holds(whole: &str, text: &str) -> bool {
    if whole.is_ascii() {
        // The common case, without a lower-case copy.
        let (whole, text) = (whole.as_bytes(), text.as_bytes());
        return whole.windows(text.len()).any(|window| window.eq_ignore_ascii_case(text));
    }
    whole.to_lowercase().contains(text)
}
