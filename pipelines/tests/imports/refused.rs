//! Models and inputs that cannot be imported, by name.

use super::*;

#[test]
fn linear_trees_are_refused_by_name() {
    let error = refusal("refused_linear_tree.txt", &[]).to_string();
    assert!(error.contains("is_linear: linear trees are not supported"), "{error}");
}

#[test]
fn operators_without_a_counterpart_are_listed() {
    let error = refusal("refused_network.onnx", &[("X", &["item.price"])]);
    assert_eq!(error, ImportError::Opaque { operators: vec!["Einsum".to_owned(), "Trilu".to_owned()] });
}

#[test]
fn inputs_must_be_those_of_the_model_and_name_fields() {
    let refused = |inputs| refusal("onnx_ordinal.onnx", inputs).to_string();
    assert_eq!(refused(&[]), "s: no fields are given for this input of the model");
    assert_eq!(refused(&[("t", &["item.a"])]), "t: the model has no such input; it has s");
    assert_eq!(refused(&[("s", &["item."])]), "s: \"item.\" is not item.NAME or context.NAME");
    assert_eq!(refused(&[("s", &["user.a"])]), "s: \"user.a\" is not item.NAME or context.NAME");
    assert_eq!(refused(&[("s", &["item.a"])]), "s: the input has 2 columns, got 1 fields");
}

#[test]
fn the_label_of_a_classifier_is_no_output() {
    let case = cases("onnx").into_iter().find(|case| case.name == "onnx_forest").unwrap();
    let inputs = ImportInputs { output: Some("label".to_owned()), ..case.import_inputs() };
    let error = onnx::import(&case.model, &inputs).unwrap_err().to_string();
    assert_eq!(error, "label: it is the label of a classifier; import its scores");
}

/// A LightGBM model with one line replaced.
fn changed(from: &str, to: &str) -> String {
    let model = cases("txt").into_iter().find(|case| case.name == "lightgbm_categorical").unwrap().model;
    let text = String::from_utf8(model).unwrap();
    let line = text.lines().find(|line| line.starts_with(from)).unwrap();
    lightgbm::read(text.replacen(line, to, 1).as_bytes()).unwrap_err().to_string()
}

#[test]
fn damaged_lightgbm_models_are_refused_by_line_and_key() {
    assert_eq!(changed("tree", "forest"), "line 1, forest: a LightGBM model begins with the line 'tree'");
    assert_eq!(changed("version", "version=v9"), "line 2, version: the versions v2, v3 and v4 can be imported");
    assert_eq!(changed("version", ""), "line 12, version: it is missing");
    assert_eq!(
        changed("objective", "objective=sqrt_loss"),
        "line 7, objective: the objective sqrt_loss is not supported"
    );
    assert_eq!(changed("max_feature_idx", "max_feature_idx=3"), "line 8, feature_names: 5 names for 4 features");
    assert_eq!(changed("num_leaves", "num_leaves=9"), "line 21, leaf_value: there must be 9 values, got 8");
    assert_eq!(
        changed("left_child", "left_child=0 0 0 0 0 0 0"),
        "tree 0, node 0: the node is the child of more than one node, or of itself"
    );
    assert_eq!(changed("left_child", "left_child=9 0 0 0 0 0 0"), "line 19, left_child: the tree has no node 9");
    assert_eq!(changed("threshold", "threshold=a"), "line 17, threshold: \"a\" is not a value of this list");
    assert_eq!(
        changed("split_feature", "split_feature=77 0 0 0 0 0 0"),
        "tree 0, node 0: the feature 77 does not exist: the ensemble has 5 inputs"
    );
}
