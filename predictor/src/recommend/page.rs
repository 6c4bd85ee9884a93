//! Paging without repetition: a page token contains the items of the pages before it.
//!
//! Weights change between two pages, so a position in the ranking would not identify the next page;
//! the shown items do. Each item is stored as its row, for direct access, and a hash of its id,
//! which detects that rows have changed after a restart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use celeris_model::ItemId;
use celeris_retrieval::{CandidateSet, Row};
use xxhash_rust::xxh3::xxh3_64;

use crate::index::StreamCatalog;

/// Maximum number of items in a token, which is then 16 KB long.
pub const SHOWN_MAX: usize = 1000;

/// Bytes before the items: format number and checksum.
const HEAD_BYTES: usize = 5;

/// Bytes of an item: its row and the hash of its id.
const SHOWN_BYTES: usize = 12;

/// Format number of a token.
const FORM: u8 = 1;

/// The items of earlier pages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    shown: Vec<Shown>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    row: Row,
    id_hash: u64,
}

fn id_hash(item: &ItemId) -> u64 {
    xxh3_64(item.as_str().as_bytes())
}

fn checksum(body: &[u8]) -> [u8; 4] {
    (xxh3_64(body) as u32).to_le_bytes()
}

impl Page {
    /// Parses a token; `None` if it is invalid.
    #[must_use]
    pub fn read(token: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (head, body) = bytes.split_at_checked(HEAD_BYTES)?;
        let (items, rest) = body.as_chunks::<SHOWN_BYTES>();
        let is_ours = head[0] == FORM && head[1..] == checksum(body) && rest.is_empty() && items.len() <= SHOWN_MAX;
        let shown = |item: &[u8; SHOWN_BYTES]| {
            let (row, id_hash) = item.split_first_chunk::<4>()?;
            let id_hash = u64::from_le_bytes(id_hash.try_into().ok()?);
            Some(Shown { row: Row::from_le_bytes(*row), id_hash })
        };
        let shown: Option<Vec<Shown>> = items.iter().map(shown).collect();
        shown.filter(|_| is_ours).map(|shown| Self { shown })
    }

    /// The token, as URL-safe text.
    #[must_use]
    pub fn token(&self) -> String {
        let mut body = Vec::with_capacity(self.shown.len() * SHOWN_BYTES);
        for Shown { row, id_hash } in &self.shown {
            body.extend_from_slice(&row.to_le_bytes());
            body.extend_from_slice(&id_hash.to_le_bytes());
        }
        let mut bytes = vec![FORM];
        bytes.extend_from_slice(&checksum(&body));
        bytes.append(&mut body);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The next page, after these items; `None` if it would contain too many.
    pub(crate) fn after<'a>(&self, shown: impl IntoIterator<Item = (Row, &'a ItemId)>) -> Option<Self> {
        let mut page = self.clone();
        page.shown.extend(shown.into_iter().map(|(row, item)| Shown { row, id_hash: id_hash(item) }));
        (page.shown.len() <= SHOWN_MAX).then_some(page)
    }

    /// Removes the items of earlier pages from `allowed`.
    pub(crate) fn take_out(&self, allowed: &mut CandidateSet, catalog: &StreamCatalog) {
        let given_out = catalog.size().rows;
        let (known, unknown): (Vec<Shown>, Vec<Shown>) =
            self.shown.iter().partition(|shown| (shown.row as usize) < given_out);
        let mut moved: Vec<u64> = unknown.iter().map(|shown| shown.id_hash).collect();
        for (shown, item) in known.iter().zip(catalog.items_of(known.iter().map(|shown| shown.row))) {
            if id_hash(&item) == shown.id_hash {
                allowed.remove(shown.row);
            } else {
                moved.push(shown.id_hash);
            }
        }
        if moved.is_empty() {
            return;
        }
        // The node has restarted since, and its rows have other numbers.
        moved.sort_unstable();
        let rows: Vec<Row> = allowed.rows().collect();
        let items = catalog.items_of(rows.iter().copied());
        let shown = rows.iter().zip(&items).filter(|(_, item)| moved.binary_search(&id_hash(item)).is_ok());
        shown.for_each(|(row, _)| allowed.remove(*row));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn page(shown: usize) -> Option<Page> {
        let items: Vec<ItemId> = (0..shown).map(|item| ItemId::new(format!("item {item}")).unwrap()).collect();
        Page::default().after((0..).zip(&items))
    }

    #[test]
    fn tokens_round_trip_and_hold_at_most_a_thousand_items() {
        for shown in [0, 1, 7, SHOWN_MAX] {
            let page = page(shown).unwrap();
            assert_eq!(Page::read(&page.token()), Some(page), "{shown}");
        }
        assert_eq!(page(SHOWN_MAX + 1), None);
        assert_eq!(page(SHOWN_MAX).unwrap().after([(0, &ItemId::new("one more").unwrap())]), None);
    }

    #[test]
    fn broken_tokens_are_rejected() {
        let token = page(3).unwrap().token();
        let mut changed = token.clone();
        changed.replace_range(10..11, if &token[10..11] == "A" { "B" } else { "A" });
        for broken in ["", "!", "AAAA", &token[1..], &token[..token.len() - 4], &changed, &format!("{token}AAAA")] {
            assert_eq!(Page::read(broken), None, "{broken}");
        }
    }
}
