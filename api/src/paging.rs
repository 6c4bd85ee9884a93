//! Pages of listings.

use crate::error::ApiError;

/// Default number of entries of a page.
const ENTRIES: usize = 100;

/// Maximum number of entries of a page.
const ENTRIES_MAX: usize = 1000;

/// The number of entries of a page, from the parameter `limit`.
pub fn entries(limit: Option<usize>) -> Result<usize, ApiError> {
    let limit = limit.unwrap_or(ENTRIES);
    if (1..=ENTRIES_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(ApiError::field("limit", format!("must be from 1 to {ENTRIES_MAX}, got {limit}")))
    }
}

/// Where the next page begins: at the last entry of a full page.
pub fn next<T, I>(page: &[T], limit: usize, id: impl Fn(&T) -> I) -> Option<I> {
    if page.len() == limit { page.last().map(id) } else { None }
}
