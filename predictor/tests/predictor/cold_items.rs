//! Items added after training are scored by features mapped from their attributes, with additional
//! uncertainty. Once a user learns from such an item, its features are frozen, and the uncertainty
//! remains.

use std::path::Path;
use std::sync::Arc;

use celeris_features::{AttributeEncoder, ColdItem, ColdMap, ColdMapParts, Theta};
use celeris_model::{
    FeatureOrigin, ItemId, Learning, ModelId, ModelName, Observation, Prior, StreamName, UserId, UserModel, VersionId,
};
use celeris_predictor::{
    ItemChange, ItemView, PredictRequest, Predictor, PredictorOptions, Scored, ServingSettings, ServingVersion,
};
use celeris_storage::{Storage, StorageOptions};
use serde_json::{Map, Value, json};

fn model() -> ModelName {
    ModelName::new("films").unwrap()
}

fn item(name: &str) -> ItemId {
    ItemId::new(name).unwrap()
}

fn attributes(value: Value) -> Map<String, Value> {
    let Value::Object(attributes) = value else { panic!("{value} is no object") };
    attributes
}

/// Every column adds its number to the first feature and 0.5 to the offset.
fn map() -> Arc<ColdMap> {
    let known: Vec<_> = ["Drama", "Comedy"].iter().map(|genre| attributes(json!({"genres": [genre]}))).collect();
    let encoder = AttributeEncoder::learn(&known);
    let coefficients = (0..encoder.width()).flat_map(|column| [column as f32 / 10.0, 0.0, 0.5]).collect();
    let parts = ColdMapParts {
        encoder,
        intercept: vec![0.1, -0.2, 3.0],
        coefficients,
        residual_covariance: vec![0.5, 0.0, 0.1, 0.0, 0.25, 0.0, 0.1, 0.0, 0.3],
        ridge: 1.0,
    };
    Arc::new(ColdMap::new(parts).unwrap())
}

fn prior() -> Prior {
    Prior::new(vec![0.4, -0.3, 0.1], vec![2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 4.0], 0.7).unwrap()
}

fn version() -> ServingVersion {
    let cold = ColdItem { offset: 2.5, features: vec![0.0, 0.0, 1.0] };
    let theta = Theta::new(vec![item("trained")], vec![3.5], vec![1.0, -1.0, 1.0], cold).unwrap();
    ServingVersion::new((model(), ModelId(1)), VersionId(2), theta, prior().into()).unwrap().with_cold_map(Some(map()))
}

struct Node {
    storage: Storage,
    predictor: Predictor,
}

impl Node {
    fn open(dir: &Path) -> Self {
        Self::serving(dir, version())
    }

    fn serving(dir: &Path, version: ServingVersion) -> Self {
        let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
        let options = PredictorOptions { prediction_items_max: usize::MAX, ..PredictorOptions::default() };
        let (predictor, _losses) = Predictor::new(storage.clone(), &options);
        predictor.activation().activate(&StreamName::of_model(&model()), ServingSettings::default(), version).unwrap();
        Self { storage, predictor }
    }

    fn describe(&self, name: &str, value: Value) {
        let change = ItemChange { features: None, attributes: Some(attributes(value)) };
        self.predictor.catalog().put_item(&model(), &item(name), change).unwrap();
    }

    fn view(&self, name: &str) -> ItemView {
        self.predictor.catalog().item(&model(), &item(name)).unwrap().unwrap()
    }

    async fn scored(&self, name: &str) -> Scored {
        let request = PredictRequest {
            model: model(),
            user: UserId::new("u").unwrap(),
            items: vec![item(name)],
            min_epoch: None,
            segment: None,
            context: None,
        };
        self.predictor.predict(&request).await.unwrap().scores.remove(0)
    }

    async fn observe(&self, name: &str) {
        let observation = Observation {
            user: UserId::new("u").unwrap(),
            item: item(name),
            label: 4.0,
            weight: 1.0,
            timestamp: None,
            observation_id: None,
            feedback: None,
            decision: None,
            context: None,
        };
        self.predictor.ingest().observe(&model(), observation).await.unwrap();
    }
}

