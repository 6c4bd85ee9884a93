//! The RocksDB wrapper; the only module that uses RocksDB.

mod column;
mod range;
mod tuning;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::statistics::Ticker;
use rocksdb::{
    BottommostLevelCompaction, ColumnFamily, ColumnFamilyDescriptor, CompactOptions, DB, DBPinnableSlice, ErrorKind,
    FlushOptions, Options, WriteBatch, WriteOptions,
};

pub(crate) use self::column::Column;
pub(crate) use self::range::{KeyRange, after_prefix};
pub(crate) use self::tuning::{Access, Recovery, Tuning, block_cache};
use self::tuning::{column_options, database_options, read_options};
use crate::error::StorageError;

/// The durability of a write when the call returns.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Durability {
    /// Survives a power failure.
    Synced,
    /// Survives the end of the process.
    Buffered,
}

/// One RocksDB database.
pub(crate) struct Database {
    db: DB,
    columns: &'static [Column],
    path: PathBuf,
    /// Owns the statistics.
    options: Options,
    /// The first damage that RocksDB has found since the database was opened.
    damage: OnceLock<Box<str>>,
}

/// Bytes written by a database since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BytesWritten {
    pub wal: u64,
    /// To sorted files by flushes; compactions are not counted.
    pub flush: u64,
}

impl Database {
    /// Opens or creates the database at `path`.
    ///
    /// # Errors
    /// [`StorageError::CorruptLog`] if RocksDB finds damage, otherwise [`StorageError::Database`].
    pub(crate) fn open(path: &Path, columns: &'static [Column], tuning: &Tuning) -> Result<Self, StorageError> {
        let failed = |error| failure(path, "open the database", error);
        let descriptors = columns
            .iter()
            .map(|column| Ok(ColumnFamilyDescriptor::new(column.name(), column_options(*column, tuning)?)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let options = database_options(tuning).map_err(failed)?;
        let db = DB::open_cf_descriptors(&options, path, descriptors).map_err(failed)?;
        Ok(Self { db, columns, path: path.to_owned(), options, damage: OnceLock::new() })
    }

    /// Opens a database that nobody writes, as it is. Always with [`Recovery::Refuse`]: without it, RocksDB would remove the
    /// write-ahead logs that the manifest names from it, which it cannot when it only reads, and crashes.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub(crate) fn open_to_read(path: &Path, columns: &'static [Column], tuning: &Tuning) -> Result<Self, StorageError> {
        let failed = |error| failure(path, "open the database", error);
        let tuning = &Tuning { recovery: Recovery::Refuse, ..*tuning };
        let descriptors = columns
            .iter()
            .map(|column| Ok(ColumnFamilyDescriptor::new(column.name(), column_options(*column, tuning)?)))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let mut options = database_options(tuning).map_err(failed)?;
        options.create_if_missing(false);
        options.create_missing_column_families(false);
        let db = DB::open_cf_descriptors_read_only(&options, path, descriptors, false).map_err(failed)?;
        Ok(Self { db, columns, path: path.to_owned(), options, damage: OnceLock::new() })
    }

    fn handle(&self, column: Column) -> &ColumnFamily {
        self.db.cf_handle(column.name()).expect("every column family is created when the database is opened")
    }

    fn failure(&self, action: &'static str) -> impl Fn(rocksdb::Error) -> StorageError {
        move |error| {
            let failure = failure(&self.path, action, error);
            if matches!(failure, StorageError::CorruptLog { .. }) {
                self.damage.get_or_init(|| failure.to_string().into());
            }
            failure
        }
    }

    /// The first damage that any operation has found since the database was opened.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(AsRef::as_ref)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn get(&self, column: Column, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>, StorageError> {
        self.db.get_pinned_cf(self.handle(column), key).map_err(self.failure("read"))
    }

    /// The values of several keys. The caller guarantees that they are sorted.
    pub(crate) fn get_many(
        &self,
        column: Column,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<DBPinnableSlice<'_>>>, StorageError> {
        debug_assert!(keys.is_sorted(), "keys are looked up in their order");
        let found = self.db.batched_multi_get_cf_opt(self.handle(column), keys, true, &read_options(Access::Lookup));
        found.into_iter().map(|value| value.map_err(self.failure("read"))).collect()
    }

