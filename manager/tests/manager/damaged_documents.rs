//! Damages every document of the registry in many ways: the node must start, serve every other
//! model, and name the damaged document.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use celeris_features::{ColdItem, Theta, VersionContents, write_version};
use celeris_manager::monitoring::PageHinkley;
use celeris_manager::{
    DriftSettings, Manager, ManagerError, ManagerOptions, ModelConfig, NameKind, Schedule, TrainingOptions, Triggers,
};
use celeris_model::{ItemId, ModelName, Prior, Timestamp, VersionId};
use celeris_predictor::{Predictor, PredictorOptions};
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageOptions};
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::both;

const KINDS: [&str; 11] = [
    "model",
    "version",
    "job",
    "event",
    "events",
    "quality",
    "selection",
    "default_rewards",
    "pruned",
    "deleted",
    "last_model_id",
];

/// In the order of their creation, and so of their ids, from 1.
const NAMES: [&str; 4] = ["films", "twins", "books", "both"];

/// Maximum number of values that are damaged per document: a watermark alone has 64.
const FIGURES_MAX: usize = 8;

const JOB: &str = "01900000-0000-7000-8000-000000000001";

fn name(text: &str) -> ModelName {
    ModelName::new(text).unwrap()
}

fn open(storage: &Storage) -> Result<Arc<Manager>, ManagerError> {
    let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    let options = ManagerOptions {
        models_max: 10,
        trainer: "celeris".into(),
        training: TrainingOptions::default(),
        import_dir: Some(storage.dir().to_owned()),
    };
    Manager::open(storage.clone(), Arc::new(predictor), options)
}

/// Writes a finished version of `films`.
fn write_finished(dir: &Path) {
    let theta = Theta::new(vec![ItemId::new("a").unwrap()], vec![0.5], vec![2.0, 1.0], ColdItem::blank(2)).unwrap();
    let contents = VersionContents {
        model: name("films"),
        theta: &theta,
        choices: &[],
        prior: &Prior::isotropic(2, 2.0, 0.5).unwrap(),
        label_range: Some((0.5, 5.0)),
        algorithm: "als".to_owned(),
        parent: Some(VersionId(1)),
        watermark: json!(vec![0; 64]),
        created: Timestamp(1_700_000_000_000),
        metrics: BTreeMap::from([("rmse".to_owned(), 0.875)]),
    };
    write_version(dir, &contents).unwrap();
}

fn report() -> Value {
    let comparison = json!({"metric": "rmse", "observations": 60, "candidate": 0.9, "incumbent": 1.0,
        "difference": -0.1, "standard_error": 0.02});
    json!({"verdict": "passed", "why": "better", "incumbent": 1, "measure": "rmse", "margin": 0.0, "holdout": comparison,
        "pool": null, "shadow": null, "seconds": 0.5})
}

/// Three models, two of them arms of a selection, with documents of every kind.
fn fill(storage: &Storage) {
    let manager = open(storage).unwrap();
    for (model, stream) in [("films", "films"), ("twins", "films"), ("books", "books")] {
        let mut config = ModelConfig::new(name(model), 2);
        config.stream = stream.parse().unwrap();
        config.triggers = Triggers { schedule: Some(Schedule { every: 1e6 }), ..Triggers::default() };
        manager.create(config).unwrap();
    }
    let finished = storage.dir().join("finished");
    write_finished(&finished);
    manager.versions().register(&name("films"), Path::new("finished")).unwrap();
    manager.promotion().activate(&name("films"), VersionId(2)).unwrap();
    manager.versions().pin(&name("films"), VersionId(1)).unwrap();
    manager.registry().create_selection(both()).unwrap();
    let mut batch = RegistryBatch::new();
    let version = RegistryKey::new(["version", "films", &format!("{:020}", 2)]).unwrap();
    let mut evaluated: Value = storage.registry().get(&version).unwrap().unwrap();
    evaluated["gate"] = report();
    batch.put(version, &evaluated).unwrap();
    let job = json!({"job": JOB, "model": "films", "model_id": 1, "state": "succeeded", "engine": "als", "why": "on request",
        "phase": "activate", "progress": 1.0, "metrics": {"rmse": 0.875}, "version": 2, "gate": report(), "error": null,
        "created": 5, "finished": 9});
    batch.put(RegistryKey::new(["job", JOB]).unwrap(), &job).unwrap();
    let cursor = json!("01900000-0000-7000-8000-000000000000");
    batch.put(RegistryKey::new(["default_rewards", "1"]).unwrap(), &cursor).unwrap();
    batch.put(RegistryKey::new(["pruned", "1", "9"]).unwrap(), &json!(["films", 1, 9])).unwrap();
    batch.put(RegistryKey::new(["deleted", "77"]).unwrap(), &json!("gone")).unwrap();
    storage.registry().commit(&batch).unwrap();
}

