//! Nodes and objects of the pipeline that a model becomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Imported;
use crate::limits::{INPUTS_MAX, NAME_BYTES_MAX, OBJECT_BYTES_MAX};
use crate::objects::{Content, ObjectId};
use crate::spec::{Concat, Field, FieldType, Operator, Side, Trees};
use crate::trees::TreeEnsemble;

/// Columns that are fields.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fields {
    /// `item.NAME` or `context.NAME`.
    pub names: Vec<String>,
    pub content: Column,
}

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Numbers,
    Integers,
    Booleans,
    Texts,
    /// Texts in lower case.
    LowerTexts,
}

/// The node of a vector.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Numbers {
    pub node: String,
    pub dim: usize,
    pub form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A number instead of a vector.
    Single,
    Dense,
    Sparse,
}

/// Collects nodes and objects.
#[derive(Debug, Default)]
pub(super) struct Emitter {
    nodes: BTreeMap<String, Operator>,
    objects: BTreeMap<ObjectId, Vec<u8>>,
    /// Length of all objects.
    bytes: usize,
    notes: Vec<String>,
    /// The nodes of fields, by name and type.
    fields: BTreeMap<(String, &'static str), String>,
}

impl Emitter {
    /// Checks the name of a field.
    pub fn check_field(name: &str) -> Result<(Side, &str), String> {
        let sides = [Side::Item, Side::Context];
        let parts = name.split_once('.').and_then(|(side, field)| {
            let side = sides.into_iter().find(|other| other.name() == side)?;
            (1..=NAME_BYTES_MAX).contains(&field.len()).then_some((side, field))
        });
        parts.ok_or_else(|| format!("{:?} is not item.NAME or context.NAME", name.chars().take(64).collect::<String>()))
    }

    /// Adds a node, and returns its name: that of its operator with the index of the part of the model that it stands
    /// for.
    pub fn add(&mut self, index: usize, operator: Operator) -> String {
        self.add_named(&format!("{}_{index}", operator.name()), operator)
    }

    fn add_named(&mut self, name: &str, operator: Operator) -> String {
        let mut unique = name.to_owned();
        for number in 2.. {
            if !self.nodes.contains_key(&unique) {
                break;
            }
            unique = format!("{name}_{number}");
        }
        self.nodes.insert(unique.clone(), operator);
        unique
    }

    /// The number of nodes so far.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Adds an object, and returns its name.
    ///
    /// # Errors
    /// More bytes of objects than [`OBJECT_BYTES_MAX`].
    pub fn object(&mut self, content: &Content) -> Result<ObjectId, String> {
        let bytes = content.encode();
        let id = ObjectId::of(&bytes);
        self.bytes += bytes.len();
        if self.bytes > OBJECT_BYTES_MAX {
            return Err(format!("the objects have more than {OBJECT_BYTES_MAX} bytes"));
        }
        self.objects.insert(id, bytes);
        Ok(id)
    }

    /// Adds a sentence about a difference from the model, once.
    pub fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Whether a vector may have missing values: those of fields, which nothing has replaced.
    pub fn may_be_missing(&self, node: &str) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![node]);
        while let Some(name) = open.pop() {
            match self.nodes.get(name) {
                Some(Operator::Field(_)) => return true,
                Some(Operator::Concat(concat)) if seen.insert(name) => {
                    open.extend(concat.inputs.iter().map(String::as_str));
                }
                _ => {}
            }
        }
        false
    }

    /// The node of a field that was checked.
    pub fn field(&mut self, name: &str, kind: FieldType) -> Result<String, String> {
        let suffix = match kind {
            FieldType::Number | FieldType::Numbers => "number",
            FieldType::Boolean => "boolean",
            FieldType::Category | FieldType::Texts => "category",
            FieldType::Text => "text",
        };
        let key = (name.to_owned(), suffix);
        if let Some(node) = self.fields.get(&key) {
            return Ok(node.clone());
        }
        let (of, field) = Self::check_field(name)?;
        let operator = Operator::Field(Field { of, name: field.to_owned(), kind, dim: None });
        let node = self.add_named(&format!("{suffix}_{}", self.fields.len()), operator);
        self.fields.insert(key, node.clone());
        Ok(node)
    }

    /// The node of a field with a list of `dim` numbers.
    pub fn list(&mut self, name: &str, dim: u32) -> Result<String, String> {
        let (of, field) = Self::check_field(name)?;
        if of == Side::Context {
            return Err(format!("{name} cannot be a list of numbers: a context has none"));
        }
        let operator = Operator::Field(Field { of, name: field.to_owned(), kind: FieldType::Numbers, dim: Some(dim) });
        Ok(self.add_named("numbers", operator))
    }

    /// The vector of fields with numbers.
    pub fn fields(&mut self, fields: &Fields, name: &str) -> Result<Numbers, String> {
        let kind = match fields.content {
            Column::Numbers | Column::Integers => FieldType::Number,
            Column::Booleans => FieldType::Boolean,
            Column::Texts | Column::LowerTexts => {
                return Err("the fields are texts, where numbers are needed".to_owned());
            }
        };
        let nodes: Vec<String> = fields.names.iter().map(|field| self.field(field, kind)).collect::<Result<_, _>>()?;
        match <[String; 1]>::try_from(nodes) {
            Ok([node]) => Ok(Numbers { node, dim: 1, form: Form::Single }),
            Err(nodes) => {
                let dim = nodes.len();
                Ok(Numbers { node: self.concat(name, nodes), dim, form: Form::Dense })
            }
        }
    }

    /// The name of a node with a vector where a single number is not allowed.
    pub fn vector(&mut self, numbers: &Numbers) -> String {
        match numbers.form {
            Form::Single => self.concat("vector", vec![numbers.node.clone()]),
            Form::Dense | Form::Sparse => numbers.node.clone(),
        }
    }

    /// Concatenates any number of inputs: one node has at most `INPUTS_MAX`.
    pub fn concat(&mut self, name: &str, mut inputs: Vec<String>) -> String {
        while inputs.len() > INPUTS_MAX {
            let group = |emitter: &mut Self, inputs: &[String]| {
                emitter.add_named(name, Operator::Concat(Concat { inputs: inputs.to_vec() }))
            };
            inputs = inputs.chunks(INPUTS_MAX).map(|inputs| group(self, inputs)).collect();
        }
        self.add_named(name, Operator::Concat(Concat { inputs }))
    }

    /// Adds an ensemble over a vector, for the part `index` of the model.
    pub fn trees(&mut self, index: usize, input: &Numbers, ensemble: TreeEnsemble) -> Result<String, String> {
        let ensemble = self.object(&Content::Trees(Arc::new(ensemble)))?;
        Ok(self.add(index, Operator::Trees(Trees { input: input.node.clone(), ensemble })))
    }

    /// The nodes that `output` depends on: a pipeline has no others. An input that is not needed may have left one.
    pub fn finish(mut self, output: String) -> Imported {
        let mut needed = BTreeSet::new();
        let mut open = vec![output.clone()];
        while let Some(name) = open.pop() {
            if let Some(operator) = self.nodes.get(&name).filter(|_| !needed.contains(&name)) {
                open.extend_from_slice(operator.inputs());
                needed.insert(name);
            }
        }
        self.nodes.retain(|name, _| needed.contains(name));
        Imported { nodes: self.nodes, output, objects: self.objects, notes: self.notes }
    }
}
