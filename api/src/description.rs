//! The OpenAPI description of the node.
//!
//! Each route describes its parameters, its bodies and its success. [`complete`] adds what follows
//! from that, so that no route repeats it and none can forget it: the problems with which a request
//! of this form can be answered, the descriptions of successes, and examples.

use std::collections::BTreeMap;

use axum::http::Method;
use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Header, OpenApi, PathItem, Ref, RefOr, Required, Response, Schema, schema};
use utoipa::{OpenApi as _, ToResponse};

use crate::access;
use crate::error::Problem;
use crate::personalizer::Failure;

/// The description to which every route adds itself.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Celeris",
        description = "Online-learning personalization: predictions with uncertainty that learn from every \
                       observation.\n\nEvery error is a problem detail (RFC 9457) of the media type \
                       `application/problem+json` and leaves state unchanged. Every answer has the id of its \
                       request, in the header `x-request-id`: that of the client, or one of the node. Ids in requests are text or \
                       integers; an integer is kept as its decimal text.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "/", description = "The node that returned this description")),
    tags(
        (name = "serving", description = "Predictions, rankings, observations and decisions"),
        (name = "items", description = "The catalog"),
        (name = "personalizer", description = "Requests in the form of Azure Personalizer, with its errors"),
        (name = "users", description = "States, attributes, histories and erasure of users"),
        (name = "models", description = "Models, and selections among models"),
        (name = "versions", description = "Versions of a model and the jobs that train them"),
        (name = "studies", description = "Searches for the settings of a model"),
        (name = "pipelines", description = "Computed features, and the objects that they learn from"),
        (name = "quality", description = "Loss, drift, events, exploration and off-policy evaluation"),
        (name = "node", description = "Health and metrics of the node"),
    ),
    components(schemas(Problem, Failure)),
    security((), ("key" = [])),
)]
struct Description;

/// The key of a client, which a node may need.
fn key_scheme() -> SecurityScheme {
    let about = "A key that `celeris keys create` or `POST /v1/keys` has made. A node without keys needs none.";
    let mut scheme = Http::new(HttpAuthScheme::Bearer);
    scheme.description = Some(about.to_owned());
    SecurityScheme::Http(scheme)
}

/// The description without routes.
pub fn empty() -> OpenApi {
    let mut description = Description::openapi();
    let components = description.components.get_or_insert_default();
    components.add_security_scheme("key", key_scheme());
    components.responses.extend(problems().map(|(name, problem)| (name.to_owned(), problem)));
    description
}

