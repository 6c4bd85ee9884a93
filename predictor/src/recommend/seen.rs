//! Items that users have seen: the items of their observations, as rows of the catalog.
//!
//! A view of the log, kept in a bounded cache. If the user has later events, only these are read;
//! if their epochs have a gap, an event was retracted or erased, and the history is read again, up
//! to [`EVENTS_MAX`] events back.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use celeris_model::{ItemId, Record, RecordKind, Sequence, Timestamp, UserEpoch};
use celeris_retrieval::{CandidateSet, Row};
use celeris_storage::{HistorySpan, Storage};

use super::SeenRule;
use crate::cache::{BoundedCache, Held};
use crate::error::PredictorError;
use crate::index::StreamCatalog;
use crate::users::UserKey;

/// Number of latest events that are read for a user not in the cache: items seen before them may be
/// shown again.
const EVENTS_MAX: u64 = 1 << 16;

/// The kind of an observation without feedback kind.
const NO_KIND: u32 = u32::MAX;

/// An observation of a seen item.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Its position in the log, for retractions.
    sequence: Sequence,
    timestamp: Timestamp,
    /// Index of its kind of feedback.
    kind: u32,
}

/// The relevant fields of an event.
struct SeenEvent {
    sequence: Sequence,
    epoch: UserEpoch,
    timestamp: Timestamp,
    /// The item, if the event is an observation.
    item: Option<ItemId>,
    feedback: Option<String>,
    /// Positions of the observations that a retraction removes.
    retracted: Vec<Sequence>,
}

impl SeenEvent {
    fn new(sequence: Sequence, record: Record) -> Self {
        Self {
            sequence,
            epoch: record.user_epoch,
            timestamp: record.timestamp,
            item: record.item.filter(|_| record.kind == RecordKind::Observe),
            feedback: record.feedback,
            retracted: if record.kind == RecordKind::Retract { record.targets } else { Vec::new() },
        }
    }
}

/// The items of a user's observations up to an epoch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    epoch: UserEpoch,
    /// The catalog that the rows belong to.
    catalog: Weak<StreamCatalog>,
    rows: Vec<(Row, Mark)>,
    /// Observations of items that the catalog does not list yet.
    unlisted: Vec<(ItemId, Mark)>,
    /// The kinds of feedback, by index.
    kinds: Vec<String>,
}

impl Held for Arc<Seen> {
    fn bytes(&self) -> usize {
        let id_bytes: usize = self.unlisted.iter().map(|(item, _)| item.heap_bytes()).sum();
        let kind_bytes: usize = self.kinds.iter().map(|kind| size_of::<String>() + kind.len()).sum();
        size_of::<Seen>()
            + self.rows.capacity() * size_of::<(Row, Mark)>()
            + self.unlisted.capacity() * size_of::<(ItemId, Mark)>()
            + id_bytes
            + kind_bytes
    }
}

impl Seen {
    fn of(catalog: &Arc<StreamCatalog>) -> Self {
        Self { catalog: Arc::downgrade(catalog), ..Self::default() }
    }

    fn is_of(&self, catalog: &Arc<StreamCatalog>) -> bool {
        self.catalog.ptr_eq(&Arc::downgrade(catalog))
    }

    /// Adds later events; returns `false` if their epochs have a gap, so that the history must be
    /// read again.
    ///
    /// A retracted observation and an erasure leave no event: either shows as a gap.
    fn extend(&mut self, later: &[SeenEvent], epoch: UserEpoch, catalog: &StreamCatalog) -> bool {
        let follows = later.iter().zip(self.epoch.0 + 1..).all(|(event, epoch)| event.epoch.0 == epoch);
        let reached = later.last().map_or(self.epoch, |event| event.epoch);
        if !follows || reached < epoch {
            return false;
        }
        self.take_in(later, epoch, catalog);
        true
    }

    fn take_in(&mut self, events: &[SeenEvent], epoch: UserEpoch, catalog: &StreamCatalog) {
        let mut kinds: HashMap<String, u32> = self.kinds.drain(..).zip(0..).collect();
        let observed: Vec<(&ItemId, &SeenEvent)> =
            events.iter().filter_map(|event| Some((event.item.as_ref()?, event))).collect();
        let rows = catalog.rows_of(observed.iter().map(|(item, _)| *item));
        for ((item, event), row) in observed.into_iter().zip(rows) {
            let next = kinds.len() as u32;
            let kind = event.feedback.as_ref().map_or(NO_KIND, |kind| *kinds.entry(kind.clone()).or_insert(next));
            let mark = Mark { sequence: event.sequence, timestamp: event.timestamp, kind };
            match row {
                Some(row) => self.rows.push((row, mark)),
                None => self.unlisted.push((item.clone(), mark)),
            }
        }
        let retracted: HashSet<Sequence> = events.iter().flat_map(|event| &event.retracted).copied().collect();
        if !retracted.is_empty() {
            self.rows.retain(|(_, mark)| !retracted.contains(&mark.sequence));
            self.unlisted.retain(|(_, mark)| !retracted.contains(&mark.sequence));
        }
        self.kinds = vec![String::new(); kinds.len()];
        kinds.into_iter().for_each(|(kind, index)| self.kinds[index as usize] = kind);
        self.epoch = events.last().map_or(epoch, |event| event.epoch.max(epoch));
    }