    /// Visits the entries of `range` in key order, as of the start of the call, until `visit`
    /// breaks.
    pub(crate) fn scan(
        &self,
        column: Column,
        range: KeyRange,
        access: Access,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StorageError>,
    ) -> Result<(), StorageError> {
        let mut options = read_options(access);
        options.set_iterate_upper_bound(range.to);
        let mut entries = self.db.raw_iterator_cf_opt(self.handle(column), options);
        entries.seek(&range.from);
        while let Some((key, value)) = entries.item() {
            if visit(key, value)?.is_break() {
                return Ok(());
            }
            entries.next();
        }
        // An iterator that finds damage ends early; only its status reports the error.
        entries.status().map_err(self.failure("read"))
    }

    /// [`Database::scan`] from the last entry of `range` to the first.
    pub(crate) fn scan_back(
        &self,
        column: Column,
        range: KeyRange,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, StorageError>,
    ) -> Result<(), StorageError> {
        let mut options = read_options(Access::Lookup);
        options.set_iterate_lower_bound(range.from);
        options.set_iterate_upper_bound(range.to);
        let mut entries = self.db.raw_iterator_cf_opt(self.handle(column), options);
        entries.seek_to_last();
        while let Some((key, value)) = entries.item() {
            if visit(key, value)?.is_break() {
                return Ok(());
            }
            entries.prev();
        }
        entries.status().map_err(self.failure("read"))
    }

    pub(crate) fn last_key(&self, column: Column, prefix: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let mut entries = self.db.raw_iterator_cf_opt(self.handle(column), read_options(Access::Lookup));
        // The bound itself is never a key: it would have to begin with a text or number of another
        // length.
        entries.seek_for_prev(after_prefix(prefix.to_vec()));
        entries.status().map_err(self.failure("read"))?;
        Ok(entries.key().filter(|key| key.starts_with(prefix)).map(<[u8]>::to_vec))
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        self.batch_of(0)
    }

    /// A batch with capacity for about `bytes`.
    pub(crate) fn batch_of(&self, bytes: usize) -> Batch<'_> {
        let handles = self.columns.iter().map(|column| (*column, self.handle(*column))).collect();
        Batch { database: self, handles, writes: WriteBatch::with_capacity_bytes(bytes) }
    }

    /// RocksDB's sequence number, which every write increases for the life of the database.
    #[cfg(test)]
    pub(crate) fn latest_write(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// Writes a copy of the database, as of one moment, into a folder that does not exist yet. Sorted files
    /// are linked if both are on one file system.
    pub(crate) fn copy_to(&self, folder: &Path) -> Result<(), StorageError> {
        let checkpoint = Checkpoint::new(&self.db).map_err(self.failure("copy"))?;
        checkpoint.create_checkpoint(folder).map_err(self.failure("copy"))
    }

    /// Syncs the write-ahead log: everything written before survives a power failure.
    pub(crate) fn sync(&self) -> Result<(), StorageError> {
        self.db.flush_wal(true).map_err(self.failure("sync"))
    }

    /// Flushes all memtables to sorted files, which leaves the write-ahead log empty.
    pub(crate) fn flush(&self) -> Result<(), StorageError> {
        let handles: Vec<&ColumnFamily> = self.columns.iter().map(|column| self.handle(*column)).collect();
        self.db.flush_cfs_opt(&handles, &FlushOptions::default()).map_err(self.failure("flush"))
    }

    /// Rewrites the sorted files that overlap `range`, so that deleted and overwritten entries are
    /// gone from them. Does not affect memtables.
    ///
    /// # Errors
    /// [`StorageError::Database`] if RocksDB's counter of background errors increases meanwhile;
    /// the call itself reports no failure.
    pub(crate) fn compact(&self, column: Column, range: &KeyRange) -> Result<(), StorageError> {
        let failures = self.background_errors()?;
        let mut options = CompactOptions::default();
        options.set_exclusive_manual_compaction(false);
        // A tombstone in the last level still holds the key.
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_cf_opt(self.handle(column), Some(&range.from), Some(&range.to), &options);
        if self.background_errors()? > failures {
            let reason = "RocksDB's background work failed; its file LOG says why".to_owned();
            return Err(StorageError::Database { action: "compact", reason });
        }
        Ok(())
    }

    fn background_errors(&self) -> Result<u64, StorageError> {
        let errors = self.db.property_int_value(rocksdb::properties::BACKGROUND_ERRORS);
        Ok(errors.map_err(self.failure("ask for the state of"))?.unwrap_or(0))
    }

    /// Bytes in memtables that are not flushed yet; 0 if RocksDB does not report them.
    pub(crate) fn unflushed_bytes(&self) -> u64 {
        let of = |column: &Column| {
            let property = rocksdb::properties::CUR_SIZE_ALL_MEM_TABLES;
            self.db.property_int_value_cf(self.handle(*column), property).ok().flatten().unwrap_or(0)
        };
        self.columns.iter().map(of).sum()
    }

    /// Bytes in sorted files; 0 if RocksDB does not report them.
    pub(crate) fn sorted_bytes(&self) -> u64 {
        let of = |column: &Column| {
            let property = rocksdb::properties::TOTAL_SST_FILES_SIZE;
            self.db.property_int_value_cf(self.handle(*column), property).ok().flatten().unwrap_or(0)
        };
        self.columns.iter().map(of).sum()
    }

    pub(crate) fn bytes_written(&self) -> BytesWritten {
        BytesWritten {
            wal: self.options.get_ticker_count(Ticker::WalFileBytes),
            flush: self.options.get_ticker_count(Ticker::FlushWriteBytes),
        }
    }
}

