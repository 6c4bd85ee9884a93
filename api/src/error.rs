//! Maps internal errors to HTTP problem details. Details of internal errors are logged, not
//! returned.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use celeris_manager::ManagerError;
use celeris_model::ModelError;
use celeris_pipelines::PipelineError;
use celeris_predictor::PredictorError;
use celeris_storage::StorageError;
use celeris_study::StudyError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::scope;

/// A problem detail (RFC 9457).
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "type": "urn:celeris:problem:invalid-field",
    "title": "A field is not valid",
    "status": 422,
    "detail": "k: must be at least 1",
}))]
pub struct Problem {
    /// The kind of problem, such as `urn:celeris:problem:invalid-field`: one for each title.
    #[schema(pattern = "^urn:celeris:problem:[a-z-]+$")]
    #[serde(rename = "type")]
    pub kind: String,
    /// A short description of the kind.
    pub title: String,
    /// The HTTP status code.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What is wrong with this request, with the name of the field, and how to correct it.
    pub detail: String,
    /// The fields that are wrong; absent if the problem is not about a field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The id of the request, as in the header `x-request-id`, by which the log of the node is searched; absent in the answer
    /// to a line of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<String>,
}

/// The kind of [`ApiError::not_owner`].
const NOT_OWNER: &str = "not-owner";

/// The kind of [`ApiError::unknown_fate`].
const UNKNOWN_FATE: &str = "unknown-fate";

impl Problem {
    /// Whether the request was not carried out because another node of the cluster owns the user.
    #[must_use]
    pub fn is_not_owner(&self) -> bool {
        self.kind.strip_prefix(KIND_PREFIX) == Some(NOT_OWNER)
    }
}

/// Begins the type of every problem.
const KIND_PREFIX: &str = "urn:celeris:problem:";

/// Marks a response: the request was not carried out because another node owns the user.
#[derive(Debug, Clone, Copy)]
pub struct NotOwner;

/// A field of the request that is wrong.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// The place of the field in the body, as a JSON pointer (RFC 6901); or `/NAME` for a parameter
    /// of the query.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}

/// Maximum bytes of a detail, which may quote client input.
const DETAIL_BYTES_MAX: usize = 1_500;

/// Maximum bytes of a pointer, which may quote client input.
const POINTER_BYTES_MAX: usize = 250;

/// Value of the `Retry-After` header, in seconds, when the node is overloaded.
const RETRY_AFTER_SECONDS: &str = "1";

/// A failed request.
#[derive(Debug, Clone)]
pub struct ApiError {
    status: StatusCode,
    slug: &'static str,
    title: &'static str,
    detail: String,
    /// The field that is wrong, as a JSON pointer.
    pointer: Option<String>,
    /// How long to wait before the next attempt, if that is known.
    retry_after: Option<Duration>,
}

impl ApiError {
    #[expect(clippy::needless_pass_by_value, reason = "callers hand over errors and texts that they are done with")]
    fn new(status: StatusCode, slug: &'static str, title: &'static str, detail: impl ToString) -> Self {
        let detail = truncated(detail.to_string(), DETAIL_BYTES_MAX);
        Self { status, slug, title, detail, pointer: None, retry_after: None }
    }

    /// 400: the body is not JSON.
    pub fn malformed(detail: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed-body", "The body is not valid JSON", detail)
    }