/// Defines the problems that routes share, each a component of the description.
macro_rules! problems {
    ($($(#[doc = $about:literal])+ $name:ident = $status:literal,)+) => {
        $(
            $(#[doc = $about])+
            pub struct $name;

            impl $name {
                const STATUS: u16 = $status;
            }

            impl ToResponse<'static> for $name {
                fn response() -> (&'static str, RefOr<Response>) {
                    (stringify!($name), problem(concat!($($about),+).trim(), Self::STATUS).into())
                }
            }
        )+

        fn problems() -> impl Iterator<Item = (&'static str, RefOr<Response>)> {
            [$($name::response()),+].into_iter()
        }

        /// The name of the component with this status.
        fn name_of(status: u16) -> &'static str {
            match status {
                $($name::STATUS => stringify!($name),)+
                _ => unreachable!("only the problems above are added to operations"),
            }
        }
    };
}

problems! {
    /// The body is not JSON, or was cut off.
    Malformed = 400,
    /// The node needs a key, and the request has none that is valid.
    Unauthenticated = 401,
    /// The key is not for this, or the request comes from a web page whose origin is not allowed.
    Forbidden = 403,
    /// There is no model, version, item or other resource of this name.
    NotFound = 404,
    /// The request conflicts with the current state: the name is taken, a training is running, a
    /// selection was named where a model is needed, or `min_epoch` was not reached in time.
    Conflict = 409,
    /// The observation was deleted, and its id cannot be used again.
    Gone = 410,
    /// The body is larger than `limits.body`.
    TooLarge = 413,
    /// The body is not declared as the media type that this route reads.
    UnsupportedMediaType = 415,
    /// The request is for another host.
    Misdirected = 421,
    /// A field, parameter or id is missing, unknown, of the wrong type or out of range.
    Invalid = 422,
    /// The key has used what it may for now.
    RateLimited = 429,
    /// The node could not complete the request; its log contains the cause.
    Internal = 500,
    /// The node is overloaded or cannot write; try again later.
    Unavailable = 503,
    /// The request took longer than `limits.request_timeout`. Its changes may have been made.
    Timeout = 504,
}

fn problem(about: &str, status: u16) -> Response {
    let mut response = Response::new(about);
    let content = Content::new(Some(Ref::from_schema_name("Problem")));
    response.content.insert("application/problem+json".to_owned(), content.into());
    if [Unavailable::STATUS, RateLimited::STATUS].contains(&status) {
        let mut seconds = Header::new(schema::Object::with_type(schema::Type::Integer));
        seconds.description = Some("After how many seconds to try again".to_owned());
        response.headers.insert("Retry-After".to_owned(), seconds.into());
    }
    response
}

/// The media type of requests and replies of many lines.
const LINES: &str = "application/x-ndjson";

/// The statuses with which a line can be rejected.
const OF_LINES: [u16; 6] =
    [Malformed::STATUS, Conflict::STATUS, Gone::STATUS, TooLarge::STATUS, Invalid::STATUS, Unavailable::STATUS];

/// Requests to a demo node in order, with its replies. The test `openapi_examples` sends them again
/// and compares the replies.
const EXAMPLES: &str = include_str!("../openapi/examples.json");

/// One of the [`EXAMPLES`].
#[derive(Deserialize)]
struct Example {
    operation: String,
    request: Option<Value>,
    reply: Value,
}

/// Completes the description once all routes are part of it.
pub fn complete(description: &mut OpenApi) {
    let examples: Vec<Example> = serde_json::from_str(EXAMPLES).expect("the file is part of the program");
    let schemas = description.components.get_or_insert_default().schemas.clone();
    for (path, item) in &mut description.paths.paths {
        for (method, operation) in operations(item) {
            if let Some(role) = access::role_of(&method, path) {
                let role = Extensions::builder().add("x-celeris-role", role.name()).build();
                operation.extensions.get_or_insert_default().merge(role);
            }
            if path.contains(OF_PERSONALIZER) {
                describe_their_errors(path, operation);
                describe_successes(operation, &schemas);
                make_optional(operation, &schemas);
                add_example(operation, &examples);
                continue;
            }
            for status in statuses(path, operation) {
                let problem = || Ref::from_response_name(name_of(status)).into();
                operation.responses.responses.entry(status.to_string()).or_insert_with(problem);
            }
            describe_rejected_lines(operation);
            describe_successes(operation, &schemas);
            make_optional(operation, &schemas);
            add_example(operation, &examples);
        }
    }
}

/// What paths of requests in the form of Azure Personalizer have.
const OF_PERSONALIZER: &str = "/personalizer/";

/// Describes the problems of a request in the form of Personalizer, which have that form.
fn describe_their_errors(path: &str, operation: &mut Operation) {
    for status in statuses(path, operation) {
        let status = if status == Invalid::STATUS { Malformed::STATUS } else { status };
        let mut response = problem("What is wrong, in the form of Personalizer.", status);
        let content = Content::new(Some(Ref::from_schema_name("PersonalizerFailure")));
        response.content = [("application/json".to_owned(), content.into())].into_iter().collect();
        operation.responses.responses.entry(status.to_string()).or_insert_with(|| response.into());
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let all = [
        (Method::GET, get),
        (Method::PUT, put),
        (Method::POST, post),
        (Method::DELETE, delete),
        (Method::PATCH, patch),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// The statuses of the problems with which a request of this form can be answered.
fn statuses(path: &str, operation: &Operation) -> Vec<u16> {
    let parameters = || operation.parameters.iter().flatten();
    let has = |wanted: fn(&str, &ParameterIn) -> bool| {
        parameters().any(|parameter| match parameter {
            RefOr::T(parameter) => wanted(&parameter.name, &parameter.parameter_in),
            RefOr::Ref(_) => false,
        })
    };
    let body = operation.request_body.as_ref().and_then(|body| match body {
        RefOr::T(body) => body.content.keys().next(),
        RefOr::Ref(_) => None,
    });
    let mut statuses = Vec::new();
    match path {
        "/healthz" => return statuses,
        "/readyz" => return vec![Unavailable::STATUS],
        "/metrics" => {}
        _ => statuses.push(Timeout::STATUS),
    }
    statuses.extend([Unauthenticated::STATUS, Forbidden::STATUS, RateLimited::STATUS]);
    statuses.extend([Misdirected::STATUS, Internal::STATUS, Unavailable::STATUS]);
    if let Some(body) = body {
        statuses.extend([TooLarge::STATUS, UnsupportedMediaType::STATUS]);
        match body.as_str() {
            "application/json" => statuses.extend([Malformed::STATUS, Invalid::STATUS]),
            "application/octet-stream" => statuses.push(Invalid::STATUS),
            _ => {}
        }
    }
    if has(|name, place| *place == ParameterIn::Path || name == "model") {
        statuses.push(NotFound::STATUS);
    }
    if has(|name, _| name == "model") {
        statuses.push(Conflict::STATUS);
    }
    let is_id = |name: &str, place: &ParameterIn| {
        *place == ParameterIn::Query || ["item", "user", "observation_id", "decision_id", "event_id"].contains(&name)
    };
    if has(is_id) {
        statuses.push(Invalid::STATUS);
    }
    statuses
}

/// Describes the replies to many lines that are all rejected: the status is that of the first line,
/// and the body is that of the success.
fn describe_rejected_lines(operation: &mut Operation) {
    let responses = &mut operation.responses.responses;
    let Some(RefOr::T(success)) = responses.get("200") else { return };
    let of_lines = success.content.clone();
    if !of_lines.contains_key(LINES) {
        return;
    }
    for status in OF_LINES {
        let mut response =
            problem("The request was rejected, or all of its lines were, each with its own problem.", status);
        response.content.extend(of_lines.clone());
        responses.insert(status.to_string(), response.into());
    }
}

/// Describes each response without a description as the schema of its body is described.
fn describe_successes(operation: &mut Operation, schemas: &BTreeMap<String, RefOr<Schema>>) {
    for response in operation.responses.responses.values_mut() {
        let RefOr::T(response) = response else { continue };
        if !response.description.is_empty() {
            continue;
        }
        let content = response.content.values().next();
        let Some(RefOr::T(Content { schema: Some(RefOr::Ref(body)), .. })) = content else { continue };
        // Schemas have no common accessor of their description.
        let schema = schemas.get(name_of_schema(body)).and_then(|schema| serde_json::to_value(schema).ok());
        let about = schema.as_ref().and_then(|schema| schema["description"].as_str());
        response.description = about.unwrap_or_default().to_owned();
    }
}

/// Adds the example of an operation, if there is one.
fn add_example(operation: &mut Operation, examples: &[Example]) {
    let id = operation.operation_id.as_deref();
    let Some(example) = examples.iter().find(|example| Some(&*example.operation) == id) else { return };
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        set_example(body.content.values_mut(), example.request.clone());
    }
    // The first status is that of the success.
    if let Some(RefOr::T(response)) = operation.responses.responses.values_mut().next() {
        set_example(response.content.values_mut(), Some(example.reply.clone()));
    }
}

fn set_example<'a>(mut contents: impl Iterator<Item = &'a mut RefOr<Content>>, example: Option<Value>) {
    if let Some(RefOr::T(content)) = contents.next() {
        content.example = example;
    }
}

/// Marks the body as optional if its schema requires no field: a missing body is read as an empty
/// object.
fn make_optional(operation: &mut Operation, schemas: &BTreeMap<String, RefOr<Schema>>) {
    let Some(RefOr::T(body)) = &mut operation.request_body else { return };
    let json = body.content.get("application/json");
    let Some(RefOr::T(Content { schema: Some(RefOr::Ref(schema)), .. })) = json else { return };
    if let Some(RefOr::T(Schema::Object(object))) = schemas.get(name_of_schema(schema))
        && object.required.is_empty()
    {
        body.required = Some(Required::False);
    }
}

fn name_of_schema(schema: &Ref) -> &str {
    schema.ref_location.rsplit('/').next().unwrap_or_default()
}
