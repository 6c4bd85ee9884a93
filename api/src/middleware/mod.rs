//! Layers of the router.

pub mod admission;
pub mod limits;
pub mod metrics;
pub mod origins;
