//! The shapes that operators of ONNX give, and the products that they compute.

use super::check::Known;
use crate::error::ImportError;
use crate::limits::NETWORK_ELEMENTS_MAX;
use crate::onnx::model::{AXES_MAX, Node, element};

/// The length of each axis; none is 0.
pub type Shape = Vec<usize>;

/// The outputs of a node.
pub struct Results {
    pub shapes: Vec<Shape>,
    /// Number of products, at least the number of elements.
    pub work: usize,
}

/// How the shape of the output follows from those of the inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// That of the first input, which the others are repeated along.
    First,
    Broadcast,
    Constant,
    MatMul,
    Gemm,
    Concat,
    Split,
    Slice,
    Gather,
    Flatten,
    Reshape,
    Expand,
    Transpose,
    Squeeze,
    Unsqueeze,
    Reduce,
    ArgReduce,
}

fn rule(operator: &str) -> Option<Rule> {
    Some(match operator {
        "Abs" | "BatchNormalization" | "Cast" | "Ceil" | "Clip" | "Cos" | "Dropout" | "Elu" | "Erf" | "Exp"
        | "Floor" | "Gelu" | "HardSigmoid" | "HardSwish" | "Identity" | "LayerNormalization" | "LeakyRelu" | "Log"
        | "Mish" | "Neg" | "Not" | "PRelu" | "Reciprocal" | "Relu" | "Round" | "Selu" | "Sigmoid" | "Sign" | "Sin"
        | "Softmax" | "Softplus" | "Softsign" | "Sqrt" | "Tanh" | "ThresholdedRelu" => Rule::First,
        "Add" | "And" | "Div" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Max" | "Mean"
        | "Min" | "Mul" | "Or" | "Pow" | "Sub" | "Sum" | "Where" | "Xor" => Rule::Broadcast,
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean" | "ReduceMin"
        | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => Rule::Reduce,
        "ArgMax" | "ArgMin" => Rule::ArgReduce,
        "Concat" => Rule::Concat,
        "Constant" => Rule::Constant,
        "Expand" => Rule::Expand,
        "Flatten" => Rule::Flatten,
        "Gather" => Rule::Gather,
        "Gemm" => Rule::Gemm,
        "MatMul" => Rule::MatMul,
        "Reshape" => Rule::Reshape,
        "Slice" => Rule::Slice,
        "Split" => Rule::Split,
        "Squeeze" => Rule::Squeeze,
        "Transpose" => Rule::Transpose,
        "Unsqueeze" => Rule::Unsqueeze,
        _ => return None,
    })
}

/// The number of inputs of an operator, at least and at most.
fn arity(operator: &str, rule: Rule) -> [usize; 2] {
    match (operator, rule) {
        ("BatchNormalization", _) => [5, 5],
        ("Clip" | "Dropout", _) => [1, 3],
        ("LayerNormalization", _) => [2, 3],
        ("Max" | "Mean" | "Min" | "Sum", _) | (_, Rule::Concat) => [1, usize::MAX],
        ("Where", _) => [3, 3],
        ("PRelu", _) | (_, Rule::Broadcast | Rule::Expand | Rule::Gather | Rule::MatMul | Rule::Reshape) => [2, 2],
        (_, Rule::Constant) => [0, 0],
        (_, Rule::Gemm) => [2, 3],
        (_, Rule::Slice) => [3, 5],
        (_, Rule::Split | Rule::Squeeze | Rule::Unsqueeze | Rule::Reduce) => [1, 2],
        (_, Rule::ArgReduce | Rule::First | Rule::Flatten | Rule::Transpose) => [1, 1],
    }
}

/// Whether shapes of the operator can be computed.
pub fn is_known(operator: &str) -> bool {
    rule(operator).is_some()
}

/// Number of elements; beyond every bound if it overflows.
pub fn volume(shape: &[usize]) -> usize {
    shape.iter().fold(1, |count, dim| usize::saturating_mul(count, *dim)).min(usize::MAX >> 16)
}

