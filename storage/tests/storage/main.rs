//! Tests of the store, through its public interface.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod damaged_sst;
mod damaged_wal;
mod decisions_in_time;
mod forgetting;
mod full_disk;
mod group_commit;
mod kill_during_append;
mod log_oracle;
mod observation_ids;
mod opening;
mod poison;
mod records_beside_the_log;
mod scenario;
mod source_positions;