type Documents = BTreeMap<RegistryKey, Value>;

fn documents(storage: &Storage) -> Documents {
    let listed = KINDS.map(|kind| storage.registry().list::<Value>(&RegistryKey::new([kind]).unwrap()).unwrap());
    listed.into_iter().flatten().map(|(key, document)| (key, document.unwrap())).collect()
}

/// Restores the registry, except for one damaged document.
fn write(storage: &Storage, documents: &Documents, damaged: Option<(&RegistryKey, &Value)>) {
    let mut batch = RegistryBatch::new();
    for key in self::documents(storage).keys() {
        batch.delete(key.clone());
    }
    for (key, document) in documents {
        batch.put(key.clone(), document).unwrap();
    }
    if let Some((key, document)) = damaged {
        batch.put(key.clone(), document).unwrap();
    }
    storage.registry().commit(&batch).unwrap();
}

/// JSON pointers to all leaves of a document.
fn leaves(document: &Value, place: &str, found: &mut Vec<String>) {
    match document {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves(value, &format!("{place}/{name}"), found));
        }
        Value::Array(values) => {
            values.iter().enumerate().for_each(|(index, value)| leaves(value, &format!("{place}/{index}"), found));
        }
        _ => found.push(place.to_owned()),
    }
}

/// Damaged variants of a document: values replaced by null (JSON's form of NaN) or by another type,
/// and the whole document replaced.
fn damages(document: &Value, random: &mut ChaCha8Rng) -> Vec<Value> {
    let mut places = Vec::new();
    leaves(document, "", &mut places);
    let places: Vec<String> = places.sample(random, FIGURES_MAX).cloned().collect();
    let mut damaged = vec![Value::Null, json!({}), json!([]), json!(7)];
    for place in places {
        let others = [Value::Null, json!("damaged"), json!(-1.5e300), json!(u64::MAX)];
        let mut values = vec![Value::Null];
        values.extend(others.choose(random).cloned());
        for value in values {
            let mut document = document.clone();
            *document.pointer_mut(&place).unwrap() = value;
            damaged.push(document);
        }
    }
    damaged
}

/// The names that may be out of service if the document of this key is damaged: its own, and
/// selections that contain it.
fn own(key: &RegistryKey) -> Vec<ModelName> {
    let Some(of) = key.parts().get(1) else { return Vec::new() };
    let id: Option<usize> = of.parse().ok();
    let own = id.map_or(of.as_str(), |id| NAMES.get(id - 1).copied().unwrap_or_default());
    let arms = ["films", "twins"];
    NAMES.into_iter().filter(|other| *other == own || (*other == "both" && arms.contains(&own))).map(name).collect()
}

