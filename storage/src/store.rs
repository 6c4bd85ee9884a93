//! The store: opens and closes its components in order.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use celeris_model::{ModelId, Shards};

use crate::catalog_log::CatalogLog;
use crate::database::{self, BytesWritten, Change, Column, Database, Durability, Recovery, Tuning};
use crate::decisions::Decisions;
use crate::directory::{ClusterIdentity, Directory};
use crate::disk_space::SpaceGuard;
use crate::error::StorageError;
use crate::health::Health;
use crate::history::Histories;
use crate::items::{self, Items};
use crate::layout::hashing::Hashes;
use crate::layout::keys;
use crate::left_decisions::LeftDecisions;
use crate::log::{
    Companions, CutAt, CutDone, Log, Position, Scope, Scrubber, checkpoints, copy_positions_for_all, cut,
};
use crate::options::StorageOptions;
use crate::registry::Documents;
use crate::replica::Replica;
use crate::selection_states::SelectionStates;
use crate::stream_copy::{self, CopyError, StreamCopy};
use crate::user_attributes::UserAttributes;
use crate::verification::{self, Verification, Verifier};

/// The blocks that are cached while the position of a copy is found out, or a store is cut.
const BACKUP_CACHE_BYTES: usize = 32 << 20;

/// One node's store. Cheap to clone: clones share one open directory, which is closed with the last
/// of them.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    log: Log,
    catalog: CatalogLog,
    health: Arc<Health>,
    hashes: Arc<Hashes>,
    scrubber: Arc<Scrubber>,
    verifier: Arc<Verifier>,
    space: Arc<SpaceGuard>,
    decisions: Decisions,
    selection_states: SelectionStates,
    database: Arc<Database>,
    is_replica: bool,
    /// Last field, so that the lock is released after the databases are closed.
    directory: Directory,
}

/// What distinguishes a copy of a cluster's store from the store of a node on its own.
#[derive(Clone, Copy)]
struct OfCluster {
    shards: Shards,
    /// `None` if it is the one that the store has.
    hash_key: Option<[u8; 16]>,
}

impl Storage {
    /// Opens the store of a node on its own in `dir`, or creates it.
    ///
    /// The write-ahead log is checked before RocksDB replays it, RocksDB checks that every file
    /// named in its manifest exists, and the log is checked from the last checkpoint on. The time
    /// does not grow with the store: it is bounded by `wal_bytes_max` and the bytes between two
    /// checkpoints. Everything else is verified in the background.
    ///
    /// # Errors
    /// `InUse`, `UnknownFormat`; `CorruptLog` and `Corrupt` for damage, with a message that names
    /// the place and a remedy; `Io` and `Database` otherwise.
    pub fn open(dir: impl AsRef<Path>, options: &StorageOptions) -> Result<Self, StorageError> {
        Self::open_as(Directory::open(dir.as_ref(), None)?, options, None)
    }

    /// Opens a node's copy of a cluster's store in `dir`, or creates it. Its logs are between two
    /// terms: see [`Storage::replica`].
    ///
    /// Writes that a crash has cut off or damaged are dropped, since the node reads them again in
    /// the replicated logs.
    ///
    /// # Errors
    /// As [`Storage::open`]; `UnknownFormat` also if the directory belongs to no or another cluster.
    pub fn open_replica(
        dir: impl AsRef<Path>,
        options: &StorageOptions,
        cluster: &ClusterIdentity,
    ) -> Result<Self, StorageError> {
        let copy = OfCluster { shards: cluster.shards, hash_key: Some(cluster.hash_key) };
        Self::open_as(Directory::open(dir.as_ref(), Some(cluster))?, options, Some(copy))
    }

    /// Opens a store that exists, of a node on its own or a copy of a cluster's store, whose logs stay between
    /// two terms: to read it, or to make it the origin of a new incarnation
    /// ([`Storage::begin_incarnation`]).
    ///
    /// # Errors
    /// As [`Storage::open`].
    pub fn open_existing(dir: impl AsRef<Path>, options: &StorageOptions) -> Result<Self, StorageError> {
        let directory = Directory::open_existing(dir.as_ref())?;
        let copy = directory.cluster().map(|(_, _, shards)| OfCluster { shards, hash_key: None });
        Self::open_as(directory, options, copy)
    }

