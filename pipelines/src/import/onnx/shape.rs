//! Operators that arrange columns: `Concat`, `FeatureVectorizer`, `ArrayFeatureExtractor`, `Gather`, `Reshape`,
//! `Flatten`, `Cast`.

use super::super::ImportError;
use super::super::emit::{Column, Fields, Form, Numbers};
use super::convert::{COLUMNS_MAX, Converter, Value};
use super::linear;
use crate::onnx::model::{Node, element};

pub(super) fn concat<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    // The axes of columns, of two-dimensional values and of those of encoders, which have a dimension more.
    if node.operator == "Concat" && !matches!(node.value::<i64>("axis")?, Some(-1 | 1 | 2)) {
        return Err(node.problem("axis", "columns can be concatenated, not rows"));
    }
    let values: Vec<Value> =
        (0..node.inputs.len()).map(|input| converter.value(node, input)).collect::<Result<_, _>>()?;
    if let Some(fields) = all_fields(&values) {
        return Ok(Value::Fields(fields));
    }
    let mut parts = Vec::with_capacity(values.len());
    for input in 0..node.inputs.len() {
        parts.push(converter.numbers(node, input)?);
    }
    let dim = parts.iter().map(|part| part.dim).sum();
    if dim > COLUMNS_MAX || parts.is_empty() {
        return Err(node.problem("input", format!("there must be 1 to {COLUMNS_MAX} columns")));
    }
    let form = if parts.iter().any(|part| part.form == Form::Sparse) { Form::Sparse } else { Form::Dense };
    let inputs = parts.into_iter().map(|part| part.node).collect();
    let name = converter.emitter.concat(&format!("concat_{}", node.index), inputs);
    Ok(Numbers { node: name, dim, form }.into())
}

/// The fields of all values, if all are fields with the same content.
fn all_fields(values: &[Value]) -> Option<Fields> {
    let mut all: Option<Fields> = None;
    for value in values {
        let Value::Fields(fields) = value else { return None };
        match &mut all {
            None => all = Some(fields.clone()),
            Some(all) if all.content == fields.content => all.names.extend_from_slice(&fields.names),
            Some(_) => return None,
        }
    }
    all
}

/// Some of the columns.
pub(super) fn extract<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    if node.operator == "Gather" && !matches!(node.value::<i64>("axis")?, Some(-1 | 1)) {
        return Err(node.problem("axis", "columns can be taken, not rows"));
    }
    let value = converter.value(node, 0)?;
    let dim = dim(&value).ok_or_else(|| node.problem("input", "columns are taken of something else"))?;
    let from_end = |index: i64| if index < 0 { index + dim as i64 } else { index };
    let place = |index: i64| usize::try_from(from_end(index)).ok().filter(|index| *index < dim);
    let indices = converter.integers(node, 1)?;
    let columns: Option<Vec<usize>> = indices.into_iter().map(place).collect();
    let columns = columns.filter(|columns| !columns.is_empty());
    let columns = columns.ok_or_else(|| node.problem("indices", format!("columns are 0 to {}", dim - 1)))?;
    match value {
        value if columns.iter().copied().eq(0..dim) => Ok(value),
        Value::Fields(fields) => {
            let names = columns.iter().map(|column| fields.names[*column].clone()).collect();
            Ok(Value::Fields(Fields { names, ..fields }))
        }
        Value::Numbers(numbers) => linear::select(converter, node, numbers, &columns),
        Value::Tokens(_) | Value::Label => Err(node.problem("input", "columns are taken of something else")),
    }
}

/// The number of columns.
fn dim(value: &Value) -> Option<usize> {
    match value {
        Value::Fields(fields) => Some(fields.names.len()),
        Value::Numbers(numbers) => Some(numbers.dim),
        Value::Tokens(_) | Value::Label => None,
    }
}

/// A change of shape that keeps the columns of each row.
pub(super) fn reshape<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let value = converter.value(node, 0)?;
    if node.operator == "Flatten" {
        return match node.value::<i64>("axis")? {
            None | Some(1) => Ok(value),
            Some(_) => Err(node.problem("axis", "it must be 1")),
        };
    }
    let Some(dim) = dim(&value) else { return Ok(value) };
    let shape = converter.integers(node, 1)?;
    let dim = dim as i64;
    let keeps = match shape.as_slice() {
        [-1] => dim == 1,
        [-1 | 0, columns] => *columns == dim || *columns == -1,
        [-1 | 0, 1, columns] | [-1 | 0, columns, 1] => *columns == dim || *columns == -1,
        _ => false,
    };
    if !keeps {
        return Err(node.problem("shape", format!("the shape {shape:?} does not keep the {dim} columns of a row")));
    }
    Ok(value)
}

pub(super) fn cast<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let to = node.value::<i64>("to")?.unwrap_or(0);
    let value = converter.value(node, 0)?;
    match (&value, to) {
        (Value::Label, _) => Ok(value),
        (Value::Numbers(_), element::FLOAT | element::DOUBLE) => Ok(value),
        (Value::Fields(fields), element::FLOAT | element::DOUBLE)
            if !matches!(fields.content, Column::Texts | Column::LowerTexts) =>
        {
            Ok(value)
        }
        (Value::Fields(fields), element::INT32 | element::INT64)
            if matches!(fields.content, Column::Integers | Column::Booleans) =>
        {
            Ok(value)
        }
        (Value::Fields(fields), element::STRING) if fields.content == Column::Texts => Ok(value),
        (Value::Fields(fields), element::STRING) if fields.content == Column::Integers => {
            Ok(Value::Fields(Fields { content: Column::Texts, ..fields.clone() }))
        }
        _ => Err(node.problem("to", format!("a cast to the type {to} changes these values"))),
    }
}
