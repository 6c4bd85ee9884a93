//! From a graph to nodes of a pipeline.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::super::ImportError;
use super::super::emit::{Column, Emitter, Fields, Form, Numbers};
use super::cut::Cut;
use super::{ImportInputs, Imported, categories, cut, linear, numeric, shape, text, trees, trees_of_version_5};
use crate::limits::{DENSE_MAX, NODES_MAX};
use crate::networks;
use crate::objects::{Content, ObjectId};
use crate::onnx::model::{Graph, Node, Tensor, element};
use crate::trees::TreeEnsemble;

/// Maximum number of columns of a vector. A file of a few bytes can repeat columns, so that each is not a byte of the
/// file.
pub(super) const COLUMNS_MAX: usize = 1 << 22;
/// Maximum number of fields of all values of a graph together.
const FIELDS_MAX: usize = 1 << 18;

/// What an edge of the graph has become.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Columns that are fields, whose type depends on what they are used for.
    Fields(Fields),
    /// A vector of numbers.
    Numbers(Numbers),
    /// The tokens of a text.
    Tokens(Tokens),
    /// The predicted class of a classifier, for which pipelines have no value.
    Label,
}

/// The tokens of the field `field`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tokens {
    pub field: String,
    pub kind: TokenKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Words,
    /// Words of at least two characters.
    LongWords,
    Characters,
}

/// Converts the nodes that the output depends on.
pub(super) fn convert<'a>(graph: &'a Graph<'a>, inputs: &'a ImportInputs) -> Result<Imported, ImportError> {
    let last = graph.outputs.last().copied().unwrap_or_default();
    let output = inputs.output.as_deref().unwrap_or(last);
    if !graph.outputs.contains(&output) {
        return Err(unfit(output, format!("the model has no such output; it has {}", graph.outputs.join(", "))));
    }
    let needed = needed(graph, output)?;
    let opaque: Vec<&Node<'_>> =
        graph.nodes.iter().filter(|node| needed.contains(&node.index) && !is_known(node)).collect();
    if opaque.is_empty() {
        let before = (0..graph.nodes.len()).filter(|index| needed.contains(index)).collect();
        return convert_cut(graph, inputs, &Cut { before, whole: Vec::new(), after: Vec::new() }, output);
    }
    let refused: BTreeSet<&str> =
        opaque.iter().filter(|node| !networks::is_runnable(node)).map(|node| node.operator).collect();
    if !refused.is_empty() {
        let operators = refused.into_iter().map(|name| name.chars().take(64).collect()).collect();
        return Err(ImportError::Opaque { operators });
    }
    let opaque = opaque.into_iter().map(|node| node.index).collect();
    let mut problem = None;
    for cut in cut::cuts(graph, &needed, &opaque) {
        match convert_cut(graph, inputs, &cut, output) {
            Ok(imported) => return Ok(imported),
            // That of the finest cut names what is in the way of it.
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    Err(problem.unwrap_or_else(|| unfit(output, "no node gives it")))
}

/// Converts the nodes as they are cut.
fn convert_cut<'a>(
    graph: &'a Graph<'a>,
    inputs: &ImportInputs,
    cut: &Cut,
    output: &'a str,
) -> Result<Imported, ImportError> {
    let mut converter =
        Converter { graph, values: HashMap::new(), fields: 0, constants: HashMap::new(), emitter: Emitter::default() };
    converter.read_inputs(&inputs.inputs)?;
    converter.nodes(&cut.before, output)?;
    cut::run_whole(&mut converter, cut, output)?;
    converter.nodes(&cut.after, output)?;
    let value = converter.values.remove(output).ok_or_else(|| unfit(output, "no node and no input gives it"))?;
    let output = match value {
        Value::Label => return Err(unfit(output, "it is the label of a classifier; import its scores")),
        Value::Tokens(_) => return Err(unfit(output, "it is a list of tokens, not of numbers")),
        Value::Fields(fields) => {
            let numbers = converter.emitter.fields(&fields, "fields").map_err(|problem| unfit(output, problem))?;
            converter.emitter.vector(&numbers)
        }
        Value::Numbers(numbers) => numbers.node,
    };
    Ok(converter.emitter.finish(output))
}

pub(super) fn unfit(name: &str, problem: impl Into<String>) -> ImportError {
    ImportError::Graph { name: name.chars().take(64).collect(), problem: problem.into() }
}

/// The indices of the nodes that `output` depends on.
fn needed(graph: &Graph<'_>, output: &str) -> Result<HashSet<usize>, ImportError> {
    let mut origins: HashMap<&str, usize> = HashMap::new();
    for node in &graph.nodes {
        for name in node.outputs.iter().filter(|name| !name.is_empty()) {
            if origins.insert(name, node.index).is_some() {
                return Err(node.problem(name, "another node has the same output"));
            }
        }
    }
    let mut needed = HashSet::new();
    let mut open = vec![output];
    while let Some(name) = open.pop() {
        let Some(index) = origins.get(name) else { continue };
        if needed.insert(*index) {
            open.extend(&graph.nodes[*index].inputs);
        }
    }
    Ok(needed)
}

/// Whether [`Converter::node`] converts the operator.
fn is_known(node: &Node<'_>) -> bool {
    let names: &[&str] = match node.domain {
        "ai.onnx.ml" => &[
            "ArrayFeatureExtractor",
            "Binarizer",
            "FeatureVectorizer",
            "Imputer",
            "LabelEncoder",
            "LinearClassifier",
            "LinearRegressor",
            "Normalizer",
            "OneHotEncoder",
            "Scaler",
            "TreeEnsemble",
            "TreeEnsembleClassifier",
            "TreeEnsembleRegressor",
            "ZipMap",
        ],
        "" | "ai.onnx" => &[
            "Add",
            "Cast",
            "Concat",
            "Constant",
            "Div",
            "Exp",
            "Flatten",
            "Gather",
            "Identity",
            "Mul",
            "Reshape",
            "Sigmoid",
            "StringNormalizer",
            "Sub",
            "TfIdfVectorizer",
        ],
        "com.microsoft" => &["Tokenizer"],
        _ => &[],
    };
    names.contains(&node.operator)
}

/// The state of a conversion.
pub(super) struct Converter<'a> {
    graph: &'a Graph<'a>,
    values: HashMap<&'a str, Value>,
    /// Number of fields in `values`.
    fields: usize,
    /// The values of `Constant` nodes.
    constants: HashMap<&'a str, Tensor<'a>>,
    pub emitter: Emitter,
}

