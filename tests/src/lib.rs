//! What the end-to-end scenarios in `tests/` are written with: real nodes, a client, and ways to hurt a node.
//!
//! A scenario starts the release binary as a process, talks to it over HTTP as anyone would, kills it, and looks at
//! what is left. Nothing here reaches into a node: what cannot be seen from outside is tested in its own crate.
//!
//! What this crate is not: it starts no cluster and measures no speed, and it panics where a scenario cannot go on,
//! since a panic is how a test fails.
//!
//! Where to look: [`Node`] for a running process, [`binary`] for commands that end by themselves, [`Client`] and
//! [`ModelClient`] for talking, [`Raw`] for talking badly, [`eventually`] for waiting, [`data_dir`] for copying and damaging what lies on disk,
//! [`sealed`] for reading sealed segments, [`trainer`] for trainers that misbehave, [`scene`] for items and users that many scenarios share.

pub mod binary;
mod client;
pub mod data_dir;
mod node;
mod raw;
pub mod scene;
pub mod sealed;
pub mod trainer;
mod wait;

pub use client::{Client, Lines, ModelClient, Reply};
pub use node::{Exit, Node, NodeOptions};
pub use raw::{Raw, RawReply};
pub use wait::{DEADLINE, eventually};
