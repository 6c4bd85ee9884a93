//! An interpreter of declared graphs, operator at a time: the oracle of the tests and the baseline of the benchmark.
//!
//! It runs the graph as it is declared, without any rewriting: every operator is a call through a pointer that returns a
//! value in memory of its own, words are strings of their own, and n-grams are put together before they are looked up.
//! Except for n-grams, operators compute a value by the same functions as the engines.

use crate::graph::Graph;
use crate::keys::{chain, column, key, mix};
use crate::operators::{CrossScratch, Op, Record, Surroundings};
use crate::spec::{CharWindow, Words};
use crate::text::{CharGrams, Columns, TextScratch, WordGrams, bounded_text, count_hits};
use crate::values::{Slot, View, write_dense};

/// The value of an operator.
#[derive(Debug, Clone)]
enum Value {
    Slot(Slot),
    Words(Vec<String>),
}

/// An operator with its parameters.
trait Operate: Send + Sync {
    fn value(&self, inputs: &[&Value], record: Record) -> Value;
}

/// A declared graph, ready to be interpreted.
pub struct Reference {
    steps: Vec<(Box<dyn Operate>, Vec<usize>)>,
    output: usize,
    dim: usize,
}

impl Reference {
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        let operate = |op: &Op| -> Box<dyn Operate> {
            match op {
                Op::Tokenize(rule) => Box::new(*rule),
                Op::WordNgrams(grams) => Box::new(grams.clone()),
                Op::CharNgrams(grams) => Box::new(grams.clone()),
                other => Box::new(other.clone()),
            }
        };
        let steps = graph.nodes.iter().map(|node| (operate(&node.op), node.inputs.clone())).collect();
        Self { steps, output: graph.output, dim: graph.dim() }
    }

    /// Number of columns of the output.
    #[must_use]
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The output for a record, as a dense vector. Missing numbers are 0.
    #[must_use]
    pub fn run(&self, record: Record) -> Vec<f32> {
        let mut values: Vec<Value> = Vec::with_capacity(self.steps.len());
        for (operator, inputs) in &self.steps {
            let inputs: Vec<&Value> = inputs.iter().map(|input| &values[*input]).collect();
            values.push(operator.value(&inputs, record));
        }
        let mut out = vec![0.0; self.dim];
        write_dense(values[self.output].view(&mut Slot::default()), &mut out);
        out
    }
}

impl Value {
    fn view<'a>(&'a self, buffer: &'a mut Slot) -> View<'a> {
        match self {
            Self::Slot(slot) => slot.view(),
            Self::Words(words) => {
                let (text, spans) = buffer.texts();
                for word in words {
                    let begin = text.len() as u32;
                    text.push_str(word);
                    spans.push([begin, text.len() as u32]);
                }
                buffer.view()
            }
        }
    }
}

impl Operate for Op {
    fn value(&self, inputs: &[&Value], record: Record) -> Value {
        let mut buffers = vec![Slot::default(); inputs.len()];
        let views: Vec<View> = inputs.iter().zip(&mut buffers).map(|(input, buffer)| input.view(buffer)).collect();
        let (mut text, mut cross, mut out) = (TextScratch::default(), CrossScratch::default(), Slot::default());
        let around = Surroundings { record, text: &mut text, cross: &mut cross, row: &mut Vec::new(), memo: None };
        self.compute(&views[..], around, &mut out);
        Value::Slot(out)
    }
}

impl Operate for Words {
    fn value(&self, inputs: &[&Value], _: Record) -> Value {
        let mut buffer = Slot::default();
        let View::Text(text) = inputs[0].view(&mut buffer) else { return Value::Words(Vec::new()) };
        let lowered = bounded_text(text).to_lowercase();
        let is_joint = |letter: char| letter.is_alphanumeric() || (*self == Self::TwoOrMore && letter == '_');
        let least = if *self == Self::TwoOrMore { 2 } else { 1 };
        let words = lowered.split(|letter| !is_joint(letter)).filter(|word| word.chars().count() >= least);
        Value::Words(words.map(str::to_owned).collect())
    }
}

fn counted(mut hits: Vec<u32>) -> Value {
    let mut slot = Slot::default();
    let (columns, counts) = slot.sparse();
    count_hits(&mut hits, columns, counts);
    Value::Slot(slot)
}

impl Operate for WordGrams {
    fn value(&self, inputs: &[&Value], _: Record) -> Value {
        let Value::Words(words) = inputs[0] else { return counted(Vec::new()) };
        let mut hits = Vec::new();
        for n in self.n[0]..=self.n[1] {
            for gram in words.windows(n) {
                match &self.columns {
                    Columns::Dictionary(dictionary) => hits.extend(dictionary.column(gram.join(" ").as_bytes())),
                    Columns::Hashed(bits) => {
                        let mut hashes = gram.iter().map(|word| mix(key(word.as_bytes())));
                        let first = hashes.next().unwrap_or_default();
                        hits.push(column(hashes.fold(first, chain), *bits));
                    }
                }
            }
        }
        counted(hits)
    }
}

impl Operate for CharGrams {
    fn value(&self, inputs: &[&Value], _: Record) -> Value {
        let mut buffer = Slot::default();
        let View::Text(text) = inputs[0].view(&mut buffer) else { return counted(Vec::new()) };
        let lowered = bounded_text(text).to_lowercase();
        let mut hits = Vec::new();
        let mut look_up = |gram: &[char]| {
            let gram: String = gram.iter().collect();
            match &self.columns {
                Columns::Dictionary(dictionary) => hits.extend(dictionary.column(gram.as_bytes())),
                Columns::Hashed(bits) => hits.push(column(mix(key(gram.as_bytes())), *bits)),
            }
        };
        match self.window {
            CharWindow::Char => {
                let letters: Vec<char> = shrunk(&lowered);
                for n in self.n[0]..=self.n[1] {
                    letters.windows(n).for_each(&mut look_up);
                }
            }
            CharWindow::CharWb => {
                for word in lowered.split(is_space).filter(|word| !word.is_empty()) {
                    let letters: Vec<char> = format!(" {word} ").chars().collect();
                    for n in self.n[0]..=self.n[1] {
                        letters.windows(n.min(letters.len())).for_each(&mut look_up);
                        if letters.len() <= n {
                            break;
                        }
                    }
                }
            }
        }
        counted(hits)
    }
}

fn is_space(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\x1c'..='\x1f')
}

/// The characters, with each run of two or more white-space characters as one space.
fn shrunk(text: &str) -> Vec<char> {
    let letters: Vec<char> = text.chars().collect();
    let runs = letters.chunk_by(|one, other| is_space(*one) == is_space(*other));
    runs.flat_map(|run| if run.len() > 1 && is_space(run[0]) { vec![' '] } else { run.to_vec() }).collect()
}
