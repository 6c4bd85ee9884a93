//! A retraction by one user does not change another user's rewards.

use std::path::Path;

use celeris_features::{ColdItem, Theta};
use celeris_model::{
    DecisionId, ItemId, Joined, ModelId, ModelName, Observation, Prior, StreamName, UserId, VersionId,
};
use celeris_predictor::{Observed, Predictor, PredictorOptions, ServingSettings, ServingVersion, TopkRequest};
use celeris_storage::{Storage, StorageOptions};

const DIM: usize = 2;

fn model() -> ModelName {
    ModelName::new("films").unwrap()
}

fn item() -> ItemId {
    ItemId::new("film").unwrap()
}

fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

fn open(dir: &Path) -> Predictor {
    let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
    let (predictor, _losses) = Predictor::new(storage, &PredictorOptions::default());
    let theta = Theta::new(vec![item()], vec![3.0], vec![0.5, 1.0], ColdItem { offset: 3.0, features: vec![0.0, 1.0] });
    let prior = Prior::isotropic(DIM, 2.0, 0.7).unwrap();
    let version = ServingVersion::new((model(), ModelId(1)), VersionId(1), theta.unwrap(), prior.into()).unwrap();
    predictor.activation().activate(&StreamName::of_model(&model()), ServingSettings::default(), version).unwrap();
    predictor
}

async fn reward(predictor: &Predictor, from: &str, decision: &DecisionId) -> Observed {
    let observation = Observation {
        user: user(from),
        item: item(),
        label: 3.0,
        weight: 1.0,
        timestamp: None,
        observation_id: None,
        feedback: None,
        decision: Some(decision.clone()),
        context: None,
    };
    predictor.ingest().observe(&model(), observation).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retraction_keeps_the_rewards_of_another_users_decision() {
    let dir = tempfile::tempdir().unwrap();
    let predictor = open(dir.path());
    let request = TopkRequest {
        model: model(),
        user: user("ann"),
        items: vec![item()],
        k: 1,
        policy: None,
        seed: None,
        min_epoch: None,
        segment: None,
        selection: None,
        context: None,
    };
    let decision = predictor.topk(&request).await.unwrap().decision_id;
    assert_eq!(reward(&predictor, "ann", &decision).await.joined, Some(Joined::Slot));
    let of_another = reward(&predictor, "bob", &decision).await;
    assert_eq!(of_another.joined, Some(Joined::OtherUser));
    drop(predictor);

    // The rewarded slots are no longer in memory.
    let predictor = open(dir.path());
    predictor.ingest().forget(&model(), None, &of_another.observation_id).await.unwrap();
    assert_eq!(reward(&predictor, "ann", &decision).await.joined, Some(Joined::Repeated));
}
