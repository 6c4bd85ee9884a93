//! Models of other programs, imported, against the outputs of those programs. `fixtures/make.py` makes the files.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod damage;
mod hostile;
mod networks;
mod refused;

use std::collections::BTreeMap;
use std::path::PathBuf;

use celeris_model::Context;
use celeris_pipelines::import::onnx::ImportInputs;
use celeris_pipelines::import::{ImportError, Imported, lightgbm, onnx};
use celeris_pipelines::{Catalog, Objects, PipelineError, PipelineSpec, Plan, Record, Scratch};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A model with inputs and expected outputs.
struct Case {
    name: String,
    model: Vec<u8>,
    facts: Facts,
}

#[derive(Deserialize)]
struct Facts {
    inputs: BTreeMap<String, Vec<String>>,
    records: Vec<Fields>,
    expected: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct Fields {
    item: Map<String, Value>,
    context: Context,
}

/// The folder of the fixtures; `CELERIS_FIXTURES` names another one, made with more rows.
fn folder() -> PathBuf {
    let checked_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures");
    std::env::var_os("CELERIS_FIXTURES").map_or(checked_in.into(), PathBuf::from)
}

/// All cases whose model has this suffix, in the order of their names.
fn cases(suffix: &str) -> Vec<Case> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut facts: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "json")).collect();
    facts.sort();
    let models = facts.iter().filter_map(|facts| {
        let model = std::fs::read(facts.with_extension(suffix)).ok()?;
        let name = facts.file_stem().unwrap().to_string_lossy().into_owned();
        Some(Case { name, model, facts: serde_json::from_slice(&std::fs::read(facts).unwrap()).unwrap() })
    });
    models.collect()
}

impl Case {
    fn import_inputs(&self) -> ImportInputs {
        ImportInputs { inputs: self.facts.inputs.clone(), output: None }
    }

    /// Compares the outputs of the pipeline with the expected ones, and prints the largest difference.
    fn compare_pipeline(&self, imported: Imported) {
        let plan = compile(imported).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let (mut scratch, mut outputs) = (Scratch::default(), vec![0.0; plan.dim()]);
        let mut largest: f64 = 0.0;
        for (Fields { item, context }, expected) in self.facts.records.iter().zip(&self.facts.expected) {
            plan.run(Record { item, context }, &mut scratch, &mut outputs).unwrap();
            assert_eq!(outputs.len(), expected.len(), "{}", self.name);
            for (output, expected) in outputs.iter().zip(expected) {
                let difference = (f64::from(*output) - expected).abs() / expected.abs().max(1.0);
                largest = largest.max(difference);
            }
        }
        // The programs compute in f32 in part, and in other orders.
        assert!(largest <= 1e-5, "{}: {largest:e}", self.name);
        eprintln!("{}: {} rows, largest difference {largest:.1e}", self.name, self.facts.records.len());
    }
}

/// Compiles an imported graph.
fn compile(imported: Imported) -> Result<Plan, PipelineError> {
    let objects = Objects::in_memory();
    let held: Vec<_> = imported.objects.values().map(|bytes| objects.insert(bytes).unwrap()).collect();
    let spec = PipelineSpec { name: "imported".to_owned(), nodes: imported.nodes, output: imported.output };
    let plan = Plan::compile(&spec, &objects, &Catalog::default());
    drop(held);
    plan
}

#[test]
fn lightgbm_models_score_as_lightgbm() {
    let cases = cases("txt");
    assert!(cases.len() >= 10);
    for case in cases {
        let imported = lightgbm::import(&case.model, &case.facts.inputs["row"]);
        case.compare_pipeline(imported.unwrap_or_else(|error| panic!("{}: {error}", case.name)));
    }
}

#[test]
fn onnx_models_score_as_the_programs_that_made_them() {
    let cases = cases("onnx");
    assert!(cases.len() >= 20);
    for case in cases {
        let imported = onnx::import(&case.model, &case.import_inputs());
        case.compare_pipeline(imported.unwrap_or_else(|error| panic!("{}: {error}", case.name)));
    }
}

#[test]
fn differences_from_the_model_are_noted() {
    let cases = cases("onnx");
    let notes = |name: &str| {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        onnx::import(&case.model, &case.import_inputs()).unwrap().notes
    };
    assert_eq!(notes("onnx_mixed"), Vec::<String>::new());
    assert_eq!(
        notes("onnx_logistic"),
        ["scale_0: the offset stands for a missing value, which stays missing in the model"]
    );
    let words = "item.title: words are runs of Unicode letters and digits; the model's expression is [a-zA-Z0-9]+";
    assert_eq!(notes("onnx_tf_idf"), [words]);
}

#[test]
fn a_field_with_a_list_of_numbers_is_an_input_of_several_columns() {
    let case = cases("onnx").into_iter().find(|case| case.name == "onnx_boosting").unwrap();
    let outputs = |inputs: &ImportInputs, item: &Value| {
        let plan = compile(onnx::import(&case.model, inputs).unwrap()).unwrap();
        let mut outputs = vec![0.0; plan.dim()];
        let (item, context) = (item.as_object().unwrap(), &Context::default());
        plan.run(Record { item, context }, &mut Scratch::default(), &mut outputs).unwrap();
        outputs
    };
    let numbers = [0.5, -1.0, 2.0, 0.25, 0.0];
    let list = BTreeMap::from([("X".to_owned(), vec!["item.vector".to_owned()])]);
    let fields: Map<String, Value> = (0..).zip(numbers).map(|(column, x)| (format!("n{column}"), x.into())).collect();
    assert_eq!(
        outputs(&ImportInputs { inputs: list, output: None }, &serde_json::json!({ "vector": numbers })),
        outputs(&case.import_inputs(), &Value::Object(fields))
    );
}

/// The error of a file that cannot be imported.
fn refusal(file: &str, inputs: &[(&str, &[&str])]) -> ImportError {
    let model =
        std::fs::read(PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(file)).unwrap();
    if file.ends_with(".txt") {
        return lightgbm::read(&model).unwrap_err();
    }
    let fields = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let inputs = inputs.iter().map(|(input, names)| ((*input).to_owned(), fields(names))).collect();
    onnx::import(&model, &ImportInputs { inputs, output: None }).unwrap_err()
}
