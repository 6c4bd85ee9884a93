//! A catalog with the search structures of two versions, compared with an oracle that checks every
//! item: random attributes, filters, deletions, re-creations, version changes, and exclusions.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};

use celeris_model::{ItemId, Timestamp};
use celeris_retrieval::{Catalog, DeltaIndex, Filter, Hit, Matrix, Row, Table, best_of};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Few items and values, so that collisions are frequent.
const ITEMS: usize = 40;
const DIM: usize = 3;
const NOW: i64 = 1_000_000;

fn item(number: usize) -> ItemId {
    ItemId::new(format!("item {number}")).unwrap()
}

/// A change of a catalog.
#[derive(Debug, Clone)]
enum Step {
    Put(usize, Map<String, Value>),
    Delete(usize),
    Observe(usize),
    /// A version with these items replaces the previous one.
    Serve(BTreeSet<usize>),
}

fn genre() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["Drama", "Comedy", "Noir", "drama"])
}

fn moment() -> impl Strategy<Value = i64> {
    prop::sample::select(vec![NOW - 1, NOW, NOW + 1])
}

fn rfc3339(milliseconds: i64) -> String {
    assert!((0..3_600_000).contains(&milliseconds));
    let seconds = milliseconds / 1000;
    format!("1970-01-01T00:{:02}:{:02}.{:03}Z", seconds / 60, seconds % 60, milliseconds % 1000)
}

/// Values of every kind under every name: a filter must accept any type.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        genre().prop_map(Value::from),
        prop::collection::vec(genre(), 0..3).prop_map(Value::from),
        (-2..4).prop_map(Value::from),
        (-2..4).prop_map(|half| json!(f64::from(half) / 2.0)),
        any::<bool>().prop_map(Value::from),
        moment().prop_map(|moment| rfc3339(moment).into()),
        Just(Value::Null),
        Just(json!({"nested": 1})),
        Just(json!(["Drama", 3])),
    ]
}

fn attributes() -> impl Strategy<Value = Map<String, Value>> {
    let time = || prop_oneof![moment().prop_map(Value::from), moment().prop_map(|moment| rfc3339(moment).into())];
    let free = prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]), value(), 0..4);
    let times =
        prop::collection::btree_map(prop::sample::select(vec!["available_from", "available_until"]), time(), 0..3);
    (free, times, 0..4).prop_map(|(mut all, times, chance)| {
        if chance == 0 {
            all.extend(times);
        }
        all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..ITEMS, attributes()).prop_map(|(item, attributes)| Step::Put(item, attributes)),
        2 => (0..ITEMS).prop_map(Step::Delete),
        2 => (0..ITEMS).prop_map(Step::Observe),
        1 => prop::collection::btree_set(0..ITEMS, 0..ITEMS).prop_map(Step::Serve),
    ]
}

fn filter() -> impl Strategy<Value = Value> {
    let field = || prop::sample::select(vec!["a", "b", "c", "available_from", "no item has it"]);
    let simple = || {
        prop_oneof![
            genre().prop_map(Value::from),
            (-2..4).prop_map(|half| json!(f64::from(half) / 2.0)),
            any::<bool>().prop_map(Value::from),
        ]
    };
    let bound = || prop_oneof![(-2..4).prop_map(Value::from), moment().prop_map(|moment| rfc3339(moment).into())];
    let end = |names: [&'static str; 2]| {
        prop::option::of((prop::sample::select(names.to_vec()).prop_map(str::to_owned), bound()))
    };
    let ends = (end(["gte", "gt"]), end(["lte", "lt"]));
    let range = (field(), ends).prop_filter_map("a range has a bound", |(field, (low, high))| {
        let mut body = Map::from_iter([("field".to_owned(), json!(field))]);
        body.extend(low.into_iter().chain(high));
        (body.len() > 1).then(|| json!({"range": body}))
    });
    let leaf = prop_oneof![
        (field(), simple()).prop_map(|(field, value)| json!({"eq": {"field": field, "value": value}})),
        (field(), prop::collection::vec(simple(), 0..3))
            .prop_map(|(field, values)| json!({"in": {"field": field, "values": values}})),
        field().prop_map(|field| json!({"exists": {"field": field}})),
        range,
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|filters| json!({"all": filters})),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|filters| json!({"any": filters})),
            inner.prop_map(|filter| json!({"not": filter})),
        ]
    })
}

/// A number, or the milliseconds of a time in the format of this test.
fn number(value: &Value) -> Option<f64> {
    let time = |text: &str| {
        let rest = text.strip_prefix("1970-01-01T00:")?.strip_suffix('Z')?;
        let (minutes, seconds) = rest.split_once(':')?;
        Some(minutes.parse::<f64>().ok()? * 60_000.0 + (seconds.parse::<f64>().ok()? * 1000.0).round())
    };
    value.as_f64().or_else(|| value.as_str().and_then(time))
}

