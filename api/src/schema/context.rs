//! The circumstances of a request.

use std::collections::BTreeMap;

use celeris_model::Context;
use utoipa::ToSchema;

/// The circumstances of a request: at most 32 fields, whose names and values take at most 1024 bytes. A null field is as
/// one that is not given.
#[derive(ToSchema)]
pub struct ContextFields(pub BTreeMap<String, ContextField>);

/// The value of a field.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ContextField {
    Number(f64),
    Text(String),
    Boolean(bool),
    Texts(Vec<String>),
}

/// `None` for a context without fields.
pub fn given(context: Option<Context>) -> Option<Box<Context>> {
    context.filter(|context| !context.is_empty()).map(Box::new)
}
