//! `OneHotEncoder` and `LabelEncoder`.

use std::sync::Arc;

use super::super::ImportError;
use super::super::emit::{Column, Fields, Form, Numbers};
use super::convert::{Converter, Value};
use super::linear;
use crate::limits::{DICTIONARY_MAX, INLINE_MAX, INPUTS_MAX};
use crate::objects::{Content, Dictionary, EmbeddingTable};
use crate::onnx::model::Node;
use crate::spec::{Categories, Embedding, FieldType, Operator};

/// A column for each category of each field.
pub(super) fn one_hot<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let fields = fields(converter, node)?;
    if fields.names.len() > INPUTS_MAX {
        return Err(node.problem("input", format!("at most {INPUTS_MAX} fields can be encoded at once")));
    }
    let strings = keys(node, &fields, "cats_strings", "cats_int64s")?;
    let count = strings.len();
    let dictionary = Dictionary::new(&strings).map_err(|error| node.problem("cats", error.to_string()))?;
    let (categories, dictionary) = if count <= INLINE_MAX {
        (Some(strings), None)
    } else {
        (None, Some(converter.object(node, &Content::Dictionary(Arc::new(dictionary)))?))
    };
    let mut names = Vec::with_capacity(fields.names.len());
    for field in &fields.names {
        let input = field_node(converter, node, field)?;
        let known = Categories { input, categories: categories.clone(), dictionary, fit: None };
        names.push(converter.emitter.add(node.index, Operator::OneHot(known)));
    }
    let dim = count * names.len();
    let node = match <[String; 1]>::try_from(names) {
        Ok([name]) => name,
        Err(names) => converter.emitter.concat(&format!("one_hot_{}_all", node.index), names),
    };
    Ok(Numbers { node, dim, form: Form::Sparse }.into())
}

/// The number of a category: a table of one column. Its rows are differences from the default, which is the row of
/// unknown ones.
pub(super) fn label_encoder<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let fields = fields(converter, node)?;
    let [field] = fields.names.as_slice() else {
        return Err(node.problem("input", "labels of one field can be imported"));
    };
    let strings = keys(node, &fields, "keys_strings", "keys_int64s")?;
    let whole: Vec<i64> = node.list("values_int64s", DICTIONARY_MAX)?;
    let (values, default) = if whole.is_empty() {
        let default = node.value::<f32>("default_float")?.unwrap_or(0.0);
        (node.list::<f32>("values_floats", DICTIONARY_MAX)?, default)
    } else {
        let default = node.value::<i64>("default_int64")?.unwrap_or(-1);
        (whole.into_iter().map(|value| value as f32).collect(), default as f32)
    };
    if values.len() != strings.len() || strings.is_empty() {
        return Err(node.problem("values", format!("{} keys have {} numbers", strings.len(), values.len())));
    }
    let invalid = |error: crate::error::PipelineError| node.problem("keys", error.to_string());
    let dictionary = Dictionary::new(&strings).map_err(invalid)?;
    let rows = values.into_iter().map(|value| value - default).collect();
    let table = EmbeddingTable::new(dictionary, 1, rows).map_err(invalid)?;
    let table = converter.object(node, &Content::Embedding(Arc::new(table)))?;
    let input = field_node(converter, node, field)?;
    let name = converter.emitter.add(node.index, Operator::Embedding(Embedding { input, table }));
    let numbers = Numbers { node: name, dim: 1, form: Form::Dense };
    if default == 0.0 { Ok(numbers.into()) } else { linear::shift(converter, node, numbers, default) }
}

/// The input, which must be fields with categories.
fn fields<'a>(converter: &Converter<'a>, node: &Node<'a>) -> Result<Fields, ImportError> {
    match converter.value(node, 0)? {
        Value::Fields(fields) if fields.content == Column::LowerTexts => {
            Err(node.problem("input", "categories are compared with their case"))
        }
        Value::Fields(fields) => Ok(fields),
        _ => Err(node.problem("input", "categories of computed values cannot be imported")),
    }
}

fn field_node<'a>(converter: &mut Converter<'a>, node: &Node<'a>, field: &str) -> Result<String, ImportError> {
    converter.emitter.field(field, FieldType::Category).map_err(|problem| node.problem("input", problem))
}

/// The texts of categories, given as texts or as integers.
fn keys(node: &Node<'_>, fields: &Fields, texts: &str, integers: &str) -> Result<Vec<String>, ImportError> {
    let strings = node.texts(texts, DICTIONARY_MAX)?;
    let whole: Vec<i64> = node.list(integers, DICTIONARY_MAX)?;
    let is_text = fields.content == Column::Texts;
    let keys: Vec<String> = match (strings.is_empty(), whole.is_empty()) {
        (false, true) if is_text => strings.into_iter().map(str::to_owned).collect(),
        // The text that a field of categories has for a number.
        (true, false) if !is_text => whole.into_iter().map(|key| (key as f64).to_string()).collect(),
        _ => return Err(node.problem(texts, "the categories must be texts or integers, as the fields are")),
    };
    Ok(keys)
}
