//! What handlers take from a request, with errors that name the field.

use axum::body::{Bytes, HttpBody, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, RawPathParams, Request};
use axum::http::request::Parts;
use celeris_model::{DecisionId, ItemId, ModelName, ObservationId, Timestamp, UserId, VersionId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::error::ApiError;
use crate::middleware::media_types::MediaType;
use crate::state::Node;

/// A JSON body.
pub struct Body<T>(pub T);

/// Parses JSON; the error names the path of the offending field.
///
/// # Errors
/// 400 where the text is not JSON, 422 where it does not fit.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    // Serde would read an array as fields in their order, which no client was promised.
    if text.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::invalid("expected an object, got an array"));
    }
    // Keeping track of the path costs as much as parsing, and only an error needs it.
    if let Ok(value) = serde_json::from_slice(text) {
        return Ok(value);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let cause = error.into_inner();
        let nameless = path == "." || path == "?";
        let detail = if nameless { cause.to_string() } else { format!("{path}: {cause}") };
        if cause.is_data() { ApiError::invalid(detail) } else { ApiError::malformed(detail) }
    })?;
    deserializer.end().map_err(ApiError::malformed)?;
    Ok(value)
}

/// A body that is not looked into yet.
pub struct Text(pub Bytes);

impl FromRequest<Node> for Text {
    type Rejection = ApiError;

    async fn from_request(request: Request, _node: &Node) -> Result<Self, ApiError> {
        // A request without a body need not say what that is.
        if !request.body().is_end_stream() {
            MediaType::Json.check(request.headers())?;
        }
        // The layer of limits has bounded the body and holds it whole.
        let bytes = to_bytes(request.into_body(), usize::MAX).await.map_err(ApiError::malformed)?;
        // A request without a body is one without fields.
        Ok(Self(if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes }))
    }
}

impl<T: DeserializeOwned> FromRequest<Node> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, node: &Node) -> Result<Self, ApiError> {
        let Text(text) = Text::from_request(request, node).await?;
        Ok(Self(parse(&text)?))
    }
}

/// The query of the URL.
pub struct Params<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(value)| Self(value)).map_err(|rejection| ApiError::invalid(rejection.body_text()))
    }
}

async fn path_texts<S: Send + Sync, T: DeserializeOwned + Send>(parts: &mut Parts, state: &S) -> Result<T, ApiError> {
    let path = Path::<T>::from_request_parts(parts, state).await;
    path.map(|Path(texts)| texts).map_err(|rejection| ApiError::not_found(rejection.body_text()))
}

/// The one text of a path that is no id of ours.
pub struct InPath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for InPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        path_texts(parts, state).await.map(Self)
    }
}

/// The model that a path names.
pub struct InModel(pub ModelName);

impl<S: Send + Sync> FromRequestParts<S> for InModel {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let texts = RawPathParams::from_request_parts(parts, state).await;
        let texts = texts.map_err(|rejection| ApiError::not_found(rejection.body_text()))?;
        model_name(texts.iter().find(|(name, _)| *name == "model").map_or("", |(_, text)| text)).map(Self)
    }
}

fn model_name(text: &str) -> Result<ModelName, ApiError> {
    // A name that no model can have is a model that does not exist.
    ModelName::new(text).map_err(|error| ApiError::not_found(format!("no model is named {text:?}: {error}")))
}

/// The model and item that a path names.
pub struct OfItem {
    /// The model.
    pub model: ModelName,
    /// The item.
    pub item: ItemId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfItem {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, item): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, item: ItemId::new(item)? })
    }
}

/// The model and user that a path names.
pub struct OfUser {
    /// The model.
    pub model: ModelName,
    /// The user.
    pub user: UserId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, user): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, user: UserId::new(user)? })
    }
}

/// The model, user and item that a path names.
pub struct Scored {
    /// The model.
    pub model: ModelName,
    /// The user.
    pub user: UserId,
    /// The item.
    pub item: ItemId,
}

impl<S: Send + Sync> FromRequestParts<S> for Scored {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, user, item): (String, String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, user: UserId::new(user)?, item: ItemId::new(item)? })
    }
}

/// The model and observation that a path names.
pub struct OfObservation {
    /// The model.
    pub model: ModelName,
    /// The observation.
    pub observation_id: ObservationId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfObservation {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, id): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, observation_id: ObservationId::new(id)? })
    }
}

/// The model and decision that a path names.
pub struct OfDecision {
    /// The model.
    pub model: ModelName,
    /// The decision.
    pub decision_id: DecisionId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfDecision {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, id): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, decision_id: DecisionId::new(id)? })
    }
}

/// The model and version that a path names.
pub struct OfVersion {
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: VersionId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfVersion {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, version): (String, String) = path_texts(parts, state).await?;
        let model = model_name(&model)?;
        let version = version_number(&model, &version)?;
        Ok(Self { model, version })
    }
}

fn version_number(model: &ModelName, text: &str) -> Result<VersionId, ApiError> {
    let number = text.parse();
    number.map(VersionId).map_err(|_| ApiError::not_found(format!("model {model} has no version {text}")))
}

/// The model and the two versions that a path names.
pub struct OfTwoVersions {
    /// The model.
    pub model: ModelName,
    /// The first version.
    pub from: VersionId,
    /// The second version.
    pub to: VersionId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfTwoVersions {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, from, to): (String, String, String) = path_texts(parts, state).await?;
        let model = model_name(&model)?;
        let (from, to) = (version_number(&model, &from)?, version_number(&model, &to)?);
        Ok(Self { model, from, to })
    }
}

/// Reads a time as RFC 3339 text or as Unix milliseconds.
///
/// # Errors
/// Where it is neither.
pub fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected an RFC 3339 time or Unix milliseconds")]
    enum Either {
        Milliseconds(i64),
        Text(String),
    }
    Ok(match Option::<Either>::deserialize(deserializer)? {
        None => None,
        Some(Either::Milliseconds(milliseconds)) => Some(Timestamp(milliseconds)),
        Some(Either::Text(text)) => {
            let parsed: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
            Some(Timestamp(parsed.as_millisecond()))
        }
    })
}
