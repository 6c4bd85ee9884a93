//! Extractors of request parts; their errors contain the name of the field.

use axum::body::{Bytes, HttpBody, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, RawPathParams, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use celeris_model::{DecisionId, ItemId, ModelName, ObservationId, UserId, VersionId};
use celeris_pipelines::ObjectId;
use serde::de::{DeserializeOwned, IgnoredAny};
use utoipa::IntoParams;

use crate::error::ApiError;
use crate::media_types::{MediaType, check_bytes};
use crate::schema::ids::{Id, Name};
use crate::schema::pipelines::ObjectName;
use crate::scope::note_user;

/// A JSON body.
pub struct Body<T>(pub T);

/// Parses a JSON object; the error contains the path of the invalid field.
///
/// # Errors
/// 400 if the text is not JSON, 422 if it does not match `T`.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    // A missing body is read as an empty object.
    if text.is_empty() {
        return serde_json::from_slice(b"{}").map_err(|error| {
            let missing = error.to_string();
            let missing = missing.split(" at line").next().unwrap_or_default();
            ApiError::invalid(format!("the request has no body: {missing}"))
        });
    }
    // Serde would accept an array as a sequence of fields, which the API does not document.
    if text.trim_ascii_start().starts_with(b"[") {
        return Err(ApiError::invalid("expected an object, got an array"));
    }
    // Tracking the path costs as much as parsing and is only needed for errors.
    if let Ok(value) = serde_json::from_slice(text) {
        return Ok(value);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let cause = error.inner();
        let problem = plain_words(&cause.to_string(), text);
        let nameless = path == "." || path == "?";
        // Serde counts numbers that are too large for their type among the syntax errors.
        let is_json = cause.is_data() || serde_json::from_slice::<IgnoredAny>(text).is_ok();
        if !is_json {
            return if nameless {
                ApiError::malformed(problem)
            } else {
                ApiError::malformed(format!("{path}: {problem}")).at(&path)
            };
        }
        let missing = problem.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        match (nameless, missing) {
            (true, Some(field)) => ApiError::invalid(&problem).at(field),
            (false, Some(field)) => ApiError::field(&path, &problem).at(&format!("{path}.{field}")),
            (true, None) => ApiError::invalid(problem),
            (false, None) => ApiError::field(&path, problem),
        }
    })?;
    deserializer.end().map_err(|error| {
        ApiError::malformed(format!("more text after the end of the JSON object at column {}", error.column()))
    })?;
    Ok(value)
}

/// The words of a parser for those of a client: types of JSON instead of types of Rust, and no line
/// number in a text of one line.
fn plain_words(problem: &str, text: &[u8]) -> String {
    const WORDS: [(&str, &str); 12] = [
        ("expected f32", "expected a number"),
        ("expected f64", "expected a number"),
        ("expected usize", "expected a whole number of 0 or more"),
        ("expected u64", "expected a whole number of 0 or more"),
        ("expected u32", "expected a whole number of 0 or more"),
        ("expected u8", "expected a whole number of 0 or more"),
        ("expected i64", "expected a whole number"),
        ("expected a sequence", "expected an array"),
        ("invalid type: sequence", "invalid type: array"),
        ("expected a map", "expected an object"),
        ("invalid type: map", "invalid type: object"),
        ("expected ident", "a word is misspelt; expected true, false or null"),
    ];
    let mut plain = WORDS.iter().fold(problem.to_owned(), |plain, (theirs, ours)| plain.replace(theirs, ours));
    if let Some(at) = plain.find("expected struct ") {
        let end = plain[at..].find(" at line").map_or(plain.len(), |end| at + end);
        plain.replace_range(at..end, "expected an object");
    }
    let is_one_line = !text.trim_ascii_end().contains(&b'\n');
    let plain = if is_one_line { plain.replace(" at line 1 column", " at column") } else { plain };
    expected_first(&plain).unwrap_or(plain)
}

