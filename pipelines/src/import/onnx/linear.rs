//! `LinearRegressor` and `LinearClassifier`, and what else is a linear model of a pipeline.

use std::sync::Arc;

use super::super::ImportError;
use super::super::emit::{Form, Numbers};
use super::convert::COLUMNS_MAX;
use super::convert::{Converter, Value};
use crate::limits::{DENSE_MAX, OUTPUTS_MAX};
use crate::objects::{Content, Weights};
use crate::onnx::model::Node;
use crate::spec::{Linear, Link, Norm, Normalize, Operator};

pub(super) fn regressor<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let outputs = node.value("targets")?.unwrap_or(1);
    let outputs = usize::try_from(outputs).ok().filter(|outputs| (1..=OUTPUTS_MAX).contains(outputs));
    let outputs = outputs.ok_or_else(|| node.problem("targets", format!("there must be 1 to {OUTPUTS_MAX}")))?;
    let link = match node.text("post_transform")? {
        "" | "NONE" => Link::Identity,
        // Of a single target too, as the specification says; ONNX Runtime ignores it there.
        "LOGISTIC" => Link::Logistic,
        other => return Err(node.problem("post_transform", format!("{other} is not supported"))),
    };
    let model = Model::read(converter, node, outputs)?;
    Ok(model.emit(converter, node, link)?.into())
}

/// The scores of the classes.
pub(super) fn classifier<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let labels = node
        .texts("classlabels_strings", OUTPUTS_MAX)?
        .len()
        .max(node.list::<i64>("classlabels_ints", OUTPUTS_MAX)?.len());
    if !(2..=OUTPUTS_MAX).contains(&labels) {
        return Err(node.problem("classlabels", format!("there must be 2 to {OUTPUTS_MAX} classes, got {labels}")));
    }
    let mut model = Model::read(converter, node, labels)?;
    match node.text("post_transform")? {
        "" | "NONE" => Ok(model.emit(converter, node, Link::Identity)?.into()),
        "LOGISTIC" => Ok(model.emit(converter, node, Link::Logistic)?.into()),
        // The softmax of two scores is the logistic function of their difference.
        "SOFTMAX" if labels == 2 => {
            model.subtract();
            Ok(model.emit(converter, node, Link::Logistic)?.into())
        }
        // Equal but for scores above 69, whose powers exceed the bound of numbers.
        "SOFTMAX" => {
            let powers = model.emit(converter, node, Link::Exp)?;
            let normalize = Normalize { input: powers.node, norm: Norm::L1 };
            let name = converter.emitter.add(node.index, Operator::Normalize(normalize));
            converter.emitter.note(format!("{name}: a softmax is exact for scores below 69"));
            Ok(Numbers { node: name, ..powers_shape(labels) }.into())
        }
        other => Err(node.problem("post_transform", format!("{other} is not supported"))),
    }
}

fn powers_shape(dim: usize) -> Numbers {
    Numbers { node: String::new(), dim, form: Form::Dense }
}

/// A linear model over an input.
struct Model {
    input: Numbers,
    /// Row-major `outputs x columns`.
    coefficients: Vec<f32>,
    intercepts: Vec<f32>,
}

impl Model {
    fn read<'a>(converter: &mut Converter<'a>, node: &Node<'a>, outputs: usize) -> Result<Self, ImportError> {
        let input = converter.numbers(node, 0)?;
        let coefficients: Vec<f32> = node.list("coefficients", COLUMNS_MAX * OUTPUTS_MAX)?;
        if coefficients.len() != input.dim * outputs {
            let problem = format!("there must be {outputs} x {}, got {}", input.dim, coefficients.len());
            return Err(node.problem("coefficients", problem));
        }
        let mut intercepts: Vec<f32> = node.list("intercepts", OUTPUTS_MAX)?;
        if intercepts.is_empty() {
            intercepts.resize(outputs, 0.0);
        }
        if intercepts.len() != outputs {
            return Err(node.problem("intercepts", format!("there must be {outputs}, got {}", intercepts.len())));
        }
        Ok(Self { input, coefficients, intercepts })
    }

    /// Replaces two outputs by the difference of each from the other.
    fn subtract(&mut self) {
        let (first, second) = self.coefficients.split_at_mut(self.input.dim);
        for (first, second) in first.iter_mut().zip(second) {
            *first -= *second;
            *second = -*first;
        }
        let difference = self.intercepts[0] - self.intercepts[1];
        self.intercepts = vec![difference, -difference];
    }

    fn emit<'a>(self, converter: &mut Converter<'a>, node: &Node<'a>, link: Link) -> Result<Numbers, ImportError> {
        let outputs = self.intercepts.len();
        let columns = self.input.dim;
        let transposed = (0..columns).flat_map(|column| (0..outputs).map(move |output| output * columns + column));
        let weights = transposed.map(|at| self.coefficients[at]).collect();
        let weights = Weights::new(self.intercepts, weights);
        let weights = weights.map_err(|error| node.problem("coefficients", error.to_string()))?;
        let weights = Some(converter.object(node, &Content::Weights(Arc::new(weights)))?);
        let outputs_field = Some(outputs as u32).filter(|outputs| *outputs != 1);
        let linear =
            Linear { input: self.input.node, weights, link, outputs: outputs_field, regularization: None, fit: None };
        let name = converter.emitter.add(node.index, Operator::Linear(linear));
        Ok(Numbers { node: name, dim: outputs, form: Form::Dense })
    }
}

/// A selection of columns of a vector, as a linear model of zeros and ones.
pub(super) fn select<'a>(
    converter: &mut Converter<'a>,
    node: &Node<'a>,
    input: Numbers,
    columns: &[usize],
) -> Result<Value, ImportError> {
    if columns.len() > OUTPUTS_MAX || input.dim > DENSE_MAX {
        let problem = format!("at most {OUTPUTS_MAX} columns can be taken out of at most {DENSE_MAX} computed ones");
        return Err(node.problem("indices", problem));
    }
    let mut coefficients = vec![0.0; input.dim * columns.len()];
    for (output, column) in columns.iter().enumerate() {
        coefficients[output * input.dim + column] = 1.0;
    }
    let model = Model { input, coefficients, intercepts: vec![0.0; columns.len()] };
    Ok(model.emit(converter, node, Link::Identity)?.into())
}

/// `Exp` and `Sigmoid` of each column, as a linear model of ones.
pub(super) fn elementwise<'a>(converter: &mut Converter<'a>, node: &Node<'a>) -> Result<Value, ImportError> {
    let input = converter.numbers(node, 0)?;
    let dim = input.dim;
    if dim > OUTPUTS_MAX {
        return Err(node.problem("input", format!("at most {OUTPUTS_MAX} columns can be transformed, got {dim}")));
    }
    let coefficients = (0..dim * dim).map(|at| if at / dim == at % dim { 1.0 } else { 0.0 }).collect();
    let model = Model { input, coefficients, intercepts: vec![0.0; dim] };
    let link = if node.operator == "Exp" { Link::Exp } else { Link::Logistic };
    Ok(model.emit(converter, node, link)?.into())
}

/// A number that is added to the only column of a vector.
pub(super) fn shift<'a>(
    converter: &mut Converter<'a>,
    node: &Node<'a>,
    input: Numbers,
    by: f32,
) -> Result<Value, ImportError> {
    let model = Model { input, coefficients: vec![1.0], intercepts: vec![by] };
    Ok(model.emit(converter, node, Link::Identity)?.into())
}

impl From<Numbers> for Value {
    fn from(numbers: Numbers) -> Self {
        Self::Numbers(numbers)
    }
}
