//! Reads the whole store repeatedly in the background and reports damage.
//!
//! A *pass* checks every entry of the main database, column by column in key order, at a bounded
//! rate; the next one begins an interval after it, or at once after a crash. `VERIFICATION` in the
//! data directory stores the position of the pass, so that it continues after a restart. The file
//! is optional: without it a new pass begins.
//!
//! RocksDB checks each block that a request reads, and seals are checked with each value, so damage
//! is never returned to a caller, whether it was found before or not. When a pass finds damage, the
//! log is poisoned: the node is not ready and accepts no observations, intact data can still be
//! read, and the damaged position is stored in the file. The next opening checks that position
//! first and fails if it is still damaged.
//!
//! Known limit: cached blocks are read from the cache, so damage under them is found in a later
//! pass.

mod entries;
mod wal_check;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use celeris_model::{StreamName, Timestamp};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

pub(crate) use self::wal_check::check_and_cut;
use crate::database::{Column, Database};
use crate::directory::replace_file;
use crate::error::StorageError;
use crate::health::Health;
use crate::layout::keys::{self, KeyReader};
use crate::log::Scrubber;
use crate::options::StorageOptions;

/// Bytes checked between two pauses.
const STEP_BYTES: u64 = 1 << 20;

/// Interval of saving the position.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// Delay after a read that failed for a reason other than damage.
const RETRY_AFTER: Duration = Duration::from_secs(60);

/// The progress and findings of the verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// Bytes of keys and values checked since the store was opened.
    pub bytes: u64,
    /// End of the last pass over the whole store; `None` before the first.
    pub last_pass: Option<Timestamp>,
    /// Description of the damage, if any was found.
    pub damage: Option<Arc<str>>,
}

/// The contents of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Stored {
    /// The position of the current pass.
    place: Option<StoredPlace>,
    /// Whether damage was found after the position.
    damaged: bool,
    /// End of the last pass, in milliseconds since 1970.
    last_pass: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredPlace {
    column: String,
    /// A key in hexadecimal.
    from: String,
}

/// The position from which a pass continues; everything before it is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    column: Column,
    from: Vec<u8>,
}

impl Place {
    fn start() -> Self {
        Self { column: Column::MAIN[0], from: Vec::new() }
    }

    /// Checks the next entries. Returns the bytes read and the next position, `None` at the end of
    /// the store.
    fn step(&self, database: &Database) -> Result<(u64, Option<Self>), StorageError> {
        let checked = entries::check(database, self.column, self.from.clone(), STEP_BYTES)?;
        let next = match checked.resume_from {
            Some(from) => Some(Self { column: self.column, from }),
            None => {
                let mut rest = Column::MAIN.iter().skip_while(|column| **column != self.column).skip(1);
                rest.next().map(|column| Self { column: *column, from: Vec::new() })
            }
        };
        Ok((checked.bytes, next))
    }

    /// The position in the form that may be stored: a key that contains a user is cut to stream and
    /// partition, so that an erasure leaves nothing of the user in the file. The partition is then
    /// checked again after a restart.
    fn without_user(&self) -> Self {
        let mut from = self.from.clone();
        if matches!(self.column, Column::History | Column::Snapshots)
            && let Some(stream) = self.stream()
        {
            from.truncate(keys::of_stream(&stream).len() + 1);
        }
        Self { column: self.column, from }
    }

    /// The stream at the position, if keys of the column contain one.
    fn stream(&self) -> Option<StreamName> {
        match self.column {
            Column::Log
            | Column::History
            | Column::ObservationIds
            | Column::Items
            | Column::ObservedItems
            | Column::Snapshots => StreamName::new(KeyReader::new(&self.from).text()?).ok(),
            _ => None,
        }
    }

    fn store(&self) -> StoredPlace {
        let Self { column, from } = self.without_user();
        StoredPlace { column: column.name().to_owned(), from: keys::hex(&from) }
    }

