//! Graphs of ONNX operators that no operator of ours stands for, run as a whole by `tract`.
//!
//! A graph is untrusted. Before the library reads it, this crate has read it, computed the shapes of all its values, and
//! bounded memory and work (`check`); it has no operator whose shapes depend on values, no control flow and no other
//! files. What the library refuses is an error; a row that it fails for has missing outputs.
//!
//! Each row is run by itself, so that a batch gives the same bits as its rows. Kernels are chosen by the processor: other
//! processors may give other last bits.

mod check;
mod shapes;
mod write;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tract_onnx::prelude::{
    Datum, Framework, InferenceModelExt, IntoRunnable, Tensor, TractError, TractResult, TypedFact, TypedRunnableModel,
    tvec,
};

use crate::error::ImportError;
use crate::limits::DENSE_MAX;
use crate::values::bounded;

pub(crate) use check::is_runnable;
pub(crate) use write::{Parts, model};

/// A graph with its plan.
pub struct Network {
    /// A model of ONNX.
    bytes: Box<[u8]>,
    columns: check::Columns,
    plan: Arc<TypedRunnableModel>,
}

impl Network {
    /// # Errors
    /// Bytes that are not those of a graph within the bounds, in the form in which an import writes it, or that cannot be
    /// run.
    pub fn new(bytes: Vec<u8>) -> Result<Self, ImportError> {
        let columns = check::check(&bytes)?;
        let plan = catch_unwind(AssertUnwindSafe(|| plan(&bytes, &columns)));
        let plan = plan.unwrap_or_else(|_| Err(check::whole("the library that runs graphs fails on it")))?;
        Ok(Self { bytes: bytes.into(), columns, plan })
    }

    /// The canonical bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of columns of each input.
    #[must_use]
    pub fn inputs(&self) -> &[usize] {
        &self.columns.inputs
    }

    /// Number of columns of the output.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.columns.outputs
    }

    /// Appends the outputs for a row, the columns of all inputs one after the other. All are missing if the graph fails.
    pub fn run(&self, row: &[f32], outputs: &mut Vec<f32>) {
        let begin = outputs.len();
        let result = catch_unwind(AssertUnwindSafe(|| self.outputs_of(row)));
        if let Ok(Ok(output)) = result
            && let Ok(numbers) = output.to_plain_array_view::<f32>()
            && numbers.len() == self.columns.outputs
        {
            outputs.extend(numbers.iter().map(|number| bounded(f64::from(*number))));
            return;
        }
        outputs.resize(begin + self.columns.outputs, f32::NAN);
    }

    fn outputs_of(&self, row: &[f32]) -> TractResult<Tensor> {
        let mut inputs = tvec![];
        let mut begin = 0;
        for columns in &self.columns.inputs {
            inputs.push(Tensor::from_shape(&[1, *columns], &row[begin..begin + columns])?.into());
            begin += columns;
        }
        let outputs = self.plan.run(inputs)?;
        Ok(outputs[0].cast_to::<f32>()?.into_owned())
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_struct("Network").field("bytes", &self.bytes.len()).field("columns", &self.columns).finish()
    }
}

/// Makes the plan of a graph that was checked.
fn plan(bytes: &[u8], columns: &check::Columns) -> Result<Arc<TypedRunnableModel>, ImportError> {
    let refused = |error: TractError| {
        let causes: Vec<String> = error.chain().map(|cause| cause.to_string().chars().take(200).collect()).collect();
        check::whole(format!("it cannot be run: {}", causes.join(": ")))
    };
    let mut bytes = bytes;
    let typed = tract_onnx::onnx().model_for_read(&mut bytes).and_then(|model| model.into_typed()).map_err(refused)?;
    // The library must have found what this crate has: shapes of the same sizes.
    let count = |fact: &TypedFact| fact.shape.as_concrete().map(shapes::volume);
    for output in typed.nodes.iter().flat_map(|node| &node.outputs).filter(|output| output.fact.konst.is_none()) {
        if count(&output.fact).is_none_or(|count| count > columns.elements.max(DENSE_MAX)) {
            return Err(check::whole("a value is larger than its shape allows"));
        }
    }
    let output = typed.output_fact(0).map_err(refused)?;
    let kinds = [f32::datum_type(), f64::datum_type(), i64::datum_type(), i32::datum_type(), bool::datum_type()];
    if count(output) != Some(columns.outputs) || !kinds.contains(&output.datum_type) {
        return Err(check::whole(format!("its output is {output:?}, not a row of {} numbers", columns.outputs)));
    }
    typed.into_optimized().and_then(IntoRunnable::into_runnable).map_err(refused)
}
