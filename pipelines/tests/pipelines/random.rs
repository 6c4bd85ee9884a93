//! Random pipelines and records, from a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use celeris_model::{Context, ContextValue};
use celeris_pipelines::AttributeEncoder;
use celeris_pipelines::objects::{
    Centroids, Components, Content, Dictionary, EmbeddingTable, Idf, Moments, Object, Objects, Weights,
};
use celeris_pipelines::spec::*;
use celeris_pipelines::trees;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};

const WORDS: [&str; 24] = [
    "good",
    "Bad",
    "film",
    "a",
    "the",
    "very",
    "extraordinary",
    "naïve",
    "Über",
    "2026",
    "x_y",
    "it's",
    "東京",
    "ÉTÉ",
    "ΣΑΣ",
    "long-winded",
    "plot",
    "unforgettably",
    "me",
    "you",
    "and",
    "or",
    "not",
    "İstanbul",
];
const KINDS: [&str; 5] = ["film", "series", "short", "phone", "tablet"];

/// A fixed sequence of this many cases.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::default() }
}

/// The type of a node, with its number of columns.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Text,
    Texts,
    Words,
    Category(usize),
    Dense(usize),
    Sparse(usize),
}

#[derive(Debug, Clone)]
struct Made {
    name: String,
    kind: Kind,
    /// Whether no linear model precedes it, whose sums may differ in their last bits: operators that jump take no others.
    exact: bool,
    /// Whether its values are 1 or counts.
    counts: bool,
}

/// A random pipeline with its objects.
pub struct Generated {
    pub spec: PipelineSpec,
    pub objects: Objects,
    /// They keep the objects alive.
    pub _handles: Vec<Arc<Object>>,
}

struct Maker {
    rng: ChaCha8Rng,
    nodes: BTreeMap<String, Operator>,
    made: Vec<Made>,
    objects: Objects,
    handles: Vec<Arc<Object>>,
}

impl Generated {
    pub fn new(seed: u64) -> Self {
        let mut maker = Maker {
            rng: ChaCha8Rng::seed_from_u64(seed),
            nodes: BTreeMap::new(),
            made: Vec::new(),
            objects: Objects::in_memory(),
            handles: Vec::new(),
        };
        maker.add_fields();
        for _ in 0..maker.rng.random_range(3..25) {
            maker.add_random();
        }
        let output = maker.finish();
        let mut nodes = maker.nodes;
        let needed = needed(&nodes, &output);
        nodes.retain(|name, _| needed.contains(name));
        let spec = PipelineSpec { name: format!("random {seed}"), nodes, output };
        Self { spec, objects: maker.objects, _handles: maker.handles }
    }
}

/// Rules for the attributes of random records.
fn attribute_rules() -> Arc<AttributeEncoder> {
    static RULES: LazyLock<Arc<AttributeEncoder>> = LazyLock::new(|| {
        let items: Vec<_> = (0..50).map(|seed| record(seed).0).collect();
        AttributeEncoder::learn(&items).into()
    });
    Arc::clone(&RULES)
}

fn needed(nodes: &BTreeMap<String, Operator>, output: &str) -> BTreeSet<String> {
    let mut needed = BTreeSet::new();
    let mut left = vec![output.to_owned()];
    while let Some(name) = left.pop() {
        if let Some(operator) = nodes.get(&name)
            && needed.insert(name)
        {
            left.extend(operator.inputs().iter().cloned());
        }
    }
    needed
}

impl Maker {
    fn add(&mut self, operator: Operator, kind: Kind, exact: bool, counts: bool) {
        let name = format!("n{}", self.made.len());
        self.nodes.insert(name.clone(), operator);
        self.made.push(Made { name, kind, exact, counts });
    }

    fn object(&mut self, content: Content) -> celeris_pipelines::ObjectId {
        let object = self.objects.add(&content).unwrap();
        let id = object.id();
        self.handles.push(object);
        id
    }

