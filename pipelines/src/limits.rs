//! Bounds of declarations, objects and values. All are checked when a pipeline is declared or an object is decoded, except
//! those of values, beyond which values are cut off as their documentation says.

/// Number of nodes of a pipeline, with the fields that its shorthands imply.
pub const NODES_MAX: usize = 256;

/// Number of nodes on a path from a field to the output.
pub const DEPTH_MAX: usize = 64;

/// Length of the name of a pipeline, node or field, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Number of inputs of one node.
pub const INPUTS_MAX: usize = 64;

/// Number of inputs of a cross.
pub const CROSS_INPUTS_MAX: usize = 4;

/// Columns of hashed features are at most `2^HASH_BITS_MAX`.
pub const HASH_BITS_MAX: u32 = 22;

/// Number of words of a word n-gram.
pub const WORD_N_MAX: usize = 5;

/// Number of characters of a character n-gram.
pub const CHAR_N_MAX: usize = 8;

/// Number of columns of a sparse vector.
pub const COLUMNS_MAX: usize = 1 << 24;

/// Number of entries of a dense vector.
pub const DENSE_MAX: usize = 4096;

/// Number of outputs of a linear model.
pub const OUTPUTS_MAX: usize = 16;

/// Number of edges of buckets, and of strings of categories that are given inline.
pub const INLINE_MAX: usize = 256;

/// Number of strings of a dictionary.
pub const DICTIONARY_MAX: usize = 1 << 22;

/// Length of a string of a dictionary, in bytes.
pub const STRING_BYTES_MAX: usize = 256;

/// Number of rows of an embedding table.
pub const EMBEDDINGS_MAX: usize = 1 << 20;

/// Number of clusters.
pub const CLUSTERS_MAX: usize = 1024;

/// Size of an encoded object, in bytes.
pub const OBJECT_BYTES_MAX: usize = 256 << 20;

/// Size of the object of an ONNX graph, in bytes.
pub const NETWORK_BYTES_MAX: usize = 64 << 20;

/// Number of nodes of an ONNX graph that one operator runs. The time that a plan takes grows with its square.
pub const NETWORK_NODES_MAX: usize = 256;

/// Number of elements of all values that an ONNX graph computes for a row.
pub const NETWORK_ELEMENTS_MAX: usize = 1 << 22;

/// Number of products that an ONNX graph computes for a row, with those that the widths of its kernels add.
pub const NETWORK_WORK_MAX: usize = 1 << 26;

/// Length of a text that is read, in bytes; the rest of a longer one is ignored.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// Number of elements that are read of a list of texts.
pub const TEXTS_MAX: usize = 256;

/// Number of features of each input of a cross that are combined.
pub const CROSS_FEATURES_MAX: usize = 256;

/// Number of combinations of a cross; beyond it, combinations in the order of the inputs are left out.
pub const COMBINATIONS_MAX: usize = 1 << 16;

/// Largest magnitude of a number; results beyond it are replaced by it, so that every output is finite.
pub const NUMBER_ABS_MAX: f32 = 1e30;
