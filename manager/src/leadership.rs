//! Whether this node leads: in a cluster, one node decides about models and writes the registry.
//!
//! A node on its own leads from its start to its end. In a cluster the owner of the log of the
//! catalog leads, for a *term*. Work that decides and writes belongs to the term in which it began:
//! once that is over it stops, also if the node leads again by then, since the registry may have
//! changed meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use celeris_storage::StorageError;

use crate::error::ManagerError;

/// The terms of this node.
#[derive(Default)]
pub(crate) struct Leadership {
    /// Odd during a term; incremented when one begins or ends.
    turns: AtomicU64,
}

/// One term.
#[derive(Clone)]
pub(crate) struct Term {
    leadership: Arc<Leadership>,
    turn: u64,
}

impl Leadership {
    /// Begins a term.
    ///
    /// The caller guarantees that there is none, and that it holds the lock of changes of the
    /// registry, so that no change of an earlier term is made in this one.
    pub(crate) fn begin(&self) {
        let turn = self.turns.fetch_add(1, Ordering::AcqRel);
        debug_assert!(turn.is_multiple_of(2), "a term begins when the last one is over");
    }

    /// Ends the term, if there is one.
    pub(crate) fn end(&self) {
        // Fails if there is none, or if it was ended meanwhile.
        let _ = self
            .turns
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |turn| (!turn.is_multiple_of(2)).then_some(turn + 1));
    }

    /// Whether there is a term.
    pub(crate) fn is_leading(&self) -> bool {
        !self.turns.load(Ordering::Acquire).is_multiple_of(2)
    }

    /// The current term.
    ///
    /// # Errors
    /// `Storage(NotOwner)` if there is none.
    pub(crate) fn term(self: &Arc<Self>) -> Result<Term, ManagerError> {
        let turn = self.turns.load(Ordering::Acquire);
        if turn.is_multiple_of(2) {
            return Err(StorageError::NotOwner.into());
        }
        Ok(Term { leadership: Arc::clone(self), turn })
    }
}

impl Term {
    pub(crate) fn is_over(&self) -> bool {
        self.leadership.turns.load(Ordering::Acquire) != self.turn
    }

    /// # Errors
    /// `Storage(NotOwner)` once the term is over.
    pub(crate) fn check(&self) -> Result<(), ManagerError> {
        if self.is_over() { Err(StorageError::NotOwner.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_term_does_not_belong_to_the_next() {
        let leadership = Arc::<Leadership>::default();
        assert!(leadership.term().is_err() && !leadership.is_leading());
        leadership.end();
        leadership.begin();
        let first = leadership.term().unwrap();
        assert!(first.check().is_ok() && leadership.is_leading());
        leadership.end();
        leadership.end();
        assert!(first.is_over() && leadership.term().is_err());
        leadership.begin();
        assert!(matches!(first.check(), Err(ManagerError::Storage(StorageError::NotOwner))));
        assert!(leadership.term().unwrap().check().is_ok());
    }
}