    fn open_as(directory: Directory, options: &StorageOptions, copy: Option<OfCluster>) -> Result<Self, StorageError> {
        // A replica's writes are not synced, so that a crash may cut off more than the last.
        let (recovery, stopped_clean) = match copy {
            Some(_) => (Recovery::UpToDamage, false),
            None => (Recovery::Refuse, verification::check_and_cut(&directory.database())?),
        };
        let cache = database::block_cache(options.block_cache_bytes);
        let tuning = Tuning {
            recovery,
            cache: &cache,
            write_buffer_bytes: options.write_buffer_bytes,
            wal_bytes_max: options.wal_bytes_max,
        };
        let database = Arc::new(Database::open(&directory.database(), Column::MAIN, &tuning)?);
        let watermarks = checkpoints::recover(&database)?;
        let hash_key = copy.and_then(|copy| copy.hash_key);
        let hashes = Arc::new(Hashes::open(&database, watermarks.is_empty(), hash_key)?);
        // From here on, a later opening fails if the databases are missing.
        directory.write_format()?;
        let tuning =
            Tuning { recovery: Recovery::UpToDamage, write_buffer_bytes: options.write_buffer_bytes / 2, ..tuning };
        let decisions = Decisions::start(&directory.decisions(), &tuning, options)?;
        let scrubber = Scrubber::open(Arc::clone(&database), options.scrub_delay)?;
        let verifier = Verifier::open(
            Arc::clone(&database),
            Arc::clone(&scrubber),
            directory.verification(),
            options,
            stopped_clean,
        )?;
        let space = SpaceGuard::new(
            directory.path(),
            Arc::clone(&database),
            options.disk_reserve_bytes,
            options.write_buffer_bytes,
        );
        let space = Arc::new(space);
        let health = Arc::<Health>::default();
        let companions = Companions {
            hashes: Arc::clone(&hashes),
            scrubber: Arc::clone(&scrubber),
            space: Arc::clone(&space),
            health: Arc::clone(&health),
        };
        let shards = copy.map_or(Shards::ONE, |copy| copy.shards);
        let log = Log::new(Arc::clone(&database), companions, (shards, watermarks), options);
        let catalog = CatalogLog::open(Arc::clone(&database), Arc::clone(&health), copy.is_some())?;
        if copy.is_none() {
            log.own_all()?;
        }
        scrubber.start(Arc::clone(&health))?;
        verifier.start(Arc::clone(&health))?;
        let selection_states = SelectionStates::new(directory.selections(), Arc::clone(&space));
        let inner = Inner {
            log,
            catalog,
            health,
            hashes,
            scrubber,
            verifier,
            space,
            decisions,
            selection_states,
            database,
            is_replica: copy.is_some(),
            directory,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The data directory. The manager owns `versions/` and `jobs/` in it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.inner.directory.path()
    }

    /// Commits queued records, writes queued decisions, removes the bytes of erased users from the
    /// disk, and leaves an empty write-ahead log. Later writes fail with [`StorageError::Closed`];
    /// reads continue. Dropping the last clone does the same. Blocks the thread.
    ///
    /// # Errors
    /// `Poisoned` or `Database`; acknowledged data is durable nevertheless.
    pub fn close(&self) -> Result<(), StorageError> {
        self.inner.close()
    }

    /// Writes a copy of the store as of one moment into `folder`, which is created, and returns the position of that
    /// moment. Sorted files are linked. In a node on its own it has the decisions, which in a cluster belong to one node.
    ///
    /// # Errors
    /// `Io`, `Database`, `Corrupt` or `CorruptLog`; the folder is to be removed then.
    pub fn copy_for_backup(&self, folder: &Path) -> Result<Position, StorageError> {
        let Inner { database, decisions, directory, is_replica, .. } = &*self.inner;
        fs::create_dir_all(folder).map_err(StorageError::io("create", folder))?;
        let copy = folder.join("db");
        database.copy_to(&copy)?;
        // After the log: a user who is erased in between has no decisions in the copy then.
        if !is_replica {
            decisions.copy_to(&folder.join("decisions"))?;
        }
        directory.write_format_of_copy(folder)?;
        let cache = database::block_cache(BACKUP_CACHE_BYTES);
        let database = Database::open_to_read(&copy, Column::MAIN, &Tuning::of_backup(&cache))?;
        Ok(checkpoints::recover(&database)?.into_iter().collect())
    }

    /// Removes what the log of the store in `dir` has after a point, with all that was derived from it: the store learns
    /// as if it had never been there, except that what was retracted or erased meanwhile stays removed. The registry and
    /// the attributes of items and users are not in the log, and stay as they are. If it fails, the store is not to be used.
    ///
    /// # Errors
    /// As [`Storage::open_existing`]; `Corrupt`, `CorruptLog` or `Database`.
    pub fn cut(dir: &Path, options: &StorageOptions, at: &CutAt) -> Result<CutDone, StorageError> {
        let storage = Self::open_existing(dir, options)?;
        // Notes of what is to be scrubbed name sequences that other records are to have.
        storage.scrub()?;
        storage.close()?;
        drop(storage);
        let directory = Directory::open_existing(dir)?;
        let cache = database::block_cache(BACKUP_CACHE_BYTES);
        let database = Database::open(&directory.database(), Column::MAIN, &Tuning::of_backup(&cache))?;
        let ends = checkpoints::recover(&database)?;
        let position = cut::position_of(&database, &ends, at)?;
        cut::cut(&database, &ends, &position)
    }

    /// Writes a copy of a stream for another machine, as the entries are when they are read. Blocks the thread.
    ///
    /// # Errors
    /// [`CopyError`].
    pub fn write_copy(&self, copy: &StreamCopy, into: &mut dyn Write) -> Result<(), CopyError> {
        copy.write(&self.inner.database, into)
    }

    /// Makes a store of a copy in a folder that is new or empty, and opens it. Blocks the thread.
    ///
    /// # Errors
    /// [`CopyError`]; the folder is to be removed then.
    pub fn open_copy(dir: &Path, options: &StorageOptions, from: &mut dyn Read) -> Result<Self, CopyError> {
        let storage = Self::open(dir, options)?;
        stream_copy::read(&storage.inner.database, from)?;
        storage.close()?;
        drop(storage);
        // The end of the log is found out at an opening.
        Ok(Self::open(dir, options)?)
    }

    /// The position of the durable records.
    #[must_use]
    pub fn position(&self) -> Position {
        self.inner.log.watermarks().into_iter().collect()
    }

    /// The logs of a node's copy of a cluster's store; `None` in a node on its own.
    #[must_use]
    pub fn replica(&self) -> Option<Replica<'_>> {
        let Inner { log, catalog, health, database, directory, is_replica, .. } = &*self.inner;
        is_replica.then_some(Replica { log, catalog, health, database, directory })
    }

