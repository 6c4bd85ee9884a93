//! Times a sentiment pipeline: `cargo run --release --example sentiment -- POSITIVE NEGATIVE`.
//!
//! The arguments are files with a text on each line. The pipeline counts n-grams of one and two words and of three
//! characters by dictionaries, concatenates them, and applies a logistic model. Prints how long a record takes, hot, by the
//! optimised plan, by a plan with a stage for each operator, and by the interpreter, and the ratios. Only the ratios of one
//! run mean something.

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use celeris_model::Context;
use celeris_pipelines::objects::{Content, Dictionary, Objects, Weights};
use celeris_pipelines::reference::Reference;
use celeris_pipelines::{Catalog, Graph, Level, PipelineSpec, Plan, Record, Scratch};
use serde_json::{Map, Value, json};

/// Texts that are timed.
const TEXTS: usize = 1000;
const ROUNDS: usize = 30;

/// The n-grams of a text.
fn words(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words: Vec<&str> =
        text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    (1..=2).flat_map(|n| words.windows(n).map(|gram| gram.join(" ")).collect::<Vec<_>>()).collect()
}

fn characters(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.to_lowercase().chars().collect();
    letters.windows(3).map(|gram| gram.iter().collect()).collect()
}

/// The most frequent n-grams, with the logarithm of how much more often they occur in positive texts.
fn dictionary(texts: &[(String, bool)], grams: fn(&str) -> Vec<String>, size: usize) -> (Vec<String>, Vec<f32>) {
    let mut counts: HashMap<String, [f32; 2]> = HashMap::new();
    for (text, is_positive) in texts {
        for gram in grams(text) {
            counts.entry(gram).or_default()[usize::from(*is_positive)] += 1.0;
        }
    }
    let mut all: Vec<(String, [f32; 2])> = counts.into_iter().collect();
    all.sort_by(|one, other| (other.1[0] + other.1[1]).total_cmp(&(one.1[0] + one.1[1])).then(one.0.cmp(&other.0)));
    all.truncate(size);
    all.into_iter().map(|(gram, [negative, positive])| (gram, ((positive + 1.0) / (negative + 1.0)).ln() * 0.3)).unzip()
}

fn percentile(sorted: &[u64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1000.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let [positive, negative]: [String; 2] =
        std::env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "usage: sentiment POSITIVE NEGATIVE")?;
    let mut texts = Vec::new();
    for (file, is_positive) in [(positive, true), (negative, false)] {
        let bytes = std::fs::read(file)?;
        texts.extend(String::from_utf8_lossy(&bytes).lines().map(|line| (line.to_owned(), is_positive)));
    }
    let (word_grams, word_weights) = dictionary(&texts, words, 6000);
    let (char_grams, char_weights) = dictionary(&texts, characters, 5000);
    let objects = Objects::in_memory();
    let words = objects.add(&Content::Dictionary(Arc::new(Dictionary::new(word_grams)?)))?;
    let chars = objects.add(&Content::Dictionary(Arc::new(Dictionary::new(char_grams)?)))?;
    let weights = Weights::new(vec![0.0], [word_weights, char_weights].concat())?;
    let weights = objects.add(&Content::Weights(Arc::new(weights)))?;
    let spec = PipelineSpec::parse(&json!({"name": "sentiment", "nodes": {
        "words": {"op": "tokenize", "input": "item.text"},
        "word_grams": {"op": "word_ngrams", "input": "words", "n": [1, 2], "dictionary": words.id()},
        "char_grams": {"op": "char_ngrams", "input": "item.text", "n": [3, 3], "dictionary": chars.id()},
        "all": {"op": "concat", "inputs": ["word_grams", "char_grams"]},
        "sentiment": {"op": "linear", "input": "all", "weights": weights.id(), "link": "logistic"},
    }, "output": "sentiment"}))?;
    let graph = Graph::declared(&spec, &objects)?;
    let reference = Reference::new(&graph);
    let catalog = Catalog::default();
    let unfused = Plan::of_graph(graph.clone(), Level::None, &catalog);
    let fused = Plan::of_graph(graph, Level::Full, &catalog);
    let context = Context::default();
    let step = texts.len() / TEXTS;
    let item = |(text, _): &(String, bool)| Map::from_iter([("text".to_owned(), Value::from(text.as_str()))]);
    let items: Vec<Map<String, Value>> = texts.iter().step_by(step).map(item).collect();
    let (mut scratch, mut out) = (Scratch::default(), [0.0]);
    let mut nanos: [Vec<u64>; 3] = Default::default();
    for round in 0..ROUNDS {
        for item in &items {
            let record = Record { item, context: &context };
            for (way, nanos) in nanos.iter_mut().enumerate() {
                let begin = Instant::now();
                match way {
                    0 => fused.run(record, &mut scratch, &mut out)?,
                    1 => unfused.run(record, &mut scratch, &mut out)?,
                    _ => out[0] = reference.run(record)[0],
                }
                black_box(&out);
                if round >= 10 {
                    nanos.push(begin.elapsed().as_nanos() as u64);
                }
            }
        }
    }
    let mut lines = vec![serde_json::to_string_pretty(&fused.explain())?];
    let names = ["optimised plan", "stage for each operator", "operator at a time"];
    nanos.iter_mut().for_each(|nanos| nanos.sort_unstable());
    for (name, nanos) in names.iter().zip(&nanos) {
        let [half, most] = [0.5, 0.99].map(|share| percentile(nanos, share));
        lines.push(format!("{name}: {half:.2} us at the median, {most:.2} us at p99"));
    }
    for (name, baseline) in names.iter().zip(&nanos).skip(1) {
        let [half, most] = [0.5, 0.99].map(|share| percentile(&nanos[0], share) / percentile(baseline, share));
        lines.push(format!("optimised / {name}: {half:.3} at the median, {most:.3} at p99"));
    }
    use std::io::Write;
    writeln!(std::io::stdout(), "{}", lines.join("\n"))?;
    Ok(())
}