/// The documented semantics, item by item.
fn holds(filter: &Value, attributes: &Map<String, Value>) -> bool {
    let (kind, body) = filter.as_object().unwrap().iter().next().unwrap();
    let filters = || body.as_array().unwrap().iter();
    let attribute = || attributes.get(body["field"].as_str().unwrap()).filter(|value| !value.is_null());
    let is = |wanted: &Value| match attribute() {
        Some(Value::Array(tags)) => tags.iter().all(Value::is_string) && tags.contains(wanted),
        Some(found) if wanted.is_number() => number(found).is_some() && number(found) == wanted.as_f64(),
        Some(found) => found == wanted,
        None => false,
    };
    let within = |name: &str, compare: fn(&f64, &f64) -> bool| {
        let found = attribute().and_then(number);
        body.get(name).is_none_or(|bound| found.is_some_and(|found| compare(&found, &number(bound).unwrap())))
    };
    match kind.as_str() {
        "all" => filters().all(|filter| holds(filter, attributes)),
        "any" => filters().any(|filter| holds(filter, attributes)),
        "not" => !holds(body, attributes),
        "eq" => is(&body["value"]),
        "in" => body["values"].as_array().unwrap().iter().any(is),
        "exists" => attribute().is_some(),
        "range" => within("gte", f64::ge) && within("gt", f64::gt) && within("lte", f64::le) && within("lt", f64::lt),
        other => panic!("{other}"),
    }
}

/// The expected contents, as a plain table.
#[derive(Default)]
struct Oracle {
    described: BTreeMap<usize, Map<String, Value>>,
    deleted: BTreeSet<usize>,
    observed: BTreeSet<usize>,
    served: BTreeSet<usize>,
}

impl Oracle {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Put(item, attributes) => {
                self.deleted.remove(item);
                self.described.insert(*item, attributes.clone());
            }
            Step::Delete(item) => {
                self.described.remove(item);
                self.deleted.insert(*item);
            }
            Step::Observe(item) => {
                self.observed.insert(*item);
            }
            Step::Serve(items) => self.served = items.clone(),
        }
    }

    fn allowed(&self, filter: Option<&Value>) -> BTreeSet<usize> {
        let nothing = Map::new();
        let all =
            self.described.keys().chain(&self.observed).chain(&self.served).filter(|item| !self.deleted.contains(item));
        all.filter(|item| {
            let attributes = self.described.get(item).unwrap_or(&nothing);
            let from = attributes.get("available_from").and_then(number);
            let until = attributes.get("available_until").and_then(number);
            from.is_none_or(|from| from <= NOW as f64)
                && until.is_none_or(|until| (NOW as f64) < until)
                && filter.is_none_or(|filter| holds(filter, attributes))
        })
        .copied()
        .collect()
    }
}

/// Features of an item under a version: few distinct values, so that scores tie.
fn features(item: usize, version: usize) -> (f32, [f32; DIM]) {
    let part = |k: usize| ((item * 7 + version * 3 + k * 5) % 4) as f32 - 1.5;
    (part(9), [part(1), part(2), 1.0])
}

/// The active version, as a node keeps it.
struct Serving {
    number: usize,
    rows: Vec<Row>,
    offsets: Vec<f32>,
    features: Vec<f32>,
    table: Table,
    fresh: DeltaIndex,
}

impl Serving {
    fn new(catalog: &mut Catalog, number: usize, items: &BTreeSet<usize>) -> Self {
        let rows: Vec<Row> = items.iter().map(|n| catalog.add(&item(*n))).collect();
        let (offsets, vectors): (Vec<f32>, Vec<[f32; DIM]>) = items.iter().map(|n| features(*n, number)).unzip();
        let vectors = vectors.concat();
        let table = Table::build(Matrix::new(DIM, &vectors, &offsets), rows.clone());
        catalog.enlist(&rows);
        let mut serving = Self { number, rows, offsets, features: vectors, table, fresh: DeltaIndex::new(DIM) };
        (0..ITEMS).for_each(|n| serving.refresh(catalog, n));
        serving
    }