/// Computes the shapes of the outputs of a node.
///
/// # Errors
/// Inputs that do not go together, or a shape that depends on values of a row.
pub fn compute<'a>(node: &Node<'a>, known: &Known<'a>) -> Result<Results, ImportError> {
    let around = Around { node, known };
    let Some(rule) = rule(node.operator) else { return Err(node.problem("operator", "it cannot be run")) };
    let [least, most] = arity(node.operator, rule);
    if !(least..=most).contains(&node.inputs.len()) {
        return Err(node.problem("input", format!("there are {} inputs", node.inputs.len())));
    }
    let (shapes, products) = match rule {
        Rule::First => (vec![around.first()?], 0),
        Rule::Broadcast => (vec![around.broadcast()?], 0),
        Rule::Constant => (vec![around.constant()?], 0),
        Rule::MatMul => around.mat_mul()?,
        Rule::Gemm => around.gemm()?,
        Rule::Concat => (vec![around.concat()?], 0),
        Rule::Split => (around.split()?, 0),
        Rule::Slice => (vec![around.slice()?], 0),
        Rule::Gather => (vec![around.gather()?], 0),
        Rule::Flatten => {
            let (input, axis) = (around.input(0)?, node.value::<i64>("axis")?.unwrap_or(1));
            let axis = if axis == input.len() as i64 { input.len() } else { around.place(axis, input.len())? };
            (vec![vec![volume(&input[..axis]), volume(&input[axis..])]], 0)
        }
        Rule::Reshape => (vec![around.reshape()?], 0),
        Rule::Expand => {
            let to = around.lengths(1)?;
            (vec![around.joint(&[around.input(0)?.clone(), to])?], 0)
        }
        Rule::Transpose => (vec![around.transpose()?], 0),
        Rule::Squeeze => (vec![around.squeeze()?], 0),
        Rule::Unsqueeze => (vec![around.unsqueeze()?], 0),
        Rule::Reduce => (vec![around.reduce()?], 0),
        Rule::ArgReduce => {
            let axis = around.place(node.value::<i64>("axis")?.unwrap_or(0), around.input(0)?.len())?;
            (vec![around.without(&[axis])?], 0)
        }
    };
    if let Some(long) = shapes.iter().find(|shape| shape.len() > AXES_MAX || volume(shape) > NETWORK_ELEMENTS_MAX) {
        return Err(node.problem("output", format!("the shape {long:?} is too large")));
    }
    let read: usize = node.inputs.iter().filter_map(|name| known.shapes.get(name)).map(|shape| volume(shape)).sum();
    let written: usize = shapes.iter().map(|shape| volume(shape)).sum();
    let work = usize::saturating_add(products, read + written).min(usize::MAX >> 16);
    Ok(Results { shapes, work })
}

/// A node with what is known about its inputs.
struct Around<'a, 'b> {
    node: &'b Node<'a>,
    known: &'b Known<'a>,
}

/// The panels that kernels of matrix products work on, in rows or columns: smaller matrices are filled up to one.
const PANEL: usize = 64;

impl Around<'_, '_> {
    fn refuse<T>(&self, part: &str, problem: impl Into<String>) -> Result<T, ImportError> {
        Err(self.node.problem(part, problem))
    }

    fn input(&self, input: usize) -> Result<&Shape, ImportError> {
        let name = self.node.inputs.get(input).copied().unwrap_or_default();
        let shape = self.known.shapes.get(name);
        shape.ok_or_else(|| self.node.problem("input", format!("no earlier node gives input {input}")))
    }

    /// The shapes of all inputs that are not left out.
    fn inputs(&self) -> Result<Vec<Shape>, ImportError> {
        let given = (0..self.node.inputs.len()).filter(|input| !self.node.inputs[*input].is_empty());
        given.map(|input| self.input(input).cloned()).collect()
    }

