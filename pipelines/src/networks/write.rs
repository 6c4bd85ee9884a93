//! Graphs as bytes: a model of ONNX with the fields that a run needs and no others.
//!
//! What is written for a graph that was read from these bytes is the same bytes, so that every graph has one encoding. A
//! field that this module does not write cannot be in an object, whatever other readers would make of it.

use crate::error::ImportError;
use crate::onnx::model::{Node, Tensor, element};
use crate::onnx::wire::{Bytes, Value};

/// The version of the file format that is written.
const IR_VERSION: u64 = 8;

/// The parts of a graph.
pub struct Parts<'a> {
    pub nodes: Vec<&'a Node<'a>>,
    /// In the order of their names.
    pub constants: Vec<(&'a str, Tensor<'a>)>,
    /// Names and numbers of columns of the inputs, which are rows of f32.
    pub inputs: Vec<(&'a str, usize)>,
    pub output: &'a str,
    pub opset: i64,
}

/// A message that grows.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn varint(mut self, field: u64, number: u64) -> Self {
        self.number(field << 3);
        self.number(number);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.number(field << 3 | 2);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    fn value(mut self, field: u64, value: Value<'_>) -> Self {
        match value {
            Value::Varint(number) => self.varint(field, number),
            Value::Bytes(bytes) => self.bytes(field, bytes.raw()),
            Value::Fixed32(bytes) => {
                self.number(field << 3 | 5);
                self.0.extend_from_slice(&bytes);
                self
            }
            Value::Fixed64(bytes) => {
                self.number(field << 3 | 1);
                self.0.extend_from_slice(&bytes);
                self
            }
        }
    }
}

/// Fields of attributes: a number, an integer, a text, a tensor, lists of numbers and of integers, the type.
mod attribute {
    pub const NAME: u64 = 1;
    pub const SINGLE: [u64; 4] = [2, 3, 4, 20];
    pub const TENSOR: u64 = 5;
    pub const LISTS: [u64; 2] = [7, 8];
}

/// Fields of tensors: lengths of axes, type, lists of elements, name, elements as raw bytes.
mod tensor {
    pub const TYPE: u64 = 2;
    pub const DIMS: u64 = 1;
    pub const FLOATS: u64 = 4;
    pub const INT32S: u64 = 5;
    pub const INT64S: u64 = 7;
    pub const DOUBLES: u64 = 10;
    pub const NAME: u64 = 8;
    pub const RAW: u64 = 9;
}

/// The bytes of a model.
///
/// # Errors
/// A field that occurs twice, or an element type that is not supported.
pub fn model(parts: &Parts<'_>) -> Result<Vec<u8>, ImportError> {
    let mut graph = Message::default();
    for node in &parts.nodes {
        graph = graph.message(1, &self::node(node)?);
    }
    for (name, constant) in &parts.constants {
        graph = graph.message(5, &tensor(Some(name), *constant)?);
    }
    for (name, columns) in &parts.inputs {
        let dim = |length: usize| Message::default().varint(1, length as u64);
        let shape = Message::default().message(1, &dim(1)).message(1, &dim(*columns));
        let kind = Message::default().varint(1, element::FLOAT as u64).message(2, &shape);
        let kind = Message::default().message(1, &kind);
        graph = graph.message(11, &Message::default().bytes(1, name.as_bytes()).message(2, &kind));
    }
    graph = graph.message(12, &Message::default().bytes(1, parts.output.as_bytes()));
    let opset = Message::default().bytes(1, b"").varint(2, parts.opset.cast_unsigned());
    Ok(Message::default().varint(1, IR_VERSION).message(7, &graph).message(8, &opset).0)
}

fn node(node: &Node<'_>) -> Result<Message, ImportError> {
    let mut message = Message::default();
    for input in &node.inputs {
        message = message.bytes(1, input.as_bytes());
    }
    for output in &node.outputs {
        message = message.bytes(2, output.as_bytes());
    }
    message = message.bytes(4, node.operator.as_bytes());
    for (at, (name, attribute)) in node.attributes.iter().enumerate() {
        if node.attributes[..at].iter().any(|(other, _)| other == name) {
            return Err(node.problem(name, "the attribute is given twice"));
        }
        message = message.message(5, &self::attribute(name, *attribute)?);
    }
    Ok(message)
}

fn attribute(name: &str, attribute: Bytes<'_>) -> Result<Message, ImportError> {
    let mut message = Message::default().bytes(attribute::NAME, name.as_bytes());
    let mut seen = 0_u32;
    for field in attribute.fields() {
        let (number, value) = field?;
        if attribute::SINGLE.contains(&number) {
            once(attribute, &mut seen, number)?;
            message = message.value(number, value);
        } else if attribute::LISTS.contains(&number) {
            message = message.value(number, value);
        } else if number == attribute::TENSOR {
            once(attribute, &mut seen, number)?;
            let (_, read) = Tensor::read(value.bytes(attribute)?)?;
            message = message.message(number, &tensor(None, read)?);
        }
    }
    Ok(message)
}

/// A tensor, without its name if it is the value of an attribute.
fn tensor(name: Option<&str>, constant: Tensor<'_>) -> Result<Message, ImportError> {
    use element::{BOOL, DOUBLE, FLOAT, INT32, INT64, UINT8};
    let from = constant.message;
    if ![FLOAT, DOUBLE, INT32, INT64, BOOL, UINT8].contains(&constant.element) {
        return Err(from.problem(format!("a constant has elements of the type {}, not numbers", constant.element)));
    }
    // The only list that is read. Readers would keep memory for others.
    let list = match constant.element {
        _ if constant.has_raw() => tensor::DIMS,
        FLOAT => tensor::FLOATS,
        DOUBLE => tensor::DOUBLES,
        INT64 => tensor::INT64S,
        _ => tensor::INT32S,
    };
    let mut message = Message::default();
    let mut seen = 0_u32;
    for field in from.fields() {
        let (number, value) = field?;
        if number == tensor::TYPE || number == tensor::RAW {
            once(from, &mut seen, number)?;
            message = message.value(number, value);
        } else if number == tensor::DIMS || number == list {
            message = message.value(number, value);
        }
    }
    Ok(name.into_iter().fold(message, |message, name| message.bytes(tensor::NAME, name.as_bytes())))
}

/// Readers differ in which of several values they take.
fn once(message: Bytes<'_>, seen: &mut u32, number: u64) -> Result<(), ImportError> {
    if *seen & 1 << number != 0 {
        return Err(message.problem(format!("the field {number} occurs twice")));
    }
    *seen |= 1 << number;
    Ok(())
}