    fn refresh(&mut self, catalog: &Catalog, number: usize) {
        let Some(row) = catalog.row(&item(number)) else { return };
        if catalog.is_listed(row) && self.table.slot(row).is_none() {
            let (offset, features) = features(number, self.number);
            self.fresh.put(row, offset, &features);
        } else {
            self.fresh.remove(row);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    #[test]
    fn filters_and_searches_equal_a_check_of_every_item(
        steps in prop::collection::vec(step(), 1..60),
        filters in prop::collection::vec(filter(), 1..6),
        excluded in prop::collection::btree_set(0..ITEMS, 0..5),
        weights in prop::array::uniform3(-2_i8..3),
        k in 1_usize..12,
    ) {
        let (mut catalog, mut oracle) = (Catalog::new(), Oracle::default());
        let mut rows = BTreeMap::new();
        let mut serving = Serving::new(&mut catalog, 0, &BTreeSet::new());
        for (at, step) in steps.iter().enumerate() {
            oracle.take(step);
            match step {
                Step::Put(n, attributes) => {
                    catalog.put(&item(*n), attributes);
                    serving.refresh(&catalog, *n);
                }
                Step::Delete(n) => {
                    catalog.delete(&item(*n));
                    serving.refresh(&catalog, *n);
                }
                Step::Observe(n) => {
                    catalog.observe(&item(*n));
                    serving.refresh(&catalog, *n);
                }
                Step::Serve(items) => {
                    let next = Serving::new(&mut catalog, at + 1, items);
                    catalog.dismiss(&serving.rows);
                    serving = next;
                }
            }
            // An item keeps its row for life.
            for n in 0..ITEMS {
                if let Some(row) = catalog.row(&item(n)) {
                    prop_assert_eq!(*rows.entry(n).or_insert(row), row);
                    prop_assert_eq!(catalog.item(row), &item(n));
                }
            }
        }
        for json in std::iter::once(None).chain(filters.iter().map(Some)) {
            let filter = json.map(|json| Filter::from_json(json).unwrap());
            let mut allowed = catalog.compile(filter.as_ref(), Timestamp(NOW)).allowed();
            let mut expected = oracle.allowed(json);
            let found: BTreeSet<ItemId> = allowed.rows().map(|row| catalog.item(row).clone()).collect();
            prop_assert_eq!(&found, &expected.iter().map(|n| item(*n)).collect(), "{:?}", json);
            prop_assert_eq!(allowed.count(), expected.len());

            excluded.iter().filter_map(|n| catalog.row(&item(*n))).for_each(|row| allowed.remove(row));
            expected.retain(|n| !excluded.contains(n));
            let weights = weights.map(f32::from);
            let score = |n: usize| {
                let (offset, features) = features(n, serving.number);
                offset + features.iter().zip(weights).map(|(f, w)| f * w).sum::<f32>()
            };
            let mut best: Vec<Hit> =
                expected.iter().map(|n| Hit { row: rows[n], score: score(*n) }).collect();
            best.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.row.cmp(&b.row)));
            best.truncate(k);
            let matrix = Matrix::new(DIM, &serving.features, &serving.offsets);
            let trained = serving.table.search(matrix, &weights, k, &allowed);
            let fresh = serving.fresh.search(&weights, k, &allowed);
            prop_assert_eq!(best_of(k, [trained.as_slice(), fresh.as_slice()]), best);
        }
    }
}

#[test]
fn catalogs_of_many_chunks_are_filtered_exactly() {
    const MANY: usize = 150_000;
    let mut catalog = Catalog::new();
    for n in 0..MANY {
        let attributes = json!({"n": n, "even": n % 2 == 0, "tags": [format!("of {}", n % 3), "every"]});
        catalog.put(&item(n), attributes.as_object().unwrap());
    }
    let expected = |holds: &dyn Fn(usize) -> bool| (0..MANY).filter(|n| holds(*n)).count();
    let rows = |catalog: &Catalog, filter: Value| {
        catalog.compile(Some(&Filter::from_json(&filter).unwrap()), Timestamp(NOW)).allowed()
    };
    let third = json!({"eq": {"field": "tags", "value": "of 1"}});
    let middle = json!({"range": {"field": "n", "gt": 4095, "lte": 131_072}});
    assert_eq!(rows(&catalog, third.clone()).count(), expected(&|n| n % 3 == 1));
    assert_eq!(rows(&catalog, middle.clone()).count(), 131_072 - 4095);
    assert!(rows(&catalog, middle.clone()).rows().eq(4096..=131_072), "rows are assigned in order");
    let odd = json!({"not": {"eq": {"field": "even", "value": true}}});
    let both = json!({"all": [third, middle, odd]});
    let holds = |n: usize| n % 3 == 1 && n % 2 == 1 && (4096..=131_072).contains(&n);
    assert_eq!(rows(&catalog, both.clone()).count(), expected(&holds));
    // A compiled filter is a snapshot: later changes do not affect it.
    let compiled = catalog.compile(Some(&Filter::from_json(&both).unwrap()), Timestamp(NOW));
    (0..MANY).for_each(|n| assert!(catalog.delete(&item(n))));
    assert_eq!(compiled.allowed().count(), expected(&holds));
    assert_eq!(rows(&catalog, json!({"exists": {"field": "tags"}})).count(), 0);
    let size = catalog.size();
    assert_eq!((size.items, size.rows, size.fields), (0, MANY, 0), "rows remain, attributes are removed");
    // In addition to a row without attributes, the empty list of its terms remains.
    let mut bare = Catalog::new();
    for n in 0..MANY {
        bare.add(&item(n));
    }
    assert!(catalog.bytes() < bare.bytes() + 20 * MANY, "{} and {} bytes", catalog.bytes(), bare.bytes());
}