    /// The integers of an input that must be constant; `None` if it is left out.
    fn integers(&self, input: usize) -> Result<Option<Vec<i64>>, ImportError> {
        let Some(name) = self.node.inputs.get(input).copied().filter(|name| !name.is_empty()) else { return Ok(None) };
        let Some(tensor) = self.known.constants.get(name) else {
            return self.refuse(name, "a shape depends on it, so it must be a constant");
        };
        tensor.integers(PARTS_MAX).map(Some)
    }

    fn lengths(&self, input: usize) -> Result<Shape, ImportError> {
        let lengths = self.integers(input)?.unwrap_or_default();
        let lengths = lengths.into_iter().map(|length| usize::try_from(length).ok().filter(|length| *length > 0));
        lengths.collect::<Option<Shape>>().ok_or_else(|| self.node.problem("shape", "lengths must be positive"))
    }

    /// The place of an axis, which may be counted from the end.
    fn place(&self, axis: i64, axes: usize) -> Result<usize, ImportError> {
        let place = if axis < 0 { axis.saturating_add(axes as i64) } else { axis };
        let place = usize::try_from(place).ok().filter(|place| *place < axes);
        place.ok_or_else(|| self.node.problem("axis", format!("there is no axis {axis} of {axes}")))
    }

    /// The integers of an attribute, or of the second input in newer versions of the operator.
    fn parts(&self, name: &str) -> Result<Vec<i64>, ImportError> {
        let is_newer = match self.node.operator {
            "ReduceSum" | "Split" | "Squeeze" | "Unsqueeze" => self.known.opset >= 13,
            _ => self.known.opset >= 18,
        };
        let given: Vec<i64> = self.node.list(name, PARTS_MAX)?;
        let is_other = if is_newer { !given.is_empty() } else { self.node.inputs.len() > 1 };
        if is_other {
            return self.refuse(name, "it is given as another version of the operator has it");
        }
        if is_newer { Ok(self.integers(1)?.unwrap_or_default()) } else { Ok(given) }
    }

    /// The axes of the attribute `axes`, or of the second input in newer versions; each once, ascending.
    fn axes(&self, axes: usize) -> Result<Option<Vec<usize>>, ImportError> {
        let given = self.parts("axes")?;
        if given.is_empty() {
            return Ok(None);
        }
        let mut places: Vec<usize> = given.iter().map(|axis| self.place(*axis, axes)).collect::<Result<_, _>>()?;
        places.sort_unstable();
        places.dedup();
        if places.len() < given.len() { self.refuse("axes", "an axis is given twice") } else { Ok(Some(places)) }
    }

    /// The shape that values have if each is repeated along the axes where it has length 1.
    fn joint(&self, shapes: &[Shape]) -> Result<Shape, ImportError> {
        let axes = shapes.iter().map(Vec::len).max().unwrap_or(0);
        let mut joint = vec![1; axes];
        for shape in shapes {
            for (length, other) in joint[axes - shape.len()..].iter_mut().zip(shape) {
                match (*length, *other) {
                    (one, other) if one == other || other == 1 => {}
                    (1, other) => *length = other,
                    _ => return self.refuse("input", format!("the shapes {shapes:?} do not go together")),
                }
            }
        }
        Ok(joint)
    }

    fn broadcast(&self) -> Result<Shape, ImportError> {
        let inputs = self.inputs()?;
        if inputs.is_empty() {
            return self.refuse("input", "there is none");
        }
        self.joint(&inputs)
    }