    /// 422: a field is missing, unknown, of the wrong type or out of range.
    pub fn invalid(detail: impl ToString) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid-field", "A field is not valid", detail)
    }

    /// 422: the field at `path`, as in `filter.all[0].attribute`, is not valid.
    pub fn field(path: &str, problem: impl std::fmt::Display) -> Self {
        Self::invalid(format!("{path}: {problem}")).at(path)
    }

    /// The error with the path of the field that is wrong, as in `filter.all[0].attribute`.
    #[must_use]
    pub fn at(self, path: &str) -> Self {
        let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']'));
        let pointer = steps.map(|step| format!("/{step}")).collect();
        Self { pointer: Some(truncated(pointer, POINTER_BYTES_MAX)), ..self }
    }

    /// 413: the body exceeds the size limit.
    pub fn too_large(detail: impl ToString) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "The body is too large", detail)
    }

    /// 404: no resource has this name.
    pub fn not_found(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "Not found", detail)
    }

    /// 405: the path does not support this method.
    pub fn method(detail: impl ToString) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "The method is not allowed here", detail)
    }

    /// 415: the media type of the body is not supported here.
    pub fn unsupported(detail: impl ToString) -> Self {
        let title = "The media type of the body is not supported";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", title, detail)
    }

    /// 421: the request is for another host.
    pub fn misdirected(detail: impl ToString) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", "The request is for another host", detail)
    }

    /// 403: the request comes from a web page whose origin is not allowed.
    pub fn forbidden(detail: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, "foreign-origin", "The origin is not allowed", detail)
    }

    /// 401: the request has no valid key.
    pub fn unauthenticated(detail: impl ToString) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", "A valid key is needed", detail)
    }

    /// 403: the key is not for this.
    pub fn not_permitted(detail: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, "not-permitted", "The key is not for this", detail)
    }

    /// 429: the key has used what it may for now.
    pub fn too_many(detail: impl ToString, wait: Duration) -> Self {
        let new = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate-limited", "Too many requests", detail);
        Self { retry_after: Some(wait), ..new }
    }

    /// 408: a stream sent nothing for longer than the idle timeout.
    pub fn idle(detail: impl ToString) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "idle-stream", "The stream was idle for too long", detail)
    }

    /// 410: the resource was deleted permanently.
    fn gone(detail: impl ToString) -> Self {
        Self::new(StatusCode::GONE, "forgotten", "Forgotten", detail)
    }

    pub fn conflict(detail: impl ToString) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", "The request conflicts with the current state", detail)
    }

    /// 501: the node does not do this.
    pub fn not_implemented(detail: impl ToString) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "not-implemented", "The node does not do this", detail)
    }

    /// 503: the node cannot answer now.
    pub fn unavailable(detail: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The node cannot answer now", detail)
    }

    /// 503: another node of the cluster owns the user, and nothing was written.
    pub fn not_owner(detail: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, NOT_OWNER, "No node answers yet", detail)
    }

    /// 503: another node of the cluster has to answer, and whether it carried the request out is not
    /// known.
    pub fn unknown_fate(detail: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, UNKNOWN_FATE, "What became of the request is not known", detail)
    }

    /// 503: the resource exists, but the node cannot read it.
    fn out_of_service(detail: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "out-of-service", "Out of service", detail)
    }

    /// 504: the request exceeded the time limit.
    pub fn timeout(detail: impl ToString) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "The request took too long", detail)
    }

    /// 500: an internal error. The cause is logged and not returned to the caller.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        tracing::error!(%cause, "request failed");
        let detail = "the node could not complete the request; its log says why";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error", detail)
    }

    /// The error with a remark at the end of its detail.
    #[must_use]
    pub fn and(mut self, remark: &str) -> Self {
        self.detail = truncated(format!("{}; {remark}", self.detail), DETAIL_BYTES_MAX);
        self
    }

    /// The problem detail of the response.
    #[must_use]
    pub fn problem(&self) -> Problem {
        Problem {
            kind: format!("{KIND_PREFIX}{}", self.slug),
            title: self.title.to_owned(),
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            errors: self.pointer.iter().map(|pointer| self.field_error(pointer)).collect(),
            request_id: None,
        }
    }

    fn field_error(&self, pointer: &str) -> FieldError {
        FieldError { pointer: pointer.to_owned(), detail: self.detail.clone() }
    }

    /// How long to wait before the next attempt, if that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Whether this is [`ApiError::not_owner`].
    #[must_use]
    pub fn is_not_owner(&self) -> bool {
        self.slug == NOT_OWNER
    }

    /// Whether a status says what there is, by which a write has found nothing to do.
    #[must_use]
    pub fn says_what_there_is(status: StatusCode) -> bool {
        [StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::GONE].contains(&status)
    }

    /// Whether the status is 503, so that the client may try again soon.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE
    }
}

