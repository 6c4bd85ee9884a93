//! Graphs that were written to harm: they are refused within their bounds.

use super::*;

/// A field with bytes.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut encoded = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        encoded.push(length as u8 | 0x80);
        length >>= 7;
    }
    encoded.push(length as u8);
    [&encoded, bytes].concat()
}

/// A node of `ai.onnx.ml` or, if `attributes` is empty, of the main domain.
pub(super) fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut node: Vec<u8> = inputs.iter().flat_map(|input| field(1, input.as_bytes())).collect();
    node.extend(field(2, output.as_bytes()));
    node.extend(field(4, operator.as_bytes()));
    attributes.iter().for_each(|attribute| node.extend(field(5, attribute)));
    if operator.starts_with("Tree") || operator == "FeatureVectorizer" {
        node.extend(field(7, b"ai.onnx.ml"));
    }
    field(1, &node)
}

pub(super) fn integers(name: &str, values: &[u8]) -> Vec<u8> {
    [field(1, name.as_bytes()), field(8, values)].concat()
}

fn floats(name: &str, values: &[f32]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [field(1, name.as_bytes()), field(7, &bytes)].concat()
}

fn texts(name: &str, values: &[&str]) -> Vec<u8> {
    [field(1, name.as_bytes()), values.iter().flat_map(|value| field(9, value.as_bytes())).collect()].concat()
}

/// What becomes of a graph with the input `x` of one number and the output `y`.
fn import(nodes: &[Vec<u8>]) -> Result<Imported, String> {
    let float = field(2, &field(1, &[8, 1]));
    let input = field(11, &[field(1, b"x"), float].concat());
    let graph = [nodes.concat(), input, field(12, &field(1, b"y"))].concat();
    let inputs = BTreeMap::from([("x".to_owned(), vec!["item.price".to_owned()])]);
    onnx::import(&field(7, &graph), &ImportInputs { inputs, output: None }).map_err(|error| error.to_string())
}

fn error(nodes: &[Vec<u8>]) -> String {
    import(nodes).unwrap_err()
}

#[test]
fn repeated_columns_are_bounded() {
    let names: Vec<String> = (0..60).map(|level| format!("h{level}")).chain(["y".to_owned()]).collect();
    let mut nodes = vec![node("FeatureVectorizer", &["x", "x"], "h0", &[])];
    nodes.extend(names.windows(2).map(|pair| node("FeatureVectorizer", &[&pair[0], &pair[0]], &pair[1], &[])));
    assert_eq!(error(&nodes), "node 12 (FeatureVectorizer), input: the graph arranges too many fields");
}

#[test]
fn nodes_are_bounded() {
    let nodes = vec![node("Identity", &["x"], "y", &[]); 10_001];
    assert!(error(&nodes).ends_with("there are more than 10000 nodes"));
}

#[test]
fn nodes_follow_their_inputs() {
    let nodes = [node("Identity", &["b"], "y", &[]), node("Identity", &["y"], "b", &[])];
    assert_eq!(error(&nodes), "node 0 (Identity), b: no earlier node gives this input");
    let nodes = [node("Identity", &["x"], "y", &[]), node("Identity", &["x"], "y", &[])];
    assert_eq!(error(&nodes), "node 1 (Identity), y: another node has the same output");
}

/// A tree of three nodes, of which the root has these children.
fn stump(then: u8, otherwise: u8) -> Vec<u8> {
    let attributes = [
        integers("nodes_treeids", &[0, 0, 0]),
        integers("nodes_nodeids", &[0, 1, 2]),
        integers("nodes_featureids", &[0, 0, 0]),
        floats("nodes_values", &[0.5, 0.0, 0.0]),
        texts("nodes_modes", &["BRANCH_LEQ", "LEAF", "LEAF"]),
        integers("nodes_truenodeids", &[then, 0, 0]),
        integers("nodes_falsenodeids", &[otherwise, 0, 0]),
        integers("target_treeids", &[0, 0]),
        integers("target_nodeids", &[1, 2]),
        integers("target_ids", &[0, 0]),
        floats("target_weights", &[1.0, 2.0]),
    ];
    node("TreeEnsembleRegressor", &["x"], "y", &attributes)
}

#[test]
fn trees_with_cycles_or_without_children_are_refused() {
    assert!(import(&[stump(1, 2)]).is_ok());
    let shared = "the node is the child of more than one node, or of itself";
    assert_eq!(error(&[stump(0, 1)]), format!("tree 0, node 0: {shared}"));
    assert_eq!(error(&[stump(1, 1)]), format!("tree 0, node 1: {shared}"));
    assert_eq!(error(&[stump(1, 9)]), "node 0 (TreeEnsembleRegressor), nodes_truenodeids: tree 0 has no node 9");
}

#[test]
fn trees_of_version_5_share_no_splits() {
    let ensemble = |roots: &[u8]| {
        // A tensor of `kind` with these bytes.
        let tensor = |name: &str, kind: u8, raw: &[u8]| {
            [field(1, name.as_bytes()), field(5, &[[16, kind].to_vec(), field(9, raw)].concat())].concat()
        };
        let attributes = [
            integers("tree_roots", roots),
            integers("nodes_featureids", &[0]),
            tensor("nodes_modes", 2, &[0]),
            tensor("nodes_splits", 1, &0.5_f32.to_le_bytes()),
            integers("nodes_truenodeids", &[0]),
            integers("nodes_trueleafs", &[1]),
            integers("nodes_falsenodeids", &[0]),
            integers("nodes_falseleafs", &[1]),
            integers("leaf_targetids", &[0]),
            tensor("leaf_weights", 1, &1.0_f32.to_le_bytes()),
        ];
        node("TreeEnsemble", &["x"], "y", &attributes)
    };
    assert!(import(&[ensemble(&[0])]).is_ok());
    assert_eq!(
        error(&[ensemble(&[0, 0])]),
        "node 0 (TreeEnsemble), nodes_truenodeids: node 0 has more than one parent"
    );
}
