//! Types, parameters and objects of one operator.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Schema;
use super::check::Check;
use crate::error::PipelineError;
use crate::limits::{
    CHAR_N_MAX, CLUSTERS_MAX, COLUMNS_MAX, CROSS_INPUTS_MAX, DENSE_MAX, INPUTS_MAX, OUTPUTS_MAX, WORD_N_MAX,
};
use crate::objects::{Content, Dictionary, Kind, Object, ObjectId, Objects};
use crate::operators::{ConcatOp, FieldOp, HashOp, ImputeOp, Known, LinearOp, Op, ScaleOp, TfIdfOp};
use crate::spec::{self, ClusterOutput, FieldType, Operator, Side};
use crate::text::{CharGrams, Columns, WordGrams};
use crate::values::Slot;

/// An operator as far as its parameters are known.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Or the field whose value has to be fitted first: of this operator, or of one that it depends on.
    pub op: Result<Op, &'static str>,
    pub schema: Schema,
    /// Whether a parameter of this operator is missing.
    pub is_unfitted: bool,
}

/// The type of a field that is an operator's input without a declared type.
pub(super) fn implied_type(operator: &Operator) -> Option<FieldType> {
    match operator {
        Operator::Tokenize(_) | Operator::CharNgrams(_) => Some(FieldType::Text),
        Operator::OneHot(_) => Some(FieldType::Category),
        Operator::MultiHot(_) | Operator::Hash(_) | Operator::Cross(_) | Operator::Embedding(_) => {
            Some(FieldType::Texts)
        }
        Operator::Bucketize(_)
        | Operator::Cyclic(_)
        | Operator::Scale(_)
        | Operator::Impute(_)
        | Operator::Concat(_)
        | Operator::Linear(_)
        | Operator::Trees(_)
        | Operator::Onnx(_) => Some(FieldType::Number),
        _ => None,
    }
}

/// Resolves operators one after the other.
pub(super) struct Resolver<'a> {
    store: &'a Objects,
    /// The objects of the operators so far.
    used: BTreeMap<ObjectId, Arc<Object>>,
}

fn fitted(op: Op, schema: Schema) -> Resolved {
    Resolved { op: Ok(op), schema, is_unfitted: false }
}

/// The operator if what it needs is known; `field` is what it lacks itself.
fn maybe(op: Option<Op>, schema: Schema, field: Option<&'static str>) -> Resolved {
    Resolved { op: op.ok_or(field.unwrap_or("input")), schema, is_unfitted: field.is_some() }
}

impl<'a> Resolver<'a> {
    pub(super) fn new(store: &'a Objects) -> Self {
        Self { store, used: BTreeMap::new() }
    }

    pub(super) fn into_objects(self) -> Vec<Arc<Object>> {
        self.used.into_values().collect()
    }