fn truncated(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let request_id = scope::current_id().map(|id| id.as_str().to_owned());
        let body = serde_json::to_vec(&Problem { request_id, ..self.problem() })
            .expect("a problem is plain text and a number");
        let mut response = (self.status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        // A client that repeats a request on `Retry-After` must not have it carried out twice.
        if self.is_unavailable() && self.slug != UNKNOWN_FATE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static(RETRY_AFTER_SECONDS));
        }
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = header::HeaderValue::from_static("Bearer realm=\"celeris\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        if self.is_not_owner() {
            response.extensions_mut().insert(NotOwner);
        }
        response
    }
}

impl From<StorageError> for ApiError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Overloaded { .. }
            | StorageError::StorageFull { .. }
            | StorageError::Poisoned { .. }
            | StorageError::Closed => Self::unavailable(error),
            StorageError::NotOwner | StorageError::Fenced => Self::not_owner(error),
            StorageError::Document { .. } => Self::out_of_service(error),
            StorageError::ObservationForgotten { .. } => Self::gone(error),
            StorageError::NotAnObservation { .. } => Self::not_found(error),
            StorageError::AmbiguousId { .. } => Self::conflict(error),
            StorageError::ReservedId { .. } | StorageError::RecordTooLarge { .. } => Self::invalid(error),
            other => Self::internal(other),
        }
    }
}

impl From<ModelError> for ApiError {
    fn from(error: ModelError) -> Self {
        match error {
            ModelError::NotPositiveDefinite { .. } => Self::internal(error),
            ModelError::NonFinite { what }
            | ModelError::OutOfRange { what, .. }
            | ModelError::Time { what, .. }
            | ModelError::DimMismatch { what, .. }
                if !what.contains(' ') =>
            {
                Self::invalid(error).at(what)
            }
            ModelError::LabelRange { .. } => Self::invalid(error).at("label_range"),
            ModelError::Context { .. } => Self::invalid(error).at("context"),
            other => Self::invalid(other),
        }
    }
}

impl From<PredictorError> for ApiError {
    fn from(error: PredictorError) -> Self {
        match error {
            PredictorError::UnknownModel { .. }
            | PredictorError::Recreated { .. }
            | PredictorError::UnknownItem { .. }
            | PredictorError::UnknownObservation { .. } => Self::not_found(error),
            PredictorError::IsSelection { .. }
            | PredictorError::EpochNotReached { .. }
            | PredictorError::ObservationConflict { .. }
            | PredictorError::Rewarded => Self::conflict(error),
            PredictorError::NoItems => Self::invalid(error).at("items"),
            PredictorError::LabelRange { .. } => Self::invalid(error).at("label"),
            PredictorError::Field { field, .. } => Self::invalid(error).at(field),
            PredictorError::Segment { .. } => Self::invalid(error).at("segment"),
            PredictorError::UserMissing { .. } => Self::invalid(error).at("user"),
            PredictorError::HistoryTooLong { .. }
            | PredictorError::Features { .. }
            | PredictorError::Attributes(_)
            | PredictorError::Bandit(_) => Self::invalid(error),
            PredictorError::UndefinedFields { .. } => Self::unavailable(error),
            PredictorError::OutOfService { .. } => Self::out_of_service(error),
            PredictorError::Model(error) => error.into(),
            PredictorError::Storage(error) => error.into(),
        }
    }
}