fn check(manager: &Manager, key: &RegistryKey, damaged: &Value) {
    let context = || format!("{key} as {damaged}");
    let unavailable = manager.registry().unavailable().unwrap();
    let listed: Vec<ModelName> =
        manager.registry().models().unwrap().into_iter().map(|record| record.config.name).collect();
    for model in ["films", "twins", "books"].map(name) {
        let out = unavailable.iter().find(|out| out.name == model);
        assert_eq!(listed.contains(&model), out.is_none(), "{}: every model is listed once", context());
        let Some(out) = out else {
            let registry = manager.registry();
            let found = registry.model(&model).unwrap_or_else(|error| panic!("{}: {model}: {error}", context()));
            let _served = registry.versions(&model).unwrap_or_else(|error| panic!("{}: {model}: {error}", context()));
            let events =
                registry.audit().page(found.id, None, 1000).unwrap_or_else(|error| panic!("{}: {error}", context()));
            assert!(events.unreadable.iter().all(|reason| reason.contains(&key.to_string())), "{}", context());
            assert!(manager.monitoring().quality(found.id, Timestamp(0)).is_some(), "{}: {model}", context());
            continue;
        };
        assert!(own(key).contains(&model), "{}: {model} is unrelated: {}", context(), out.reason);
        assert_eq!(out.kind, NameKind::Model);
        let refused = manager.registry().model(&model).unwrap_err().to_string();
        assert!(refused.contains("out of service") && refused.contains(&*out.reason), "{}: {refused}", context());
        assert!(
            matches!(manager.create(ModelConfig::new(model, 2)), Err(ManagerError::ModelExists { .. })),
            "{}",
            context()
        );
    }
    for out in &unavailable {
        assert!(own(key).contains(&out.name), "{}: {out:?}", context());
    }
    if key.parts()[0] == "job" {
        let job = manager.training().jobs().get(JOB).map(|job| job.why).map_err(|error| error.to_string());
        assert!(
            job.as_ref().is_ok_and(|why| !why.is_empty()) || job.is_err_and(|error| error.contains(JOB)),
            "{}",
            context()
        );
    } else {
        assert_eq!(manager.training().jobs().get(JOB).unwrap().version, Some(VersionId(2)), "{}", context());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_one_damaged_document_leaves_a_node_that_starts_and_serves_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
    fill(&storage);
    let whole = documents(&storage);
    for kind in KINDS {
        assert!(whole.keys().any(|key| key.parts()[0] == kind), "the test data has no document of kind {kind}");
    }
    let mut random = ChaCha8Rng::seed_from_u64(18);
    let mut out_of_service = 0;
    for (key, document) in &whole {
        for damaged in damages(document, &mut random) {
            write(&storage, &whole, Some((key, &damaged)));
            let manager = open(&storage).unwrap_or_else(|error| panic!("{key} as {damaged}: {error}"));
            check(&manager, key, &damaged);
            out_of_service += manager.registry().unavailable().unwrap().len();
        }
    }
    assert!(out_of_service > 50, "{out_of_service}: damage of models and versions is detected");
    write(&storage, &whole, None);
    let manager = open(&storage).unwrap();
    assert_eq!(manager.registry().unavailable().unwrap(), []);
    assert_eq!(manager.registry().selections().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_out_of_service_names_its_document_and_can_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
    fill(&storage);
    let whole = documents(&storage);
    let key = RegistryKey::new(["version", "films", &format!("{:020}", 2)]).unwrap();
    let mut damaged = whole[&key].clone();
    damaged["gate"]["margin"] = Value::Null;
    write(&storage, &whole, Some((&key, &damaged)));
    let manager = open(&storage).unwrap();
    let unavailable = manager.registry().unavailable().unwrap();
    assert_eq!(unavailable.iter().map(|out| out.name.as_str()).collect::<Vec<_>>(), ["both", "films"]);
    assert_eq!([unavailable[0].kind, unavailable[1].kind], [NameKind::Selection, NameKind::Model]);
    assert!(unavailable[1].reason.contains(&key.to_string()), "{}", unavailable[1].reason);
    assert!(unavailable[0].reason.contains("films"), "{}", unavailable[0].reason);

    assert!(manager.registry().delete_selection(&name("both")).unwrap());
    manager.delete(&name("films")).unwrap();
    assert_eq!(manager.registry().unavailable().unwrap(), []);
    assert!(!dir.path().join("versions/films.1").exists());
    assert!(matches!(manager.registry().model(&name("films")), Err(ManagerError::UnknownModel { .. })));
    manager.create(ModelConfig::new(name("films"), 2)).unwrap();
    assert_eq!(open(&storage).unwrap().registry().models().unwrap().len(), 3);
}

/// The id cannot be read, or is that of another model.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_a_readable_id_is_deleted_alone() {
    for damaged in [json!({}), json!({"id": 3})] {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
        fill(&storage);
        let whole = documents(&storage);
        write(&storage, &whole, Some((&RegistryKey::new(["model", "films"]).unwrap(), &damaged)));
        let manager = open(&storage).unwrap();
        assert!(manager.registry().delete_selection(&name("both")).unwrap());
        manager.delete(&name("films")).unwrap();
        let folders = std::fs::read_dir(dir.path().join("versions")).unwrap();
        let mut folders: Vec<String> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        folders.sort();
        assert_eq!(folders, ["books.3", "twins.2"]);
        let created = manager.create(ModelConfig::new(name("films"), 2)).unwrap();
        assert_eq!(created.id.0, 5, "ids are not reused");
        let manager = open(&storage).unwrap();
        assert_eq!(
            (manager.registry().unavailable().unwrap(), manager.registry().models().unwrap().len()),
            (Vec::new(), 3)
        );
    }
}

/// The drift test receives only finite numbers, so its state stays finite.
#[test]
fn the_drift_test_stays_finite_at_the_bound_of_losses() {
    let mut test = PageHinkley::new(DriftSettings { warm_up: 5, ..DriftSettings::default() });
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..1000 {
        let loss = if random.random_bool(0.1) { celeris_model::PREDICTION_LOSS_MAX } else { 1.0 };
        let _rise = test.add(loss);
        assert!(test.statistic().is_finite());
    }
}
