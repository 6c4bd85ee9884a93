//! Errors in the form of Personalizer.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::Problem;

/// Longest body of a problem, in bytes.
const PROBLEM_BYTES_MAX: usize = 64 << 10;

/// An error in the form of Azure Personalizer.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PersonalizerFailure)]
pub struct Failure {
    pub error: FailureDetail,
}

/// What is wrong.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = PersonalizerFailureDetail)]
pub struct FailureDetail {
    /// The kind of error: `BadRequest`, `ResourceNotFound`, `InternalServerError` or the name of another status.
    pub code: String,
    /// What is wrong with this request, with the name of the field, and how to correct it.
    pub message: String,
    /// The field that is wrong, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub target: Option<String>,
}

/// The status and the code of a problem. Personalizer knows no 422: a field that is not valid is a bad request.
fn code_of(status: StatusCode) -> (StatusCode, &'static str) {
    let code = match status {
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => return (StatusCode::BAD_REQUEST, "BadRequest"),
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "ResourceNotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::NOT_IMPLEMENTED => "NotImplemented",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        status if status.is_server_error() => "InternalServerError",
        _ => "BadRequest",
    };
    (status, code)
}

/// A response whose problem, if it is one, has the form of Personalizer.
pub async fn in_their_form(response: Response) -> Response {
    let is_problem = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|given| given.as_bytes().starts_with(b"application/problem+json"));
    if !is_problem {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let problem = to_bytes(body, PROBLEM_BYTES_MAX).await.ok();
    let problem = problem.and_then(|body| serde_json::from_slice::<Problem>(&body).ok());
    let (message, target) = match problem {
        Some(problem) => (problem.detail, problem.errors.into_iter().next().map(|error| error.pointer)),
        None => ("the node could not complete the request".to_owned(), None),
    };
    let (status, code) = code_of(parts.status);
    parts.status = status;
    let failure = Failure { error: FailureDetail { code: code.to_owned(), message, target } };
    let body = serde_json::to_vec(&failure).expect("an error is plain text");
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body))
}
