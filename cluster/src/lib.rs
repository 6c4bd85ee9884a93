//! Replication of the logs of a store over NATS `JetStream`: streams, owners, copies.
//!
//! Each log of a store ([`celeris_storage::Replica`]) has a stream, which is the order of its
//! batches. One node at a time owns a log and appends to it; all nodes apply it to their copies.
//!
//! # Guarantees
//!
//! - **One owner.** A batch is appended on the condition that the log ends where its writer believes.
//!   A new owner appends a claim in the same way, so the previous one appends nothing after it.
//!   Everything else about ownership (heartbeats, the placement) is a hint who should try.
//! - **Acknowledged means replicated.** A group is acknowledged once its batch is in the stream.
//!   An unclear outcome is made clear first, by repeating the append and by reading its position.
//! - **No silent loss.** Batches form a chain by sequence, checksum, epoch and number. A copy that
//!   meets anything else stops and reports it ([`Problem`]).
//! - **No clocks are compared.** A node measures time by its own monotonic clock: of leases from
//!   when it sent an append, of other nodes from when it heard them.
//!
//! # Non-goals
//!
//! The crate knows nothing of what is in the groups, copies no stores, and forwards no requests. It
//! is the only one that knows NATS.
//!
//! # Modules
//!
//! From top to bottom; a module uses only those below it.
//!
//! | module                        | purpose                                                          |
//! |-------------------------------|------------------------------------------------------------------|
//! | `joining`                     | [`Joined`]: connects, founds or joins the cluster, and starts    |
//! | `cluster`                     | [`Cluster`]: a node that takes part                              |
//! | `steering`, `upkeep`, `status` | who is to own what; syncs, trimming, ages of copies; reports    |
//! | `beating`, `questions`        | heartbeats; what nodes ask each other                            |
//! | `node`                        | what these share                                                 |
//! | `log_task`                    | the life of a log: followed, claimed, owned, released            |
//! | `follower`, `reader`, `term`  | applying the log of another owner; appending to one's own        |
//! | `incarnations`, `append`      | the identity of the cluster; conditional appends                 |
//! | `secret`                      | the proof of the secret of the nodes                             |
//! | `streams`, `server_checks`    | NATS streams; what the servers must be                           |
//! | `log_state`, `members`, `placement` | what is known of logs and nodes; where shards are to be    |
//! | `chain`, `batch`, `heartbeat` | the forms of messages, and what a batch must follow on           |
//! | `hooks`, `options`, `login`, `error` | notifications of the node; settings; the error type       |

mod append;
pub mod batch;
mod beating;
pub mod chain;
mod cluster;
mod error;
mod follower;
mod heartbeat;
mod hooks;
mod incarnations;
mod joining;
mod log_state;
mod log_task;
mod login;
mod members;
mod node;
mod options;
mod placement;
mod questions;
mod reader;
mod secret;
mod server_checks;
mod status;
mod steering;
mod streams;
mod term;
mod upkeep;

pub use cluster::Cluster;
pub use error::ClusterError;
pub use heartbeat::{Heartbeat, LogReport};
pub use hooks::Hooks;
pub use joining::{Joined, begin_incarnation, check_recovery, replace_secret};
pub use log_state::{Phase, Problem};
pub use login::{Login, ServerTls};
pub use options::{ClusterOptions, StreamOptions, Timing};
pub use server_checks::{check_syncing, check_version};
pub use status::{ClusterStatus, LogStatus, NodeStatus};
pub use streams::short_name;
