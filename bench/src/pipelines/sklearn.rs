//! The same sentiment pipelines in scikit-learn, in a process that takes turns with ours.

use std::fs;
use std::path::Path;
use std::time::Duration;

use celeris_cli::Failure;
use celeris_evaluate::peers::Python;
use celeris_model::Context;
use celeris_pipelines::objects::Content;
use celeris_pipelines::spec::{Operator, PipelineSpec};
use celeris_pipelines::{Level, ObjectId, Scratch};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::fleet::{Fleet, record};
use super::latency::expect_equal;
use super::loading::Loaded;
use super::sentiment::{CHAR_GRAMS, MODEL, WORD_GRAMS, weights};
use crate::report::Report;
use crate::script::{Script, Source};
use crate::stopwatch::Durations;

const SOURCE: Source = Source { name: "sklearn_pipelines.py", text: include_str!("sklearn_pipelines.py") };

/// Predictions of each pipeline, of which the first one is not measured.
const PREDICTIONS: usize = 5;

/// Our side.
pub struct Ours<'a> {
    pub fleet: &'a Fleet,
    /// Where the fleet is written.
    pub folder: &'a Path,
    /// What our process has loaded.
    pub loaded: &'a Loaded,
}

/// The script's answer to `predict`.
#[derive(Deserialize)]
struct Predicted {
    seconds: Vec<f64>,
    probabilities: Vec<f32>,
}

/// Compares loading, memory and predictions of single texts with scikit-learn.
///
/// # Errors
/// If the script fails, or its probabilities differ from ours.
pub fn run(report: &mut Report, python: Option<&Python>, ours: &Ours) -> Result<(), Failure> {
    let Ours { fleet, folder, loaded: ours } = ours;
    let theirs = python.map(|python| load(python, fleet, folder)).transpose()?;
    let of_theirs = |value: fn(&Loaded) -> f64| theirs.as_ref().map(|(_, loaded)| value(loaded));
    report.measured("memory/sa=250/sklearn", "MiB", ours.mebibytes(), of_theirs(Loaded::mebibytes));
    report.measured("load/250", "s", ours.seconds, of_theirs(|loaded| loaded.seconds));
    if let Some((_, loaded)) = &theirs {
        expect_equal("scikit-learn", &ours.values, &loaded.values)?;
    }
    predictions(report, theirs.map(|(script, _)| script), fleet)
}

/// Makes the pipelines in one process, and loads them in another.
fn load(python: &Python, fleet: &Fleet, folder: &Path) -> Result<(Script, Loaded), Failure> {
    eprintln!("  scikit-learn makes its pipelines …");
    write(fleet, folder)?;
    let _: Value = Script::start(python, &SOURCE, folder, &[])?.ask("make")?;
    let mut script = Script::start(python, &SOURCE, folder, &[])?;
    let loaded: Loaded = script.ask("load")?;
    Ok((script, loaded))
}

/// The prediction of one text, by ours and theirs.
fn predictions(report: &mut Report, mut script: Option<Script>, fleet: &Fleet) -> Result<(), Failure> {
    let (plans, context) = (fleet.plans(Level::Full)?, Context::default());
    let (mut scratch, mut ours, mut theirs) = (Scratch::default(), Durations::default(), Durations::default());
    let mut largest: Option<f32> = None;
    for (number, plan) in plans.iter().enumerate() {
        let mut values = Vec::new();
        for turn in 0..PREDICTIONS {
            let (record, mut out) = (record(fleet.item(number, turn), &context), [0.0]);
            if turn == 0 {
                plan.run(record, &mut scratch, &mut out)?;
            } else {
                ours.time(|| plan.run(record, &mut scratch, &mut out))?;
            }
            values.push(out[0]);
        }
        let Some(script) = &mut script else { continue };
        let items: Vec<String> = (0..PREDICTIONS).map(|turn| fleet.position(number, turn).to_string()).collect();
        let predicted: Predicted = script.ask(&format!("predict {number} {}", items.join(" ")))?;
        predicted.seconds[1..].iter().for_each(|seconds| theirs.add(Duration::from_secs_f64(*seconds)));
        let difference = expect_equal("scikit-learn", &values, &predicted.probabilities)?;
        largest = largest.into_iter().chain([difference]).reduce(f32::max);
    }
    let median = |durations: &mut Durations| durations.quantile_micros(0.5);
    report.measured("sa/sklearn", "us", median(&mut ours), script.is_some().then(|| median(&mut theirs)));
    report.single("sa/sklearn/difference", "probability", largest.map(f64::from));
    Ok(())
}

/// Writes what the script reads: `sentiment.json` with the n-grams of each pipeline and all dictionaries, and the weights of
/// each as a file, the bias first.
fn write(fleet: &Fleet, folder: &Path) -> Result<(), Failure> {
    let mut dictionaries = Map::new();
    let mut pipelines = Vec::new();
    for (number, spec) in fleet.specs.iter().enumerate() {
        let mut vectorizers = Map::new();
        for name in [WORD_GRAMS, CHAR_GRAMS] {
            let (n, dictionary) = grams(spec, name)?;
            let key = dictionary.to_string();
            if !dictionaries.contains_key(&key) {
                dictionaries.insert(key.clone(), strings(fleet, dictionary)?);
            }
            vectorizers.insert(name.to_owned(), json!({"n": n, "dictionary": key}));
        }
        pipelines.push(vectorizers);
        let Some(Operator::Linear(model)) = spec.nodes.get(MODEL) else { return Err(Failure::other("no model")) };
        let weights = weights(&fleet.objects, model.weights)?;
        let numbers = weights.bias().iter().chain(weights.weights());
        let bytes: Vec<u8> = numbers.flat_map(|number| number.to_le_bytes()).collect();
        fs::write(folder.join(format!("weights-{number}.f32")), bytes).map_err(Failure::other)?;
    }
    let all = json!({"dictionaries": dictionaries, "pipelines": pipelines});
    fs::write(folder.join("sentiment.json"), all.to_string()).map_err(Failure::other)
}

fn grams(spec: &PipelineSpec, name: &str) -> Result<([u8; 2], ObjectId), Failure> {
    let found = match spec.nodes.get(name) {
        Some(Operator::WordNgrams(grams)) => grams.dictionary.map(|dictionary| (grams.n, dictionary)),
        Some(Operator::CharNgrams(grams)) => grams.dictionary.map(|dictionary| (grams.n, dictionary)),
        _ => None,
    };
    found.ok_or_else(|| Failure::other(format!("{} has no dictionary of {name}", spec.name)))
}

fn strings(fleet: &Fleet, id: ObjectId) -> Result<Value, Failure> {
    let object = fleet.objects.get(id)?;
    match object.as_ref().map(|object| object.content()) {
        Some(Content::Dictionary(dictionary)) => Ok(dictionary.strings().collect()),
        _ => Err(Failure::other(format!("{id} is no dictionary"))),
    }
}
