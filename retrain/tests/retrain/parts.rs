//! Computed parts of the features: their fit to data of known effects, and the version that has them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use celeris_features::parts::ItemParts;
use celeris_features::{ColdItem, LoadedVersion, WeightMoments, read_version};
use celeris_formats::{AttributesWriter, ObservationRow, ObservationsWriter};
use celeris_model::{
    Context, ItemId, Learning, Loss, ObservationId, Record, RecordKind, Sequence, StreamFields, Timestamp, UserEpoch,
    UserId, UserModel, VersionId,
};
use celeris_pipelines::objects::{Content, Weights};
use celeris_pipelines::{Objects, PipelineSpec};
use celeris_retrain::{Algorithm, InputFile, Job, JobPart, RetrainError, Silent, run_job};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde_json::{Map, Value, json};

const USERS: usize = 200;
const ITEMS: usize = 30;
const EACH: usize = 60;

/// The common effect of the context's number, and how much users differ in it.
const EFFECT: f64 = 0.8;
const SPREAD: f64 = 0.4;
const NOISE: f64 = 0.5;

fn context(number: f64) -> Context {
    serde_json::from_value(json!({"number": number})).unwrap()
}

/// Labels are `3 + (EFFECT + slope of the user) z + noise`, where the context has `5 + 2 z`.
fn write_observations(path: &Path) -> InputFile {
    write_observations_of(path, |_| true)
}

/// As [`write_observations`]; those without a context have the labels of its mean.
fn write_observations_of(path: &Path, has_context: impl Fn(usize) -> bool) -> InputFile {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut normal = || rng.sample::<f64, _>(StandardNormal);
    let slopes: Vec<f64> = (0..USERS).map(|_| SPREAD * normal()).collect();
    write_drawn(path, |k, _| {
        let drawn = normal();
        let z = if has_context(k) { drawn } else { 0.0 };
        let label = 3.0 + (EFFECT + slopes[k % USERS]) * z + NOISE * normal();
        (label, has_context(k).then_some(5.0 + 2.0 * z))
    })
}

/// Observations, of each its label and the number in its context, by its place and its item.
fn write_drawn(path: &Path, mut draw: impl FnMut(usize, usize) -> (f64, Option<f64>)) -> InputFile {
    let fields = StreamFields::default();
    let fields = fields.extended(&fields.missing(&context(1.0)));
    let mut writer = ObservationsWriter::create(path).unwrap();
    for k in 0..USERS * EACH {
        let (user, of_item) = (k % USERS, (k * 7 + k / USERS) % ITEMS);
        let (label, number) = draw(k, of_item);
        let record = Record {
            kind: RecordKind::Observe,
            user: UserId::new(format!("u{user}")).unwrap(),
            user_epoch: UserEpoch(k as u64 + 1),
            item: Some(item(of_item)),
            label: label as f32,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(1),
            observation_id: None,
            decision: None,
            context: number.and_then(|number| fields.numbered(&context(number))).map(Box::new),
            predictions: Vec::new(),
            targets: Vec::new(),
        };
        let observation_id = ObservationId::new(format!("o{k}")).unwrap();
        let sequence = Sequence(k as u64 + 1);
        writer.push(ObservationRow { sequence, observation_id: &observation_id, record: &record }).unwrap();
    }
    writer.finish().unwrap();
    InputFile::sealed(path).unwrap()
}

fn item(number: usize) -> ItemId {
    ItemId::new(format!("film-{number}")).unwrap()
}

fn attributes(number: usize) -> Map<String, Value> {
    json!({"genre": if number.is_multiple_of(2) { "news" } else { "film" }, "length": number})
        .as_object()
        .unwrap()
        .clone()
}

/// All items but the first have attributes.
fn write_attributes(path: &Path) -> InputFile {
    let mut writer = AttributesWriter::create(path).unwrap();
    let described: Vec<(ItemId, Map<String, Value>)> =
        (1..ITEMS).map(|number| (item(number), attributes(number))).collect();
    writer.write(described.iter().map(|(item, attributes)| (item, attributes))).unwrap();
    writer.finish().unwrap();
    InputFile::sealed(path).unwrap()
}

