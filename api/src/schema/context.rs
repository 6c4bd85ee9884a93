//! The circumstances of a request.

use std::collections::BTreeMap;

use celeris_model::{self as model, Context, StreamField};
use serde::Serialize;
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

/// A field that contexts of a stream have had. It keeps its type.
#[derive(Debug, Serialize, ToSchema)]
pub struct ContextFieldOfStream {
    name: String,
    #[serde(rename = "type")]
    kind: ContextType,
}

mirror_enum! {
    /// The type of a field of contexts.
    ContextType = model::ContextType {
        Number,
        Text,
        Boolean,
        Texts,
    }
}

impl From<&StreamField> for ContextFieldOfStream {
    fn from(StreamField { name, kind }: &StreamField) -> Self {
        Self { name: name.clone(), kind: (*kind).into() }
    }
}

/// `None` for a context without fields.
pub fn given(context: Option<Context>) -> Option<Box<Context>> {
    context.filter(|context| !context.is_empty()).map(Box::new)
}
