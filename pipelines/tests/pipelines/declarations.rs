//! What is refused, with the node and the field.

use std::sync::Arc;

use celeris_pipelines::objects::{Content, Dictionary, Idf, Objects, Weights};
use celeris_pipelines::{Depends, Graph, Outline, PipelineError, PipelineSpec};
use serde_json::{Value, json};

fn declared(nodes: Value, output: &str, objects: &Objects) -> Result<Graph, PipelineError> {
    let spec = PipelineSpec::parse(&json!({"name": "test", "nodes": nodes, "output": output}))?;
    Graph::declared(&spec, objects)
}

fn refusal(nodes: Value) -> String {
    declared(nodes, "out", &Objects::in_memory()).unwrap_err().to_string()
}

#[test]
fn errors_name_node_and_field() {
    let number = json!({"op": "presence", "input": "n"});
    for (nodes, problem) in [
        (json!({"out": {"op": "scales", "input": "item.a"}}), "out: unknown variant `scales`"),
        (json!({"out": {"op": "cyclic", "input": "item.a", "period": 1, "phase": 2}}), "out: unknown field `phase`"),
        (json!({"out": {"op": "cyclic", "input": "item.a"}}), "out: missing field `period`"),
        (json!({"out": {"op": "cyclic", "input": "items.a", "period": 1}}), "out.input: there is no node \"items.a\""),
        (json!({"out": {"op": "cyclic", "input": "b", "period": 1}}), "out.input: there is no node \"b\""),
        (json!({"out": {"op": "cyclic", "input": "item.a", "period": 0}}), "out.period: is no finite number above 0"),
        (json!({"out": {"op": "presence", "input": "item.a"}}), "out.input: the type of item.a does not follow"),
        (json!({"out": {"op": "hash", "input": "item.a", "hash_bits": 23}}), "out.hash_bits: 23 is not from 1 to 22"),
        (json!({"out": {"op": "cross", "inputs": ["item.a"], "hash_bits": 3}}), "out.inputs: there are 1 inputs"),
        (json!({"out": {"op": "concat", "inputs": []}}), "out.inputs: there are 0 inputs"),
        (
            json!({"w": {"op": "tokenize", "input": "item.t"}, "out": {"op": "word_ngrams", "input": "w", "n": [2, 1], "hash_bits": 4}}),
            "out.n: is no range within 1 to 5",
        ),
        (
            json!({"n": {"op": "field", "of": "item", "name": "x", "type": "number"}, "out": {"op": "tokenize", "input": "n"}}),
            "out.input: takes a text, and n gives a number",
        ),
        (
            json!({"n": {"op": "field", "of": "item", "name": "x", "type": "number", "dim": 3}, "out": number}),
            "n.dim: is given for the type numbers",
        ),
        (
            json!({"n": {"op": "field", "of": "context", "name": "x", "type": "numbers", "dim": 3}, "out": number}),
            "n.type: is numbers, and a context has no lists of numbers",
        ),
        (
            json!({"out": {"op": "bucketize", "input": "item.n", "edges": [1, 1]}}),
            "out.edges: are not finite and ascending",
        ),
        (
            json!({"out": {"op": "one_hot", "input": "item.n", "categories": ["a", "a"]}}),
            "out.categories: object: has the string \"a\" twice",
        ),
        (json!({"out": {"op": "tokenize", "input": "item.t"}}), "its output out is words, which is no vector"),
        (
            json!({"out": {"op": "linear", "input": "item.n", "weights": "sha256:00"}}),
            "out: an object is named by sha256: and 64",
        ),
        (
            json!({"out": {"op": "linear", "input": "item.n", "weights": format!("sha256:{}", "0".repeat(64))}}),
            "out.weights: there is no object sha256:0000",
        ),
        (json!({"out": {"op": "linear", "input": "item.n"}}), "out.weights: is not fitted yet"),
        (json!({"a.b": {"op": "cyclic", "input": "item.a", "period": 1}}), "the name \"a.b\" of a node"),
    ] {
        let refused = refusal(nodes.clone());
        assert!(refused.contains(problem), "{nodes}: {refused}");
    }
}

#[test]
fn cycles_and_nodes_without_use_are_refused() {
    let scale = |input: &str| json!({"op": "impute", "input": input, "value": 0});
    let cycle = json!({"out": scale("a"), "a": scale("b"), "b": scale("a")});
    assert_eq!(refusal(cycle), "nodes need one another: a -> b -> a");
    let unused = json!({"out": scale("item.x"), "left": scale("item.x"), "over": scale("left")});
    assert_eq!(refusal(unused), "nodes that the output does not need: left, over");
    let missing = declared(json!({"a": scale("item.x")}), "b", &Objects::in_memory()).unwrap_err();
    assert_eq!(missing.to_string(), "pipeline: its output \"b\" is none of its nodes");
}

#[test]
fn pipelines_that_are_too_deep_or_too_large_are_refused() {
    let chain = |length: usize| {
        let node = |at: usize| {
            let input = if at == 0 { "item.x".to_owned() } else { format!("n{}", at - 1) };
            (format!("n{at}"), json!({"op": "impute", "input": input, "value": 0}))
        };
        Value::Object((0..length).map(node).collect())
    };
    let objects = Objects::in_memory();
    assert!(declared(chain(64), "n63", &objects).is_ok());
    assert!(declared(chain(65), "n64", &objects).unwrap_err().to_string().contains("more than 64 nodes below"));
    assert!(declared(chain(257), "n256", &objects).unwrap_err().to_string().contains("the maximum is 256"));
    let wide: serde_json::Map<String, Value> = (0..5)
        .map(|concat| {
            let inputs: Vec<String> = (0..60).map(|field| format!("item.f{concat}_{field}")).collect();
            (format!("c{concat}"), json!({"op": "concat", "inputs": inputs}))
        })
        .chain([("out".to_owned(), json!({"op": "concat", "inputs": ["c0", "c1", "c2", "c3", "c4"]}))])
        .collect();
    let refused = declared(Value::Object(wide), "out", &objects).unwrap_err().to_string();
    assert!(refused.contains("with the fields that they imply"), "{refused}");
}