    /// The cluster of which this is a copy; `None` in a node on its own.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn cluster(&self) -> Result<Option<ClusterIdentity>, StorageError> {
        let Inner { database, directory, .. } = &*self.inner;
        let Some((name, incarnation, shards)) = directory.cluster() else { return Ok(None) };
        let hash_key = Hashes::key(database)?;
        Ok(Some(ClusterIdentity { name: name.to_owned(), incarnation, shards, hash_key }))
    }

    /// Closes the store and makes it the origin of an incarnation: the first copy, whose logs are empty.
    /// A store of a node on its own begins the first one. If it fails, the store is as before, and the
    /// call can be repeated.
    ///
    /// # Errors
    /// `UnknownFormat` if `next` does not follow on what the store is a copy of, or has another
    /// [`Storage::hash_key`]; as [`Storage::close`]; `Io`, `Corrupt` or `Database`.
    pub fn begin_incarnation(self, next: &ClusterIdentity) -> Result<(), StorageError> {
        let Inner { database, directory, .. } = &*self.inner;
        let follows = match self.cluster()? {
            Some(of) => {
                let last = ClusterIdentity { incarnation: next.incarnation, ..of.clone() };
                *next == last && of.incarnation < next.incarnation
            }
            None => self.hash_key()? == next.hash_key,
        };
        if !follows {
            let reason = format!("incarnation {} of cluster {} does not follow on it", next.incarnation, next.name);
            return Err(StorageError::UnknownFormat { dir: directory.path().to_owned(), reason });
        }
        self.close()?;
        if directory.cluster().is_none() {
            items::freeze_for_all(database, next.shards)?;
            copy_positions_for_all(database, next.shards)?;
        }
        let mut batch = database.batch();
        batch.delete(Column::Cursors, keys::CATALOG_CURSOR);
        next.shards.all().for_each(|shard| batch.delete(Column::Cursors, &keys::cursor(shard)));
        batch.commit(Durability::Synced)?;
        directory.become_copy(next)
    }

    /// The key with which the store hashes ids.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`.
    pub fn hash_key(&self) -> Result<[u8; 16], StorageError> {
        Hashes::key(&self.inner.database)
    }

    /// The observation log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// Histories of users and snapshots of their states.
    #[must_use]
    pub fn histories(&self) -> Histories<'_> {
        let Inner { database, hashes, log, .. } = &*self.inner;
        Histories { database, hashes, log }
    }

    /// Items, and features of items.
    #[must_use]
    pub fn items(&self) -> Items<'_> {
        let Inner { database, space, log, catalog, .. } = &*self.inner;
        Items { database, space, log, catalog }
    }

    /// Attributes of users.
    #[must_use]
    pub fn user_attributes(&self) -> UserAttributes<'_> {
        let Inner { database, log, .. } = &*self.inner;
        UserAttributes { database, log }
    }

    /// Stored states of selections.
    #[must_use]
    pub fn selection_states(&self) -> &SelectionStates {
        &self.inner.selection_states
    }

    /// The documents of the registry.
    #[must_use]
    pub fn registry(&self) -> Documents<'_> {
        let Inner { database, space, catalog, .. } = &*self.inner;
        Documents { database, space, catalog }
    }

    /// The decisions.
    #[must_use]
    pub fn decisions(&self) -> &Decisions {
        &self.inner.decisions
    }

    /// Checks that observations are accepted now.
    ///
    /// # Errors
    /// `Poisoned`, with the first failure, or `StorageFull`.
    pub fn check_accepts(&self) -> Result<(), StorageError> {
        self.health()?;
        self.inner.space.check()
    }

    /// The free space on the disk of the data directory below which observations are rejected, in bytes.
    #[must_use]
    pub fn disk_needed(&self) -> u64 {
        self.inner.space.needed()
    }

    /// Checks that the store still accepts writes.
    ///
    /// # Errors
    /// `Poisoned`, with the first failure.
    pub fn health(&self) -> Result<(), StorageError> {
        self.inner.health.check()
    }

    /// Bytes written to disk for observations, items and the registry since the store was opened,
    /// as counted by RocksDB.
    #[must_use]
    pub fn bytes_written(&self) -> BytesWritten {
        self.inner.database.bytes_written()
    }

    /// Removes the bytes of retracted and erased records from the disk now instead of later. Blocks
    /// the thread while the affected partitions are rewritten.
    ///
    /// # Errors
    /// `Poisoned`, `CorruptLog` or `Database`; the background thread retries.
    pub fn scrub(&self) -> Result<(), StorageError> {
        self.inner.scrubber.scrub(Scope::All, &self.inner.health)
    }

    /// The progress and findings of the verification.
    #[must_use]
    pub fn verification(&self) -> Verification {
        self.inner.verifier.found()
    }

    /// Verifies the whole store now, at full speed. Blocks the thread.
    ///
    /// # Errors
    /// `CorruptLog` or `Corrupt` for damage, which poisons the log; `Database`.
    pub fn verify(&self) -> Result<(), StorageError> {
        self.inner.verifier.check_all(&self.inner.health)
    }

    /// Number of retractions and erasures whose bytes are still on disk.
    #[must_use]
    pub fn unscrubbed(&self) -> usize {
        self.inner.scrubber.waiting()
    }

    /// Deletes the data of a model or selection: given and frozen features, snapshots, state,
    /// decisions. Its stream and its registry documents, which the manager owns, remain. Returns
    /// once the deletion is durable.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`, `NotOwner`, `Fenced`, `Database` or `Io`.
    pub fn delete_model(&self, model: ModelId) -> Result<(), StorageError> {
        self.delete_own_data(model)?;
        let of_model = |column| Change::DeletePrefix(column, keys::of_model(model));
        self.inner.catalog.commit(|_| [Column::ItemFeatures, Column::Frozen].map(of_model).into()).map(drop)
    }

    /// Deletes the part of the data of a model or selection that is not in the log of the catalog,
    /// so that each node of a cluster deletes its own: snapshots, state, decisions. Idempotent.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`, `Database` or `Io`.
    pub fn delete_own_data(&self, model: ModelId) -> Result<(), StorageError> {
        self.histories().delete_snapshots(model)?;
        self.selection_states().delete(model)?;
        self.inner.decisions.delete_model(model)
    }

    /// Erases the decisions of all users whom the log has erased from some stream, and returns their number: after the
    /// database was replaced by one that has erased users meanwhile. A decision names no stream, so those of a
    /// user of the same id in another stream are erased too. Blocks the thread while all decisions are read.
    ///
    /// # Errors
    /// `Corrupt`, `CorruptLog` or `Database`; some decisions may remain then, and the call can be repeated.
    pub fn erase_decisions_of_erased_users(&self) -> Result<u64, StorageError> {
        LeftDecisions { decisions: self.decisions(), histories: self.histories() }.erase()
    }

    #[cfg(test)]
    pub(crate) fn poison(&self, cause: &str) {
        self.inner.health.poison(cause);
    }

    #[cfg(test)]
    pub(crate) fn database(&self) -> &Database {
        &self.inner.database
    }
}

impl Inner {
    fn close(&self) -> Result<(), StorageError> {
        self.health.close();
        self.log.stop();
        self.catalog.end_term();
        self.verifier.stop();
        self.scrubber.stop();
        self.decisions.stop()?;
        self.health.check()?;
        checkpoints::write(&self.database, &self.log.watermarks())?;
        if let Err(error) = self.scrubber.scrub(Scope::Erasures, &self.health) {
            tracing::warn!(%error, "erased records are still on the disk; the next opening continues with them");
        }
        self.database.flush()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, dir = %self.directory.path().display(), "the store was not closed clean");
        }
    }
}