    /// `inputs` are the names and types of the inputs.
    pub(super) fn resolve(
        &mut self,
        node: &str,
        operator: &Operator,
        inputs: &[(&str, Schema)],
    ) -> Result<Resolved, PipelineError> {
        let check = Check { node, inputs, input_field: operator.input_field() };
        match operator {
            Operator::Field(field) => self.field(check, field),
            Operator::Attributes(attributes) => self.attributes(check, attributes),
            Operator::Constant(constant) => {
                check.length("numbers", constant.numbers.len(), 1, DENSE_MAX)?;
                check.that(
                    constant.numbers.iter().all(|number| number.is_finite()),
                    "numbers",
                    "are not all finite",
                )?;
                let columns = Some(constant.numbers.len() as u32);
                let mut value = Slot::default();
                value.dense().extend_from_slice(&constant.numbers);
                Ok(fitted(Op::Constant(Arc::new(value)), Schema::Dense(columns)))
            }
            Operator::Tokenize(tokenize) => {
                check.takes("a text", |schema| schema == Schema::Text)?;
                Ok(fitted(Op::Tokenize(tokenize.words), Schema::Words))
            }
            Operator::WordNgrams(grams) => self.word_ngrams(check, grams),
            Operator::CharNgrams(grams) => self.char_ngrams(check, grams),
            Operator::TfIdf(weighting) => self.tf_idf(check, weighting),
            Operator::Normalize(normalize) => {
                let input = check.takes("a vector", |schema| matches!(schema, Schema::Dense(_) | Schema::Sparse(_)))?;
                Ok(fitted(Op::Normalize(normalize.norm), input))
            }
            Operator::OneHot(known) => self.one_hot(check, known),
            Operator::MultiHot(known) => self.multi_hot(check, known),
            Operator::Hash(hash) => {
                check.takes("texts", is_textual)?;
                check.hash_bits(hash.hash_bits)?;
                let op = Op::Hash(HashOp { bits: hash.hash_bits, signs: hash.signs });
                Ok(fitted(op, Schema::Sparse(Some(1 << hash.hash_bits))))
            }
            Operator::Bucketize(bucketize) => {
                check.takes("a number", |schema| schema == Schema::Number)?;
                check.edges(&bucketize.edges)?;
                let count = bucketize.edges.len() as u32 + 1;
                Ok(fitted(Op::Bucketize(bucketize.edges.clone().into()), Schema::Category(Some(count))))
            }
            Operator::Cyclic(cyclic) => {
                check.takes("a number", |schema| schema == Schema::Number)?;
                check.positive("period", cyclic.period)?;
                Ok(fitted(Op::Cyclic(cyclic.period), Schema::Dense(Some(2))))
            }
            Operator::Scale(scale) => self.scale(check, scale),
            Operator::Impute(impute) => self.impute(check, impute),
            Operator::Presence(_) => {
                check.takes("one input", |_| true)?;
                Ok(fitted(Op::Presence, Schema::Number))
            }
            Operator::Cross(cross) => {
                check.count(2, CROSS_INPUTS_MAX)?;
                check.each_takes("texts, categories or sparse vectors", |schema| {
                    is_textual(schema) || matches!(schema, Schema::Category(_) | Schema::Sparse(_))
                })?;
                check.hash_bits(cross.hash_bits)?;
                Ok(fitted(Op::Cross(cross.hash_bits), Schema::Sparse(Some(1 << cross.hash_bits))))
            }
            Operator::Concat(_) => Self::concat(check),
            Operator::Embedding(embedding) => self.embedding(check, embedding),
            Operator::Pca(pca) => self.pca(check, pca),
            Operator::Kmeans(kmeans) => self.kmeans(check, kmeans),
            Operator::Linear(linear) => self.linear(check, linear),
            Operator::Trees(trees) => self.trees(check, trees),
            Operator::Onnx(onnx) => self.onnx(check, onnx),
        }
    }

    /// The object of this name, if it is of this kind.
    fn object(&mut self, check: Check, field: &str, id: ObjectId, expected: Kind) -> Result<Content, PipelineError> {
        let (node, field) = (check.node.to_owned(), field.to_owned());
        let object = match self.used.get(&id) {
            Some(object) => object.clone(),
            None => match self.store.get(id)? {
                Some(object) => object,
                None => return Err(PipelineError::MissingObject { node, field, id }),
            },
        };
        let content = object.content().clone();
        if content.kind() != expected {
            return Err(PipelineError::WrongKind { node, field, id, expected, received: content.kind() });
        }
        self.used.insert(id, object);
        Ok(content)
    }

    fn field(&mut self, check: Check, field: &spec::Field) -> Result<Resolved, PipelineError> {
        check.name("name", &field.name)?;
        let is_list = field.kind == FieldType::Numbers;
        check.that(is_list == field.dim.is_some(), "dim", "is given for the type numbers, and only there")?;
        let dim = field.dim.unwrap_or(1);
        check.length("dim", dim as usize, 1, DENSE_MAX)?;
        let is_context_list = is_list && field.of == Side::Context && dim != 1;
        check.that(!is_context_list, "type", "is numbers, and a context has no lists of numbers")?;
        let schema = match field.kind {
            FieldType::Number | FieldType::Boolean => Schema::Number,
            FieldType::Text | FieldType::Category => Schema::Text,
            FieldType::Texts => Schema::Texts,
            FieldType::Numbers => Schema::Dense(Some(dim)),
        };
        let (of, name, kind, dim) = (field.of, field.name.as_str().into(), field.kind, dim as usize);
        Ok(fitted(Op::Field(FieldOp { of, name, kind, dim }), schema))
    }

    fn attributes(&mut self, check: Check, attributes: &spec::Attributes) -> Result<Resolved, PipelineError> {
        let Some(id) = attributes.rules else { return Ok(maybe(None, Schema::Sparse(None), Some("rules"))) };
        let content = self.object(check, "rules", id, Kind::Attributes)?;
        let Content::Attributes(rules) = content else { return Ok(maybe(None, Schema::Sparse(None), None)) };
        let schema = Schema::Sparse(Some(rules.width() as u32));
        Ok(fitted(Op::Attributes(rules), schema))
    }

