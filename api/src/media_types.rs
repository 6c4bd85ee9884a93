//! Accepted media types: bodies must be declared as JSON, NDJSON or bytes.
//!
//! A page of another site may send text and form bodies to any address without a preflight, but
//! these only after a preflight that the node refuses. Bodies of any other declared type are
//! therefore rejected unread.

use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};

use crate::error::ApiError;

/// The accepted media types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// A single JSON text.
    Json,
    /// One JSON text per line.
    NdJson,
}

impl MediaType {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Json => &["application/json"],
            Self::NdJson => &["application/x-ndjson", "application/ndjson"],
        }
    }

    /// Whether a body is declared as this type; parameters such as a charset are ignored.
    pub fn is_declared(self, headers: &HeaderMap) -> bool {
        is_declared(self.names(), headers)
    }

    /// Checks the declared type of a body.
    ///
    /// # Errors
    /// 415 if the declared type differs or is missing.
    pub fn check(self, headers: &HeaderMap) -> Result<(), ApiError> {
        check_declared(self.names(), headers)
    }
}

/// The media types of the bytes of an object.
const BYTES: [&str; 1] = ["application/octet-stream"];

/// Whether a body is declared as bytes.
pub fn is_bytes(headers: &HeaderMap) -> bool {
    is_declared(&BYTES, headers)
}

/// Checks that a body is declared as bytes.
///
/// # Errors
/// 415 if the declared type differs or is missing.
pub fn check_bytes(headers: &HeaderMap) -> Result<(), ApiError> {
    check_declared(&BYTES, headers)
}

fn is_declared(names: &[&str], headers: &HeaderMap) -> bool {
    let essence = essence(headers.get(header::CONTENT_TYPE));
    names.iter().any(|name| essence.eq_ignore_ascii_case(name.as_bytes()))
}

fn check_declared(names: &[&str], headers: &HeaderMap) -> Result<(), ApiError> {
    if is_declared(names, headers) {
        return Ok(());
    }
    let given = headers.get(header::CONTENT_TYPE);
    let given = given.map_or("none".into(), |given| String::from_utf8_lossy(given.as_bytes()));
    Err(ApiError::unsupported(format!("content-type must be {}, got {given}", names.join(" or "))))
}

/// The media type without its parameters.
fn essence(given: Option<&HeaderValue>) -> &[u8] {
    let given = given.map(HeaderValue::as_bytes).unwrap_or_default();
    given.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii()
}

/// Checks the declared type of the body of a request with an unsafe method.
///
/// # Errors
/// 415 if there is a body that is declared as none of the accepted types.
pub fn check(request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let has_body = headers.contains_key(header::CONTENT_TYPE) || !request.body().is_end_stream();
    let is_other = || MediaType::NdJson.is_declared(headers) || is_bytes(headers);
    if request.method().is_safe() || !has_body || is_other() {
        return Ok(());
    }
    MediaType::Json.check(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(media_type: MediaType, given: &'static str) -> bool {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(given))]);
        media_type.check(&headers).is_ok()
    }

    #[test]
    fn parameters_and_case_do_not_matter_and_everything_else_does() {
        for given in
            ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;a=b"]
        {
            assert!(is(MediaType::Json, given), "{given}");
            assert!(!is(MediaType::NdJson, given), "{given}");
        }
        for given in ["application/x-ndjson", "application/ndjson;charset=utf-8"] {
            assert!(is(MediaType::NdJson, given), "{given}");
            assert!(!is(MediaType::Json, given), "{given}");
        }
        for given in
            ["", "text/plain", "application/jsonp", "text/plain; application/json", "application/x-www-form-urlencoded"]
        {
            assert!(!is(MediaType::Json, given) && !is(MediaType::NdJson, given), "{given}");
        }
        assert!(MediaType::Json.check(&HeaderMap::new()).is_err());
    }
}
