//! Operators over numbers: `Scaler`, arithmetic with constants, `Imputer`, `Normalizer`, `Binarizer`.

use std::sync::Arc;

use super::super::ImportError;
use super::super::emit::{Form, Numbers};
use super::convert::{COLUMNS_MAX, Converter, Value};
use crate::limits::DENSE_MAX;
use crate::objects::{Content, Idf, Moments};
use crate::onnx::model::Node;
use crate::spec::{Impute, Norm, Normalize, Operator, Scale, TfIdf};
use crate::trees::{
    Aggregate, Branch, Builder, Missing, OUTPUTS_MAX, Shape, SourceNode, SourceTree, Test, Transform, Vote, Zeros,
};

/// `(x - offset) * factor` of each column.
struct Affine {
    offsets: Vec<f64>,
    factors: Vec<f64>,
}

pub(super) fn scaler<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let input = converter.numbers(node, 0)?;
    let list = |name: &str, default: f64| {
        let list = node.list::<f32>(name, COLUMNS_MAX)?.into_iter().map(f64::from).collect();
        spread(node, name, (list, default), input.dim)
    };
    let affine = Affine { offsets: list("offset", 0.0)?, factors: list("scale", 1.0)? };
    affine.emit(converter, node, input)
}

/// `Add`, `Sub`, `Mul` and `Div` of a vector and a constant.
pub(super) fn arithmetic<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let commutes = matches!(node.operator, "Add" | "Mul");
    let vector = usize::from(commutes && converter.constant(node, 0)?.is_some());
    let Some(constant) = converter.constant(node, 1 - vector)? else {
        return Err(node.problem("input", "one of the inputs must be a constant"));
    };
    let input = converter.numbers(node, vector)?;
    let constant = spread(node, "input", (constant.numbers(COLUMNS_MAX)?, 0.0), input.dim)?;
    let same = |value: f64| vec![value; input.dim];
    let affine = match node.operator {
        "Add" => Affine { offsets: constant.into_iter().map(|number| -number).collect(), factors: same(1.0) },
        "Sub" => Affine { offsets: constant, factors: same(1.0) },
        "Mul" => Affine { offsets: same(0.0), factors: constant },
        _ => Affine { offsets: same(0.0), factors: constant.into_iter().map(f64::recip).collect() },
    };
    affine.emit(converter, node, input)
}

/// One number for each column: as many, one for all, or the default.
fn spread(node: &Node<'_>, part: &str, (list, default): (Vec<f64>, f64), dim: usize) -> Result<Vec<f64>, ImportError> {
    match list.len() {
        0 => Ok(vec![default; dim]),
        1 => Ok(vec![list[0]; dim]),
        count if count == dim => Ok(list),
        count => Err(node.problem(part, format!("there must be 1 or {dim} numbers, got {count}"))),
    }
}

impl Affine {
    fn emit<'a>(self, converter: &mut Converter<'a>, node: &Node<'a>, input: Numbers) -> Result<Value, ImportError> {
        let invalid = |error: crate::error::PipelineError| node.problem("input", error.to_string());
        if input.form == Form::Sparse {
            if self.offsets.iter().any(|offset| *offset != 0.0) {
                return Err(node.problem("input", "columns of which most are 0 can be multiplied only"));
            }
            let idf = Idf::new(self.factors.iter().map(|factor| *factor as f32).collect()).map_err(invalid)?;
            let idf = Some(converter.object(node, &Content::Idf(Arc::new(idf)))?);
            let weighting = TfIdf { input: input.node, idf, sublinear: false, norm: None };
            let name = converter.emitter.add(node.index, Operator::TfIdf(weighting));
            return Ok(Numbers { node: name, ..input }.into());
        }
        if self.factors.iter().any(|factor| *factor < 0.0) {
            return Err(node.problem("scale", "a factor must not be negative"));
        }
        let widths = self.factors.iter().map(|factor| if *factor > 0.0 { factor.recip() } else { 0.0 }).collect();
        let moments = Moments::new(self.offsets.clone(), widths, self.offsets).map_err(invalid)?;
        let moments = Some(converter.object(node, &Content::Moments(Arc::new(moments)))?);
        let may_be_missing = converter.emitter.may_be_missing(&input.node);
        let scale = Scale { input: input.node, moments, clamp: None, fit: None };
        let name = converter.emitter.add(node.index, Operator::Scale(scale));
        if may_be_missing {
            converter
                .emitter
                .note(format!("{name}: the offset stands for a missing value, which stays missing in the model"));
        }
        Ok(Numbers { node: name, ..input }.into())
    }
}

