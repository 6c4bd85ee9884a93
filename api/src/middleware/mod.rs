//! Layers of the router.

pub mod limits;
pub mod metrics;
pub mod origins;