/// The standard error of the item's score under the user's posterior, without and with the map's
/// variance.
fn expected(view: &ItemView, user: &UserModel) -> [f32; 2] {
    let learning = Learning::from(prior());
    let unwidened = user.estimate(&learning, view.offset, &view.features);
    let variance = map().variance(user, &learning);
    assert!(variance > 0.2, "residuals of targets near 0.5 and weights near 0.5: {variance}");
    [unwidened.std_error, learning.widened(unwidened, variance).std_error]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_described_item_is_scored_by_its_attributes_with_more_uncertainty() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.describe("new", json!({"genres": ["Drama"]}));
    let (view, mapped) = (node.view("new"), map().map(&attributes(json!({"genres": ["Drama"]}))));
    assert_eq!((view.source, view.trained), (FeatureOrigin::Attributes, false));
    assert_eq!((view.offset, &view.features), (mapped.offset, &mapped.features));
    let newcomer = UserModel::from_prior(&prior().into()).unwrap();
    let [unwidened, widened] = expected(&view, &newcomer);
    // Twice: the second answer comes from the prediction cache.
    for _ in 0..2 {
        let scored = node.scored("new").await;
        assert!(scored.known);
        assert!((scored.estimate.std_error - widened).abs() < 1e-6 && widened > unwidened, "{scored:?}");
        let label_std = (prior().noise_variance() + f64::from(widened).powi(2)).sqrt();
        assert!((f64::from(scored.estimate.label_std) - label_std).abs() < 1e-6, "{scored:?}");
    }
    let trained = node.view("trained");
    assert_eq!(trained.source, FeatureOrigin::Trained);
    let [unwidened, _] = expected(&trained, &newcomer);
    assert_eq!(node.scored("trained").await.estimate.std_error, unwidened, "a trained item has no map variance");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_of_an_item_is_part_of_the_standard_error() {
    let dir = tempfile::tempdir().unwrap();
    let cold = ColdItem { offset: 2.5, features: vec![0.0, 0.0, 1.0] };
    let theta = Theta::new(vec![item("trained")], vec![3.5], vec![1.0, -1.0, 1.0], cold).unwrap();
    let theta = theta.with_variances(vec![0.3], 0.9).unwrap();
    let version = ServingVersion::new((model(), ModelId(1)), VersionId(2), theta, prior().into()).unwrap();
    let node = Node::serving(dir.path(), version.with_cold_map(Some(map())));
    node.describe("described", json!({"genres": ["Drama"]}));
    let newcomer = UserModel::from_prior(&prior().into()).unwrap();
    let rows = [("trained", 0.3, [1.0, -1.0, 1.0]), ("unheard of", 0.9, [0.0, 0.0, 1.0])];
    for (name, added, features) in rows {
        let of_user = newcomer.estimate(&prior().into(), 0.0, &features).std_error;
        let with = (of_user.powi(2) + added).sqrt();
        let estimate = node.scored(name).await.estimate;
        assert!((estimate.std_error - with).abs() < 1e-6, "{name}: {estimate:?}");
        let label_std = (prior().noise_variance() as f32 + with.powi(2)).sqrt();
        assert!((estimate.label_std - label_std).abs() < 1e-6, "{name}: {estimate:?}");
    }
    let [_, mapped] = expected(&node.view("described"), &newcomer);
    let estimate = node.scored("described").await.estimate;
    assert!((estimate.std_error - mapped).abs() < 1e-6, "a described item has the variance of the map: {estimate:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn attribute_changes_apply_until_a_user_learns_from_the_item() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    node.describe("new", json!({"genres": ["Drama"]}));
    let (drama, before) = (node.view("new").features, node.scored("new").await);
    node.describe("new", json!({"genres": ["Comedy"]}));
    let comedy = node.view("new").features;
    assert_ne!(drama, comedy);
    assert_ne!(node.scored("new").await.estimate.score, before.estimate.score);

    node.observe("new").await;
    node.describe("new", json!({"genres": ["Drama"]}));
    let check = async |node: &Node| {
        let view = node.view("new");
        assert_eq!(
            (&view.features, view.source),
            (&comedy, FeatureOrigin::Attributes),
            "frozen as they were learnt from"
        );
        let learnt = [celeris_model::Example {
            features: &comedy,
            label: 4.0,
            offset: view.offset,
            weight: 1.0,
            timestamp: celeris_model::Timestamp(0),
            taken_before: None,
            choice: &[],
        }];
        let user = UserModel::rebuild(&prior().into(), learnt.as_slice(), 1).unwrap();
        let [_, widened] = expected(&view, &user);
        assert!((node.scored("new").await.estimate.std_error - widened).abs() < 1e-6, "the map variance remains");
    };
    check(&node).await;
    node.storage.close().unwrap();
    drop(node);
    check(&Node::open(dir.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn supplied_features_take_precedence_over_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::open(dir.path());
    let features = vec![2.0, 2.0, 1.0];
    let change =
        ItemChange { features: Some(features.clone()), attributes: Some(attributes(json!({"genres": ["Drama"]}))) };
    node.predictor.catalog().put_item(&model(), &item("new"), change).unwrap();
    let view = node.view("new");
    assert_eq!((&view.features, view.source), (&features, FeatureOrigin::Given));
    let [unwidened, _] = expected(&view, &UserModel::from_prior(&prior().into()).unwrap());
    assert_eq!(node.scored("new").await.estimate.std_error, unwidened);
    node.describe("bare", json!({}));
    assert_eq!(node.view("bare").source, FeatureOrigin::StandIn, "an empty description has no features");
    assert!(!node.scored("unheard of").await.known);
}
