//! Default rewards: a failure of one does not prevent the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use celeris_manager::{DefaultReward, Manager, ManagerOptions, ModelConfig};
use celeris_model::{
    Decision, ItemId, ModelName, Observation, Record, RecordKind, StreamName, Timestamp, UserEpoch, UserId,
};
use celeris_predictor::attribution::default_reward_id;
use celeris_predictor::{Predictor, PredictorOptions, TopkRequest};
use celeris_storage::{AckMode, Append, Appended, Lookup, Storage, StorageOptions};

/// Much longer than the interval of the check for default rewards.
const DEADLINE: Duration = Duration::from_secs(60);

struct Node {
    storage: Storage,
    predictor: Arc<Predictor>,
    manager: Arc<Manager>,
}

fn model(name: &str) -> ModelName {
    ModelName::new(name).unwrap()
}

fn open(dir: &std::path::Path) -> Node {
    let storage = Storage::open(dir, &StorageOptions::default()).unwrap();
    let (predictor, _losses) = Predictor::new(storage.clone(), &PredictorOptions::default());
    let predictor = Arc::new(predictor);
    let trainer = std::env::current_exe().unwrap();
    let options = ManagerOptions { models_max: 8, trainer, training: Default::default(), import_dir: None };
    let manager = Manager::open(storage.clone(), predictor.clone(), options).unwrap();
    Node { storage, predictor, manager }
}

impl Node {
    fn create(&self, name: &str) {
        let reward = DefaultReward { label: 1.0, after_seconds: 1.0, slots: 2 };
        self.manager.create(ModelConfig { default_reward: Some(reward), ..ModelConfig::new(model(name), 4) }).unwrap();
    }

    /// Ranks two items for the user.
    async fn decide(&self, name: &str, user: &str) -> Arc<Decision> {
        let request = TopkRequest {
            model: model(name),
            user: UserId::new(user).unwrap(),
            items: ["a", "b"].map(|item| ItemId::new(item).unwrap()).into(),
            k: 2,
            policy: None,
            seed: None,
            min_epoch: None,
            segment: None,
            selection: None,
            context: None,
        };
        let ranking = self.predictor.topk(&request).await.unwrap();
        assert!(ranking.logged);
        let of = self.manager.registry().model(&model(name)).unwrap().id;
        self.storage.decisions().get(of, &ranking.decision_id).unwrap().unwrap()
    }

    /// Appends an observation under an id reserved for the node, which no client can use.
    async fn plant(&self, stream: &str, user: &str, decision: &Decision, slot: u32) {
        let record = Record {
            kind: RecordKind::Observe,
            user: UserId::new(user).unwrap(),
            user_epoch: UserEpoch(1),
            item: Some(decision.shown[slot as usize].item.clone()),
            label: 5.0,
            first_label: None,
            weight: 1.0,
            feedback: None,
            timestamp: Timestamp(1),
            observation_id: Some(default_reward_id(&decision.id, slot)),
            decision: None,
            context: None,
            predictions: Vec::new(),
            targets: Vec::new(),
        };
        let append = Append {
            stream: StreamName::new(stream).unwrap(),
            record,
            frozen: Vec::new(),
            notes_item: false,
            source: None,
            ack: AckMode::Wait,
        };
        let Appended::New(placed) = self.storage.log().append(append).unwrap() else { panic!("the id is taken") };
        placed.durable().await.unwrap();
    }

    fn outcomes(&self, decision: &Decision) -> usize {
        self.predictor.attribution().outcomes(decision).unwrap().len()
    }
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < DEADLINE, "timed out: {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_default_reward_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    for name in ["films", "books"] {
        node.create(name);
    }
    // Settings apply from the change on, not from the first check after it.
    let first = (node.decide("films", "w").await, node.decide("books", "w").await);
    let keeping = tokio::spawn(node.manager.decisions().clone().run());
    eventually("the first decisions", || node.outcomes(&first.0) == 2 && node.outcomes(&first.1) == 2).await;
    let films = node.decide("films", "u").await;
    node.plant("films", "u", &films, 0).await;
    let later = node.decide("films", "v").await;
    let books = node.decide("books", "u").await;
    eventually("the other slot, decision and model", || {
        node.outcomes(&films) == 1 && node.outcomes(&later) == 2 && node.outcomes(&books) == 2
    })
    .await;
    keeping.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reward_does_not_retract_a_reward_of_another_user() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    node.create("films");
    let decision = node.decide("films", "u").await;
    node.plant("films", "mallory", &decision, 0).await;
    // A reward within the wait cannot replace a default reward, so none is looked up.
    eventually("the shortest wait", || Timestamp::from(std::time::SystemTime::now()).0 > decision.timestamp.0 + 1_100)
        .await;
    let reward = Observation {
        user: decision.user.clone(),
        item: decision.shown[0].item.clone(),
        label: 4.0,
        weight: 1.0,
        timestamp: None,
        observation_id: None,
        feedback: None,
        decision: Some(decision.id.clone()),
        context: None,
    };
    node.predictor.ingest().observe(&model("films"), reward).await.unwrap();
    let stream = StreamName::new("films").unwrap();
    let found = node.storage.log().observation_of_any_user(&stream, &default_reward_id(&decision.id, 0)).unwrap();
    assert!(matches!(found, Lookup::Found { record, .. } if record.user.as_str() == "mallory"));
    assert_eq!(node.outcomes(&decision), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reward_for_a_decision_before_an_erasure_does_not_restore_the_user() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    node.create("films");
    // The decision was read before the erasure.
    let decision = node.decide("films", "zoe").await;
    node.predictor.erase(&model("films"), &decision.user).await.unwrap();
    let default = celeris_predictor::DefaultReward { label: 1.0, due: decision.timestamp };
    assert!(node.predictor.ingest().begin_default(&decision, 0, default).unwrap().is_none());
    assert_eq!(node.predictor.explainer().user(&model("films"), &decision.user, 0).await.unwrap().observations, 0);
}