/// `invalid type: string "five", expected a number at column 3` as `expected a number, got string
/// "five" at column 3`.
fn expected_first(problem: &str) -> Option<String> {
    let (before, rest) = problem.split_once("invalid type: ").or_else(|| problem.split_once("invalid value: "))?;
    let (got, expected) = rest.rsplit_once(", expected ")?;
    let (expected, at) = expected.rfind(" at ").map_or((expected, ""), |at| expected.split_at(at));
    Some(format!("{before}expected {expected}, got {got}{at}"))
}

/// A JSON body that is not parsed yet; empty if the request has none.
pub struct Text(pub Bytes);

impl Text {
    /// Reads the body of a request with these headers.
    ///
    /// # Errors
    /// 415 if it is not declared as JSON, 400 if it is cut off.
    pub async fn read(headers: &HeaderMap, body: axum::body::Body) -> Result<Self, ApiError> {
        // A request without a body needs no content type.
        if !body.is_end_stream() {
            MediaType::Json.check(headers)?;
        }
        // The limits layer has already bounded and buffered the body.
        to_bytes(body, usize::MAX).await.map(Self).map_err(ApiError::malformed)
    }
}

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        Self::read(&parts.headers, body).await
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let Text(text) = Text::from_request(request, state).await?;
        Ok(Self(parse(&text)?))
    }
}

/// The query parameters of the URL.
pub struct Params<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(value)| Self(value)).map_err(|rejection| {
            let text = rejection.body_text();
            let problem = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
            let problem = problem.replace("invalid digit found in string", "expected a whole number of 0 or more");
            match problem.split_once(": ") {
                Some((name, why)) if !name.contains(' ') => ApiError::field(name, why),
                _ => ApiError::invalid(problem),
            }
        })
    }
}

async fn path_texts<S: Send + Sync, T: DeserializeOwned + Send>(parts: &mut Parts, state: &S) -> Result<T, ApiError> {
    let path = Path::<T>::from_request_parts(parts, state).await;
    path.map(|Path(texts)| texts).map_err(|rejection| ApiError::not_found(rejection.body_text()))
}

/// The id of a job in a path.
#[derive(IntoParams)]
#[into_params(names("job"), parameter_in = Path)]
pub struct InJob(
    /// The id of the job.
    #[param(value_type = Id)]
    pub String,
);

impl<S: Send + Sync> FromRequestParts<S> for InJob {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        path_texts(parts, state).await.map(Self)
    }
}

/// The id of a study in a path.
#[derive(IntoParams)]
#[into_params(names("study"), parameter_in = Path)]
pub struct InStudy(
    /// The id of the study.
    #[param(value_type = Id)]
    pub String,
);

impl<S: Send + Sync> FromRequestParts<S> for InStudy {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        path_texts(parts, state).await.map(Self)
    }
}

/// The study and trial of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct InTrial {
    /// The id of the study.
    #[param(value_type = Id)]
    pub study: String,
    /// The number of the trial.
    pub trial: u32,
}

impl<S: Send + Sync> FromRequestParts<S> for InTrial {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (study, trial): (String, String) = path_texts(parts, state).await?;
        let unknown =
            |_| ApiError::not_found(format!("study {study} has no trial {trial:?}; trials have numbers from 0"));
        Ok(Self { trial: trial.parse().map_err(unknown)?, study })
    }
}

/// The name of a pipeline in a path.
#[derive(IntoParams)]
#[into_params(names("pipeline"), parameter_in = Path)]
pub struct InPipeline(
    /// The name of the pipeline.
    #[param(value_type = Name)]
    pub ModelName,
);

impl<S: Send + Sync> FromRequestParts<S> for InPipeline {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name: String = path_texts(parts, state).await?;
        let unknown = |_| ApiError::not_found(format!("no pipeline is named {name}; GET /v1/pipelines lists them"));
        ModelName::new(name.as_str()).map(Self).map_err(unknown)
    }
}

/// The name of an object in a path.
#[derive(IntoParams)]
#[into_params(names("object"), parameter_in = Path)]
pub struct InObject(
    /// `sha256:` and 64 hexadecimal digits in lower case: the SHA-256 of its bytes.
    #[param(value_type = ObjectName)]
    pub ObjectId,
);

