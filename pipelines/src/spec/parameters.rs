//! The parameters of operators. Optional objects are learnt parameters: absent until the pipeline is fitted.

use serde::{Deserialize, Serialize};

use crate::ids::ObjectId;

/// Whose field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The attributes of the item.
    Item,
    /// The context of the request.
    Context,
}

impl Side {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::Context => "context",
        }
    }
}

/// How a field is read. Values of other kinds are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// A number; a boolean is 1 or 0.
    Number,
    /// A string.
    Text,
    /// 1 or 0.
    Boolean,
    /// A string, or the text of a number or a boolean.
    Category,
    /// A list of such texts; a single one is a list of one.
    Texts,
    /// A list of `dim` numbers.
    Numbers,
}

/// A field of the item or of the context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    pub of: Side,
    pub name: String,
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Number of entries; for `numbers` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dim: Option<u32>,
}

/// All attributes of the item, each by its kind, as the map from attributes to features reads them: see
/// [`crate::attributes`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attributes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<ObjectId>,
}

/// The same numbers for every record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    pub numbers: Vec<f32>,
}

/// What a word is. Words are in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Words {
    /// A run of letters and digits.
    #[default]
    Unicode,
    /// A run of at least two letters, digits or underscores: scikit-learn's default, `(?u)\b\w\w+\b`.
    TwoOrMore,
}

/// Splits a text into its words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokenize {
    pub input: String,
    #[serde(default)]
    pub words: Words,
}

/// Learning of a dictionary: the most frequent strings that occur in enough rows.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FitDictionary {
    /// Number of rows that a string occurs in, at least.
    pub min_count: u32,
    /// Number of strings, at most.
    pub max_size: u32,
}

impl Default for FitDictionary {
    fn default() -> Self {
        Self { min_count: 2, max_size: 50_000 }
    }
}

/// Counts of sequences of words, by a dictionary or by hashes. A sequence is written with single spaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WordNgrams {
    pub input: String,
    /// Smallest and largest number of words.
    pub n: [u8; 2],
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dictionary: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_bits: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitDictionary>,
}

/// Where character n-grams are taken from, as in scikit-learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CharWindow {
    /// The whole text, with runs of white space as one space.
    #[default]
    Char,
    /// Each run of other characters than white space, between two spaces.
    CharWb,
}

/// Counts of sequences of characters of a text in lower case, by a dictionary or by hashes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CharNgrams {
    pub input: String,
    /// Smallest and largest number of characters.
    pub n: [u8; 2],
    #[serde(default)]
    pub window: CharWindow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dictionary: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash_bits: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitDictionary>,
}

/// The length that a vector is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    L1,
    L2,
    Max,
}

/// Weights counts by the inverse frequency of their columns, then divides by a norm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TfIdf {
    pub input: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idf: Option<ObjectId>,
    /// Takes `1 + ln(count)` for the count.
    #[serde(default)]
    pub sublinear: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<Norm>,
}

/// Divides a vector by a norm. A zero vector stays one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    pub input: String,
    pub norm: Norm,
}

/// A column for each known category, inline or as a dictionary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Categories {
    pub input: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dictionary: Option<ObjectId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitDictionary>,
}

/// A hashed column for each text. With `signs`, entries are 1 or -1, so that collisions cancel out on average.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    pub input: String,
    pub hash_bits: u32,
    #[serde(default)]
    pub signs: bool,
}

/// The number of the bucket that a number lies in: that of the edges that are not above it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucketize {
    pub input: String,
    /// Ascending.
    pub edges: Vec<f64>,
}

/// Sine and cosine of a number that repeats, such as the hour of a day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cyclic {
    pub input: String,
    pub period: f64,
}

/// How scaling is learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FitScale {
    /// To mean 0 and standard deviation 1.
    #[default]
    Standard,
    /// From minimum and maximum to 0 and 1.
    MinMax,
}

/// `(x - center) / width` of each entry. A missing number becomes what its mean becomes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    pub input: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moments: Option<ObjectId>,
    /// Results beyond this magnitude are cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clamp: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitScale>,
}

/// Replaces missing numbers by a given one, or by the means of moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Impute {
    pub input: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moments: Option<ObjectId>,
}

/// 1 if the input is there, otherwise 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Presence {
    pub input: String,
}

/// A hashed column for each combination of one feature of every input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    pub inputs: Vec<String>,
    pub hash_bits: u32,
}

/// The columns of all inputs, one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    pub inputs: Vec<String>,
}

/// The vector of a category, or the mean of the vectors of a list; zeros for unknown ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    pub input: String,
    pub table: ObjectId,
}

/// Coordinates along the principal components.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pca {
    pub input: String,
    /// Number of coordinates.
    pub dim: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub components: Option<ObjectId>,
}

/// What k-means gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterOutput {
    /// The distance to each center.
    #[default]
    Distances,
    /// The nearest center, a category.
    Cluster,
}

/// Position relative to the centers of clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kmeans {
    pub input: String,
    pub clusters: u32,
    #[serde(default)]
    pub gives: ClusterOutput,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub centroids: Option<ObjectId>,
}

/// What a linear model applies to its sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    #[default]
    Identity,
    /// `1 / (1 + exp(-x))`.
    Logistic,
    /// `exp(x)`: Poisson regression.
    Exp,
}

/// What a linear model learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FitLinear {
    /// The label of a row.
    Label,
    /// The target vector of a row, whose length is the number of outputs.
    Target,
}

/// `link(bias + weights · x)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    pub input: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<ObjectId>,
    #[serde(default)]
    pub link: Link,
    /// Number of outputs; 1 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<u32>,
    /// Strength of the L2 penalty of the fit; 1 if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub regularization: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit: Option<FitLinear>,
}

/// An ensemble of decision trees. Missing entries are missing to the trees.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trees {
    pub input: String,
    pub ensemble: ObjectId,
}

/// A graph of ONNX operators, run as a whole over the vectors that are its inputs. A missing entry counts as 0; if the
/// graph fails for a row, all outputs are missing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Onnx {
    pub inputs: Vec<String>,
    pub model: ObjectId,
}