impl<'a> Converter<'a> {
    fn read_inputs(&mut self, inputs: &BTreeMap<String, Vec<String>>) -> Result<(), ImportError> {
        if let Some(name) = inputs.keys().find(|name| !self.graph.inputs.iter().any(|input| input.name == *name)) {
            let names: Vec<&str> = self.graph.inputs.iter().map(|input| input.name).take(64).collect();
            return Err(unfit(name, format!("the model has no such input; it has {}", names.join(", "))));
        }
        for input in &self.graph.inputs {
            let Some(names) = inputs.get(input.name) else { continue };
            if names.is_empty() || names.len() > DENSE_MAX {
                return Err(unfit(input.name, format!("an input has 1 to {DENSE_MAX} fields, got {}", names.len())));
            }
            for name in names {
                Emitter::check_field(name).map_err(|problem| unfit(input.name, problem))?;
            }
            let content = match input.element {
                Some(element::STRING) => Column::Texts,
                Some(element::INT32 | element::INT64 | element::UINT8) => Column::Integers,
                Some(element::BOOL) => Column::Booleans,
                Some(element::FLOAT | element::DOUBLE) => Column::Numbers,
                _ => return Err(unfit(input.name, "the elements of the input are neither numbers nor texts")),
            };
            let columns =
                input.columns.and_then(|columns| usize::try_from(columns).ok()).filter(|columns| *columns > 0);
            let value = match (columns, names.as_slice()) {
                (Some(dim @ 2..=DENSE_MAX), [name]) if content == Column::Numbers => {
                    let node = self.emitter.list(name, dim as u32).map_err(|problem| unfit(input.name, problem))?;
                    Value::Numbers(Numbers { node, dim, form: Form::Dense })
                }
                (Some(columns), names) if columns != names.len() => {
                    return Err(unfit(
                        input.name,
                        format!("the input has {columns} columns, got {} fields", names.len()),
                    ));
                }
                _ => Value::Fields(Fields { names: names.clone(), content }),
            };
            self.values.insert(input.name, value);
        }
        Ok(())
    }