/// Replaces missing values.
pub(super) fn imputer<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let input = converter.numbers(node, 0)?;
    let replaces_nan = match node.value::<f32>("replaced_value_float")? {
        Some(replaced) => replaced.is_nan(),
        None => false,
    };
    if !replaces_nan {
        return Err(node.problem("replaced_value_float", "it must be NaN: fields are missing, not marked by a number"));
    }
    if input.form == Form::Sparse {
        return Err(node.problem("input", "columns of which most are 0 have no missing values"));
    }
    let values: Vec<f32> = node.list("imputed_value_floats", DENSE_MAX)?;
    let impute = match values.as_slice() {
        [value] => Impute { input: input.node, value: Some(*value), moments: None },
        values if values.len() == input.dim => {
            let means = values.iter().map(|value| f64::from(*value)).collect();
            let (centers, widths) = (vec![0.0; input.dim], vec![1.0; input.dim]);
            let moments = Moments::new(centers, widths, means);
            let moments = moments.map_err(|error| node.problem("imputed_value_floats", error.to_string()))?;
            let moments = Some(converter.object(node, &Content::Moments(Arc::new(moments)))?);
            Impute { input: input.node, value: None, moments }
        }
        values => {
            let problem = format!("there must be 1 or {} numbers, got {}", input.dim, values.len());
            return Err(node.problem("imputed_value_floats", problem));
        }
    };
    let name = converter.emitter.add(node.index, Operator::Impute(impute));
    Ok(Numbers { node: name, dim: input.dim, form: input.form }.into())
}

pub(super) fn normalizer<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let norm = match node.text("norm")? {
        "L1" => Norm::L1,
        "L2" => Norm::L2,
        // ONNX Runtime divides by the largest number, scikit-learn by the largest magnitude.
        other => return Err(node.problem("norm", format!("it must be L1 or L2, got {other:?}"))),
    };
    let input = converter.numbers(node, 0)?;
    let vector = converter.emitter.vector(&input);
    let form = if input.form == Form::Sparse { Form::Sparse } else { Form::Dense };
    let name = converter.emitter.add(node.index, Operator::Normalize(Normalize { input: vector, norm }));
    Ok(Numbers { node: name, dim: input.dim, form }.into())
}

/// 1 where a value is above the threshold: a tree of one split for each column.
pub(super) fn binarizer<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let threshold = f64::from(node.value::<f32>("threshold")?.unwrap_or(0.0));
    let input = converter.numbers(node, 0)?;
    if input.dim > OUTPUTS_MAX {
        return Err(node.problem("input", format!("at most {OUTPUTS_MAX} columns can be binarized, got {}", input.dim)));
    }
    let base = vec![0.0; input.dim];
    let shape = Shape { inputs: input.dim, base, aggregate: Aggregate::Sum, transform: Transform::None };
    let mut builder = Builder::new(shape)?;
    for feature in 0..input.dim as u32 {
        let (test, missing, zeros) = (Test::Above(threshold), Missing::Otherwise, Zeros::Numbers);
        let split = SourceNode::Branch(Branch { feature, test, missing, zeros, then: 1, otherwise: 2 });
        let leaves = [1, 0].map(|count| SourceNode::Leaf { first: 0, count });
        let votes = vec![Vote { output: feature, value: 1.0 }];
        builder.add(&SourceTree { nodes: [[split].as_slice(), &leaves].concat(), votes, ..SourceTree::default() })?;
    }
    let name = converter.trees(node, &input, builder.finish()?)?;
    Ok(Numbers { node: name, dim: input.dim, form: Form::Dense }.into())
}
