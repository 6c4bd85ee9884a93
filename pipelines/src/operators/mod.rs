//! Operators with their parameters, and the computation of one node from its inputs.
//!
//! Values are `f32`. Sums of products, norms and distances are accumulated in `f64`, in ascending order of columns, and
//! rounded once. A result beyond ±[`NUMBER_ABS_MAX`](crate::limits::NUMBER_ABS_MAX) becomes that bound, so that every
//! output is finite. A missing number or entry is NaN: `field`, `concat` and `presence` see it, `scale`, `impute` and
//! `pca` take the mean of the training for it, and everything else takes 0.

mod categorical;
mod cross;
mod dense;
mod fields;
mod linear;
mod numeric;
mod pairs;
mod sparse;
mod textual;

use std::sync::Arc;

use celeris_model::Context;
use serde_json::{Map, Value};

use crate::attributes::AttributeEncoder;
use crate::networks::Network;
use crate::objects::{Centroids, Components, Dictionary, EmbeddingTable, Idf, Moments, Weights};
use crate::spec::{ClusterOutput, FieldType, Link, Norm, Side, Words};
use crate::text::{CharGrams, Columns, TextScratch, WordGrams};
use crate::trees::TreeEnsemble;
use crate::values::{Slot, View};

pub use cross::{CrossScratch, Memo};
pub use dense::TreeRows;
pub use fields::{has as has_field, text_of};
pub use linear::{EachColumn, add_part, link};
pub use sparse::{normalize, weight_counts};

/// What a pipeline reads: the attributes of an item and the context of a request.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    pub item: &'a Map<String, Value>,
    pub context: &'a Context,
}

/// A field to read.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldOp {
    pub of: Side,
    pub name: Arc<str>,
    pub kind: FieldType,
    /// Number of entries, for `numbers`.
    pub dim: usize,
}

impl FieldOp {
    /// As declarations name it: `item.NAME` or `context.NAME`.
    #[must_use]
    pub fn path(&self) -> String {
        let side = match self.of {
            Side::Item => "item",
            Side::Context => "context",
        };
        format!("{side}.{}", self.name)
    }
}

/// Known categories.
#[derive(Debug, Clone)]
pub enum Known {
    Strings(Arc<Dictionary>),
    /// The numbers of a category, from 0.
    Numbers(u32),
}

/// Weighting of counts.
#[derive(Debug, Clone)]
pub struct TfIdfOp {
    pub idf: Arc<Idf>,
    pub sublinear: bool,
    pub norm: Option<Norm>,
}

/// Scaling, and what stands for missing values.
#[derive(Debug, Clone)]
pub struct ScaleOp {
    pub moments: Arc<Moments>,
    pub clamp: Option<f64>,
}

/// What stands for missing values.
#[derive(Debug, Clone)]
pub enum ImputeOp {
    Value(f32),
    Means(Arc<Moments>),
}

/// Where the columns of each input begin.
#[derive(Debug, Clone)]
pub struct ConcatOp {
    pub begins: Vec<u32>,
    /// Number of all columns.
    pub columns: u32,
    pub sparse: bool,
}

/// Where texts become columns.
#[derive(Debug, Clone, Copy)]
pub struct HashOp {
    pub bits: u32,
    pub signs: bool,
}

/// A linear model over one input.
#[derive(Debug, Clone)]
pub struct LinearOp {
    pub weights: Arc<Weights>,
    pub link: Link,
}

/// Part of a linear model: the sum over some of its columns, without bias and link.
#[derive(Debug, Clone)]
pub struct PartOp {
    pub weights: Arc<Weights>,
    /// The model's column of the input's first column.
    pub first: u32,
    /// Scaling of the input on the way.
    pub scale: Option<ScaleOp>,
}

/// A hashed cross and its part of a linear model in one.
#[derive(Debug, Clone)]
pub struct CrossPartOp {
    pub bits: u32,
    pub part: PartOp,
    /// Which of two inputs is the outer one of the sums: the other one, if that depends on the context alone.
    pub outer: usize,
    /// Whether the inner input depends on the context alone, so that candidates of a request share sums over it.
    pub shares_sums: bool,
}

/// An operator that the engines run.
#[derive(Debug, Clone)]
pub enum Op {
    Field(FieldOp),
    Attributes(Arc<AttributeEncoder>),
    /// The value that every record has.
    Constant(Arc<Slot>),
    Tokenize(Words),
    WordNgrams(WordGrams),
    CharNgrams(CharGrams),
    TfIdf(TfIdfOp),
    Normalize(Norm),
    OneHot(Known),
    MultiHot(Known),
    Hash(HashOp),
    /// Ascending edges.
    Bucketize(Arc<[f64]>),
    /// The period.
    Cyclic(f64),
    Scale(ScaleOp),
    Impute(ImputeOp),
    Presence,
    /// Number of bits of the columns.
    Cross(u32),
    Concat(ConcatOp),
    Embedding(Arc<EmbeddingTable>),
    Pca(Arc<Components>),
    Kmeans(Arc<Centroids>, ClusterOutput),
    Linear(LinearOp),
    Trees(Arc<TreeEnsemble>),
    Onnx(Arc<Network>),
    /// Of the optimizer: [`Op::Linear`] over some columns.
    Part(PartOp),
    /// Of the optimizer: [`Op::Cross`] and [`Op::Part`] in one.
    CrossPart(CrossPartOp),
    /// Of the optimizer: the total of several sums.
    Total,
    /// Of the optimizer: bias and link of [`Op::Linear`], over sums.
    Finish(LinearOp),
}

/// The inputs of a node.
pub trait Inputs {
    fn count(&self) -> usize;
    fn get(&self, position: usize) -> View<'_>;
}