    /// Converts the nodes of these indices, which `output` depends on.
    fn nodes(&mut self, indices: &[usize], output: &str) -> Result<(), ImportError> {
        let graph = self.graph;
        for index in indices {
            self.node(&graph.nodes[*index])?;
            if self.emitter.nodes() > NODES_MAX {
                return Err(unfit(
                    output,
                    format!("it needs more than the {NODES_MAX} nodes that a pipeline may have"),
                ));
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &Node<'a>) -> Result<(), ImportError> {
        let value = match node.operator {
            "Constant" => {
                let tensor = node.tensor("value")?;
                let tensor =
                    tensor.ok_or_else(|| node.problem("value", "only constants with a tensor are supported"))?;
                self.constants.insert(node.outputs.first().copied().unwrap_or_default(), tensor);
                return Ok(());
            }
            "TreeEnsembleRegressor" | "TreeEnsemble" | "TreeEnsembleClassifier" => self.ensemble(node)?,
            "LinearRegressor" => linear::regressor(self, node)?,
            "LinearClassifier" => linear::classifier(self, node)?,
            "Exp" | "Sigmoid" => linear::elementwise(self, node)?,
            "Scaler" => numeric::scaler(self, node)?,
            "Add" | "Sub" | "Mul" | "Div" => numeric::arithmetic(self, node)?,
            "Imputer" => numeric::imputer(self, node)?,
            "Normalizer" => numeric::normalizer(self, node)?,
            "Binarizer" => numeric::binarizer(self, node)?,
            "OneHotEncoder" => categories::one_hot(self, node)?,
            "LabelEncoder" => categories::label_encoder(self, node)?,
            "FeatureVectorizer" | "Concat" => shape::concat(self, node)?,
            "ArrayFeatureExtractor" | "Gather" => shape::extract(self, node)?,
            "Reshape" | "Flatten" => shape::reshape(self, node)?,
            "Cast" => shape::cast(self, node)?,
            "StringNormalizer" => text::normalizer(self, node)?,
            "Tokenizer" => text::tokenizer(self, node)?,
            "TfIdfVectorizer" => text::vectorizer(self, node)?,
            // The maps of `ZipMap` are the same scores with names.
            _ => self.value(node, 0)?,
        };
        if let Value::Fields(fields) = &value {
            self.fields += fields.names.len();
            if self.fields > FIELDS_MAX || fields.names.len() > DENSE_MAX {
                return Err(node.problem("input", "the graph arranges too many fields"));
            }
        }
        let is_classifier = matches!(node.operator, "LinearClassifier" | "TreeEnsembleClassifier");
        if let Some(name) = node.outputs.get(usize::from(is_classifier)) {
            self.values.insert(name, value);
        }
        if let Some(name) = node.outputs.first().filter(|_| is_classifier) {
            self.values.insert(name, Value::Label);
        }
        Ok(())
    }

    fn ensemble(&mut self, node: &Node<'a>) -> Result<Value, ImportError> {
        let input = self.numbers(node, 0)?;
        let ensemble = match node.operator {
            "TreeEnsembleRegressor" => trees::regressor(node, input.dim)?,
            "TreeEnsembleClassifier" => trees::classifier(node, input.dim)?,
            _ => trees_of_version_5::ensemble(node, input.dim)?,
        };
        let dim = ensemble.outputs();
        let node = self.trees(node, &input, ensemble)?;
        Ok(Value::Numbers(Numbers { node, dim, form: Form::Dense }))
    }

    pub fn graph(&self) -> &'a Graph<'a> {
        self.graph
    }

    /// What an edge of the graph has become.
    pub fn set(&mut self, name: &'a str, value: Value) {
        self.values.insert(name, value);
    }

    /// Adds the node of an ensemble.
    pub fn trees(&mut self, node: &Node<'a>, input: &Numbers, ensemble: TreeEnsemble) -> Result<String, ImportError> {
        self.emitter.trees(node.index, input, ensemble).map_err(|problem| node.problem("nodes", problem))
    }

    /// Adds an object of the pipeline.
    pub fn object(&mut self, node: &Node<'a>, content: &Content) -> Result<ObjectId, ImportError> {
        self.emitter.object(content).map_err(|problem| node.problem("input", problem))
    }

    /// The name of an input of a node.
    fn input(node: &Node<'a>, input: usize) -> Result<&'a str, ImportError> {
        let name = node.inputs.get(input).copied().filter(|name| !name.is_empty());
        name.ok_or_else(|| node.problem("input", format!("input {input} is missing")))
    }

    /// The value of an input.
    ///
    /// # Errors
    /// An input that is a constant, or that nothing gives.
    pub fn value(&self, node: &Node<'a>, input: usize) -> Result<Value, ImportError> {
        let name = Self::input(node, input)?;
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        if self.graph.inputs.iter().any(|input| input.name == name) {
            return Err(unfit(name, "no fields are given for this input of the model"));
        }
        Err(node.problem(name, "no earlier node gives this input"))
    }

    /// The vector of an input.
    pub fn numbers(&mut self, node: &Node<'a>, input: usize) -> Result<Numbers, ImportError> {
        let name = Self::input(node, input)?;
        match self.value(node, input)? {
            Value::Numbers(numbers) => Ok(numbers),
            Value::Fields(fields) => {
                let numbers = self.emitter.fields(&fields, &format!("fields_{}", node.index));
                numbers.map_err(|problem| node.problem(name, problem))
            }
            Value::Tokens(_) | Value::Label => Err(node.problem(name, "the input must be numbers")),
        }
    }

    /// The constant of an input, if it is one.
    pub fn constant(&self, node: &Node<'a>, input: usize) -> Result<Option<Tensor<'a>>, ImportError> {
        let name = Self::input(node, input)?;
        Ok(self.constants.get(name).or_else(|| self.graph.constants.get(name)).copied())
    }

    /// The integers of an input that must be constant.
    pub fn integers(&self, node: &Node<'a>, input: usize) -> Result<Vec<i64>, ImportError> {
        let constant = self.constant(node, input)?;
        let problem = || node.problem("input", format!("input {input} must be a constant"));
        constant.ok_or_else(problem)?.integers(DENSE_MAX)
    }
}
