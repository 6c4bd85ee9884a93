//! An engine's own user weights. They are only used within its job: a version contains no users.
//!
//! | column | type |
//! |---|---|
//! | `user` | utf8 |
//! | `weights` | list of float, of one length |

/// The name of the file.
pub const FILE: &str = "user_weights.parquet";

pub const USER: &str = "user";
pub const WEIGHTS: &str = "weights";
