//! The sentiment pipelines of PRETZEL (section 5): n-grams of words and of characters, and a logistic model.

use std::sync::Arc;

use celeris_cli::Failure;
use celeris_cli::estimate::scene;
use celeris_model::Context;
use celeris_pipelines::fit::{FitOptions, Row, fit};
use celeris_pipelines::objects::{Content, Weights};
use celeris_pipelines::spec::Operator;
use celeris_pipelines::{Object, ObjectId, Objects, PipelineSpec};
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Map, Value, json};

use super::fleet::{Fleet, Item};
use super::texts::{self, Labelled};
use crate::Settings;

/// The nodes of a pipeline.
pub const WORD_GRAMS: &str = "word_grams";
pub const CHAR_GRAMS: &str = "char_grams";
pub const MODEL: &str = "sentiment";

/// Number of pipelines.
pub const PIPELINES: [usize; 2] = [250, 16];

/// One in this many texts is not learnt from: pipelines are run on it.
const HELD_OUT_ONE_IN: usize = 10;

/// The standard deviation of the factors that make the weights of a variant.
const VARIATION: f32 = 0.1;

/// N-grams, and the strings of their dictionary: the most frequent ones.
struct Grams {
    n: [u8; 2],
    min_count: u32,
    max_size: u32,
}

/// The dictionaries that all pipelines share: of words and of characters.
const OF_WORDS: [Grams; 4] = [
    Grams { n: [1, 1], min_count: 2, max_size: 50_000 },
    Grams { n: [1, 2], min_count: 2, max_size: 50_000 },
    Grams { n: [1, 2], min_count: 3, max_size: 20_000 },
    Grams { n: [1, 3], min_count: 2, max_size: 50_000 },
];
const OF_CHARS: [Grams; 3] = [
    Grams { n: [3, 3], min_count: 2, max_size: 50_000 },
    Grams { n: [2, 4], min_count: 2, max_size: 50_000 },
    Grams { n: [3, 5], min_count: 3, max_size: 50_000 },
];

impl Grams {
    /// The node, with its dictionary if that was learnt already.
    fn node(&self, op: &str, input: &str, dictionary: Option<ObjectId>) -> Value {
        match dictionary {
            Some(id) => json!({"op": op, "input": input, "n": self.n, "dictionary": id}),
            None => {
                let fit = json!({"min_count": self.min_count, "max_size": self.max_size});
                json!({"op": op, "input": input, "n": self.n, "fit": fit})
            }
        }
    }
}

fn declared(name: &str, word_grams: &Value, char_grams: &Value, model: &Value) -> Result<PipelineSpec, Failure> {
    Ok(PipelineSpec::parse(&json!({"name": name, "output": MODEL, "nodes": {
        "words": {"op": "tokenize", "input": "item.text", "words": "two_or_more"},
        WORD_GRAMS: word_grams,
        CHAR_GRAMS: char_grams,
        "all": {"op": "concat", "inputs": [WORD_GRAMS, CHAR_GRAMS]},
        MODEL: model}}))?)
}

/// Learns seven dictionaries and a model for each pair of them, and makes the variants: the weights of a variant are those
/// of its pair, each multiplied by a random factor, as if they were learnt from another sample.
///
/// # Errors
/// If the texts cannot be read, or are too few.
pub fn fleet(settings: &Settings) -> Result<Fleet, Failure> {
    let texts = texts::all(settings)?;
    let (held_out, learnt_from) = texts.split_at(texts.len() / HELD_OUT_ONE_IN);
    let objects = Objects::in_memory();
    let mut held = Vec::new();
    let pairs = fitted(learnt_from, &objects, &mut held)?;
    let mut specs = Vec::new();
    let mut rng = scene::rng(92);
    for number in 0..settings.pick(PIPELINES[0], PIPELINES[1]) {
        let mut spec = pairs[number % pairs.len()].clone();
        spec.name = format!("sentiment-{number}");
        let Some(Operator::Linear(model)) = spec.nodes.get_mut(MODEL) else { return Err(Failure::other("no model")) };
        let fitted = weights(&objects, model.weights)?;
        let varied = fitted.weights().iter().map(|weight| {
            let factor: f32 = StandardNormal.sample(&mut rng);
            weight * (1.0 + VARIATION * factor)
        });
        let varied = Weights::new(fitted.bias().to_vec(), varied.collect())?;
        let varied = objects.add(&Content::Weights(Arc::new(varied)))?;
        model.weights = Some(varied.id());
        held.push(varied);
        specs.push(spec);
    }
    let used: Vec<ObjectId> = specs.iter().flat_map(PipelineSpec::objects).collect();
    held.retain(|object| used.contains(&object.id()));
    Ok(Fleet { specs, objects, held, items: held_out.iter().map(|(text, _)| item(text)).collect() })
}

/// The weights of a model.
///
/// # Errors
/// If there is no such object.
pub fn weights(objects: &Objects, id: Option<ObjectId>) -> Result<Arc<Weights>, Failure> {
    let object = id.map_or(Ok(None), |id| objects.get(id))?;
    match object.as_ref().map(|object| object.content()) {
        Some(Content::Weights(weights)) => Ok(weights.clone()),
        _ => Err(Failure::other("a model without weights")),
    }
}

fn item(text: &str) -> Item {
    Map::from_iter([("text".to_owned(), json!(text))])
}

/// A fitted pipeline for each pair of dictionaries.
fn fitted(texts: &[Labelled], objects: &Objects, held: &mut Vec<Arc<Object>>) -> Result<Vec<PipelineSpec>, Failure> {
    eprintln!("  fitting to {} texts …", texts.len());
    let context = Context::default();
    let items: Vec<(Item, f32)> = texts.iter().map(|(text, label)| (item(text), *label)).collect();
    let rows = || {
        items.iter().map(|(item, label)| Row {
            key: b"",
            item,
            context: &context,
            label: Some(*label),
            target: None,
            weight: 1.0,
        })
    };
    let model = json!({"op": "linear", "input": "all", "fit": "label", "link": "logistic"});
    let (mut of_words, mut of_chars) = ([None; OF_WORDS.len()], [None; OF_CHARS.len()]);
    let mut pairs = Vec::new();
    for (words, of_words) in OF_WORDS.iter().zip(&mut of_words) {
        for (chars, of_chars) in OF_CHARS.iter().zip(&mut of_chars) {
            let word_grams = words.node("word_ngrams", "words", *of_words);
            let char_grams = chars.node("char_ngrams", "item.text", *of_chars);
            let spec = declared("pair", &word_grams, &char_grams, &model)?;
            let fitted = fit(&spec, objects, rows, FitOptions::default())?;
            *of_words = fitted.spec.nodes[WORD_GRAMS].object();
            *of_chars = fitted.spec.nodes[CHAR_GRAMS].object();
            held.extend(fitted.objects);
            pairs.push(fitted.spec);
        }
    }
    Ok(pairs)
}