    fn dictionary(&mut self, check: Check, id: ObjectId) -> Result<Arc<Dictionary>, PipelineError> {
        match self.object(check, "dictionary", id, Kind::Dictionary)? {
            Content::Dictionary(dictionary) if !dictionary.is_empty() => Ok(dictionary),
            _ => Err(check.shape("dictionary", id, "no strings", "at least one")),
        }
    }

    fn columns(
        &mut self,
        check: Check,
        dictionary: Option<ObjectId>,
        hash_bits: Option<u32>,
    ) -> Result<Option<Columns>, PipelineError> {
        check.that(dictionary.is_none() || hash_bits.is_none(), "hash_bits", "are given besides a dictionary")?;
        if let Some(bits) = hash_bits {
            check.hash_bits(bits)?;
            return Ok(Some(Columns::Hashed(bits)));
        }
        dictionary.map(|id| self.dictionary(check, id).map(Columns::Dictionary)).transpose()
    }

    fn word_ngrams(&mut self, check: Check, grams: &spec::WordNgrams) -> Result<Resolved, PipelineError> {
        check.takes("words", |schema| schema == Schema::Words)?;
        let n = check.range("n", grams.n, WORD_N_MAX)?;
        check.fit_dictionary(grams.fit)?;
        let columns = self.columns(check, grams.dictionary, grams.hash_bits)?;
        let schema = Schema::Sparse(columns.as_ref().map(Columns::count));
        let missing = columns.is_none().then_some("dictionary");
        Ok(maybe(columns.map(|columns| Op::WordNgrams(WordGrams { n, columns })), schema, missing))
    }

    fn char_ngrams(&mut self, check: Check, grams: &spec::CharNgrams) -> Result<Resolved, PipelineError> {
        check.takes("a text", |schema| schema == Schema::Text)?;
        let n = check.range("n", grams.n, CHAR_N_MAX)?;
        check.fit_dictionary(grams.fit)?;
        let columns = self.columns(check, grams.dictionary, grams.hash_bits)?;
        let schema = Schema::Sparse(columns.as_ref().map(Columns::count));
        let missing = columns.is_none().then_some("dictionary");
        let window = grams.window;
        Ok(maybe(columns.map(|columns| Op::CharNgrams(CharGrams { n, window, columns })), schema, missing))
    }

    fn tf_idf(&mut self, check: Check, weighting: &spec::TfIdf) -> Result<Resolved, PipelineError> {
        let input = check.takes("a sparse vector", |schema| matches!(schema, Schema::Sparse(_)))?;
        let Some(id) = weighting.idf else { return Ok(maybe(None, input, Some("idf"))) };
        let Content::Idf(idf) = self.object(check, "idf", id, Kind::Idf)? else { return Ok(maybe(None, input, None)) };
        check.columns("idf", id, input, idf.values().len())?;
        let op = Op::TfIdf(TfIdfOp { idf, sublinear: weighting.sublinear, norm: weighting.norm });
        Ok(maybe(input.columns().map(|_| op), input, None))
    }

    fn known(&mut self, check: Check, known: &spec::Categories) -> Result<Option<Known>, PipelineError> {
        check.fit_dictionary(known.fit)?;
        let both = known.categories.is_some() && known.dictionary.is_some();
        check.that(!both, "categories", "are given besides a dictionary")?;
        if let Some(strings) = &known.categories {
            check.length("categories", strings.len(), 1, crate::limits::INLINE_MAX)?;
            let refused = |error: PipelineError| PipelineError::parameter(check.node, "categories", error.to_string());
            return Ok(Some(Known::Strings(Arc::new(Dictionary::new(strings).map_err(refused)?))));
        }
        known.dictionary.map(|id| self.dictionary(check, id).map(Known::Strings)).transpose()
    }

    fn hot(known: Option<Known>, op: impl Fn(Known) -> Op) -> Resolved {
        let count = known.as_ref().map(|known| match known {
            Known::Strings(strings) => strings.len() as u32,
            Known::Numbers(count) => *count,
        });
        let missing = known.is_none().then_some("dictionary");
        maybe(known.map(op), Schema::Sparse(count), missing)
    }