    fn add_fields(&mut self) {
        use FieldType::{Boolean, Category, Number, Numbers, Text, Texts};
        for (of, name, kind, dim) in [
            (Side::Item, "title", Text, None),
            (Side::Item, "plot", Text, None),
            (Side::Context, "query", Text, None),
            (Side::Item, "genres", Texts, None),
            (Side::Context, "tags", Texts, None),
            (Side::Item, "kind", Category, None),
            (Side::Context, "device", Category, None),
            (Side::Item, "price", Number, None),
            (Side::Context, "hour", Number, None),
            (Side::Item, "flag", Boolean, None),
            (Side::Context, "new", Boolean, None),
            (Side::Item, "vector", Numbers, Some(3)),
        ] {
            let made = match kind {
                Number | Boolean => Kind::Number,
                Text | Category => Kind::Text,
                Texts => Kind::Texts,
                Numbers => Kind::Dense(3),
            };
            self.add(Operator::Field(Field { of, name: name.to_owned(), kind, dim }), made, true, true);
        }
        self.add(Operator::Constant(Constant { numbers: vec![0.5, -1.0] }), Kind::Dense(2), true, false);
        let rules = attribute_rules();
        let columns = rules.width();
        let rules = Some(self.object(Content::Attributes(rules)));
        self.add(Operator::Attributes(Attributes { rules }), Kind::Sparse(columns), true, false);
    }