impl From<PipelineError> for ApiError {
    fn from(error: PipelineError) -> Self {
        let node = |node: &str, field: Option<&str>| {
            let field = field.map(|field| format!(".{field}")).unwrap_or_default();
            format!("nodes.{node}{field}")
        };
        match &error {
            PipelineError::NotFitted { .. } => Self::conflict(error),
            PipelineError::Load { .. } | PipelineError::Overloaded { .. } => Self::unavailable(error),
            PipelineError::OutputLength { .. }
            | PipelineError::ForeignValues
            | PipelineError::Threads { .. }
            | PipelineError::GivenUp { .. } => Self::internal(error),
            PipelineError::Node { node: name, .. } => Self::invalid(&error).at(&node(name, None)),
            PipelineError::Parameter { node: name, field, .. }
            | PipelineError::UnknownInput { node: name, field, .. }
            | PipelineError::TypeMismatch { node: name, field, .. }
            | PipelineError::MissingObject { node: name, field, .. }
            | PipelineError::WrongKind { node: name, field, .. }
            | PipelineError::WrongShape { node: name, field, .. } => Self::invalid(&error).at(&node(name, Some(field))),
            _ => Self::invalid(error),
        }
    }
}

impl From<ManagerError> for ApiError {
    fn from(error: ManagerError) -> Self {
        match error {
            ManagerError::UnknownModel { .. }
            | ManagerError::UnknownVersion { .. }
            | ManagerError::UnknownJob { .. }
            | ManagerError::UnknownStudy { .. }
            | ManagerError::NoVersionFile { .. } => Self::not_found(error),
            ManagerError::Comparing
            | ManagerError::EvaluatingPolicy
            | ManagerError::CountingRewards
            | ManagerError::NotFetched { .. } => Self::unavailable(error),
            ManagerError::ModelExists { .. }
            | ManagerError::JobRunning { .. }
            | ManagerError::StudyRunning { .. }
            | ManagerError::TooManyStudies { .. }
            | ManagerError::StudyWithoutResult { .. }
            | ManagerError::StudyWithoutRemote { .. }
            | ManagerError::IsSelection { .. }
            | ManagerError::IsArm { .. }
            | ManagerError::NothingToRollBackTo { .. } => Self::conflict(error),
            ManagerError::PipelineInUse { .. } | ManagerError::NoAdminKey | ManagerError::TooManyApiKeys { .. } => {
                Self::conflict(error)
            }
            ManagerError::NoRight => Self::unauthenticated(error),
            ManagerError::ApiKey { field, .. } => Self::invalid(error).at(field),
            ManagerError::UnknownApiKey { .. } => Self::not_found(error),
            ManagerError::Study { ref error } => match error {
                StudyError::Field { field, .. } => Self::invalid(error).at(field),
                StudyError::NotFinite { field, .. } => Self::invalid(error).at(field),
                StudyError::UnknownTrial { .. } => Self::not_found(error),
                StudyError::NotRunning { .. } => Self::conflict(error),
            },
            ManagerError::FeatureParts { ref field, .. } => {
                let field = field.clone();
                Self::invalid(error).at(&field)
            }
            ManagerError::Dim { .. } => Self::invalid(error).at("dim"),
            ManagerError::Setting { setting, .. } => Self::invalid(error).at(setting),
            ManagerError::TooManyModels { .. }
            | ManagerError::NoObservations { .. }
            | ManagerError::TrainerSetting { .. }
            | ManagerError::SelectionSetting { .. }
            | ManagerError::Bandit { .. }
            | ManagerError::Import { .. } => Self::invalid(error),
            ManagerError::UnknownPipeline { .. } | ManagerError::UnknownObject { .. } => Self::not_found(error),
            ManagerError::TooManyPipelines { .. } | ManagerError::TooManyObjects { .. } => Self::invalid(error),
            ManagerError::ObjectsFull { .. } | ManagerError::RunningPipeline => Self::unavailable(error),
            ManagerError::Pipeline(error) => error.into(),
            ManagerError::Predictor(error) => error.into(),
            ManagerError::Storage(error) => error.into(),
            ManagerError::Model(error) => error.into(),
            other => Self::internal(other),
        }
    }
}
