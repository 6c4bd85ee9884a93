//! The RocksDB wrapper; the only file that uses RocksDB.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rocksdb::statistics::{StatsLevel, Ticker};
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BlockBasedTablePinningTier, BottommostLevelCompaction, Cache, ColumnFamily,
    ColumnFamilyDescriptor, CompactOptions, DB, DBCompressionType, DBPinnableSlice, DBRecoveryMode, ErrorKind,
    FlushOptions, LogLevel, LruCacheOptions, Options, ReadOptions, WriteBatch, WriteOptions,
};

use crate::error::StorageError;
use crate::keys::after_prefix;

/// RocksDB's block cache, shared by the databases of one store.
pub(crate) type BlockCache = Cache;

/// A cache of `bytes`. A shard is large compared to an entry.
pub(crate) fn block_cache(bytes: usize) -> BlockCache {
    let mut options = LruCacheOptions::default();
    options.set_capacity(bytes);
    options.set_num_shard_bits(CACHE_SHARD_BITS);
    Cache::new_lru_cache_opts(&options)
}

/// Readahead of full scans of a column family.
const READAHEAD_BYTES: usize = 2 << 20;

/// Block size: large, because the log is read in runs and its index should stay small.
const BLOCK_BYTES: usize = 16 << 10;

/// Block size of the history: a read of one user's few entries reads, checks and decompresses a block in every level.
const HISTORY_BLOCK_BYTES: usize = 4 << 10;

const BLOOM_BITS_PER_KEY: f64 = 10.0;

const FILTER_PIECE_BYTES: usize = 16 << 10;

/// The cache has `2^CACHE_SHARD_BITS` shards with a lock each.
const CACHE_SHARD_BITS: i32 = 4;

/// The bloom filter's share of a memtable: about 16 bits per id.
const MEMTABLE_BLOOM_RATIO: f64 = 0.02;

/// The column families; [`crate::keys`] documents their contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Log,
    History,
    ObservationIds,
    Items,
    ItemFeatures,
    Frozen,
    Registry,
    Erasures,
    Snapshots,
    Checkpoints,
    Decisions,
    DecidedFor,
    DecisionsErased,
}

impl Column {
    /// The column families of the main database.
    pub(crate) const MAIN: &'static [Self] = &[
        Self::Log,
        Self::History,
        Self::ObservationIds,
        Self::Items,
        Self::ItemFeatures,
        Self::Frozen,
        Self::Registry,
        Self::Erasures,
        Self::Snapshots,
        Self::Checkpoints,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::History => "history",
            Self::ObservationIds => "observation_ids",
            Self::Items => "items",
            Self::ItemFeatures => "item_features",
            Self::Frozen => "frozen",
            Self::Registry => "registry",
            Self::Erasures => "erasures",
            Self::Snapshots => "snapshots",
            Self::Checkpoints => "checkpoints",
            Self::Decisions => "decisions",
            Self::DecidedFor => "decided_for",
            Self::DecisionsErased => "decisions_erased",
        }
    }

    /// Whether its values are sealed ([`crate::envelope`]).
    pub(crate) fn is_sealed(self) -> bool {
        !matches!(self, Self::History | Self::ObservationIds | Self::DecidedFor)
    }

    /// Whether point look-ups of absent keys are frequent, so that a bloom filter pays off.
    fn wants_filter(self) -> bool {
        !matches!(self, Self::Log | Self::History | Self::Registry | Self::Checkpoints | Self::DecidedFor)
    }
}

/// Handling of a write-ahead log that is damaged before its end.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Recovery {
    /// Opening fails.
    Refuse,
    /// Opens with the writes before the damage; for data that may be lost.
    UpToDamage,
}

/// Options of a database.
pub(crate) struct Tuning<'a> {
    pub(crate) recovery: Recovery,
    pub(crate) cache: &'a BlockCache,
    pub(crate) write_buffer_bytes: usize,
    pub(crate) wal_bytes_max: u64,
}

/// The durability of a write when the call returns.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Durability {
    /// Survives a power failure.
    Synced,
    /// Survives the end of the process.
    Buffered,
}

/// The effect of a read on the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// Fills the cache.
    Lookup,
    /// A long run read once: reads ahead, does not fill the cache.
    Sweep,
}

/// Sorts after every key.
pub(crate) const END: &[u8] = &[0xff; 8];

/// Keys from `from` up to, not including, `to`.
#[derive(Debug, Clone)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
}

impl KeyRange {
    pub(crate) fn prefix(prefix: Vec<u8>) -> Self {
        Self { to: after_prefix(prefix.clone()), from: prefix }
    }

    pub(crate) fn from(from: Vec<u8>) -> Self {
        Self { from, to: END.to_vec() }
    }

    /// The keys of this range after `key`.
    pub(crate) fn after(self, mut key: Vec<u8>) -> Self {
        key.push(0);
        Self { from: key, to: self.to }
    }
}