fn part(name: &str, dim: usize, nodes: &Value, output: &str) -> JobPart {
    let spec = json!({"name": name, "output": output, "nodes": nodes});
    JobPart { part: name.to_owned(), dim, pipeline: PipelineSpec::parse(&spec).unwrap() }
}

fn number() -> JobPart {
    part(
        "number",
        1,
        &json!({"number": {"op": "field", "of": "context", "name": "number", "type": "number"}}),
        "number",
    )
}

fn length() -> JobPart {
    part("length", 1, &json!({"length": {"op": "field", "of": "item", "name": "length", "type": "number"}}), "length")
}

/// A model of the label, fitted to combinations of an attribute and a bucket of the number.
fn liking() -> JobPart {
    let nodes = json!({
        "genre": {"op": "one_hot", "input": "item.genre", "categories": ["news", "film"]},
        "bucket": {"op": "bucketize", "input": "context.number", "edges": [3, 5, 7]},
        "both": {"op": "cross", "inputs": ["genre", "bucket"], "hash_bits": 8},
        "liking": {"op": "linear", "input": "both", "fit": "label"}});
    part("liking", 1, &nodes, "liking")
}

fn job(folder: &Path, parts: Vec<JobPart>) -> Job {
    let dim = 3 + parts.iter().map(|part| part.dim).sum::<usize>();
    Job {
        model: "films".parse().unwrap(),
        version: VersionId(2),
        dim,
        seed: 1,
        threads: None,
        algorithm: Algorithm::default(),
        loss: Loss::Squared,
        observations: write_observations(&folder.join("observations.parquet")),
        pinned_items: None,
        item_attributes: Some(write_attributes(&folder.join("attributes.parquet"))),
        user_attributes: None,
        parts,
        objects: None,
        parent: Some(VersionId(1)),
        warm_start: None,
        watermark: json!(null),
        limits: None,
        output: "version".into(),
    }
}

fn run(folder: &Path, job: &Job) -> Result<LoadedVersion, RetrainError> {
    let path = folder.join("job.json");
    fs::write(&path, serde_json::to_vec(job).unwrap()).unwrap();
    run_job(&path, &Silent)?;
    Ok(read_version(&folder.join(&job.output))?)
}

/// The features of an item with these attributes in a context, by a version.
fn features(version: &LoadedVersion, item: &ItemParts, context: Option<&Context>) -> (Vec<f32>, bool) {
    let parts = version.parts.as_ref().unwrap();
    let mut row = vec![0.0; parts.dim()];
    let missing = parts.compute(&[item], context, std::iter::once(row.as_mut_slice()));
    (row, !missing[0].is_empty())
}

#[test]
fn the_prior_has_the_common_effect_of_a_column_and_how_much_users_differ() {
    let folder = tempfile::tempdir().unwrap();
    let version = run(folder.path(), &job(folder.path(), vec![number()])).unwrap();
    let parts = version.parts.as_ref().unwrap();
    assert_eq!((parts.dim(), parts.table_dim()), (4, 3));
    let column = parts.context_columns().next().unwrap();
    // The column is z, and a tenth covers the errors of 200 users' slopes.
    let (row, _) = features(&version, parts.of_row(0), Some(&context(9.0)));
    assert!((row[column] - 2.0).abs() < 0.1, "{row:?}");
    assert!((version.prior.mean()[column] - EFFECT).abs() < 0.1, "{:?}", version.prior.mean());
    let variance = version.prior.noise_variance() * version.prior.inverse()[column * 4 + column];
    assert!((variance.sqrt() - SPREAD).abs() < 0.1, "{variance}");
    let noise = version.prior.noise_variance().sqrt();
    assert!((noise / NOISE - 1.0).abs() < 0.1, "the column is no noise any more: {noise}");
    let metrics = &version.manifest.metrics;
    assert!(metrics["sequential_loss"] < 0.6 * metrics["sequential_loss_without_parts"], "{metrics:?}");
}

