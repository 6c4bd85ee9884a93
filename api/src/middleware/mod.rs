//! Middleware layers that every request passes.

pub mod computing;
pub mod limits;
pub mod metrics;
pub mod origins;
