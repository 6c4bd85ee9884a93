//! The operators.

use serde::{Deserialize, Serialize};

use crate::objects::ObjectId;

use super::parameters::{
    Attributes, Bucketize, Categories, CharNgrams, Concat, Constant, Cross, Cyclic, Embedding, Field, Hash, Impute,
    Kmeans, Linear, Normalize, Onnx, Pca, Presence, Scale, TfIdf, Tokenize, Trees, WordNgrams,
};

/// A node of a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operator {
    Field(Field),
    Attributes(Attributes),
    Constant(Constant),
    Tokenize(Tokenize),
    WordNgrams(WordNgrams),
    CharNgrams(CharNgrams),
    TfIdf(TfIdf),
    Normalize(Normalize),
    OneHot(Categories),
    MultiHot(Categories),
    Hash(Hash),
    Bucketize(Bucketize),
    Cyclic(Cyclic),
    Scale(Scale),
    Impute(Impute),
    Presence(Presence),
    Cross(Cross),
    Concat(Concat),
    Embedding(Embedding),
    Pca(Pca),
    Kmeans(Kmeans),
    Linear(Linear),
    Trees(Trees),
    Onnx(Onnx),
}

impl Operator {
    /// Its name in JSON.
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
            Self::Presence(_) => "presence",
            Self::Cross(_) => "cross",
            Self::Concat(_) => "concat",
            Self::Embedding(_) => "embedding",
            Self::Pca(_) => "pca",
            Self::Kmeans(_) => "kmeans",
            Self::Linear(_) => "linear",
            Self::Trees(_) => "trees",
            Self::Onnx(_) => "onnx",
        }
    }

    /// The names of its inputs.
    #[must_use]
    pub fn inputs(&self) -> &[String] {
        match self {
            Self::Field(_) | Self::Attributes(_) | Self::Constant(_) => &[],
            Self::Tokenize(Tokenize { input, .. })
            | Self::WordNgrams(WordNgrams { input, .. })
            | Self::CharNgrams(CharNgrams { input, .. })
            | Self::TfIdf(TfIdf { input, .. })
            | Self::Normalize(Normalize { input, .. })
            | Self::OneHot(Categories { input, .. })
            | Self::MultiHot(Categories { input, .. })
            | Self::Hash(Hash { input, .. })
            | Self::Bucketize(Bucketize { input, .. })
            | Self::Cyclic(Cyclic { input, .. })
            | Self::Scale(Scale { input, .. })
            | Self::Impute(Impute { input, .. })
            | Self::Presence(Presence { input })
            | Self::Embedding(Embedding { input, .. })
            | Self::Pca(Pca { input, .. })
            | Self::Kmeans(Kmeans { input, .. })
            | Self::Linear(Linear { input, .. })
            | Self::Trees(Trees { input, .. }) => std::slice::from_ref(input),
            Self::Cross(Cross { inputs, .. }) | Self::Concat(Concat { inputs }) | Self::Onnx(Onnx { inputs, .. }) => {
                inputs
            }
        }
    }

    /// The field that refers to its inputs.
    #[must_use]
    pub fn input_field(&self) -> &'static str {
        if matches!(self, Self::Cross(_) | Self::Concat(_) | Self::Onnx(_)) { "inputs" } else { "input" }
    }

    /// The field of a learnt parameter that is not there yet. Columns of a category need none.
    #[must_use]
    pub fn unfitted(&self) -> Option<&'static str> {
        let absent = |there: bool, field: &'static str| (!there).then_some(field);
        match self {
            Self::Attributes(attributes) => absent(attributes.rules.is_some(), "rules"),
            Self::WordNgrams(grams) => absent(grams.dictionary.is_some() || grams.hash_bits.is_some(), "dictionary"),
            Self::CharNgrams(grams) => absent(grams.dictionary.is_some() || grams.hash_bits.is_some(), "dictionary"),
            Self::TfIdf(weighting) => absent(weighting.idf.is_some(), "idf"),
            Self::OneHot(known) | Self::MultiHot(known) => {
                absent(known.categories.is_some() || known.dictionary.is_some(), "dictionary")
            }
            Self::Scale(scale) => absent(scale.moments.is_some(), "moments"),
            Self::Impute(impute) => absent(impute.value.is_some() || impute.moments.is_some(), "moments"),
            Self::Pca(pca) => absent(pca.components.is_some(), "components"),
            Self::Kmeans(kmeans) => absent(kmeans.centroids.is_some(), "centroids"),
            Self::Linear(linear) => absent(linear.weights.is_some(), "weights"),
            _ => None,
        }
    }

    /// The object that it names.
    #[must_use]
    pub fn object(&self) -> Option<ObjectId> {
        match self {
            Self::Attributes(attributes) => attributes.rules,
            Self::WordNgrams(grams) => grams.dictionary,
            Self::CharNgrams(grams) => grams.dictionary,
            Self::TfIdf(weighting) => weighting.idf,
            Self::OneHot(known) | Self::MultiHot(known) => known.dictionary,
            Self::Scale(scale) => scale.moments,
            Self::Impute(impute) => impute.moments,
            Self::Embedding(embedding) => Some(embedding.table),
            Self::Pca(pca) => pca.components,
            Self::Kmeans(kmeans) => kmeans.centroids,
            Self::Linear(linear) => linear.weights,
            Self::Trees(trees) => Some(trees.ensemble),
            Self::Onnx(onnx) => Some(onnx.model),
            Self::Field(_)
            | Self::Constant(_)
            | Self::Tokenize(_)
            | Self::Normalize(_)
            | Self::Hash(_)
            | Self::Bucketize(_)
            | Self::Cyclic(_)
            | Self::Presence(_)
            | Self::Cross(_)
            | Self::Concat(_) => None,
        }
    }

    /// Without the settings of fits that have been run: they say nothing about the values.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let mut canonical = self.clone();
        if self.unfitted().is_none() {
            match &mut canonical {
                Self::WordNgrams(grams) => grams.fit = None,
                Self::CharNgrams(grams) => grams.fit = None,
                Self::OneHot(known) | Self::MultiHot(known) => known.fit = None,
                Self::Scale(scale) => scale.fit = None,
                Self::Linear(linear) => (linear.fit, linear.regularization) = (None, None),
                _ => {}
            }
        }
        canonical
    }

    /// With the names of its inputs blanked: they say nothing about what it computes.
    #[must_use]
    pub fn without_inputs(&self) -> Self {
        let mut nameless = self.clone();
        match &mut nameless {
            Self::Field(_) | Self::Attributes(_) | Self::Constant(_) => {}
            Self::Tokenize(Tokenize { input, .. })
            | Self::WordNgrams(WordNgrams { input, .. })
            | Self::CharNgrams(CharNgrams { input, .. })
            | Self::TfIdf(TfIdf { input, .. })
            | Self::Normalize(Normalize { input, .. })
            | Self::OneHot(Categories { input, .. })
            | Self::MultiHot(Categories { input, .. })
            | Self::Hash(Hash { input, .. })
            | Self::Bucketize(Bucketize { input, .. })
            | Self::Cyclic(Cyclic { input, .. })
            | Self::Scale(Scale { input, .. })
            | Self::Impute(Impute { input, .. })
            | Self::Presence(Presence { input })
            | Self::Embedding(Embedding { input, .. })
            | Self::Pca(Pca { input, .. })
            | Self::Kmeans(Kmeans { input, .. })
            | Self::Linear(Linear { input, .. })
            | Self::Trees(Trees { input, .. }) => input.clear(),
            Self::Cross(Cross { inputs, .. }) | Self::Concat(Concat { inputs }) | Self::Onnx(Onnx { inputs, .. }) => {
                inputs.iter_mut().for_each(String::clear);
            }
        }
        nameless
    }
}