/// What items are liked for turns around in a context that is rare: the factors know them by the usual one.
#[test]
fn a_rare_context_is_predicted_as_the_usual_one() {
    let folder = tempfile::tempdir().unwrap();
    let truth = |number: f64, of_item: usize| if (number > 7.0) == of_item.is_multiple_of(2) { 2.0 } else { 4.0 };
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let observations = write_drawn(&folder.path().join("rare.parquet"), |_, of_item| {
        let number = if rng.random_bool(0.15) { 9.0 } else { 1.0 };
        (truth(number, of_item) + NOISE * rng.sample::<f64, _>(StandardNormal), Some(number))
    });
    let version = run(folder.path(), &Job { observations, ..job(folder.path(), vec![liking()]) }).unwrap();
    for (number, of_item) in [(1.0, 1), (1.0, 2), (9.0, 1), (9.0, 2)] {
        let score = score(&version, of_item, Some(&context(number)));
        let truth = truth(number, of_item);
        assert!((score - truth).abs() < 0.3, "{score} instead of {truth}, for item {of_item} and {number}");
    }
}

/// The score of an item under the prior's means.
fn score(version: &LoadedVersion, of_item: usize, context: Option<&Context>) -> f64 {
    let parts = version.parts.as_ref().unwrap();
    let slot = version.theta.slot(&item(of_item)).unwrap() as usize;
    let row = version.theta.row(slot);
    let mut features = row.features.to_vec();
    parts.compute(&[parts.of_row(slot)], context, std::iter::once(features.as_mut_slice()));
    let weights = version.prior.mean().iter().zip(&features);
    f64::from(row.offset) + weights.map(|(weight, feature)| weight * f64::from(*feature)).sum::<f64>()
}

/// Columns of combinations beside those of the item, with which they correlate: the weights of the two cancel out.
#[test]
fn an_unknown_context_counts_as_those_of_the_training() {
    let folder = tempfile::tempdir().unwrap();
    let truth = |number: f64, of_item: usize| if (number > 7.0) == of_item.is_multiple_of(2) { 2.0 } else { 4.0 };
    let usual = 0.7;
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let observations = write_drawn(&folder.path().join("drawn.parquet"), |_, of_item| {
        let number = if rng.random_bool(usual) { 1.0 } else { 9.0 };
        (truth(number, of_item) + NOISE * rng.sample::<f64, _>(StandardNormal), Some(number))
    });
    let genre = json!({"genre": {"op": "one_hot", "input": "item.genre", "categories": ["news", "film"]}});
    let mut nodes = genre.clone();
    nodes["bucket"] = json!({"op": "bucketize", "input": "context.number", "edges": [3, 7]});
    nodes["both"] = json!({"op": "cross", "inputs": ["genre", "bucket"], "hash_bits": 4});
    let parts = vec![part("genre", 2, &genre, "genre"), part("both", 16, &nodes, "both")];
    let version = run(folder.path(), &Job { observations, ..job(folder.path(), parts) }).unwrap();
    for of_item in [1, 2] {
        let scores = [1.0, 9.0].map(|number| score(&version, of_item, Some(&context(number))));
        let expected = usual * scores[0] + (1.0 - usual) * scores[1];
        // The share of the contexts is within 0.005 of what they were drawn with, and the scores differ by 2.
        let unknown = score(&version, of_item, None);
        assert!((unknown - expected).abs() < 0.02, "item {of_item}: {unknown} instead of {expected} of {scores:?}");
        let true_mean = usual * truth(1.0, of_item) + (1.0 - usual) * truth(9.0, of_item);
        assert!((unknown - true_mean).abs() < 0.2, "item {of_item}: {unknown} instead of {true_mean}");
    }
    // What is unknown is the context alone: the variance is that of the scores in the contexts, by the mean weights and for the
    // noise of 0.
    let parts = version.parts.as_ref().unwrap();
    let learning = Learning::new(version.prior.clone(), Loss::Squared, None);
    let user = UserModel::from_prior(&learning).unwrap();
    for of_item in [1, 2] {
        let slot = version.theta.slot(&item(of_item)).unwrap() as usize;
        let mut row = version.theta.row(slot).features.to_vec();
        let missing = parts.compute(&[parts.of_row(slot)], None, std::iter::once(row.as_mut_slice()))[0];
        let variance = parts.variance(&WeightMoments::of(&user, &learning), (parts.of_row(slot), missing));
        let [usually, rarely] = [1.0, 9.0].map(|number| score(&version, of_item, Some(&context(number))));
        let of_scores = usual * (1.0 - usual) * (usually - rarely).powi(2);
        // Users differ in the weights, which adds a little.
        assert!((0.95..1.3).contains(&(variance / of_scores)), "item {of_item}: {variance} instead of {of_scores}");
    }
}