#[test]
fn objects_of_another_kind_or_shape_are_refused() {
    let objects = Objects::in_memory();
    let words = objects.add(&Content::Dictionary(Arc::new(Dictionary::new(["a", "b"]).unwrap()))).unwrap();
    let idf = objects.add(&Content::Idf(Arc::new(Idf::new(vec![1.0; 3]).unwrap()))).unwrap();
    let weights = objects.add(&Content::Weights(Arc::new(Weights::new(vec![0.0; 2], vec![0.0; 4]).unwrap()))).unwrap();
    let nodes = |dictionary: &str, last: Value| {
        json!({
            "words": {"op": "tokenize", "input": "item.text"},
            "grams": {"op": "word_ngrams", "input": "words", "n": [1, 1], "dictionary": dictionary},
            "out": last})
    };
    let refused = |nodes: Value| declared(nodes, "out", &objects).unwrap_err();
    let tf_idf = json!({"op": "tf_idf", "input": "grams", "idf": idf.id()});
    assert!(matches!(
        refused(nodes(&idf.id().to_string(), tf_idf.clone())),
        PipelineError::WrongKind { node, field, .. } if node == "grams" && field == "dictionary"
    ));
    let shape = refused(nodes(&words.id().to_string(), tf_idf)).to_string();
    assert!(shape.starts_with("out.idf: object") && shape.ends_with("has 3 columns, needed is 2"), "{shape}");
    let linear = |outputs: u32| json!({"op": "linear", "input": "grams", "weights": weights.id(), "outputs": outputs});
    let shape = refused(nodes(&words.id().to_string(), linear(1))).to_string();
    assert!(shape.ends_with("has 2 outputs, needed is 1"), "{shape}");
    assert!(declared(nodes(&words.id().to_string(), linear(2)), "out", &objects).is_ok());
}

fn clicks(prefix: &str) -> PipelineSpec {
    let name = |name: &str| format!("{prefix}{name}");
    let inputs: Vec<String> = ["grams", "genre", "hour", "cross"].map(name).to_vec();
    PipelineSpec::parse(&json!({"name": name("clicks"), "nodes": {
        name("title"): {"op": "field", "of": "item", "name": "title", "type": "text"},
        name("words"): {"op": "tokenize", "input": name("title")},
        name("grams"): {"op": "word_ngrams", "input": name("words"), "n": [1, 2], "hash_bits": 10},
        name("genre"): {"op": "multi_hot", "input": "item.genres", "fit": {"min_count": 1}},
        name("hour"): {"op": "cyclic", "input": "context.hour", "period": 24},
        name("cross"): {"op": "cross", "inputs": ["item.genres", "context.device"], "hash_bits": 8},
        name("all"): {"op": "concat", "inputs": inputs},
        name("ctr"): {"op": "linear", "input": name("all"), "fit": "label", "link": "logistic"},
    }, "output": name("ctr")}))
    .unwrap()
}

#[test]
fn an_outline_knows_what_a_pipeline_lacks_before_it_is_fitted() {
    let outline = Outline::of(&clicks(""), &Objects::in_memory()).unwrap();
    assert_eq!(outline.dim, Some(1));
    assert_eq!(outline.unfitted, ["genre.dictionary", "ctr.weights"]);
    assert_eq!(outline.item_fields, ["genres", "title"]);
    assert_eq!(outline.context_fields, ["device", "hour"]);
    assert_eq!(outline.depends_on, Depends::ItemAndContext);
}

#[test]
fn fingerprints_ignore_names_and_settings_of_fits_that_were_run() {
    let objects = Objects::in_memory();
    let of = |spec: &PipelineSpec| Outline::of(spec, &objects).unwrap().fingerprint;
    assert_eq!(of(&clicks("")), of(&clicks("other_")));
    let known = |fit: Option<u32>, categories: [&str; 2]| {
        let mut nodes = json!({"out": {"op": "one_hot", "input": "item.a", "categories": categories}});
        if let Some(min_count) = fit {
            nodes["out"]["fit"] = json!({"min_count": min_count});
        }
        let spec = PipelineSpec::parse(&json!({"name": "a", "nodes": nodes, "output": "out"})).unwrap();
        of(&spec)
    };
    assert_eq!(known(None, ["x", "y"]), known(Some(7), ["x", "y"]));
    assert_ne!(known(None, ["x", "y"]), known(None, ["y", "x"]));
    // Stored results depend on it: a change of the canonical form changes what they are found by.
    assert_eq!(known(None, ["x", "y"]).to_string(), "c6eb123a8e6fe6cf9ecf19bf7a4d4f5e41eafb96fcac25b99c7fc907e9da6721");
}

#[test]
fn declarations_are_written_as_they_are_read() {
    let spec = clicks("");
    let json = serde_json::to_value(&spec).unwrap();
    assert_eq!(PipelineSpec::parse(&json).unwrap(), spec);
}
