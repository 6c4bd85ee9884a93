//! The options passed to RocksDB.

use rocksdb::statistics::StatsLevel;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BlockBasedTablePinningTier, Cache, DBCompressionType, DBRecoveryMode,
    LogLevel, LruCacheOptions, Options, ReadOptions,
};

use super::column::Column;

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

/// Block size of the history: a read of one user's few entries reads, checks and decompresses a
/// block in every level.
const HISTORY_BLOCK_BYTES: usize = 4 << 10;

const BLOOM_BITS_PER_KEY: f64 = 10.0;

const FILTER_PIECE_BYTES: usize = 16 << 10;

/// The cache has `2^CACHE_SHARD_BITS` shards with a lock each.
const CACHE_SHARD_BITS: i32 = 4;

/// The bloom filter's share of a memtable: about 16 bits per id.
const MEMTABLE_BLOOM_RATIO: f64 = 0.02;

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

impl<'a> Tuning<'a> {
    /// For a copy that is opened once, and not by a node.
    pub(crate) fn of_backup(cache: &'a BlockCache) -> Self {
        let write_buffer_bytes = 32 << 20;
        Self { recovery: Recovery::UpToDamage, cache, write_buffer_bytes, wal_bytes_max: 128 << 20 }
    }
}

/// The effect of a read on the cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// Fills the cache.
    Lookup,
    /// A long run read once: reads ahead, does not fill the cache.
    Sweep,
}

pub(super) fn database_options(tuning: &Tuning) -> Result<Options, rocksdb::Error> {
    // The manifest holds the first and last key of every sorted file, including deleted files, and
    // a key holds a user. It is rewritten at every change, of which there are few, so that deleted
    // files leave no trace in it.
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

pub(super) fn column_options(column: Column, tuning: &Tuning) -> Result<Options, rocksdb::Error> {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(tuning.cache);
    blocks.set_block_size(if column == Column::History { HISTORY_BLOCK_BYTES } else { BLOCK_BYTES });
    // Indexes and filters are charged to the cache, so that memory is bounded for any length of the
    // log.
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    if column.wants_filter() {
        blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        // Partitioned: the filter of a whole file takes a megabyte, so a few of them would evict
        // each other from a cache shard and be read and checked again for every new id.
        blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        blocks.set_partition_filters(true);
        blocks.set_metadata_block_size(FILTER_PIECE_BYTES);
        // Every append with an id reads all partitions. They are still charged to the cache, about
        // 1.5 bytes per id.
        blocks.set_top_level_index_pinning_tier(BlockBasedTablePinningTier::All);
        blocks.set_partition_pinning_tier(BlockBasedTablePinningTier::All);
    }
    let mut options = Options::default();
    if column != Column::History {
        // The committer writes each column in key order: an insert hint at the last key avoids a
        // search from the top. In the history, the next user is too far away for that, as measured
        // with groups of 18 and of thousands of records.
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

pub(super) fn read_options(access: Access) -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_verify_checksums(true);
    if matches!(access, Access::Sweep) {
        options.fill_cache(false);
        options.set_readahead_size(READAHEAD_BYTES);
    }
    options
}