/// A model of another program knows what items are worth, which the factors learn too, and what the context changes.
#[test]
fn a_model_of_items_and_contexts_keeps_its_weight_beside_factors() {
    let folder = tempfile::tempdir().unwrap();
    let objects = folder.path().join("objects");
    fs::create_dir(&objects).unwrap();
    let weights = Weights::new(vec![0.0], vec![0.1, 0.5]).unwrap();
    let weights = Objects::in_memory().add(&Content::Weights(weights.into())).unwrap();
    fs::write(objects.join(weights.id().hex()), weights.content().encode()).unwrap();
    let nodes = json!({
        "row": {"op": "concat", "inputs": ["item.length", "context.number"]},
        "rank": {"op": "linear", "input": "row", "weights": weights.id()}});
    let effect = 0.8;
    let truth = |length: usize, number: f64| 3.0 + effect * (0.1 * length as f64 + 0.5 * number);
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let observations = write_drawn(&folder.path().join("drawn.parquet"), |_, of_item| {
        let number = f64::from(rng.random_range(0..8_u8));
        (truth(of_item, number) + NOISE * rng.sample::<f64, _>(StandardNormal), Some(number))
    });
    let parts = vec![part("rank", 1, &nodes, "rank")];
    let job = Job { observations, objects: Some("objects".into()), ..job(folder.path(), parts) };
    let version = run(folder.path(), &job).unwrap();
    let parts = version.parts.as_ref().unwrap();
    let file: Value = serde_json::from_slice(&fs::read(folder.path().join("version/parts.json")).unwrap()).unwrap();
    let column = parts.context_columns().next().unwrap();
    let weight = version.prior.mean()[column] / file["parts"][0]["deviations"][0].as_f64().unwrap();
    assert!((weight / effect - 1.0).abs() < 0.05, "{weight}");
    // The first item has no attributes, and so no part.
    for (of_item, number) in [(1, 0.0), (1, 7.0), (29, 0.0), (29, 7.0)] {
        let (score, truth) = (score(&version, of_item, Some(&context(number))), truth(of_item, number));
        assert!((score - truth).abs() < 0.2, "{score} instead of {truth}, item {of_item}, {number}");
    }
    // So does an item that came later, as a node scores it.
    let late = json!({"genre": "news", "length": 40});
    let of_item = parts.item(late.as_object());
    let ColdItem { offset, features } = version.cold_map.as_ref().unwrap().map(late.as_object().unwrap());
    for number in [0.0, 7.0] {
        let mut features = features.clone();
        parts.materialise(late.as_object(), &mut features);
        parts.compute(&[&of_item], Some(&context(number)), std::iter::once(features.as_mut_slice()));
        let weights = version.prior.mean().iter().zip(&features);
        let score = f64::from(offset + parts.item_effect(&of_item))
            + weights.map(|(weight, feature)| weight * f64::from(*feature)).sum::<f64>();
        let truth = truth(40, number);
        assert!((score - truth).abs() < 0.4, "{score} instead of {truth}, {number}");
    }
}

