//! The search for a decision's rewards is bounded, however many events the user has.

use celeris_features::{ColdItem, Theta};
use celeris_model::{
    DecisionId, ItemId, Joined, ModelId, ModelName, Observation, Prior, StreamName, UserEpoch, UserId, VersionId,
};
use celeris_predictor::attribution::FOLLOWED_MAX;
use celeris_predictor::{Predictor, PredictorOptions, ServingSettings, ServingVersion, TopkRequest};
use celeris_storage::{AckMode, Storage, StorageOptions};

const DIM: usize = 2;

fn model() -> ModelName {
    ModelName::new("films").unwrap()
}

fn item(index: usize) -> ItemId {
    ItemId::new(format!("film {index}")).unwrap()
}

fn observation(decision: Option<DecisionId>, film: usize) -> Observation {
    Observation {
        user: UserId::new("u").unwrap(),
        item: item(film),
        label: 3.0,
        weight: 1.0,
        timestamp: None,
        observation_id: None,
        feedback: None,
        decision,
        context: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rewards_join_a_decision_only_within_a_bounded_number_of_events() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), &StorageOptions::default()).unwrap();
    let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    let theta = Theta::new(
        vec![item(0), item(1)],
        vec![3.0, 2.5],
        vec![0.5, 1.0, -0.5, 1.0],
        ColdItem { offset: 3.0, features: vec![0.0, 1.0] },
    );
    let prior = Prior::isotropic(DIM, 2.0, 0.7).unwrap();
    let version = ServingVersion::new((model(), ModelId(1)), VersionId(1), theta.unwrap(), prior.into()).unwrap();
    predictor.activation().activate(&StreamName::of_model(&model()), ServingSettings::default(), version).unwrap();
    let request = TopkRequest {
        model: model(),
        user: UserId::new("u").unwrap(),
        items: vec![item(0), item(1)],
        k: 2,
        policy: None,
        seed: None,
        min_epoch: None,
        segment: None,
        selection: None,
        context: None,
    };
    let ranking = predictor.topk(&request).await.unwrap();
    let decision = storage.decisions().get(ModelId(1), &ranking.decision_id).unwrap().unwrap();
    // All but one of the events within which a reward can join; none is awaited.
    for _ in 1..FOLLOWED_MAX {
        let pending = loop {
            match predictor.ingest().begin_observe(&model(), None, &observation(None, 0), AckMode::Gather) {
                Err(error) if error.is_overload() => tokio::task::yield_now().await,
                pending => break pending.unwrap(),
            }
        };
        drop(pending);
    }
    let name = |film| observation(Some(decision.id.clone()), film);
    let in_time = predictor.ingest().observe(&model(), name(0)).await.unwrap();
    assert_eq!((in_time.user_epoch, in_time.joined), (UserEpoch(FOLLOWED_MAX), Some(Joined::Slot)));
    let late = predictor.ingest().observe(&model(), name(1)).await.unwrap();
    assert_eq!(late.joined, Some(Joined::Expired));
    let outcomes = predictor.attribution().outcomes(&decision).unwrap();
    assert_eq!(outcomes.len(), 1, "later events cannot join and are not searched");
    let view = predictor.explainer().user(&model(), &UserId::new("u").unwrap(), 2).await.unwrap();
    let epochs: Vec<u64> = view.history.iter().map(|(_, record)| record.user_epoch.0).collect();
    assert_eq!(epochs, [FOLLOWED_MAX + 1, FOLLOWED_MAX], "the latest events, newest first");
}
