//! Middleware layers that every request passes.

pub mod limits;
pub mod media_types;
pub mod metrics;
pub mod origins;