#[test]
fn parts_are_computed_from_what_the_version_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), vec![liking(), length(), number()]);
    let version = run(folder.path(), &job).unwrap();
    let parts = version.parts.as_ref().unwrap();
    let slot = |number: usize| version.theta.slot(&item(number)).unwrap() as usize;
    // The lengths are standardised, and those of the table are computed as those of a later item.
    let lengths = 2 + 1;
    let column = |row: &[f32]| row[lengths];
    for number in 1..ITEMS {
        let later = parts.materialised(&[0.0, 0.0, 1.0], Some(&attributes(number)));
        assert_eq!(column(version.theta.row(slot(number)).features), column(&later));
        assert_eq!(*parts.of_row(slot(number)), parts.item(Some(&attributes(number))));
    }
    assert!(column(version.theta.row(slot(ITEMS - 1)).features) > column(version.theta.row(slot(1)).features) + 2.0);
    // All items at once are as one after the other.
    let items: Vec<&ItemParts> = (0..ITEMS).map(|number| parts.of_row(slot(number))).collect();
    let mut rows = vec![0.0; ITEMS * parts.dim()];
    let missing = parts.compute(&items, Some(&context(6.0)), rows.chunks_exact_mut(parts.dim()));
    for (number, row) in rows.chunks_exact(parts.dim()).enumerate() {
        let (alone, lacks) = features(&version, items[number], Some(&context(6.0)));
        assert_eq!((row, !missing[number].is_empty()), (alone.as_slice(), lacks));
        assert_eq!(lacks, number == 0, "the first item has no attributes");
    }
    // Without a context, and with one of other fields, the columns are at their means.
    let other: Context = serde_json::from_value(json!({"device": "phone"})).unwrap();
    for context in [None, Some(&other)] {
        let (row, lacks) = features(&version, items[1], context);
        assert!(lacks && row.iter().all(|column| *column == 0.0), "{row:?}");
    }
    assert_eq!(
        parts.names(parts.compute(&[items[0]], None, std::iter::once(vec![0.0; parts.dim()].as_mut_slice()))[0]),
        ["liking", "length", "number"]
    );
    let map = version.cold_map.as_ref().unwrap();
    assert_eq!(map.dim(), parts.dim());
    let mapped = map.map(&attributes(3));
    assert!(mapped.features[2..parts.dim() - 1].iter().all(|column| *column == 0.0), "{mapped:?}");
}

#[test]
fn a_column_is_standardised_over_the_observations_that_have_its_part() {
    let folder = tempfile::tempdir().unwrap();
    let version = run(folder.path(), &job(folder.path(), vec![length()])).unwrap();
    let parts = version.parts.as_ref().unwrap();
    let column = |number: usize| {
        let slot = version.theta.slot(&item(number)).unwrap();
        version.theta.row(slot as usize).features[2]
    };
    // Lengths 1 to 29, each about as often; the item without attributes has none, and not a length of zero.
    let deviation = ((29.0_f32.powi(2) - 1.0) / 12.0).sqrt();
    assert!(column(15).abs() < 0.01, "{}", column(15));
    assert!((column(29) - 14.0 / deviation).abs() < 0.01, "{}", column(29));
    assert_eq!((column(0), parts.dim()), (0.0, 4));
}

#[test]
fn observations_without_a_context_are_learnt_from_too() {
    let folder = tempfile::tempdir().unwrap();
    let with = run(folder.path(), &job(folder.path(), vec![number()])).unwrap();
    let mut job = job(folder.path(), vec![number()]);
    job.observations = write_observations_of(&folder.path().join("fewer.parquet"), |k| k % 4 != 0);
    job.output = "fewer".into();
    let without = run(folder.path(), &job).unwrap();
    let column = with.parts.as_ref().unwrap().context_columns().next().unwrap();
    // Means and deviations are those of the others, and so is the effect, to a tenth.
    let value = |version: &LoadedVersion| {
        features(version, version.parts.as_ref().unwrap().of_row(0), Some(&context(9.0))).0[column]
    };
    assert!((value(&with) - value(&without)).abs() < 0.1, "{} {}", value(&with), value(&without));
    let effect = without.prior.mean()[column];
    assert!((effect - EFFECT).abs() < 0.1, "{effect}");
}

