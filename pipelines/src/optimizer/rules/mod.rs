//! The rules, one a file.

pub(super) mod common;
pub(super) mod concats;
pub(super) mod constants;
pub(super) mod crosses;
pub(super) mod dead;
pub(super) mod linear;
pub(super) mod scales;
pub(super) mod sums;
