//! Open streams of each key: one key must not take all that the node has.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Principal;
use crate::error::ApiError;

/// The open streams of those that have any, by the names of principals.
#[derive(Clone)]
pub struct KeyStreams {
    open: Arc<Mutex<HashMap<String, usize>>>,
    /// The most that one may have.
    each: usize,
}

/// An open stream of a principal, until it is dropped.
pub struct KeyStream {
    open: Arc<Mutex<HashMap<String, usize>>>,
    of: String,
}

impl KeyStreams {
    pub(super) fn new(each: usize) -> Self {
        Self { open: Arc::default(), each }
    }

    /// Counts a stream, until what is returned is dropped. On a node that is open clients are not distinguished, and
    /// nothing is counted.
    ///
    /// # Errors
    /// 429 if the principal has as many streams open as it may.
    pub fn open(&self, principal: Option<&Principal>) -> Result<Option<KeyStream>, ApiError> {
        let Some(principal) = principal else { return Ok(None) };
        let of = principal.name().to_owned();
        let mut open = self.open.lock();
        let count = open.get(&of).copied().unwrap_or_default();
        if count >= self.each {
            let detail = format!(
                "the key has {count} streams open on this node, as many as limits.streams_per_key allows; end one, or \
                 send more lines in each"
            );
            return Err(ApiError::too_many(detail, super::PACE_LOOK));
        }
        open.insert(of.clone(), count + 1);
        drop(open);
        Ok(Some(KeyStream { open: Arc::clone(&self.open), of }))
    }
}

impl Drop for KeyStream {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        match open.get_mut(&self.of) {
            Some(count) if *count > 1 => *count -= 1,
            // Names of those without streams are forgotten, so that the map is no larger than the streams are many.
            _ => drop(open.remove(&self.of)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_its_streams_and_leaves_the_others_theirs() {
        let streams = KeyStreams::new(2);
        let named = |name: &str| Principal::trusted(name.to_owned(), None);
        let first = streams.open(Some(&named("one"))).unwrap();
        let second = streams.open(Some(&named("one"))).unwrap();
        let refused = streams.open(Some(&named("one"))).err().unwrap();
        assert_eq!(refused.problem().status, 429);
        assert!(refused.retry_after().is_some());
        assert!(streams.open(Some(&named("other"))).unwrap().is_some());
        assert!((0..9).all(|_| streams.open(None).unwrap().is_none()));
        drop(first);
        let again = streams.open(Some(&named("one"))).unwrap();
        assert!(streams.open(Some(&named("one"))).is_err());
        drop(again);
        drop(second);
        assert!(streams.open.lock().is_empty());
    }
}