/// A complete write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Put(Column, Vec<u8>, Vec<u8>),
    Delete(Column, Vec<u8>),
    DeletePrefix(Column, Vec<u8>),
}

impl Change {
    pub(crate) fn column(&self) -> Column {
        match self {
            Self::Put(column, ..) | Self::Delete(column, _) | Self::DeletePrefix(column, _) => *column,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put(_, key, value) => key.len() + value.len(),
            Self::Delete(_, key) | Self::DeletePrefix(_, key) => key.len(),
        }
    }
}

/// Writes that are applied atomically and in order.
pub(crate) struct Batch<'a> {
    database: &'a Database,
    /// Cached handles: a batch of the log has thousands of writes.
    handles: Vec<(Column, &'a ColumnFamily)>,
    writes: WriteBatch,
}

impl<'a> Batch<'a> {
    fn handle(&self, column: Column) -> &'a ColumnFamily {
        let found = self.handles.iter().find(|(candidate, _)| *candidate == column);
        found.expect("a batch writes to columns of its own database").1
    }

    pub(crate) fn put(&mut self, column: Column, key: &[u8], value: &[u8]) {
        self.writes.put_cf(self.handle(column), key, value);
    }

    pub(crate) fn delete(&mut self, column: Column, key: &[u8]) {
        self.writes.delete_cf(self.handle(column), key);
    }

    pub(crate) fn delete_prefix(&mut self, column: Column, prefix: &[u8]) {
        let to = after_prefix(prefix.to_vec());
        self.writes.delete_range_cf(self.handle(column), prefix, to.as_slice());
    }

    pub(crate) fn change(&mut self, change: &Change) {
        match change {
            Change::Put(column, key, value) => self.put(*column, key, value),
            Change::Delete(column, key) => self.delete(*column, key),
            Change::DeletePrefix(column, prefix) => self.delete_prefix(*column, prefix),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.writes.size_in_bytes()
    }

    pub(crate) fn commit(self, durability: Durability) -> Result<(), StorageError> {
        let mut options = WriteOptions::default();
        options.set_sync(matches!(durability, Durability::Synced));
        self.database.db.write_opt(self.writes, &options).map_err(self.database.failure("write"))
    }
}

fn failure(path: &Path, action: &'static str, error: rocksdb::Error) -> StorageError {
    let kind = error.kind();
    let reason = error.into_string();
    match kind {
        ErrorKind::Corruption => StorageError::CorruptLog { file: named_file(path, &reason), offset: None, reason },
        _ => StorageError::Database { action, reason },
    }
}

/// The file named in RocksDB's message, or the directory if it names none.
fn named_file(path: &Path, reason: &str) -> PathBuf {
    let dir = path.to_string_lossy();
    let Some(start) = reason.find(&*dir) else { return path.to_owned() };
    let name = reason[start + dir.len()..].trim_start_matches('/');
    let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || "-._".contains(c))).unwrap_or(name.len());
    path.join(name[..end].trim_end_matches('.'))
}
