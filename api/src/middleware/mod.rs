//! Layers around the handlers: what every request goes through.

pub mod limits;
pub mod media_types;
pub mod metrics;
pub mod origins;
