//! Checks of the parameters of an operator, with errors that name its node and field.

use super::Schema;
use crate::error::PipelineError;
use crate::limits::{DICTIONARY_MAX, HASH_BITS_MAX, INLINE_MAX, NAME_BYTES_MAX};
use crate::objects::ObjectId;
use crate::spec::FitDictionary;

/// A node with the names and types of its inputs.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    pub node: &'a str,
    pub inputs: &'a [(&'a str, Schema)],
    pub input_field: &'a str,
}

impl Check<'_> {
    fn refuse(self, field: &str, problem: impl Into<String>) -> Result<(), PipelineError> {
        Err(PipelineError::parameter(self.node, field, problem))
    }

    pub fn that(self, holds: bool, field: &str, problem: &str) -> Result<(), PipelineError> {
        if holds { Ok(()) } else { self.refuse(field, problem) }
    }

    pub fn length(self, field: &str, length: usize, min: usize, max: usize) -> Result<(), PipelineError> {
        if (min..=max).contains(&length) {
            return Ok(());
        }
        self.refuse(field, format!("{length} is not from {min} to {max}"))
    }

    pub fn name(self, field: &str, name: &str) -> Result<(), PipelineError> {
        self.length(field, name.len(), 1, NAME_BYTES_MAX)
    }

    pub fn positive(self, field: &str, number: f64) -> Result<(), PipelineError> {
        self.that(number.is_finite() && number > 0.0, field, "is no finite number above 0")
    }

    pub fn hash_bits(self, bits: u32) -> Result<(), PipelineError> {
        self.length("hash_bits", bits as usize, 1, HASH_BITS_MAX as usize)
    }

    pub fn edges(self, edges: &[f64]) -> Result<(), PipelineError> {
        self.length("edges", edges.len(), 1, INLINE_MAX)?;
        let ascending = edges.windows(2).all(|pair| pair[0] < pair[1]);
        self.that(ascending && edges.iter().all(|edge| edge.is_finite()), "edges", "are not finite and ascending")
    }

    pub fn range(self, field: &str, range: [u8; 2], max: usize) -> Result<[usize; 2], PipelineError> {
        let [least, most] = range.map(usize::from);
        if 1 <= least && least <= most && most <= max {
            return Ok([least, most]);
        }
        Err(PipelineError::parameter(self.node, field, format!("is no range within 1 to {max}")))
    }

    pub fn fit_dictionary(self, fit: Option<FitDictionary>) -> Result<(), PipelineError> {
        match fit {
            Some(fit) => self.length("fit.max_size", fit.max_size as usize, 1, DICTIONARY_MAX),
            None => Ok(()),
        }
    }

    pub fn count(self, min: usize, max: usize) -> Result<(), PipelineError> {
        if (min..=max).contains(&self.inputs.len()) {
            return Ok(());
        }
        self.refuse(self.input_field, format!("there are {} inputs, not {min} to {max}", self.inputs.len()))
    }

    pub fn each_takes(self, expected: &str, takes: impl Fn(Schema) -> bool) -> Result<(), PipelineError> {
        match self.inputs.iter().find(|(_, schema)| !takes(*schema)) {
            None => Ok(()),
            Some((input, received)) => Err(PipelineError::TypeMismatch {
                node: self.node.to_owned(),
                field: self.input_field.to_owned(),
                input: (*input).to_owned(),
                expected: expected.to_owned(),
                received: received.to_string(),
            }),
        }
    }

    /// The type of the only input.
    pub fn takes(self, expected: &str, takes: impl Fn(Schema) -> bool) -> Result<Schema, PipelineError> {
        self.each_takes(expected, takes)?;
        match self.inputs {
            [(_, schema)] => Ok(*schema),
            inputs => {
                let problem = format!("there are {} inputs, not 1", inputs.len());
                Err(PipelineError::parameter(self.node, self.input_field, problem))
            }
        }
    }

    pub fn shape(self, field: &str, id: ObjectId, received: &str, expected: &str) -> PipelineError {
        let (node, field) = (self.node.to_owned(), field.to_owned());
        PipelineError::WrongShape { node, field, id, problem: format!("{received}, needed is {expected}") }
    }

    pub fn same(self, field: &str, id: ObjectId, what: &str, counts: (usize, usize)) -> Result<(), PipelineError> {
        let (expected, received) = counts;
        if expected == received {
            return Ok(());
        }
        Err(self.shape(field, id, &format!("{received} {what}"), &format!("{expected}")))
    }

    /// Whether an object has the columns of the input, as far as they are known.
    pub fn columns(self, field: &str, id: ObjectId, input: Schema, columns: usize) -> Result<(), PipelineError> {
        match input.columns() {
            Some(expected) => self.same(field, id, "columns", (expected as usize, columns)),
            None => Ok(()),
        }
    }
}