    fn of(StoredPlace { column, from }: &StoredPlace) -> Option<Self> {
        let column = *Column::MAIN.iter().find(|known| known.name() == column)?;
        Some(Self { column, from: keys::from_hex(from)? })
    }

    /// Checks from here up to the next position that can be stored.
    fn check_again(&self, database: &Database) -> Result<(), StorageError> {
        let mut next = Some(self.clone());
        while let Some(place) = next.filter(|place| place.without_user() == *self) {
            (_, next) = place.step(database)?;
        }
        Ok(())
    }
}

struct State {
    /// `None` between two passes.
    place: Option<Place>,
    found: Verification,
    closed: bool,
}

/// The verification and its thread.
pub(crate) struct Verifier {
    database: Arc<Database>,
    scrubber: Arc<Scrubber>,
    file: PathBuf,
    delay: Duration,
    interval: Duration,
    bytes_per_second: u64,
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Verifier {
    /// Reads the file. After a crash a pass is due at once.
    ///
    /// # Errors
    /// `CorruptLog` or `Corrupt` if damage found earlier still exists; errors of reading.
    pub(crate) fn open(
        database: Arc<Database>,
        scrubber: Arc<Scrubber>,
        file: PathBuf,
        options: &StorageOptions,
        stopped_clean: bool,
    ) -> Result<Arc<Self>, StorageError> {
        let stored = read(&file)?;
        let place = stored.place.as_ref().and_then(Place::of);
        if stored.damaged
            && let Some(place) = &place
        {
            place.check_again(&database)?;
            tracing::info!(column = place.column.name(), "the damage found earlier is gone");
        }
        let found = Verification { last_pass: stored.last_pass.map(Timestamp), ..Verification::default() };
        let place = place.or_else(|| (!stopped_clean).then(Place::start));
        Ok(Arc::new(Self {
            database,
            scrubber,
            file,
            delay: options.verification_delay,
            interval: options.verification_interval,
            bytes_per_second: options.verification_bytes_per_second.max(1),
            state: Mutex::new(State { place, found, closed: false }),
            changed: Condvar::new(),
            thread: Mutex::new(None),
        }))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn start(self: &Arc<Self>, health: Arc<Health>) -> Result<(), StorageError> {
        let verifier = Arc::clone(self);
        let thread = std::thread::Builder::new()
            .name("celeris-verify".to_owned())
            .spawn(move || verifier.run(&health))
            .map_err(StorageError::io("start the thread of", "the verification"))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread and saves the position. Idempotent.
    pub(crate) fn stop(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the verification panicked");
        }
    }

    pub(crate) fn found(&self) -> Verification {
        self.state.lock().found.clone()
    }

    /// Checks everything now, at full speed.
    ///
    /// # Errors
    /// `CorruptLog` or `Corrupt` for damage, which poisons the log; errors of reading.
    pub(crate) fn check_all(&self, health: &Health) -> Result<(), StorageError> {
        let mut next = Some(Place::start());
        while let Some(place) = next {
            (_, next) = self.step(&place, health)?;
        }
        Ok(())
    }

    fn run(&self, health: &Health) {
        let mut saved = Instant::now();
        let mut pause = self.delay;
        while self.wait(pause) {
            pause = self.advance(health);
            if saved.elapsed() >= SAVE_EVERY {
                self.save(None);
                saved = Instant::now();
            }
        }
        self.save(None);
    }

    /// Waits; `false` if the verifier is stopped.
    fn wait(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        while !state.closed && state.found.damage.is_none() {
            if self.changed.wait_for(&mut state, pause).timed_out() {
                return true;
            }
        }
        false
    }

    /// Takes one step of the pass, or begins one that is due. Returns the pause after it.
    fn advance(&self, health: &Health) -> Duration {
        let place = self.state.lock().place.clone();
        let place = match place {
            Some(place) => place,
            None => {
                let early = self.until_due(SystemTime::now().into());
                if !early.is_zero() {
                    return early;
                }
                Place::start()
            }
        };
        match self.step(&place, health) {
            Ok((bytes, next)) => {
                let mut state = self.state.lock();
                if next.is_none() {
                    state.found.last_pass = Some(SystemTime::now().into());
                    tracing::info!("the whole store is verified");
                }
                state.place = next;
                Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64)
            }
            Err(error) => {
                if !is_damage(&error) {
                    tracing::warn!(%error, column = place.column.name(), "the verification failed; trying again later");
                }
                RETRY_AFTER
            }
        }
    }

    /// Time until the next pass. A clock that is set back delays it by at most one interval.
    fn until_due(&self, now: Timestamp) -> Duration {
        let Some(last) = self.found().last_pass else { return Duration::ZERO };
        let passed = u64::try_from(now.0.saturating_sub(last.0)).unwrap_or(0);
        self.interval.saturating_sub(Duration::from_millis(passed))
    }

    /// Checks the next entries. Returns the bytes read and the next position, `None` at the end of
    /// the store.
    fn step(&self, place: &Place, health: &Health) -> Result<(u64, Option<Place>), StorageError> {
        let stepped = {
            let _held = self.scrubber.hold();
            place.step(&self.database)
        };
        match &stepped {
            Ok((bytes, _)) => self.state.lock().found.bytes += bytes,
            Err(error) if is_damage(error) => self.report(place, error, health),
            Err(_) => {}
        }
        stepped
    }

    /// Ends the verification and all writes: nothing must be built on damaged records.
    fn report(&self, place: &Place, error: &StorageError, health: &Health) {
        let stream = place.stream();
        let column = place.column.name();
        tracing::error!(column, stream = stream.as_ref().map(StreamName::as_str), %error, "the store is damaged");
        health.poison(&error.to_string());
        self.state.lock().found.damage.get_or_insert_with(|| error.to_string().into());
        self.save(Some(place));
    }

    /// Saves the position of the pass, or of damage; after damage nothing else.
    fn save(&self, damaged: Option<&Place>) {
        let stored = {
            let state = self.state.lock();
            if state.found.damage.is_some() && damaged.is_none() {
                return;
            }
            let place = damaged.or(state.place.as_ref()).map(Place::store);
            Stored { place, damaged: damaged.is_some(), last_pass: state.found.last_pass.map(|time| time.0) }
        };
        let text = serde_json::to_string(&stored).expect("texts and numbers are valid JSON");
        if let Err(error) = replace_file(&self.file, format!("{text}\n").as_bytes()) {
            tracing::warn!(%error, "the verification will continue from an earlier position after a restart");
        }
    }
}

fn is_damage(error: &StorageError) -> bool {
    matches!(error, StorageError::CorruptLog { .. } | StorageError::Corrupt { .. })
}

/// Reads the file; the default if it is missing or cannot be parsed.
fn read(file: &Path) -> Result<Stored, StorageError> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Stored::default()),
        Err(error) => return Err(StorageError::io("read", file)(error)),
    };
    Ok(serde_json::from_str(&text).unwrap_or_else(|error| {
        tracing::warn!(file = %file.display(), %error, "the verification starts again: its file cannot be parsed");
        Stored::default()
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::{UserEpoch, UserId};

    use super::*;

    #[test]
    fn a_stored_position_names_no_user() {
        let (stream, user) = (StreamName::new("films").unwrap(), UserId::new("alice").unwrap());
        let from = keys::history(&stream, &user, UserEpoch(7));
        let place = Place { column: Column::History, from };
        let stored = place.store();
        assert_eq!(stored.from, "0466696c6d7330");
        let kept = Place::of(&stored).unwrap();
        assert_eq!(kept, place.without_user());
        assert_eq!(kept.without_user(), kept);
        assert!(kept.from < place.from, "the rest of the partition is checked again");
        assert_eq!(kept.stream(), Some(stream));
        assert_eq!(Place::of(&StoredPlace { column: "gone".to_owned(), from: String::new() }), None);
    }
}