impl Inputs for [View<'_>] {
    fn count(&self) -> usize {
        self.len()
    }

    fn get(&self, position: usize) -> View<'_> {
        self[position]
    }
}

/// What the computation of one node may use besides its inputs.
pub struct Surroundings<'a> {
    pub record: Record<'a>,
    pub text: &'a mut TextScratch,
    pub cross: &'a mut CrossScratch,
    /// A dense vector.
    pub row: &'a mut Vec<f32>,
    /// Sums of a cross that candidates of one request share.
    pub memo: Option<&'a mut Memo>,
}

impl Op {
    /// Computes a node. Inputs have the types that the declaration was checked for.
    pub fn compute<I: Inputs + ?Sized>(&self, inputs: &I, around: Surroundings, out: &mut Slot) {
        match self {
            Self::Field(field) => fields::read(field, around.record, out),
            Self::Attributes(rules) => fields::attributes(rules, around.record, out),
            Self::Constant(value) => out.set(value.view()),
            Self::Tokenize(rule) => textual::tokenize(*rule, inputs.get(0), out),
            Self::WordNgrams(grams) => textual::word_ngrams(grams, inputs.get(0), around.text, out),
            Self::CharNgrams(grams) => textual::char_ngrams(grams, inputs.get(0), around.text, out),
            Self::TfIdf(weighting) => sparse::tf_idf(weighting, inputs.get(0), out),
            Self::Normalize(norm) => sparse::normalized(*norm, inputs.get(0), out),
            Self::OneHot(known) | Self::MultiHot(known) => categorical::hot(known, inputs.get(0), out),
            Self::Hash(hash) => categorical::hash(*hash, inputs.get(0), &mut around.cross.pairs, out),
            Self::Bucketize(edges) => numeric::bucketize(edges, inputs.get(0), out),
            Self::Cyclic(period) => numeric::cyclic(*period, inputs.get(0), out),
            Self::Scale(scale) => numeric::scale(scale, inputs.get(0), out),
            Self::Impute(impute) => numeric::impute(impute, inputs.get(0), out),
            Self::Presence => numeric::presence(inputs.get(0), out),
            Self::Cross(bits) => cross::cross(*bits, inputs, around.cross, out),
            Self::Concat(concat) => sparse::concat(concat, inputs, out),
            Self::Embedding(table) => dense::embedding(table, inputs.get(0), out),
            Self::Pca(components) => dense::pca(components, inputs.get(0), out),
            Self::Kmeans(centroids, gives) => dense::kmeans(centroids, *gives, inputs.get(0), out),
            Self::Linear(linear) => linear::linear(linear, inputs.get(0), out),
            Self::Trees(trees) => dense::trees(trees, inputs.get(0), around.row, out),
            Self::Onnx(network) => dense::onnx(network, inputs, around.row, out),
            Self::Part(part) => linear::part(part, inputs.get(0), out),
            Self::CrossPart(cross) => cross::cross_part(cross, inputs, around.cross, around.memo, out),
            Self::Total => linear::total(inputs, out),
            Self::Finish(linear) => linear::finish_sums(linear, inputs.get(0), out),
        }
    }

    /// Builds the indices of the dictionaries that it looks strings up in, which its first run would otherwise wait for.
    pub fn prepare(&self) {
        match self {
            Self::WordNgrams(WordGrams { columns: Columns::Dictionary(dictionary), .. }) => {
                let _ = dictionary.words_index();
            }
            Self::CharNgrams(CharGrams { columns: Columns::Dictionary(dictionary), .. })
            | Self::OneHot(Known::Strings(dictionary))
            | Self::MultiHot(Known::Strings(dictionary)) => {
                let _ = dictionary.strings_index();
            }
            Self::Embedding(table) => {
                let _ = table.keys().strings_index();
            }
            _ => {}
        }
    }

    /// Whether it reads the record, and so gives other values for equal inputs.
    #[must_use]
    pub fn reads_record(&self) -> bool {
        matches!(self, Self::Field(_) | Self::Attributes(_))
    }

    /// Its name in explanations.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Field(_) => "field",
            Self::Attributes(_) => "attributes",
            Self::Constant(_) => "constant",
            Self::Tokenize(_) => "tokenize",
            Self::WordNgrams(_) => "word_ngrams",
            Self::CharNgrams(_) => "char_ngrams",
            Self::TfIdf(_) => "tf_idf",
            Self::Normalize(_) => "normalize",
            Self::OneHot(_) => "one_hot",
            Self::MultiHot(_) => "multi_hot",
            Self::Hash(_) => "hash",
            Self::Bucketize(_) => "bucketize",
            Self::Cyclic(_) => "cyclic",
            Self::Scale(_) => "scale",
            Self::Impute(_) => "impute",
            Self::Presence => "presence",
            Self::Cross(_) => "cross",
            Self::Concat(_) => "concat",
            Self::Embedding(_) => "embedding",
            Self::Pca(_) => "pca",
            Self::Kmeans(..) => "kmeans",
            Self::Linear(_) => "linear",
            Self::Trees(_) => "trees",
            Self::Onnx(_) => "onnx",
            Self::Part(_) => "linear_part",
            Self::CrossPart(_) => "cross_linear_part",
            Self::Total => "total",
            Self::Finish(_) => "linear_end",
        }
    }

    /// Whether it needs its whole input, or several inputs, before it gives anything: a pipeline breaker (PRETZEL,
    /// section 4.1.2).
    #[must_use]
    pub fn is_breaker(&self) -> bool {
        match self {
            Self::Concat(_)
            | Self::Cross(_)
            | Self::CrossPart(_)
            | Self::Total
            | Self::Normalize(_)
            | Self::Onnx(_) => true,
            Self::TfIdf(weighting) => weighting.norm.is_some(),
            _ => false,
        }
    }
}