    fn pick(&mut self, fits: impl Fn(&Made) -> bool) -> Option<Made> {
        let fitting: Vec<&Made> = self.made.iter().filter(|made| fits(made)).collect();
        fitting.choose(&mut self.rng).map(|made| (*made).clone())
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.rng.random_range(-1.0..1.0)).collect()
    }

    fn strings(&mut self, pool: impl IntoIterator<Item = String>) -> Dictionary {
        let mut strings: Vec<String> = pool.into_iter().collect();
        strings.sort();
        strings.dedup();
        strings.retain(|_| self.rng.random_bool(0.6));
        strings.push("zzz".to_owned());
        Dictionary::new(strings).unwrap()
    }

    fn ngrams(&mut self) {
        if self.rng.random_bool(0.5) {
            let Some(words) = self.pick(|made| made.kind == Kind::Words) else { return };
            let n = [1, self.rng.random_range(1..=3)];
            let all: Vec<String> = WORDS.iter().map(|word| word.to_lowercase()).collect();
            let pairs = all.iter().flat_map(|one| all.iter().map(move |other| format!("{one} {other}")));
            let pool: Vec<String> = all.iter().cloned().chain(pairs).collect();
            let (dictionary, hash_bits, columns) = self.columns(pool);
            let grams = WordNgrams { input: words.name, n, dictionary, hash_bits, fit: None };
            self.add(Operator::WordNgrams(grams), Kind::Sparse(columns), true, true);
        } else {
            let Some(text) = self.pick(|made| made.kind == Kind::Text) else { return };
            let least = self.rng.random_range(1..=3);
            let n = [least, self.rng.random_range(least..=8)];
            let window = if self.rng.random_bool(0.5) { CharWindow::Char } else { CharWindow::CharWb };
            let pool = WORDS.iter().flat_map(|word| {
                let letters: Vec<char> = format!(" {} ", word.to_lowercase()).chars().collect();
                let windows = (1..=8)
                    .flat_map(|n| letters.windows(n).map(|gram| gram.iter().collect::<String>()).collect::<Vec<_>>());
                windows.collect::<Vec<_>>()
            });
            let (dictionary, hash_bits, columns) = self.columns(pool.collect());
            let grams = CharNgrams { input: text.name, n, window, dictionary, hash_bits, fit: None };
            self.add(Operator::CharNgrams(grams), Kind::Sparse(columns), true, true);
        }
    }

    fn columns(&mut self, pool: Vec<String>) -> (Option<celeris_pipelines::ObjectId>, Option<u32>, usize) {
        if self.rng.random_bool(0.3) {
            let bits = self.rng.random_range(1..=8);
            return (None, Some(bits), 1 << bits);
        }
        let dictionary = self.strings(pool);
        let columns = dictionary.len();
        (Some(self.object(Content::Dictionary(Arc::new(dictionary)))), None, columns)
    }

    fn moments(&mut self, columns: usize) -> celeris_pipelines::ObjectId {
        let numbers = |rng: &mut ChaCha8Rng, low: f64| (0..columns).map(|_| rng.random_range(low..2.0)).collect();
        let (centers, means) = (numbers(&mut self.rng, -2.0), numbers(&mut self.rng, -2.0));
        let widths: Vec<f64> = numbers(&mut self.rng, 0.5);
        let widths = widths.into_iter().map(|width| if self.rng.random_bool(0.1) { 0.0 } else { width }).collect();
        self.object(Content::Moments(Arc::new(Moments::new(centers, widths, means).unwrap())))
    }

    fn add_random(&mut self) {
        match self.rng.random_range(0..19) {
            0 => {
                let Some(text) = self.pick(|made| made.kind == Kind::Text) else { return };
                let words = if self.rng.random_bool(0.5) { Words::Unicode } else { Words::TwoOrMore };
                self.add(Operator::Tokenize(Tokenize { input: text.name, words }), Kind::Words, true, true);
            }
            1..=3 => self.ngrams(),
            4 => self.weighting(),
            5 => {
                let vector = |made: &Made| made.exact && matches!(made.kind, Kind::Dense(_) | Kind::Sparse(_));
                let Some(input) = self.pick(vector) else { return };
                let norm = *[Norm::L1, Norm::L2, Norm::Max].choose(&mut self.rng).unwrap();
                let operator = Operator::Normalize(Normalize { input: input.name, norm });
                self.add(operator, input.kind, true, false);
            }
            6 | 7 => self.hot(),
            8 => {
                let textual = |made: &Made| matches!(made.kind, Kind::Text | Kind::Texts | Kind::Words);
                let Some(input) = self.pick(textual) else { return };
                let (hash_bits, signs) = (self.rng.random_range(2..=8), self.rng.random_bool(0.5));
                let operator = Operator::Hash(Hash { input: input.name, hash_bits, signs });
                self.add(operator, Kind::Sparse(1 << hash_bits), true, true);
            }
            9 => self.number(),
            10 | 11 => self.scale(),
            12 => {
                let fits = |made: &Made| made.counts && !matches!(made.kind, Kind::Number | Kind::Dense(_));
                let count = self.rng.random_range(2..=3);
                let inputs: Vec<String> = (0..count).filter_map(|_| self.pick(fits)).map(|made| made.name).collect();
                let hash_bits = self.rng.random_range(3..=9);
                self.add(Operator::Cross(Cross { inputs, hash_bits }), Kind::Sparse(1 << hash_bits), true, true);
            }
            13 => self.concat(),
            14 => self.embedding(),
            15 => self.dense(),
            16 => self.trees(),
            17 => self.network(),
            _ => self.linear(),
        }
    }

    fn weighting(&mut self) {
        let Some(input) = self.pick(|made| matches!(made.kind, Kind::Sparse(_)) && made.counts) else { return };
        let Kind::Sparse(columns) = input.kind else { return };
        let idf = self.floats(columns).into_iter().map(|number| number + 1.5).collect();
        let idf = Some(self.object(Content::Idf(Arc::new(Idf::new(idf).unwrap()))));
        let norm = *[None, Some(Norm::L2), Some(Norm::L1)].choose(&mut self.rng).unwrap();
        let sublinear = self.rng.random_bool(0.5);
        self.add(Operator::TfIdf(TfIdf { input: input.name, idf, sublinear, norm }), input.kind, true, false);
    }

    fn hot(&mut self) {
        let fits = |made: &Made| matches!(made.kind, Kind::Text | Kind::Texts | Kind::Category(_));
        let Some(input) = self.pick(fits) else { return };
        let mut known = Categories { input: input.name, categories: None, dictionary: None, fit: None };
        let columns = match input.kind {
            Kind::Category(count) => count,
            _ => {
                known.categories = Some(KINDS.map(str::to_owned).to_vec());
                KINDS.len()
            }
        };
        let is_list = input.kind == Kind::Texts;
        let operator = if is_list { Operator::MultiHot(known) } else { Operator::OneHot(known) };
        self.add(operator, Kind::Sparse(columns), true, true);
    }

    fn number(&mut self) {
        let Some(input) = self.pick(|made| made.kind == Kind::Number && made.exact) else { return };
        if self.rng.random_bool(0.5) {
            let edges = vec![-1.0, 0.0, 1.0, 5.0, 12.0];
            let operator = Operator::Bucketize(Bucketize { input: input.name, edges });
            self.add(operator, Kind::Category(6), true, true);
        } else {
            let operator = Operator::Cyclic(Cyclic { input: input.name, period: 24.0 });
            self.add(operator, Kind::Dense(2), true, false);
        }
    }

    fn scale(&mut self) {
        let Some(input) = self.pick(|made| matches!(made.kind, Kind::Number | Kind::Dense(_))) else { return };
        let columns = if let Kind::Dense(columns) = input.kind { columns } else { 1 };
        let name = input.name;
        let operator = match self.rng.random_range(0..4) {
            0 => Operator::Impute(Impute { input: name, value: Some(1.5), moments: None }),
            1 => Operator::Impute(Impute { input: name, value: None, moments: Some(self.moments(columns)) }),
            2 => return self.add(Operator::Presence(Presence { input: name }), Kind::Number, input.exact, false),
            _ => {
                let clamp = self.rng.random_bool(0.5).then_some(2.0);
                Operator::Scale(Scale { input: name, moments: Some(self.moments(columns)), clamp, fit: None })
            }
        };
        self.add(operator, input.kind, input.exact, false);
    }

    fn concat(&mut self) {
        let is_vector =
            |made: &Made| matches!(made.kind, Kind::Number | Kind::Category(_) | Kind::Dense(_) | Kind::Sparse(_));
        let inputs: Vec<Made> = (0..self.rng.random_range(1..=5)).filter_map(|_| self.pick(is_vector)).collect();
        self.concat_of(&inputs);
    }

    fn concat_of(&mut self, inputs: &[Made]) {
        let columns = |made: &Made| match made.kind {
            Kind::Category(columns) | Kind::Dense(columns) | Kind::Sparse(columns) => columns,
            _ => 1,
        };
        let total = inputs.iter().map(columns).sum();
        let sparse = inputs.iter().any(|made| matches!(made.kind, Kind::Sparse(_)));
        if total == 0 || (!sparse && total > 4096) {
            return;
        }
        let kind = if sparse { Kind::Sparse(total) } else { Kind::Dense(total) };
        let exact = inputs.iter().all(|made| made.exact);
        let inputs = inputs.iter().map(|made| made.name.clone()).collect();
        self.add(Operator::Concat(Concat { inputs }), kind, exact, false);
    }

    fn embedding(&mut self) {
        let fits = |made: &Made| matches!(made.kind, Kind::Text | Kind::Texts | Kind::Category(_));
        let Some(input) = self.pick(fits) else { return };
        let (keys, count) = match input.kind {
            Kind::Category(count) => (Dictionary::new([""; 0]).unwrap(), count),
            _ => (Dictionary::new(KINDS).unwrap(), KINDS.len()),
        };
        let rows = self.floats(4 * count);
        let table = EmbeddingTable::new(keys, 4, rows).unwrap();
        let table = self.object(Content::Embedding(Arc::new(table)));
        self.add(Operator::Embedding(Embedding { input: input.name, table }), Kind::Dense(4), true, false);
    }

    fn dense(&mut self) {
        let Some(input) = self.pick(|made| made.exact && matches!(made.kind, Kind::Dense(_))) else { return };
        let Kind::Dense(dim) = input.kind else { return };
        if self.rng.random_bool(0.5) {
            let (mean, rows) = (self.floats(dim), self.floats(dim * 2));
            let components = Components::new(mean, rows).unwrap();
            let components = Some(self.object(Content::Components(Arc::new(components))));
            let operator = Operator::Pca(Pca { input: input.name, dim: 2, components });
            self.add(operator, Kind::Dense(2), true, false);
        } else {
            let rows = self.floats(dim * 3);
            let centroids = Some(self.object(Content::Centroids(Arc::new(Centroids::new(dim, rows).unwrap()))));
            let is_cluster = self.rng.random_bool(0.5);
            let (gives, kind) = if is_cluster {
                (ClusterOutput::Cluster, Kind::Category(3))
            } else {
                (ClusterOutput::Distances, Kind::Dense(3))
            };
            let operator = Operator::Kmeans(Kmeans { input: input.name, clusters: 3, gives, centroids });
            self.add(operator, kind, true, is_cluster);
        }
    }

    fn trees(&mut self) {
        let fits = |made: &Made| made.exact && matches!(made.kind, Kind::Dense(_) | Kind::Number);
        let Some(input) = self.pick(fits) else { return };
        let inputs = if let Kind::Dense(dim) = input.kind { dim } else { 1 };
        let feature = self.rng.random_range(0..inputs) as u32;
        let ensemble = self.object(Content::Trees(Arc::new(stump(inputs, feature))));
        self.add(Operator::Trees(Trees { input: input.name, ensemble }), Kind::Dense(1), true, false);
    }

    fn network(&mut self) {
        let fits = |made: &Made| {
            made.exact && matches!(made.kind, Kind::Dense(1..=100) | Kind::Sparse(1..=100) | Kind::Number)
        };
        let inputs: Vec<Made> = (0..self.rng.random_range(1..=3)).filter_map(|_| self.pick(fits)).collect();
        let columns: Vec<usize> = inputs
            .iter()
            .map(|made| if let Kind::Dense(dim) | Kind::Sparse(dim) = made.kind { dim } else { 1 })
            .collect();
        let weights: Vec<Vec<f32>> = columns.iter().map(|columns| self.floats(columns * 2)).collect();
        let object = self.objects.insert(&crate::networks::object(&weights)).unwrap();
        let (inputs, model) = (inputs.into_iter().map(|made| made.name).collect(), object.id());
        self.handles.push(object);
        self.add(Operator::Onnx(Onnx { inputs, model }), Kind::Dense(2), false, false);
    }

    fn linear(&mut self) {
        let is_vector =
            |made: &Made| matches!(made.kind, Kind::Number | Kind::Category(_) | Kind::Dense(_) | Kind::Sparse(_));
        let Some(input) = self.pick(is_vector) else { return };
        self.linear_of(input);
    }

    fn linear_of(&mut self, input: Made) {
        let columns = match input.kind {
            Kind::Category(columns) | Kind::Dense(columns) | Kind::Sparse(columns) => columns,
            _ => 1,
        };
        let outputs = self.rng.random_range(1..=3);
        let (bias, weights) = (self.floats(outputs), self.floats(outputs * columns));
        let weights = Some(self.object(Content::Weights(Arc::new(Weights::new(bias, weights).unwrap()))));
        let link = *[Link::Identity, Link::Logistic].choose(&mut self.rng).unwrap();
        let (outputs, input) = (Some(outputs as u32), input.name);
        let linear = Linear { input, weights, link, outputs, regularization: None, fit: None };
        self.add(Operator::Linear(linear), Kind::Dense(outputs.unwrap() as usize), false, false);
    }

    /// A concatenation of what was made, under a linear model or by itself.
    fn finish(&mut self) -> String {
        let is_vector =
            |made: &Made| matches!(made.kind, Kind::Number | Kind::Category(_) | Kind::Dense(_) | Kind::Sparse(_));
        let ends: Vec<Made> = self.made.iter().skip(7).filter(|made| is_vector(made)).cloned().collect();
        self.concat_of(&ends[ends.len().saturating_sub(20)..]);
        if self.rng.random_bool(0.7) {
            let all = self.made.last().unwrap().clone();
            self.linear_of(all);
        }
        self.made.last().unwrap().name.clone()
    }
}