    fn one_hot(&mut self, check: Check, known: &spec::Categories) -> Result<Resolved, PipelineError> {
        let input =
            check.takes("a text or a category", |schema| matches!(schema, Schema::Text | Schema::Category(_)))?;
        if let Schema::Category(count) = input {
            let strings = known.categories.is_some() || known.dictionary.is_some() || known.fit.is_some();
            check.that(!strings, "categories", "are those of the input already")?;
            let op = count.map(|count| Op::OneHot(Known::Numbers(count)));
            return Ok(maybe(op, Schema::Sparse(count), None));
        }
        Ok(Self::hot(self.known(check, known)?, Op::OneHot))
    }

    fn multi_hot(&mut self, check: Check, known: &spec::Categories) -> Result<Resolved, PipelineError> {
        check.takes("texts", is_textual)?;
        Ok(Self::hot(self.known(check, known)?, Op::MultiHot))
    }

    fn scale(&mut self, check: Check, scale: &spec::Scale) -> Result<Resolved, PipelineError> {
        let input = check.takes("numbers", is_numeric)?;
        if let Some(clamp) = scale.clamp {
            check.positive("clamp", clamp)?;
        }
        let Some(id) = scale.moments else { return Ok(maybe(None, input, Some("moments"))) };
        let content = self.object(check, "moments", id, Kind::Moments)?;
        let Content::Moments(moments) = content else { return Ok(maybe(None, input, None)) };
        check.columns("moments", id, input, moments.columns())?;
        let op = Op::Scale(ScaleOp { moments, clamp: scale.clamp });
        Ok(maybe(input.columns().map(|_| op), input, None))
    }

    fn impute(&mut self, check: Check, impute: &spec::Impute) -> Result<Resolved, PipelineError> {
        let input = check.takes("numbers", is_numeric)?;
        let both = impute.value.is_some() && impute.moments.is_some();
        check.that(!both, "value", "is given besides moments")?;
        if let Some(value) = impute.value {
            check.that(value.is_finite(), "value", "is not finite")?;
            return Ok(fitted(Op::Impute(ImputeOp::Value(value)), input));
        }
        let Some(id) = impute.moments else { return Ok(maybe(None, input, Some("moments"))) };
        let content = self.object(check, "moments", id, Kind::Moments)?;
        let Content::Moments(moments) = content else { return Ok(maybe(None, input, None)) };
        check.columns("moments", id, input, moments.columns())?;
        let op = Op::Impute(ImputeOp::Means(moments));
        Ok(maybe(input.columns().map(|_| op), input, None))
    }

    fn concat(check: Check) -> Result<Resolved, PipelineError> {
        check.count(1, INPUTS_MAX)?;
        check.each_takes("vectors, numbers and categories", Schema::is_vector)?;
        let sparse = check.inputs.iter().any(|(_, schema)| matches!(schema, Schema::Sparse(_)));
        let mut begins = Vec::with_capacity(check.inputs.len());
        let mut end = Some(0_u32);
        for (_, schema) in check.inputs {
            begins.extend(end);
            // Each input has at most 2^24 columns, and there are at most 64.
            end = end.zip(schema.columns()).map(|(end, columns)| end + columns);
        }
        let columns_max = if sparse { COLUMNS_MAX } else { DENSE_MAX };
        check.length("inputs", end.unwrap_or(1) as usize, 1, columns_max)?;
        let schema = if sparse { Schema::Sparse(end) } else { Schema::Dense(end) };
        Ok(maybe(end.map(|columns| Op::Concat(ConcatOp { begins, columns, sparse })), schema, None))
    }

    fn embedding(&mut self, check: Check, embedding: &spec::Embedding) -> Result<Resolved, PipelineError> {
        let input =
            check.takes("texts or a category", |schema| is_textual(schema) || matches!(schema, Schema::Category(_)))?;
        let content = self.object(check, "table", embedding.table, Kind::Embedding)?;
        let Content::Embedding(table) = content else { return Ok(maybe(None, input, None)) };
        if is_textual(input) && table.keys().is_empty() {
            return Err(check.shape("table", embedding.table, "no keys", "a key for each embedding"));
        }
        let schema = Schema::Dense(Some(table.dim() as u32));
        Ok(fitted(Op::Embedding(table), schema))
    }

    fn pca(&mut self, check: Check, pca: &spec::Pca) -> Result<Resolved, PipelineError> {
        let input = check.takes("numbers", is_numeric)?;
        check.length("dim", pca.dim as usize, 1, DENSE_MAX)?;
        let schema = Schema::Dense(Some(pca.dim));
        let Some(id) = pca.components else { return Ok(maybe(None, schema, Some("components"))) };
        let content = self.object(check, "components", id, Kind::Components)?;
        let Content::Components(components) = content else { return Ok(maybe(None, schema, None)) };
        check.columns("components", id, input, components.dim())?;
        check.same("components", id, "components", (pca.dim as usize, components.outputs()))?;
        Ok(maybe(input.columns().map(|_| Op::Pca(components)), schema, None))
    }

