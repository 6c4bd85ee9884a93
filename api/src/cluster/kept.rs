//! Requests whose bodies were read, so that they can be sent again.

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;

/// The media type of streams of lines.
pub const NDJSON: &str = "application/x-ndjson";

/// A request with its whole body.
#[derive(Debug, Clone)]
pub struct Kept {
    pub parts: Parts,
    pub body: Bytes,
}

impl Kept {
    /// The request again.
    #[must_use]
    pub fn request(&self) -> Request {
        Request::from_parts(self.parts.clone(), Body::from(self.body.clone()))
    }
}
