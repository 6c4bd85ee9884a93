//! Learning of the parameters of a pipeline: vocabularies, frequencies, moments, clusters, components and linear models.
//!
//! Nodes are fitted in the order of their dependence, with one pass over the rows for all nodes whose inputs are fitted.
//! Everything is a pure function of declaration, rows and seed. What is learnt without labels is learnt from all rows. A
//! linear model that was trained on a row's label knows that label, so that its value for the row is no fair feature for
//! a model trained after it: [`FitOptions::folds`] asks for values out of fold, from models that were trained without the row
//! (stacked generalisation; Wolpert, Neural Networks 5, 1992).

mod clusters;
mod collect;
mod components;
mod evaluate;
mod linear;
mod moments;
mod solver;
mod vocabulary;

use std::sync::Arc;

use celeris_model::Context;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::PipelineError;
use crate::graph::CheckedGraph;
use crate::objects::{Content, Object, ObjectId, Objects};
use crate::operators::Record;
use crate::plan::{Plan, Scratch};
use crate::spec::{Operator, PipelineSpec};
use crate::stages::Catalog;
use crate::values::View;
use collect::Collector;
use evaluate::Evaluator;

/// Number of folds, at most.
const FOLDS_MAX: u32 = 100;

/// A row to learn from.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Names the row; rows of one key are in one fold.
    pub key: &'a [u8],
    pub item: &'a Map<String, Value>,
    pub context: &'a Context,
    /// What linear models with `"fit": "label"` learn.
    pub label: Option<f32>,
    /// What linear models with `"fit": "target"` learn: as long as they have outputs.
    pub target: Option<&'a [f32]>,
    /// How much the row counts for linear models; 1 is usual.
    pub weight: f32,
}

impl<'a> Row<'a> {
    fn record(&self) -> Record<'a> {
        Record { item: self.item, context: self.context }
    }
}

/// Settings of a fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FitOptions {
    /// Number of folds for values out of fold, from 2 on; 0 for none.
    pub folds: u32,
    /// Decides folds, samples and first centers.
    pub seed: u64,
    /// Number of entries of sparse rows that a linear model keeps in memory, eight bytes each.
    pub entries_max: usize,
}

impl Default for FitOptions {
    fn default() -> Self {
        Self { folds: 0, seed: 0, entries_max: 1 << 26 }
    }
}

/// A fitted pipeline.
#[derive(Debug)]
pub struct Fitted {
    /// The declaration with the names of all objects.
    pub spec: PipelineSpec,
    /// The objects that were learnt. They live as long as these handles, unless a plan takes them.
    pub objects: Vec<Arc<Object>>,
    /// The outputs of the rows by models that were trained without their fold, row-major `rows x dim`; `None` without folds
    /// or without a linear model to fit.
    pub out_of_fold: Option<Vec<f32>>,
}

/// Which rows are learnt from.
#[derive(Debug, Clone, Copy)]
struct Folds {
    count: u32,
    seed: u64,
    /// The fold that is left out.
    without: Option<u32>,
}

impl Folds {
    fn of(&self, key: &[u8]) -> u32 {
        (xxh3_64_with_seed(key, self.seed) % u64::from(self.count.max(1))) as u32
    }

    fn includes(&self, key: &[u8]) -> bool {
        self.without.is_none_or(|without| self.of(key) != without)
    }
}

/// Fits what a declaration lacks to these rows, which are read several times, always in the same order.
///
/// # Errors
/// As the check of the declaration, and [`PipelineError::Fit`] for rows that a node cannot be fitted to.
pub fn fit<'a, R, I>(
    spec: &PipelineSpec,
    objects: &Objects,
    rows: R,
    options: FitOptions,
) -> Result<Fitted, PipelineError>
where
    R: Fn() -> I,
    I: Iterator<Item = Row<'a>>,
{
    if options.folds == 1 || options.folds > FOLDS_MAX {
        let problem = format!("folds are 0 or from 2 to {FOLDS_MAX}, got {}", options.folds);
        return Err(PipelineError::Declaration { problem });
    }
    let fitter = Fitter { objects, rows, options };
    let all = Folds { count: options.folds, seed: options.seed, without: None };
    let mut handles = Vec::new();
    let fitted = fitter.fit_all(spec.clone(), all, &mut handles)?;
    let supervised = |operator: &Operator| matches!(operator, Operator::Linear(linear) if linear.weights.is_none());
    let has_supervised = spec.nodes.values().any(supervised);
    let out_of_fold = if options.folds > 0 && has_supervised {
        let mut unlearnt = fitted.clone();
        for (name, operator) in &mut unlearnt.nodes {
            if let (true, Operator::Linear(linear)) = (supervised(&spec.nodes[name]), operator) {
                linear.weights = None;
            }
        }
        Some(fitter.out_of_fold(&unlearnt, all)?)
    } else {
        None
    };
    Ok(Fitted { spec: fitted, objects: handles, out_of_fold })
}