/// A tree of one split.
fn stump(inputs: usize, feature: u32) -> trees::TreeEnsemble {
    use trees::{Branch, Builder, Missing, Shape, SourceNode, SourceTree, Test, Vote, Zeros};
    let shape = Shape { inputs, base: vec![0.25], aggregate: trees::Aggregate::Sum, transform: trees::Transform::None };
    let mut builder = Builder::new(shape).unwrap();
    let branch = Branch {
        feature,
        test: Test::AtMost(0.5),
        missing: Missing::Otherwise,
        zeros: Zeros::Numbers,
        then: 1,
        otherwise: 2,
    };
    let leaf = |first| SourceNode::Leaf { first, count: 1 };
    let votes = [1.0, -2.0].map(|value| Vote { output: 0, value }).to_vec();
    let nodes = vec![SourceNode::Branch(branch), leaf(0), leaf(1)];
    builder.add(&SourceTree { root: 0, nodes, votes, sets: Vec::new() }).unwrap();
    builder.finish().unwrap()
}

/// A random record: fields are there or not, sometimes of another type.
pub fn record(seed: u64) -> (Map<String, Value>, Context) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
    let mut item = Map::new();
    let mut context = Vec::new();
    for name in ["title", "plot"] {
        if rng.random_bool(0.8) {
            item.insert(name.to_owned(), json!(text(&mut rng)));
        }
    }
    if rng.random_bool(0.8) {
        let query = text(&mut rng);
        context.push(("query".to_owned(), ContextValue::Text(query.chars().take(150).collect())));
    }
    let some = |rng: &mut ChaCha8Rng| -> Vec<String> {
        let count = rng.random_range(0..4);
        (0..count).map(|_| KINDS.choose(rng).unwrap().to_string()).collect()
    };
    let odd = rng.random_bool(0.1);
    item.insert("genres".to_owned(), if odd { json!(7) } else { json!(some(&mut rng)) });
    context.push(("tags".to_owned(), ContextValue::Texts(some(&mut rng))));
    if rng.random_bool(0.8) {
        item.insert("kind".to_owned(), json!(KINDS.choose(&mut rng).unwrap()));
        context.push(("device".to_owned(), ContextValue::Text(KINDS.choose(&mut rng).unwrap().to_string())));
    }
    if rng.random_bool(0.8) {
        item.insert("price".to_owned(), json!(rng.random_range(-3.0..15.0)));
        context.push(("hour".to_owned(), ContextValue::Number(f64::from(rng.random_range(0..24)))));
        item.insert("flag".to_owned(), json!(rng.random_bool(0.5)));
        context.push(("new".to_owned(), ContextValue::Boolean(rng.random_bool(0.5))));
    }
    if rng.random_bool(0.7) {
        let vector: Vec<f64> = (0..3).map(|_| rng.random_range(-2.0..2.0)).collect();
        item.insert("vector".to_owned(), json!(vector));
    }
    (item, Context::new(context).unwrap())
}

fn text(rng: &mut ChaCha8Rng) -> String {
    let mut text = String::new();
    for _ in 0..rng.random_range(0..25) {
        text.push_str(WORDS.choose(rng).unwrap());
        text.push_str([" ", " ", " ", ", ", "  ", "\n", ".", " \u{a0} "].choose(rng).unwrap());
    }
    text
}
