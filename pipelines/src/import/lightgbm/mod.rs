//! LightGBM's text format, which `Booster.save_model` writes (versions 2 to 4).
//!
//! The format: a header of lines `key=value`, blocks of such lines that begin with `Tree=`, and `end of trees`. What
//! follows is not read. Of a block, only the structure of its tree is read, not its statistics.

mod block;
mod lines;

use self::lines::{Line, Lines};
use super::emit::{Column, Emitter, Fields};
use super::{BYTES_MAX, ImportError, Imported};
use crate::trees::{Aggregate, Builder, INPUTS_MAX, OUTPUTS_MAX, Shape, TREES_MAX, Transform, TreeEnsemble};

/// A model as it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub ensemble: TreeEnsemble,
    /// The names of the columns of a row, in their order.
    pub features: Vec<String>,
}

/// The header of a model.
struct Header {
    features: Vec<String>,
    outputs: usize,
    transform: Transform,
    /// The steepness of the logistic function.
    sigmoid: f64,
    /// Whether the trees of an output are averaged, as in random forests.
    averages: bool,
}

/// Reads a model.
///
/// The thresholds become f32 so that the ensemble decides as LightGBM does for every row of f32. Leaf values are
/// rounded to f32 and added in f64, so scores differ from LightGBM's by at most 2⁻²⁴ of the sum of the magnitudes of
/// the leaves reached, before rounding to f32.
///
/// # Errors
/// A file that is too large, damaged or of another version; linear trees; objectives whose output is not one of
/// [`Transform`].
pub fn read(bytes: &[u8]) -> Result<Model, ImportError> {
    if bytes.len() > BYTES_MAX {
        return Err(ImportError::TooLarge { max: BYTES_MAX, received: bytes.len() });
    }
    let mut lines = Lines::new(bytes);
    let header = read_header(&mut lines)?;
    let Header { features, outputs, transform, sigmoid, averages } = header;
    let base = vec![0.0; outputs];
    let mut builder = Builder::new(Shape { inputs: features.len(), base, aggregate: Aggregate::Sum, transform })?;
    let rounds = (lines.count("Tree=") / outputs).max(1);
    let factor = sigmoid / if averages { rounds as f64 } else { 1.0 };
    let mut trees = 0;
    loop {
        let line = lines.next_filled()?;
        match line.pair() {
            Some(("Tree", _)) if trees < TREES_MAX => {
                let mut tree = block::read(line, &mut lines)?;
                for vote in &mut tree.votes {
                    // The trees of a round are one for each output.
                    vote.output = (trees % outputs) as u32;
                    vote.value *= factor;
                }
                builder.add(&tree)?;
                trees += 1;
            }
            Some(("Tree", _)) => return Err(line.problem(format!("a model has at most {TREES_MAX} trees"))),
            None if line.text == "end of trees" => {
                if !trees.is_multiple_of(outputs) || trees == 0 {
                    let problem = format!("{trees} trees are not a multiple of the {outputs} outputs");
                    return Err(line.problem(problem));
                }
                return Ok(Model { ensemble: builder.finish()?, features });
            }
            _ => return Err(line.problem("neither a tree nor the end of the trees begins here")),
        }
    }
}

/// Imports a model as a node over fields: `fields` are `item.NAME` or `context.NAME` for its columns, in their order.
///
/// # Errors
/// Those of [`read`]; another number of fields than columns, or names of other forms.
pub fn import(bytes: &[u8], fields: &[String]) -> Result<Imported, ImportError> {
    let Model { ensemble, features } = read(bytes)?;
    let unfit = |problem: String| ImportError::Graph { name: "fields".to_owned(), problem };
    if fields.len() != features.len() {
        let names = features.iter().take(64).map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(unfit(format!("there must be {}, got {}: {names}", features.len(), fields.len())));
    }
    let mut emitter = Emitter::default();
    let columns = Fields { names: fields.to_vec(), content: Column::Numbers };
    let row = emitter.fields(&columns, "row").map_err(unfit)?;
    let output = emitter.trees(0, &row, ensemble).map_err(unfit)?;
    Ok(emitter.finish(output))
}

/// Reads up to the first tree.
fn read_header(lines: &mut Lines<'_>) -> Result<Header, ImportError> {
    let first = lines.next_filled()?;
    if first.text != "tree" {
        return Err(first.problem("a LightGBM model begins with the line 'tree'"));
    }
    let (mut version, mut outputs, mut last, mut names, mut objective) = (None, None, None, None, None);
    let mut averages = false;
    while let Some(line) = lines.next_unless(|line| line.starts_with("Tree=") || line == "end of trees")? {
        let Some((key, _)) = line.pair() else {
            averages |= line.text == "average_output";
            continue;
        };
        let place = match key {
            "version" => &mut version,
            "num_tree_per_iteration" => &mut outputs,
            "max_feature_idx" => &mut last,
            "feature_names" => &mut names,
            "objective" => &mut objective,
            _ => continue,
        };
        if place.replace(line).is_some() {
            return Err(line.problem("the key occurs twice"));
        }
    }
    let missing = |key: &str| lines.missing(key);
    let version = version.ok_or_else(|| missing("version"))?;
    if !matches!(version.value(), "v2" | "v3" | "v4") {
        return Err(version.problem("the versions v2, v3 and v4 can be imported"));
    }
    let outputs = outputs.ok_or_else(|| missing("num_tree_per_iteration"))?.integer(1, OUTPUTS_MAX)?;
    let inputs = last.ok_or_else(|| missing("max_feature_idx"))?.integer(0, INPUTS_MAX - 1)? + 1;
    let names = names.ok_or_else(|| missing("feature_names"))?;
    let features: Vec<String> = names.value().split(' ').map(str::to_owned).collect();
    if features.len() != inputs {
        return Err(names.problem(format!("{} names for {inputs} features", features.len())));
    }
    let (transform, sigmoid) = objective.map_or(Ok((Transform::None, 1.0)), read_objective)?;
    Ok(Header { features, outputs, transform, sigmoid, averages })
}

/// The transform of an objective, and the factor of the sums.
fn read_objective(line: Line<'_>) -> Result<(Transform, f64), ImportError> {
    let mut words = line.value().split(' ');
    let name = words.next().unwrap_or_default();
    let mut sigmoid = 1.0;
    for word in words {
        match word.split_once(':') {
            Some(("sigmoid", value)) => sigmoid = line.number(value)?,
            None if word == "sqrt" => return Err(line.problem("an objective with sqrt is not supported")),
            _ => {}
        }
    }
    let transform = match name {
        "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" | "lambdarank" | "rank_xendcg"
        | "custom" | "none" | "" => return Ok((Transform::None, 1.0)),
        "binary" | "multiclassova" => Transform::Logistic,
        "cross_entropy" | "xentropy" => return Ok((Transform::Logistic, 1.0)),
        "multiclass" => return Ok((Transform::Softmax, 1.0)),
        "poisson" | "gamma" | "tweedie" => return Ok((Transform::Exp, 1.0)),
        other => return Err(line.problem(format!("the objective {other} is not supported"))),
    };
    if !(sigmoid.is_finite() && sigmoid > 0.0) {
        return Err(line.problem("sigmoid must be positive and finite"));
    }
    Ok((transform, sigmoid))
}