#[test]
fn columns_that_depend_on_each_other_are_trained() {
    let folder = tempfile::tempdir().unwrap();
    // Every context is in one of the two buckets, and a column is there twice.
    let nodes = json!({
        "bucket": {"op": "bucketize", "input": "context.number", "edges": [5]},
        "one": {"op": "one_hot", "input": "bucket"}});
    let parts = vec![part("one", 2, &nodes, "one"), part("again", 2, &nodes, "one"), number()];
    let version = run(folder.path(), &job(folder.path(), parts)).unwrap();
    let metrics = &version.manifest.metrics;
    assert!(metrics["sequential_loss"] < 0.7 * metrics["sequential_loss_without_parts"], "{metrics:?}");
}

#[test]
fn offsets_are_fitted_without_the_parts_and_leave_room_for_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let learnt = json!({"genre": {"op": "one_hot", "input": "item.genre", "fit": {"min_count": 1}}});
    let mut job = job(folder.path(), vec![part("genre", 2, &learnt, "genre")]);
    (job.algorithm, job.item_attributes) = (Algorithm::Popularity, None);
    let version = run(folder.path(), &job).unwrap();
    assert!(version.parts.is_none());
    let row = version.theta.row(version.theta.slot(&item(1)).unwrap() as usize);
    assert_eq!(row.features, [0.0, 0.0, 0.0, 0.0, 1.0]);
    assert!(row.offset > 2.0, "{}", row.offset);
    assert_eq!((version.prior.dim(), version.prior.mean()), (5, [0.0; 5].as_slice()));
    let precision = version.prior.precision();
    let diagonal: Vec<f64> = (0..4).map(|column| precision[column * 5 + column]).collect();
    assert_eq!(diagonal, [1.0; 4]);
}

#[test]
fn equal_data_give_equal_versions_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let job = job(folder.path(), vec![liking(), number()]);
    let files = |output: &str, threads: usize| -> BTreeMap<String, String> {
        let job = Job { output: output.into(), threads: threads.try_into().ok(), ..job.clone() };
        let version = run(folder.path(), &job).unwrap();
        version.manifest.files.into_iter().map(|(name, entry)| (name, entry.sha256)).collect()
    };
    let first = files("first", 1);
    assert!(first.keys().any(|name| name.starts_with("object-")), "{first:?}");
    assert_eq!(files("second", 3), first);
}

#[test]
fn a_version_without_what_its_parts_need_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let version = run(folder.path(), &job(folder.path(), vec![liking()])).unwrap();
    let dir = folder.path().join("version");
    let object = version.manifest.files.keys().find(|name| name.starts_with("object-")).unwrap();
    let said = |name: &str| {
        let (path, moved) = (dir.join(name), folder.path().join("moved"));
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, b"damaged").unwrap();
        let error = read_version(&dir).map(drop).unwrap_err().to_string();
        fs::rename(&moved, &path).unwrap();
        error
    };
    for name in [object.as_str(), "parts.json", "part_attributes.parquet"] {
        let error = said(name);
        assert!(error.contains(name), "{name}: {error}");
    }
    assert!(read_version(&dir).is_ok());
}

#[test]
fn parts_that_cannot_be_fitted_fail_the_job_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut implicit = job(folder.path(), vec![number()]);
    implicit.loss = Loss::Implicit;
    assert!(run(folder.path(), &implicit).unwrap_err().to_string().contains("squared or logistic"));
    let mut wide = job(folder.path(), vec![number()]);
    wide.parts[0].dim = 2;
    let said = run(folder.path(), &wide).unwrap_err().to_string();
    assert!(said.contains("number") && said.contains("columns"), "{said}");
}
