//! The messages of ONNX that an import needs: graph, nodes, attributes and tensors. Numbers of fields are those of
//! `onnx.proto` (ONNX 1.23, IR version 14).

use std::collections::HashMap;

use super::wire::{Bytes, Element, Value};
use crate::error::ImportError;

/// Maximum number of nodes of a graph.
pub(crate) const NODES_MAX: usize = 10_000;
/// Maximum number of constants, of inputs and of outputs of a graph.
const VALUES_MAX: usize = 10_000;
/// Maximum number of inputs, of outputs and of attributes of a node.
const PARTS_MAX: usize = 1024;
/// Maximum number of elements of a list of integers whose shape matters.
const INTEGERS_MAX: usize = 1 << 20;
/// Maximum number of axes of a tensor whose shape matters.
pub(crate) const AXES_MAX: usize = 8;
/// Maximum number of elements of a list.
pub(crate) const LIST_MAX: usize = 1 << 25;

/// A graph. Nodes follow those that they depend on.
#[derive(Debug)]
pub(crate) struct Graph<'a> {
    pub nodes: Vec<Node<'a>>,
    pub constants: HashMap<&'a str, Tensor<'a>>,
    pub inputs: Vec<Input<'a>>,
    pub outputs: Vec<&'a str>,
    /// The version of the operators of the main domain; 0 if it is not said.
    pub opset: i64,
}

/// An input of a graph.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    pub name: &'a str,
    /// The type of its elements, if it is a tensor.
    pub element: Option<i64>,
    /// The number of its columns, if it has rows of a fixed length.
    pub columns: Option<i64>,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    /// Its place in the graph.
    pub index: usize,
    pub operator: &'a str,
    pub domain: &'a str,
    /// Empty texts are inputs that are left out.
    pub inputs: Vec<&'a str>,
    pub outputs: Vec<&'a str>,
    /// Their names and messages.
    pub attributes: Vec<(&'a str, Bytes<'a>)>,
}

/// A tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor<'a> {
    pub message: Bytes<'a>,
    pub element: i64,
    raw: Option<Bytes<'a>>,
}

/// Types of elements of tensors.
pub(crate) mod element {
    pub const FLOAT: i64 = 1;
    pub const UINT8: i64 = 2;
    pub const INT32: i64 = 6;
    pub const INT64: i64 = 7;
    pub const STRING: i64 = 8;
    pub const BOOL: i64 = 9;
    pub const DOUBLE: i64 = 11;
}

/// Reads the graph of a model.
///
/// # Errors
/// A damaged file, or one that exceeds a bound.
pub(crate) fn read(file: &[u8]) -> Result<Graph<'_>, ImportError> {
    let file = Bytes::new(file);
    let (mut graph, mut opset) = (None, 0);
    for field in file.fields() {
        match field? {
            (7, value) => graph = Some(value.bytes(file)?),
            (8, value) => {
                let import = value.bytes(file)?;
                if matches!(name(import, 1)?, "" | "ai.onnx") {
                    opset = import.list::<i64>(2, 1)?.first().copied().unwrap_or(0);
                }
            }
            _ => {}
        }
    }
    let graph = graph.ok_or_else(|| file.problem("the file is not an ONNX model: it has no graph"))?;
    Ok(Graph { opset, ..Graph::read(graph)? })
}

impl<'a> Graph<'a> {
    fn read(message: Bytes<'a>) -> Result<Self, ImportError> {
        let (nodes, constants, inputs, outputs) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        let mut graph = Self { nodes, constants, inputs, outputs, opset: 0 };
        for field in message.fields() {
            let (number, value) = field?;
            match number {
                1 => {
                    bounded(message, "nodes", graph.nodes.len(), NODES_MAX)?;
                    graph.nodes.push(Node::read(value.bytes(message)?, graph.nodes.len())?);
                }
                5 => {
                    bounded(message, "constants", graph.constants.len(), VALUES_MAX)?;
                    let (name, tensor) = Tensor::read(value.bytes(message)?)?;
                    graph.constants.insert(name, tensor);
                }
                11 => {
                    bounded(message, "inputs", graph.inputs.len(), VALUES_MAX)?;
                    graph.inputs.push(Input::read(value.bytes(message)?)?);
                }
                12 => {
                    bounded(message, "outputs", graph.outputs.len(), VALUES_MAX)?;
                    graph.outputs.push(Input::read(value.bytes(message)?)?.name);
                }
                15 => return Err(message.problem("sparse constants are not supported")),
                _ => {}
            }
        }
        // Older models list their constants among the inputs.
        graph.inputs.retain(|input| !graph.constants.contains_key(input.name));
        Ok(graph)
    }
}