    fn kmeans(&mut self, check: Check, kmeans: &spec::Kmeans) -> Result<Resolved, PipelineError> {
        let input = check.takes("numbers", is_numeric)?;
        check.length("clusters", kmeans.clusters as usize, 1, CLUSTERS_MAX)?;
        let schema = match kmeans.gives {
            ClusterOutput::Distances => Schema::Dense(Some(kmeans.clusters)),
            ClusterOutput::Cluster => Schema::Category(Some(kmeans.clusters)),
        };
        let Some(id) = kmeans.centroids else { return Ok(maybe(None, schema, Some("centroids"))) };
        let content = self.object(check, "centroids", id, Kind::Centroids)?;
        let Content::Centroids(centroids) = content else { return Ok(maybe(None, schema, None)) };
        check.columns("centroids", id, input, centroids.dim())?;
        check.same("centroids", id, "clusters", (kmeans.clusters as usize, centroids.clusters()))?;
        Ok(maybe(input.columns().map(|_| Op::Kmeans(centroids, kmeans.gives)), schema, None))
    }

    fn linear(&mut self, check: Check, linear: &spec::Linear) -> Result<Resolved, PipelineError> {
        let input = check.takes("a vector", Schema::is_vector)?;
        let outputs = linear.outputs.unwrap_or(1);
        check.length("outputs", outputs as usize, 1, OUTPUTS_MAX)?;
        if let Some(strength) = linear.regularization {
            check.that(strength.is_finite() && strength >= 0.0, "regularization", "is no finite number from 0 on")?;
        }
        let Some(id) = linear.weights else {
            return Ok(maybe(None, Schema::Dense(Some(outputs)), Some("weights")));
        };
        let content = self.object(check, "weights", id, Kind::Weights)?;
        let schema = Schema::Dense(Some(outputs));
        let Content::Weights(weights) = content else { return Ok(maybe(None, schema, None)) };
        check.columns("weights", id, input, weights.columns())?;
        check.same("weights", id, "outputs", (outputs as usize, weights.outputs()))?;
        Ok(maybe(input.columns().map(|_| Op::Linear(LinearOp { weights, link: linear.link })), schema, None))
    }
}

impl Resolver<'_> {
    fn trees(&mut self, check: Check, trees: &spec::Trees) -> Result<Resolved, PipelineError> {
        let input = check.takes("a vector", |schema| is_numeric(schema) || matches!(schema, Schema::Sparse(_)))?;
        let content = self.object(check, "ensemble", trees.ensemble, Kind::Trees)?;
        let Content::Trees(ensemble) = content else { return Ok(maybe(None, input, None)) };
        check.columns("ensemble", trees.ensemble, input, ensemble.inputs())?;
        let schema = Schema::Dense(Some(ensemble.outputs() as u32));
        Ok(maybe(input.columns().map(|_| Op::Trees(ensemble)), schema, None))
    }

    fn onnx(&mut self, check: Check, onnx: &spec::Onnx) -> Result<Resolved, PipelineError> {
        check.count(1, INPUTS_MAX)?;
        check.each_takes("vectors", |schema| is_numeric(schema) || matches!(schema, Schema::Sparse(_)))?;
        let content = self.object(check, "model", onnx.model, Kind::Onnx)?;
        let Content::Onnx(network) = content else { return Ok(maybe(None, Schema::Dense(None), None)) };
        check.same("model", onnx.model, "inputs", (check.inputs.len(), network.inputs().len()))?;
        for ((_, input), columns) in check.inputs.iter().zip(network.inputs()) {
            check.columns("model", onnx.model, *input, *columns)?;
        }
        let schema = Schema::Dense(Some(network.outputs() as u32));
        let is_known = check.inputs.iter().all(|(_, input)| input.columns().is_some());
        Ok(maybe(is_known.then_some(Op::Onnx(network)), schema, None))
    }
}

fn is_textual(schema: Schema) -> bool {
    matches!(schema, Schema::Text | Schema::Texts | Schema::Words)
}

fn is_numeric(schema: Schema) -> bool {
    matches!(schema, Schema::Number | Schema::Dense(_))
}
