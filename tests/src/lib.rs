//! Support code of the end-to-end tests in `tests/`: real nodes, HTTP clients, and fault injection.
//!
//! A test starts a node in its own process, sends requests over HTTP, stops it, and opens its data
//! directory again. A test that kills or limits a node, or reads its output or its metrics, starts
//! the release binary as a process instead. This crate does not access the internals of a node:
//! behavior that is not visible from outside is tested in its own crate.
//!
//! [`Divided`] are nodes that divide users among them as in a cluster. This crate measures no performance. Its
//! functions panic if a test cannot
//! continue.
//!
//! Where to look: [`Node`] runs in the process of the test, [`NodeProcess`] in its own, [`binary`]
//! runs commands to completion, [`Cluster`] starts nodes over [`Nats`] servers, [`Kafka`] is a broker, [`Client`] and [`ModelClient`] send requests, [`Raw`] sends
//! malformed requests, [`eventually`] waits for a condition, [`data_dir`] copies and damages data
//! directories, [`Collector`] takes traces, [`sealed`] reads sealed segments, [`trainer`] defines misbehaving trainers, and
//! [`fixtures`] creates items, observations and data sets that many tests share.

pub mod binary;
mod certificates;
mod client;
mod cluster;
mod collector;
pub mod data_dir;
mod divided;
pub mod fixtures;
mod issuer;
mod kafka;
mod nats;
mod network;
mod node;
mod node_process;
mod raw;
pub mod sealed;
mod small_disk;
pub mod trainer;
mod wait;

pub use certificates::{Authority, Certificate};
pub use client::{Client, Lines, ModelClient, Reply};
pub use cluster::Cluster;
pub use collector::{Collector, Received};
pub use divided::{Ages, Divided};
pub use issuer::{Issuer, base64url};
pub use kafka::Kafka;
pub use nats::{Nats, Publisher, StreamCopy, send_signal};
pub use network::{Host, Network};
pub use node::Node;
pub use node_process::{Exit, NodeProcess, ProcessOptions};
pub use raw::{Raw, RawReply};
pub use small_disk::SmallDisk;
pub use wait::{DEADLINE, eventually};
