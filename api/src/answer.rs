//! Answers of the routes that carry the load.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiError;

/// Enough for a score or the outcome of an observation, so that most answers are written without growing.
const BYTES: usize = 512;

/// A JSON answer.
pub struct Answer<T>(pub T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let mut text = Vec::with_capacity(BYTES);
        match serde_json::to_writer(&mut text, &self.0) {
            Ok(()) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
            Err(error) => ApiError::internal(error).into_response(),
        }
    }
}