/// One RocksDB database.
pub(crate) struct Database {
    db: DB,
    columns: &'static [Column],
    path: PathBuf,
    /// Owns the statistics.
    options: Options,
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
        Ok(Self { db, columns, path: path.to_owned(), options })
    }

    fn handle(&self, column: Column) -> &ColumnFamily {
        self.db.cf_handle(column.name()).expect("every column family is created when the database is opened")
    }

    fn failure(&self, action: &'static str) -> impl Fn(rocksdb::Error) -> StorageError {
        move |error| failure(&self.path, action, error)
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

    /// Visits the entries of `range` in key order, as of the start of the call, until `visit` breaks.
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
        // The bound itself is never a key: it would have to begin with a text or number of another length.
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
    pub(crate) fn latest_write(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// Flushes all memtables to sorted files, which leaves the write-ahead log empty.
    pub(crate) fn flush(&self) -> Result<(), StorageError> {
        let handles: Vec<&ColumnFamily> = self.columns.iter().map(|column| self.handle(*column)).collect();
        self.db.flush_cfs_opt(&handles, &FlushOptions::default()).map_err(self.failure("flush"))
    }

    /// Rewrites the sorted files that overlap `range`, so that deleted and overwritten entries are gone from them. Does
    /// not affect memtables.
    ///
    /// # Errors
    /// [`StorageError::Database`] if RocksDB's counter of background errors increases meanwhile; the call itself
    /// reports no failure.
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

    pub(crate) fn bytes(&self) -> usize {
        self.writes.size_in_bytes()
    }

    pub(crate) fn commit(self, durability: Durability) -> Result<(), StorageError> {
        let mut options = WriteOptions::default();
        options.set_sync(matches!(durability, Durability::Synced));
        self.database.db.write_opt(self.writes, &options).map_err(self.database.failure("write"))
    }
}

fn database_options(tuning: &Tuning) -> Result<Options, rocksdb::Error> {
    // The manifest holds the first and last key of every sorted file, including deleted files, and a key holds a user.
    // It is rewritten at every change, of which there are few, so that deleted files leave no trace in it.
    let mut options =
        Options::default().get_options_from_string("max_manifest_file_size=1;max_manifest_space_amp_pct=0")?;
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    match tuning.recovery {
        Recovery::Refuse => {
            options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
            options.set_track_and_verify_wals_in_manifest(true);
        }
        // RocksDB's default.
        Recovery::UpToDamage => options.set_wal_recovery_mode(DBRecoveryMode::PointInTime),
    }
    options.set_paranoid_checks(true);
    options.set_manual_wal_flush(false);
    options.set_recycle_log_file_num(0);
    options.set_max_total_wal_size(tuning.wal_bytes_max);
    options.set_db_write_buffer_size(tuning.write_buffer_bytes);
    options.set_max_background_jobs(2);
    options.set_stats_dump_period_sec(0);
    options.set_max_log_file_size(1 << 20);
    options.set_keep_log_file_num(4);
    // RocksDB's info messages on compactions quote keys.
    options.set_log_level(LogLevel::Warn);
    options.enable_statistics();
    options.set_statistics_level(StatsLevel::ExceptHistogramOrTimers);
    Ok(options)
}

fn column_options(column: Column, tuning: &Tuning) -> Result<Options, rocksdb::Error> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(tuning.cache);
    blocks.set_block_size(if column == Column::History { HISTORY_BLOCK_BYTES } else { BLOCK_BYTES });
    // Indexes and filters are charged to the cache, so that memory is bounded for any length of the log.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if column.wants_filter() {
        blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        // Partitioned: the filter of a whole file takes a megabyte, so a few of them would evict each other from a
        // cache shard and be read and checked again for every new id.
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        blocks.set_partition_filters(true);
        blocks.set_metadata_block_size(FILTER_PIECE_BYTES);
        // Every append with an id reads all partitions. They are still charged to the cache, about 1.5 bytes per id.
        blocks.set_top_level_index_pinning_tier(BlockBasedTablePinningTier::All);
        blocks.set_partition_pinning_tier(BlockBasedTablePinningTier::All);
    }
    let mut options = Options::default();
    if column != Column::History {
        // The committer writes each column in key order: an insert hint at the last key avoids a search from the top.
        // In the history, the next user is too far away for that, as measured with groups of 18 and of thousands of
        // records.
        let hint = "memtable_insert_with_hint_prefix_extractor=rocksdb.FixedPrefix.1";
        options = options.get_options_from_string(hint)?;
    }
    if column == Column::ObservationIds {
        // Nearly every id looked up is new, and the most recent ids are in memtables.
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(MEMTABLE_BLOOM_RATIO);
    }
    options.set_block_based_table_factory(&blocks);
    options.set_write_buffer_size(tuning.write_buffer_bytes / 2);
    options.set_compression_type(DBCompressionType::Lz4);
    Ok(options)
}

fn read_options(access: Access) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_verify_checksums(true);
    if matches!(access, Access::Sweep) {
        options.fill_cache(false);
        options.set_readahead_size(READAHEAD_BYTES);
    }
    options
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