    /// Removes the items from `allowed` that were seen by `now` according to `rule`.
    pub(crate) fn take_out(
        &self,
        rule: &SeenRule,
        now: Timestamp,
        allowed: &mut CandidateSet,
        catalog: &StreamCatalog,
    ) {
        let counts = Counts::new(rule, now, &self.kinds);
        let seen = self.rows.iter().filter(|(_, mark)| counts.count(mark.timestamp, mark.kind));
        seen.for_each(|(row, _)| allowed.remove(*row));
        let unlisted = self.unlisted.iter().filter(|(_, mark)| counts.count(mark.timestamp, mark.kind));
        let listed_since = catalog.rows_of(unlisted.map(|(item, _)| item));
        listed_since.into_iter().flatten().for_each(|row| allowed.remove(row));
    }
}

/// Selects the observations that count by a rule.
struct Counts {
    since: Timestamp,
    /// By the index of the kind; `None` if all observations count.
    kinds: Option<Vec<bool>>,
}

impl Counts {
    fn new(rule: &SeenRule, now: Timestamp, kinds: &[String]) -> Self {
        let wanted = || kinds.iter().map(|kind| rule.feedback.contains(kind)).collect();
        Self { since: rule.since(now), kinds: (!rule.feedback.is_empty()).then(wanted) }
    }

    fn count(&self, timestamp: Timestamp, kind: u32) -> bool {
        let of_kind = |kinds: &Vec<bool>| kinds.get(kind as usize).is_some_and(|wanted| *wanted);
        timestamp >= self.since && self.kinds.as_ref().is_none_or(of_kind)
    }
}

impl SeenRule {
    /// The earliest timestamp that counts.
    pub(crate) fn since(&self, now: Timestamp) -> Timestamp {
        let millis = |window: Duration| i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.window.map_or(i64::MIN, |window| now.0.saturating_sub(millis(window))))
    }
}

/// Cache of seen items, bounded in bytes.
pub(crate) struct SeenCache(BoundedCache<UserKey, Arc<Seen>>);

impl SeenCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self(BoundedCache::new("seen", bytes_max))
    }

    /// The user's seen items up to at least `epoch`. All events up to it must be durable. Reads
    /// from disk if the user has events since the last call.
    pub(crate) fn of(
        &self,
        key: &UserKey,
        epoch: UserEpoch,
        storage: &Storage,
        catalog: &Arc<StreamCatalog>,
    ) -> Result<Arc<Seen>, PredictorError> {
        let known = self.0.get(key).filter(|seen| seen.is_of(catalog));
        if let Some(seen) = &known
            && seen.epoch >= epoch
        {
            return Ok(Arc::clone(seen));
        }
        let read = |after: UserEpoch| {
            let span = HistorySpan { after, up_to: epoch };
            let mut events = Vec::new();
            storage.histories().scan(&key.stream, &key.user, span, |sequence, record| {
                events.push(SeenEvent::new(sequence, record));
            })?;
            Ok::<_, PredictorError>(events)
        };
        let oldest = UserEpoch(epoch.0.saturating_sub(EVENTS_MAX));
        let extended = match known.filter(|seen| seen.epoch >= oldest) {
            Some(seen) => {
                let mut seen = Seen::clone(&seen);
                seen.extend(&read(seen.epoch)?, epoch, catalog).then_some(seen)
            }
            None => None,
        };
        let seen = match extended {
            Some(seen) => seen,
            None => {
                let mut seen = Seen::of(catalog);
                seen.take_in(&read(oldest)?, epoch, catalog);
                seen
            }
        };
        let seen = Arc::new(seen);
        self.0.insert(key.clone(), Arc::clone(&seen));
        Ok(seen)
    }

    /// Drops a user's entry: the next call reads the log.
    pub(crate) fn purge(&self, key: &UserKey) {
        self.0.purge(|other| other == key);
    }
}