struct Fitter<'o, R> {
    objects: &'o Objects,
    rows: R,
    options: FitOptions,
}

impl<'a, R, I> Fitter<'_, R>
where
    R: Fn() -> I,
    I: Iterator<Item = Row<'a>>,
{
    /// Fits all nodes, those without unfitted inputs first.
    fn fit_all(
        &self,
        mut spec: PipelineSpec,
        folds: Folds,
        handles: &mut Vec<Arc<Object>>,
    ) -> Result<PipelineSpec, PipelineError> {
        loop {
            let checked = CheckedGraph::new(&spec, self.objects)?;
            let ready = ready(&checked);
            if ready.is_empty() {
                return Ok(spec);
            }
            for (name, learnt) in self.fit_ready(&checked, &ready, folds)? {
                let object = self.objects.add(&learnt)?;
                set_parameter(&mut spec, &name, object.id());
                handles.push(object);
            }
        }
    }

    /// Fits nodes whose inputs are fitted, in one pass over the rows.
    fn fit_ready(
        &self,
        checked: &CheckedGraph,
        ready: &[usize],
        folds: Folds,
    ) -> Result<Vec<(String, Content)>, PipelineError> {
        let mut collectors = Vec::new();
        for node in ready {
            let of = &checked.nodes[*node];
            let input = of.inputs.first().copied();
            let columns = input.and_then(|input| checked.nodes[input].resolved.schema.columns()).unwrap_or(0);
            collectors.push((input, Collector::new(of, columns as usize, self.options)?));
        }
        let mut evaluator = Evaluator::new(checked, ready);
        for row in (self.rows)().filter(|row| folds.includes(row.key)) {
            evaluator.evaluate(row.record());
            for (input, collector) in &mut collectors {
                let value = input.map_or(View::Missing, |input| evaluator.value(input));
                collector.add(&row, value)?;
            }
        }
        let names = ready.iter().map(|node| checked.nodes[*node].name.clone());
        names.zip(collectors).map(|(name, (_, collector))| Ok((name, collector.finish()?))).collect()
    }

    /// The outputs of each row by a model that was trained without its fold.
    fn out_of_fold(&self, unlearnt: &PipelineSpec, all: Folds) -> Result<Vec<f32>, PipelineError> {
        let mut plans = Vec::new();
        for without in 0..all.count {
            // Plans hold the objects of the fold.
            let mut handles = Vec::new();
            let folds = Folds { without: Some(without), ..all };
            let spec = self.fit_all(unlearnt.clone(), folds, &mut handles)?;
            plans.push(Plan::compile(&spec, self.objects, &Catalog::default())?);
        }
        let (mut scratch, mut out) = (Scratch::default(), Vec::new());
        for row in (self.rows)() {
            let plan = &plans[all.of(row.key) as usize];
            let begin = out.len();
            out.resize(begin + plan.dim(), 0.0);
            plan.run(row.record(), &mut scratch, &mut out[begin..])?;
        }
        Ok(out)
    }
}

/// The nodes that lack a parameter while nothing that they depend on lacks one.
fn ready(checked: &CheckedGraph) -> Vec<usize> {
    let mut is_fitted: Vec<bool> = Vec::with_capacity(checked.nodes.len());
    let mut ready = Vec::new();
    // Nodes follow their inputs.
    for (node, of) in checked.nodes.iter().enumerate() {
        let inputs = of.inputs.iter().all(|input| is_fitted[*input]);
        if inputs && of.resolved.is_unfitted {
            ready.push(node);
        }
        is_fitted.push(inputs && of.resolved.op.is_ok());
    }
    ready
}

/// Names the object that was learnt for a node.
fn set_parameter(spec: &mut PipelineSpec, name: &str, id: ObjectId) {
    let Some(operator) = spec.nodes.get_mut(name) else { return };
    match operator {
        Operator::Attributes(attributes) => attributes.rules = Some(id),
        Operator::WordNgrams(grams) => grams.dictionary = Some(id),
        Operator::CharNgrams(grams) => grams.dictionary = Some(id),
        Operator::OneHot(known) | Operator::MultiHot(known) => known.dictionary = Some(id),
        Operator::TfIdf(weighting) => weighting.idf = Some(id),
        Operator::Scale(scale) => scale.moments = Some(id),
        Operator::Impute(impute) => impute.moments = Some(id),
        Operator::Pca(pca) => pca.components = Some(id),
        Operator::Kmeans(kmeans) => kmeans.centroids = Some(id),
        Operator::Linear(linear) => linear.weights = Some(id),
        _ => {}
    }
}