    fn first(&self) -> Result<Shape, ImportError> {
        use element::{BOOL, DOUBLE, FLOAT, INT32, INT64};
        let first = self.input(0)?;
        // The library does not check it.
        if matches!(self.node.operator, "LayerNormalization" | "Softmax") {
            let default = if self.node.operator == "LayerNormalization" || self.known.opset >= 13 { -1 } else { 1 };
            self.place(self.node.value::<i64>("axis")?.unwrap_or(default), first.len())?;
        }
        if self.node.operator == "BatchNormalization" {
            let [_, columns, ..] = first[..] else { return self.refuse("input", "it has no columns") };
            for input in 1..self.node.inputs.len() {
                if *self.input(input)? != [columns] {
                    return self.refuse("input", format!("input {input} must have {columns} numbers"));
                }
            }
            return Ok(first.clone());
        }
        let joint = self.broadcast()?;
        if *first != joint {
            return self.refuse("input", "another input is larger than the first one");
        }
        let to = if self.node.operator == "Cast" { self.node.value::<i64>("to")?.unwrap_or(0) } else { FLOAT };
        if ![FLOAT, DOUBLE, INT32, INT64, BOOL].contains(&to) {
            return self.refuse("to", format!("a cast to the type {to} cannot be run"));
        }
        Ok(joint)
    }

    fn constant(&self) -> Result<Shape, ImportError> {
        if let Some(tensor) = self.node.tensor("value")? {
            return tensor.shape();
        }
        let attribute = |name: &&str| self.node.attributes.iter().any(|(other, _)| other == name);
        if ["value_int", "value_float"].iter().any(attribute) {
            return Ok(Vec::new());
        }
        let whole = self.node.list::<i64>("value_ints", PARTS_MAX)?.len();
        let length = whole.max(self.node.list::<f32>("value_floats", PARTS_MAX)?.len());
        if length == 0 { self.refuse("value", "the constant has no numbers") } else { Ok(vec![length]) }
    }

    /// Products of matrices, and the elements of the panels that they are copied to.
    fn products(batch: usize, [rows, inner, columns]: [usize; 3]) -> usize {
        let copied = volume(&[rows.max(PANEL), inner]).saturating_add(volume(&[inner, columns.max(PANEL)]));
        volume(&[batch, volume(&[rows, inner, columns]).saturating_add(copied)])
    }

    fn mat_mul(&self) -> Result<(Vec<Shape>, usize), ImportError> {
        let (mut left, mut right) = (self.input(0)?.clone(), self.input(1)?.clone());
        let (is_row, is_column) = (left.len() == 1, right.len() == 1);
        if is_row {
            left.insert(0, 1);
        }
        if is_column {
            right.push(1);
        }
        let ([outer_left @ .., rows, inner], [outer_right @ .., other, columns]) = (&left[..], &right[..]) else {
            return self.refuse("input", "a number is no matrix");
        };
        if inner != other {
            return self.refuse("input", format!("matrices of the shapes {left:?} and {right:?} have no product"));
        }
        let mut shape = self.joint(&[outer_left.to_vec(), outer_right.to_vec()])?;
        let products = Self::products(volume(&shape), [*rows, *inner, *columns]);
        shape.extend((!is_row).then_some(*rows));
        shape.extend((!is_column).then_some(*columns));
        Ok((vec![shape], products))
    }

    fn gemm(&self) -> Result<(Vec<Shape>, usize), ImportError> {
        let matrix = |input: usize, name: &str| -> Result<[usize; 2], ImportError> {
            let is_turned = self.node.value::<i64>(name)?.unwrap_or(0) != 0;
            match self.input(input)?[..] {
                [rows, columns] if is_turned => Ok([columns, rows]),
                [rows, columns] => Ok([rows, columns]),
                _ => self.refuse("input", "it must be a matrix"),
            }
        };
        let ([rows, inner], [other, columns]) = (matrix(0, "transA")?, matrix(1, "transB")?);
        let shape = vec![rows, columns];
        let added = if self.node.inputs.len() > 2 { self.input(2)?.clone() } else { vec![1] };
        if inner != other || self.joint(&[shape.clone(), added])? != shape {
            return self.refuse("input", "the matrices do not go together");
        }
        Ok((vec![shape], Self::products(1, [rows, inner, columns])))
    }
}

#[path = "arranging.rs"]
mod arranging;

/// Maximum number of elements of a constant that a shape depends on.
const PARTS_MAX: usize = 4096;