impl<S: Send + Sync> FromRequestParts<S> for InObject {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let name: String = path_texts(parts, state).await?;
        let invalid = || {
            ApiError::not_found(format!(
                "{name} names no object; an object is named by sha256: and the 64 hexadecimal digits of its SHA-256, in \
                 lower case"
            ))
        };
        ObjectId::parse(&name).map(Self).ok_or_else(invalid)
    }
}

/// The body of a request as it is.
pub struct RawBody(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        check_bytes(&parts.headers)?;
        // The limits layer has already bounded and buffered the body.
        to_bytes(body, usize::MAX).await.map(Self).map_err(ApiError::malformed)
    }
}

/// The model name in a path.
#[derive(IntoParams)]
#[into_params(names("model"), parameter_in = Path)]
pub struct InModel(
    /// The name of the model.
    #[param(value_type = Name)]
    pub ModelName,
);

impl<S: Send + Sync> FromRequestParts<S> for InModel {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let texts = RawPathParams::from_request_parts(parts, state).await;
        let texts = texts.map_err(|rejection| ApiError::not_found(rejection.body_text()))?;
        model_name(texts.iter().find(|(name, _)| *name == "model").map_or("", |(_, text)| text)).map(Self)
    }
}

fn model_name(text: &str) -> Result<ModelName, ApiError> {
    // An invalid name cannot be the name of a model, so it is reported as not found.
    ModelName::new(text).map_err(|error| ApiError::not_found(format!("no model is named {text:?}: {error}")))
}

/// The model and item of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OfItem {
    /// The name of the model.
    #[param(value_type = Name)]
    pub model: ModelName,
    /// The id of the item.
    #[param(value_type = Id)]
    pub item: ItemId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfItem {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, item): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, item: ItemId::new(item)? })
    }
}

/// The model and user of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OfUser {
    /// The name of the model.
    #[param(value_type = Name)]
    pub model: ModelName,
    /// The id of the user.
    #[param(value_type = Id)]
    pub user: UserId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, user): (String, String) = path_texts(parts, state).await?;
        let user = UserId::new(user)?;
        note_user(&user);
        Ok(Self { model: model_name(&model)?, user })
    }
}

/// The model, user and item of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct Scored {
    /// The name of the model.
    #[param(value_type = Name)]
    pub model: ModelName,
    /// The id of the user.
    #[param(value_type = Id)]
    pub user: UserId,
    /// The id of the item.
    #[param(value_type = Id)]
    pub item: ItemId,
}

impl<S: Send + Sync> FromRequestParts<S> for Scored {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, user, item): (String, String, String) = path_texts(parts, state).await?;
        let user = UserId::new(user)?;
        note_user(&user);
        Ok(Self { model: model_name(&model)?, user, item: ItemId::new(item)? })
    }
}

/// The model and observation of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OfObservation {
    /// The name of the model.
    #[param(value_type = Name)]
    pub model: ModelName,
    /// The id of the observation, given by the client or made by the node.
    #[param(value_type = Id)]
    pub observation_id: ObservationId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfObservation {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, id): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, observation_id: ObservationId::new(id)? })
    }
}

/// The model of a path, and a text below it.
pub struct OfPath {
    pub model: ModelName,
    pub rest: String,
}

impl<S: Send + Sync> FromRequestParts<S> for OfPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, rest): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, rest })
    }
}

/// The model and decision of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OfDecision {
    /// The name of the model.
    #[param(value_type = Name)]
    pub model: ModelName,
    /// The id of the decision.
    #[param(value_type = Id)]
    pub decision_id: DecisionId,
}

impl<S: Send + Sync> FromRequestParts<S> for OfDecision {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let (model, id): (String, String) = path_texts(parts, state).await?;
        Ok(Self { model: model_name(&model)?, decision_id: DecisionId::new(id)? })
    }
}

/// The model and version of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OfVersion {
    /// The name of the model.
    #[param(value_type = Name)]
    pub model: ModelName,
    /// The number of the version.
    #[param(value_type = u64)]
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

/// The model and the two versions of a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct OfTwoVersions {
    /// The name of the model.
    #[param(value_type = Name)]
    pub model: ModelName,
    /// The number of the version to compare with.
    #[param(value_type = u64)]
    pub from: VersionId,
    /// The number of the compared version.
    #[param(value_type = u64)]
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