impl<'a> Input<'a> {
    /// Reads a `ValueInfoProto`: its name, and what its type says of a tensor.
    fn read(message: Bytes<'a>) -> Result<Self, ImportError> {
        let mut input = Self { name: "", element: None, columns: None };
        for field in message.fields() {
            match field? {
                (1, value) => input.name = value.bytes(message)?.text()?,
                (2, value) => {
                    for field in value.bytes(message)?.fields() {
                        if let (1, tensor) = field? {
                            input.read_tensor(tensor.bytes(message)?)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(input)
    }

    /// Reads the type of a tensor.
    fn read_tensor(&mut self, tensor: Bytes<'a>) -> Result<(), ImportError> {
        for field in tensor.fields() {
            match field? {
                (1, value) => self.element = Some(value.integer(tensor)?),
                (2, shape) => {
                    let mut dims = Vec::new();
                    for field in shape.bytes(tensor)?.fields() {
                        if let (1, dim) = field? {
                            bounded(tensor, "dimensions", dims.len(), PARTS_MAX)?;
                            dims.push(dim.bytes(tensor)?.list::<i64>(1, 1)?.first().copied());
                        }
                    }
                    self.columns = if let [_, columns] = dims.as_slice() { *columns } else { None };
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl<'a> Node<'a> {
    fn read(message: Bytes<'a>, index: usize) -> Result<Self, ImportError> {
        let (inputs, outputs, attributes) = (Vec::new(), Vec::new(), Vec::new());
        let mut node = Self { index, operator: "", domain: "", inputs, outputs, attributes };
        for field in message.fields() {
            let (number, value) = field?;
            match number {
                1 => {
                    bounded(message, "inputs", node.inputs.len(), PARTS_MAX)?;
                    node.inputs.push(value.bytes(message)?.text()?);
                }
                2 => {
                    bounded(message, "outputs", node.outputs.len(), PARTS_MAX)?;
                    node.outputs.push(value.bytes(message)?.text()?);
                }
                4 => node.operator = value.bytes(message)?.text()?,
                5 => {
                    bounded(message, "attributes", node.attributes.len(), PARTS_MAX)?;
                    let attribute = value.bytes(message)?;
                    node.attributes.push((name(attribute, 1)?, attribute));
                }
                7 => node.domain = value.bytes(message)?.text()?,
                _ => {}
            }
        }
        Ok(node)
    }

    /// The error of a part of this node.
    pub fn problem(&self, part: &str, problem: impl Into<String>) -> ImportError {
        let operator = self.operator.chars().take(64).collect();
        ImportError::Node { node: self.index, operator, part: part.to_owned(), problem: problem.into() }
    }

    fn attribute(&self, name: &str) -> Option<Bytes<'a>> {
        self.attributes.iter().find(|(other, _)| *other == name).map(|(_, attribute)| *attribute)
    }

    /// The elements of a list, empty if there is none.
    pub fn list<T: AttributeElement>(&self, name: &str, max: usize) -> Result<Vec<T>, ImportError> {
        let Some(attribute) = self.attribute(name) else { return Ok(Vec::new()) };
        attribute.list(T::LIST, max).map_err(|error| self.problem(name, error.to_string()))
    }

    /// The value of an attribute with one, if there is one.
    pub fn value<T: AttributeElement>(&self, name: &str) -> Result<Option<T>, ImportError> {
        let Some(attribute) = self.attribute(name) else { return Ok(None) };
        let mut values = attribute.list(T::SINGLE, 1).map_err(|error| self.problem(name, error.to_string()))?;
        Ok(values.pop())
    }

    /// The texts of a list, empty if there is none.
    pub fn texts(&self, name: &str, max: usize) -> Result<Vec<&'a str>, ImportError> {
        let Some(attribute) = self.attribute(name) else { return Ok(Vec::new()) };
        texts(attribute, max).map_err(|error| self.problem(name, error.to_string()))
    }

    /// The value of an attribute with a text; empty if there is none.
    pub fn text(&self, name: &str) -> Result<&'a str, ImportError> {
        let Some(attribute) = self.attribute(name) else { return Ok("") };
        self::name(attribute, 4)
    }

    /// The tensor of an attribute.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor<'a>>, ImportError> {
        let Some(attribute) = self.attribute(name) else { return Ok(None) };
        for field in attribute.fields() {
            if let (5, value) = field? {
                return Ok(Some(Tensor::read(value.bytes(attribute)?)?.1));
            }
        }
        Ok(None)
    }

    /// The numbers of a list of f32, or of the tensor `NAME_as_tensor`.
    pub fn numbers(&self, name: &str, max: usize) -> Result<Vec<f64>, ImportError> {
        match self.tensor(&format!("{name}_as_tensor"))? {
            Some(tensor) => tensor.numbers(max),
            None => Ok(self.list::<f32>(name, max)?.into_iter().map(f64::from).collect()),
        }
    }
}

/// An element of attributes.
pub(crate) trait AttributeElement: Element {
    /// The field of a single value.
    const SINGLE: u64;
    /// The field of a list.
    const LIST: u64;
}

impl AttributeElement for f32 {
    const SINGLE: u64 = 2;
    const LIST: u64 = 7;
}

impl AttributeElement for i64 {
    const SINGLE: u64 = 3;
    const LIST: u64 = 8;
}

impl<'a> Tensor<'a> {
    /// Name and tensor.
    pub fn read(message: Bytes<'a>) -> Result<(&'a str, Self), ImportError> {
        let mut tensor = Self { message, element: 0, raw: None };
        let mut name = "";
        for field in message.fields() {
            match field? {
                (2, value) => tensor.element = value.integer(message)?,
                (8, value) => name = value.bytes(message)?.text()?,
                (9, value) => tensor.raw = Some(value.bytes(message)?),
                (13, _) | (14, Value::Varint(1)) => {
                    return Err(message.problem("constants in other files are not supported"));
                }
                _ => {}
            }
        }
        Ok((name, tensor))
    }

    pub fn has_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// The length of each axis.
    ///
    /// # Errors
    /// Lengths that are not those of the elements, or an axis of length 0.
    pub fn shape(&self) -> Result<Vec<usize>, ImportError> {
        let dims: Vec<i64> = self.message.list(1, AXES_MAX)?;
        let dims = dims.into_iter().map(|dim| usize::try_from(dim).ok().filter(|dim| *dim > 0));
        let dims: Option<Vec<usize>> = dims.collect();
        let dims = dims.ok_or_else(|| self.message.problem("an axis of a tensor has no entries"))?;
        let count = dims.iter().try_fold(1_usize, |count, dim| count.checked_mul(*dim));
        let size = match self.element {
            element::UINT8 | element::BOOL => 1,
            element::FLOAT | element::INT32 => 4,
            _ => 8,
        };
        let held = match self.raw {
            Some(raw) if raw.raw().len().is_multiple_of(size) => raw.raw().len() / size,
            // Integers that are not raw take several times the bytes of the file.
            _ if matches!(self.element, element::FLOAT | element::DOUBLE) => self.numbers(LIST_MAX)?.len(),
            _ => self.numbers(INTEGERS_MAX)?.len(),
        };
        if count != Some(held) {
            return Err(self
                .message
                .problem(format!("a tensor has {held} elements, which are not those of its shape")));
        }
        Ok(dims)
    }

    /// The elements of a tensor of numbers.
    pub fn numbers(&self, max: usize) -> Result<Vec<f64>, ImportError> {
        match (self.element, self.raw) {
            (element::FLOAT, None) => Ok(self.message.list::<f32>(4, max)?.into_iter().map(f64::from).collect()),
            (element::DOUBLE, None) => self.message.list(10, max),
            (element::FLOAT, Some(raw)) => self.chunks(raw, max, |bytes| f64::from(f32::from_le_bytes(bytes))),
            (element::DOUBLE, Some(raw)) => self.chunks(raw, max, f64::from_le_bytes),
            _ => Ok(self.integers(max)?.into_iter().map(|integer| integer as f64).collect()),
        }
    }

    /// The elements of a tensor of integers.
    pub fn integers(&self, max: usize) -> Result<Vec<i64>, ImportError> {
        match (self.element, self.raw) {
            (element::INT64, None) => self.message.list(7, max),
            (element::INT32 | element::UINT8 | element::BOOL, None) => self.message.list(5, max),
            (element::INT64, Some(raw)) => self.chunks(raw, max, i64::from_le_bytes),
            (element::INT32, Some(raw)) => self.chunks(raw, max, |bytes| i64::from(i32::from_le_bytes(bytes))),
            (element::UINT8 | element::BOOL, Some(raw)) => self.chunks(raw, max, |[byte]| i64::from(byte)),
            (other, _) => Err(self.message.problem(format!("a tensor has elements of the type {other}, not numbers"))),
        }
    }

    fn chunks<const N: usize, T>(
        &self,
        raw: Bytes<'_>,
        max: usize,
        read: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, ImportError> {
        let (chunks, []) = raw.raw().as_chunks() else {
            return Err(self.message.problem("the bytes of a tensor are not whole elements"));
        };
        if chunks.len() > max {
            return Err(self.message.problem(format!("a tensor has more than {max} elements")));
        }
        Ok(chunks.iter().map(|bytes| read(*bytes)).collect())
    }
}

/// The text in the first field with this number; empty if there is none.
fn name(message: Bytes<'_>, wanted: u64) -> Result<&str, ImportError> {
    for field in message.fields() {
        let (number, value) = field?;
        if number == wanted {
            return value.bytes(message)?.text();
        }
    }
    Ok("")
}

/// The texts of an attribute with a list of them.
fn texts(attribute: Bytes<'_>, max: usize) -> Result<Vec<&str>, ImportError> {
    let mut texts = Vec::new();
    for field in attribute.fields() {
        if let (9, value) = field? {
            bounded(attribute, "texts", texts.len(), max)?;
            texts.push(value.bytes(attribute)?.text()?);
        }
    }
    Ok(texts)
}

/// Checks that one more of something fits.
fn bounded(message: Bytes<'_>, what: &str, count: usize, max: usize) -> Result<(), ImportError> {
    if count < max { Ok(()) } else { Err(message.problem(format!("there are more than {max} {what}"))) }
}
