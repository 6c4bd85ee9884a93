//! JSON responses of the hot routes.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::error::ApiError;

/// Initial capacity in bytes: enough for one score or one observe reply, so that most responses
/// never reallocate.
const BYTES: usize = 512;

/// A JSON response.
pub struct Answer<T>(pub T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        let mut text = Vec::with_capacity(BYTES);
        match serde_json::to_writer(&mut text, &self.0) {
            Ok(()) => {
                let mut response = Response::new(Body::from(text));
                response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(error) => ApiError::internal(error).into_response(),
        }
    }
}
