//! Several nodes follow one registry: what the leading node writes, the others serve.

mod described_users;
mod nodes;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use celeris_features::{ColdItem, Theta, VersionContents, write_version};
use celeris_manager::{Cause, DefaultReward, JobState, ManagerError, ModelConfig, Quality, TrainRequest};
use celeris_model::{ItemId, LogId, Prior, Shard, Timestamp, UserId, VersionId};
use celeris_predictor::{ItemChange, ItemSearch, TopkRequest};
use celeris_storage::RegistryKey;
use serde_json::json;

use self::nodes::{Cluster, Node, Setup, eventually, name};
use crate::both;

/// Trains by copying a finished version of the node's data directory.
const COPIES: &str = r#"cp -r "$(dirname "$0")/finished" version
printf '{"exited":{"code":0,"memory_peak":0}}' > ending.json"#;

/// Trains until it is stopped.
const HANGS: &str = "cat > /dev/null";

/// Writes a finished version of `films`, with the items `a` and `b`.
fn write_finished(node: &Node, offset: f32) {
    let dir = node.storage.dir().join("finished");
    let _ = std::fs::remove_dir_all(&dir);
    let items = ["a", "b"].map(|item| ItemId::new(item).unwrap()).to_vec();
    let theta = Theta::new(items, vec![offset, 0.25], vec![2.0, 1.0, -1.0, 1.0], ColdItem::blank(2)).unwrap();
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
    write_version(&dir, &contents).unwrap();
}

fn register(node: &Node, offset: f32) -> VersionId {
    write_finished(node, offset);
    node.manager.versions().register(&name("films"), Path::new("finished")).unwrap().version
}

fn create(node: &Node, model: &str) {
    node.manager.create(ModelConfig::new(name(model), 2)).unwrap();
}

fn activate(node: &Node, version: VersionId) -> Result<(), ManagerError> {
    node.manager.promotion().activate(&name("films"), version).map(drop)
}

fn folder(node: &Node, model: &str) -> std::path::PathBuf {
    node.storage.dir().join("versions").join(model)
}

/// The registry as all nodes have it.
fn documents(node: &Node) -> Vec<(RegistryKey, serde_json::Value)> {
    let kinds = ["model", "version", "job", "event", "events", "quality", "selection", "prepared", "deleted", "pruned"];
    let list = |kind| node.storage.registry().list::<serde_json::Value>(&RegistryKey::new([kind]).unwrap()).unwrap();
    kinds.into_iter().flat_map(list).map(|(key, document)| (key, document.unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_created_configured_deleted_and_created_again_on_every_node() {
    let cluster = Cluster::start(Setup { nodes: 3, shards: 3, ..Setup::default() });
    let [leader, follower] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    assert!(leader.manager.is_leading() && !follower.manager.is_leading());
    let refused = follower.manager.create(ModelConfig::new(name("films"), 2)).unwrap_err();
    assert!(refused.is_of_other_node(), "{refused}");
    assert!(!folder(&follower, "films.1").exists(), "nothing is left of it");

    create(&leader, "films");
    create(&leader, "twins");
    cluster.serve("films", 1);
    cluster.serve("twins", 1);
    assert_eq!(cluster.network.fetched.load(Ordering::Acquire), 0, "an untrained version follows from the settings");
    leader.observe("films", 1, "a", 4.0).await;
    cluster.settle();
    assert_eq!(follower.predict("films", 1, "a").await, leader.predict("films", 1, "a").await);

    leader
        .manager
        .configure(&name("films"), |config| {
            config.keep_versions = 7;
            Ok(())
        })
        .unwrap();
    cluster.settle();
    let id = leader.manager.registry().model(&name("films")).unwrap().id;
    for node in &cluster.nodes {
        assert_eq!(node.manager.registry().model(&name("films")).unwrap().config.keep_versions, 7);
        let events = node.manager.registry().audit().page(id, None, 10).unwrap().events;
        assert_eq!(events.len(), 2, "created, configured");
        assert!(node.manager.monitoring().quality(id, Timestamp(0)).is_some());
    }

    leader.manager.delete(&name("films")).unwrap();
    create(&leader, "films");
    let again = leader.manager.registry().model(&name("films")).unwrap().id;
    assert_ne!(again, id);
    for node in &cluster.nodes {
        eventually("the new model serves", || {
            node.predictor.models().active(&name("films")).is_ok_and(|version| version.model_id == again)
        });
        eventually("the files of the deleted one are removed", || !folder(node, "films.1").exists());
        assert!(node.manager.monitoring().quality(id, Timestamp(0)).is_none());
        assert_eq!(node.manager.registry().audit().page(id, None, 10).unwrap().events, []);
        assert!(node.manager.monitoring().quality(again, Timestamp(0)).is_some());
    }
    // The owner freezes the features that the user's state has learnt from.
    let of_owner = leader.predict("films", 1, "a").await;
    cluster.settle();
    assert_eq!(follower.predict("films", 1, "a").await, of_owner);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_serves_on_every_node_until_it_is_deleted() {
    let cluster = Cluster::start(Setup::default());
    let [leader, follower] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&leader, "films");
    let twin = ModelConfig { stream: "films".parse().unwrap(), ..ModelConfig::new(name("twins"), 2) };
    leader.manager.create(twin).unwrap();
    leader.manager.registry().create_selection(both()).unwrap();
    let serves = || follower.predictor.models().check_serves(&name("both")).is_ok();
    eventually("the selection serves", serves);
    assert!(follower.manager.registry().delete_selection(&name("both")).unwrap_err().is_of_other_node());
    assert!(leader.manager.registry().delete_selection(&name("both")).unwrap());
    eventually("the selection is deleted", || !serves());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_fetched_prepared_and_activated_everywhere_with_the_same_answers() {
    let cluster = Cluster::start(Setup { nodes: 3, ..Setup::default() });
    let [leader, follower] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&leader, "films");
    for (user, item, label) in [(1, "a", 4.0), (1, "b", 2.0), (2, "a", 1.0), (1, "a", 5.0)] {
        leader.observe("films", user, item, label).await;
    }
    cluster.serve("films", 1);
    let version = register(&leader, 0.5);
    assert_eq!(version, VersionId(2));
    let id = leader.manager.registry().model(&name("films")).unwrap().id;
    eventually("the version is copied", || {
        cluster.nodes.iter().all(|node| node.manager.versions().files(id, version).is_ok())
    });
    let copied = leader.manager.versions().files(id, version).unwrap();
    assert_eq!(follower.manager.versions().files(id, version).unwrap(), copied);
    assert!(leader.manager.versions().open_file((id, version), "../1/_SUCCESS").is_err());
    assert_eq!(leader.active("films"), Some(VersionId(1)), "registered only");

    activate(&leader, version).unwrap();
    cluster.settle();
    for node in &cluster.nodes {
        assert_eq!(node.active("films"), Some(version), "it was prepared, so it serves with the commit");
        for user in 1..4 {
            assert_eq!(node.predict("films", user, "a").await, leader.predict("films", user, "a").await);
        }
    }
    leader.manager.promotion().roll_back(&name("films")).unwrap();
    cluster.settle();
    for node in &cluster.nodes {
        assert_eq!(node.active("films"), Some(VersionId(1)));
        assert_eq!(node.predict("films", 1, "a").await, leader.predict("films", 1, "a").await);
        assert!(documents(node).iter().all(|(key, _)| key.parts()[0] != "prepared"));
    }
    assert_eq!(documents(&follower), documents(&leader));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_damaged_on_its_way_is_refused_and_fetched_again() {
    let cluster = Cluster::start(Setup::default());
    let [leader, follower] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&leader, "films");
    cluster.serve("films", 1);
    // A manifest, then a table.
    for first in [1, 2] {
        cluster.network.damaged.store(first, Ordering::Release);
        let before = cluster.network.fetched.load(Ordering::Acquire);
        let version = register(&leader, 0.5 + first as f32);
        activate(&leader, version).unwrap();
        cluster.serve("films", version.0);
        let fetched = cluster.network.fetched.load(Ordering::Acquire) - before;
        assert!(fetched > 3, "{fetched} files of a version with 3");
        assert_eq!(cluster.network.damaged.load(Ordering::Acquire), 0);
        assert_eq!(follower.predict("films", 1, "a").await, leader.predict("films", 1, "a").await);
    }
    assert_eq!(follower.manager.problems(), Vec::<String>::new());
    let left = std::fs::read_dir(folder(&follower, "films.1")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["1", "2", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_takes_over_what_the_others_have_done() {
    let mut cluster = Cluster::start(Setup::default());
    let leader = Arc::clone(&cluster.nodes[0]);
    for model in ["films", "books"] {
        create(&leader, model);
        cluster.serve(model, 1);
    }
    let version = register(&leader, 0.5);
    activate(&leader, version).unwrap();
    cluster.serve("films", 2);
    let of_deleted = folder(&cluster.nodes[1], "books.2");
    assert!(of_deleted.exists());
    cluster
        .restart(1, |cluster| {
            assert_eq!(cluster.nodes.len(), 2);
            leader.manager.delete(&name("books")).unwrap();
            create(&leader, "poems");
            let keeps = |config: &mut ModelConfig| {
                config.keep_versions = 1;
                Ok(())
            };
            leader.manager.configure(&name("films"), keeps).unwrap();
            for number in 3..8 {
                let version = register(&leader, number as f32);
                activate(&leader, version).unwrap();
            }
        })
        .await;
    cluster.serve("films", 7);
    cluster.serve("poems", 1);
    cluster.settle();
    let follower = Arc::clone(&cluster.nodes[1]);
    eventually("the deleted model is gone", || follower.active("books").is_none() && !of_deleted.exists());
    let versions = |node: &Node| {
        let entries = std::fs::read_dir(folder(node, "films.1")).unwrap();
        let mut numbers: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        numbers.sort();
        numbers
    };
    assert!(versions(&leader).len() < 5, "{:?}", versions(&leader));
    eventually("the same versions are there", || versions(&follower) == versions(&leader));
    assert_eq!(follower.predict("films", 1, "a").await, leader.predict("films", 1, "a").await);
    assert_eq!(documents(&follower), documents(&leader));
    // What it has is enough to lead.
    cluster.hand_over(LogId::Catalog, 1);
    create(&follower, "plays");
    follower.manager.promotion().roll_back(&name("films")).unwrap();
    cluster.serve("plays", 1);
    cluster.serve("films", 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_a_former_leader_could_not_register_gives_way_to_that_of_the_next() {
    let cluster = Cluster::start(Setup::default());
    let [former, leader] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&former, "films");
    cluster.serve("films", 1);
    cluster.take_over(LogId::Catalog, 1);
    write_finished(&former, 0.125);
    let refused = former.manager.versions().register(&name("films"), Path::new("finished")).unwrap_err();
    assert!(refused.is_of_other_node(), "{refused}");
    let number = folder(&former, "films.1").join("2");
    assert!(number.exists(), "the version was in place before it could not be registered");
    former.manager.follow();
    former.storage.replica().unwrap().end_term(LogId::Catalog);
    let version = register(&leader, 0.875);
    assert_eq!(version, VersionId(2));
    activate(&leader, version).unwrap();
    cluster.serve("films", 2);
    assert_eq!(former.predict("films", 1, "a").await, leader.predict("films", 1, "a").await);
    let id = leader.manager.registry().model(&name("films")).unwrap().id;
    let manifest = |node: &Node| {
        let (mut file, _) = node.manager.versions().open_file((id, version), "_SUCCESS").unwrap();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        text
    };
    assert_eq!(manifest(&former), manifest(&leader));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_ready_in_time_does_not_hold_a_switch_up() {
    let cluster = Cluster::start(Setup { ready_within: Duration::from_millis(200), ..Setup::default() });
    let leader = Arc::clone(&cluster.nodes[0]);
    create(&leader, "films");
    cluster.network.is_nobody_ready.store(true, Ordering::Release);
    let version = register(&leader, 0.5);
    activate(&leader, version).unwrap();
    assert_eq!(leader.active("films"), Some(version));
    cluster.serve("films", version.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_a_takeover_interrupts_is_withdrawn() {
    let cluster = Cluster::start(Setup::default());
    let [former, leader] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&former, "films");
    cluster.network.is_nobody_ready.store(true, Ordering::Release);
    let version = register(&former, 0.5);
    let switching = tokio::task::spawn_blocking({
        let former = Arc::clone(&former);
        move || activate(&former, version)
    });
    let is_prepared = |node: &Node| node.manager.ready().iter().any(|ready| ready.ends_with("/2"));
    eventually("the other node has prepared it", || is_prepared(&leader));
    cluster.take_over(LogId::Catalog, 1);
    // The former leader does not know yet.
    assert!(former.manager.create(ModelConfig::new(name("books"), 2)).unwrap_err().is_of_other_node());
    former.manager.follow();
    former.storage.replica().unwrap().end_term(LogId::Catalog);
    let refused = switching.await.unwrap().unwrap_err();
    assert!(refused.is_of_other_node(), "{refused}");
    cluster.settle();
    for node in &cluster.nodes {
        assert_eq!(node.active("films"), Some(VersionId(1)));
        assert!(documents(node).iter().all(|(key, _)| key.parts()[0] != "prepared"));
        eventually("the version is dropped", || !is_prepared(node));
    }
    cluster.network.is_nobody_ready.store(false, Ordering::Release);
    activate(&leader, version).unwrap();
    cluster.serve("films", 2);
    assert_eq!(documents(&former), documents(&leader));
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_one_node_describes_are_found_on_every_node() {
    let cluster = Cluster::start(Setup::default());
    let [leader, follower] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&leader, "films");
    cluster.serve("films", 1);
    let films = name("films");
    let item = |text: &str| ItemId::new(text).unwrap();
    let attributes = |year: u32| json!({"title": "M", "year": year}).as_object().cloned();
    let found = |node: &Node, year: u32| {
        let filter = Some(serde_json::from_value(json!({"eq": {"field": "year", "value": year}})).unwrap());
        let search = ItemSearch { text: None, filter };
        node.predictor.catalog().search_items(&films, &search, None, 10).unwrap().total
    };
    for year in [1931, 1932] {
        let change = ItemChange { features: Some(vec![0.5, 1.0]), attributes: attributes(year) };
        leader.predictor.catalog().put_item(&films, &item("m"), change).unwrap();
        cluster.settle();
        for node in &cluster.nodes {
            assert_eq!((found(node, year), found(node, 1931)), (1, usize::from(year == 1931)));
            let view = node.predictor.catalog().item(&films, &item("m")).unwrap().unwrap();
            assert_eq!((view.attributes, view.given_features), (attributes(year), Some(vec![0.5, 1.0])));
            assert_eq!(view.features, [0.5, 1.0]);
        }
    }
    leader.observe("films", 1, "seen", 3.0).await;
    cluster.settle();
    assert!(follower.predictor.catalog().item(&films, &item("seen")).unwrap().is_some());
    leader.predictor.catalog().delete_item(&films, &item("m")).unwrap();
    cluster.settle();
    for node in &cluster.nodes {
        assert_eq!(node.predictor.catalog().item(&films, &item("m")).unwrap(), None);
        assert_eq!(found(node, 1932), 0);
    }
    let change = ItemChange { features: None, attributes: attributes(1933) };
    assert!(follower.predictor.catalog().put_item(&films, &item("m"), change).unwrap_err().is_of_other_node());
    assert_eq!(follower.predictor.catalog().item(&films, &item("m")).unwrap(), None);
}

async fn retrain(node: &Node) -> Result<celeris_manager::Job, ManagerError> {
    let record = node.manager.registry().model(&name("films"))?;
    node.manager.training().retrain(&record, TrainRequest::default(), Cause::Request("on request".to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trained_version_serves_on_every_node_and_its_guard_follows_the_leader() {
    let cluster = Cluster::start(Setup { trainer: COPIES, ..Setup::default() });
    let [former, leader] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&former, "films");
    former.observe("films", 1, "a", 4.0).await;
    write_finished(&former, 0.75);
    let job = retrain(&former).await.unwrap();
    let state = |node: &Node| node.manager.training().jobs().get(job.job.as_str()).map(|job| job.state);
    eventually("the job ends", || state(&former).is_ok_and(JobState::is_final));
    assert_eq!(state(&former).unwrap(), JobState::Succeeded);
    cluster.serve("films", 2);
    cluster.settle();
    assert_eq!(state(&leader).unwrap(), JobState::Succeeded, "every node knows the jobs");
    assert_eq!(former.predict("films", 1, "a").await, leader.predict("films", 1, "a").await);
    let id = former.manager.registry().model(&name("films")).unwrap().id;
    let guards = |node: &Node| node.manager.promotion().guard_status(id).is_some();
    assert_eq!([guards(&former), guards(&leader)], [true, false]);
    for round in 1..8 {
        let to = round % 2;
        cluster.hand_over(LogId::Catalog, to);
        assert_eq!([guards(&former), guards(&leader)], [to == 0, to == 1]);
        assert_eq!([former.manager.is_leading(), leader.manager.is_leading()], [to == 0, to == 1]);
    }
    leader.manager.promotion().roll_back(&name("films")).unwrap();
    cluster.settle();
    assert_eq!(former.active("films"), Some(VersionId(1)));
    eventually("the guard ends", || !guards(&leader));
    assert_eq!(documents(&former), documents(&leader));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_ends_when_another_node_takes_over_in_the_middle() {
    let cluster = Cluster::start(Setup { trainer: HANGS, ..Setup::default() });
    let [former, leader] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    create(&former, "films");
    former.observe("films", 1, "a", 4.0).await;
    let job = retrain(&former).await.unwrap();
    let of = |node: &Node| node.manager.training().jobs().get(job.job.as_str()).unwrap();
    let input = former.storage.dir().join("jobs").join(job.job.as_str());
    eventually("the trainer runs", || input.join("confined.json").exists());
    cluster.serve("films", 1);
    assert!(retrain(&leader).await.unwrap_err().is_of_other_node());
    cluster.hand_over(LogId::Catalog, 1);
    assert_eq!(of(&leader).state, JobState::Failed);
    assert!(of(&leader).error.unwrap().contains("stopped before the job ended"));
    eventually("the former leader knows it", || of(&former).state == JobState::Failed);
    eventually("the training has stopped", || !input.exists());
    // And again, without the former leader's knowledge, and back at once.
    let second = retrain(&leader).await.unwrap();
    cluster.take_over(LogId::Catalog, 0);
    let failed = former.manager.training().jobs().get(second.job.as_str()).unwrap();
    assert_eq!(failed.state, JobState::Failed);
    leader.manager.follow();
    leader.storage.replica().unwrap().end_term(LogId::Catalog);
    cluster.hand_over(LogId::Catalog, 1);
    let third = retrain(&leader).await.unwrap();
    assert_ne!(third.job, second.job, "the model is idle");
    cluster.hand_over(LogId::Catalog, 0);
    cluster.settle();
    let jobs = |node: &Node| node.storage.dir().join("jobs").read_dir().map_or(0, Iterator::count);
    eventually("all trainings have stopped", || jobs(&former) + jobs(&leader) == 0);
    for node in &cluster.nodes {
        let jobs = node.manager.training().jobs().latest_first();
        assert_eq!(jobs.len(), 3);
        assert!(jobs.iter().all(|job| job.state == JobState::Failed), "{jobs:?}");
        assert_eq!(node.manager.registry().versions(&name("films")).unwrap().len(), 1);
    }
    assert_eq!(documents(&former), documents(&leader));
}

/// Figures that do not depend on the moment at which an observation was processed.
fn figures(node: &Node) -> Quality {
    let id = node.manager.registry().model(&name("films")).unwrap().id;
    let mut quality = node.manager.monitoring().quality(id, Timestamp::from(std::time::SystemTime::now())).unwrap();
    quality.curve.iter_mut().for_each(|point| (point.at, point.position) = (Timestamp(0), 0));
    for baseline in [&mut quality.baseline, &mut quality.pool_baseline].into_iter().flatten() {
        baseline.at = Timestamp(0);
    }
    quality
}

#[tokio::test(flavor = "multi_thread")]
async fn monitors_are_those_of_the_whole_cluster_on_every_node() {
    let cluster = Cluster::start(Setup::default());
    let [former, leader] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    let mut config = ModelConfig::new(name("films"), 2);
    config.triggers.threshold = Some(celeris_manager::Threshold { window: 100, ..Default::default() });
    former.manager.create(config).unwrap();
    cluster.serve("films", 1);
    let observed = |node: &Arc<Node>, from: usize, count: usize| {
        let node = Arc::clone(node);
        async move {
            for round in from..from + count {
                let item = if round % 3 == 0 { "a" } else { "b" };
                node.observe("films", round % 7, item, 1.0 + (round % 5) as f32).await;
            }
        }
    };
    let processed = |count: u64| {
        cluster.settle();
        eventually("the losses are processed", || {
            cluster.nodes.iter().all(|node| figures(node).windows.iter().any(|(_, mean)| mean.count == count))
        });
        assert_eq!(figures(&former), figures(&leader));
    };
    observed(&former, 0, 150).await;
    processed(150);
    assert!(figures(&leader).baseline.is_some());
    // Another owner of the users, then another leader.
    cluster.hand_over(LogId::Shard(Shard::default()), 1);
    observed(&leader, 150, 90).await;
    processed(240);
    cluster.hand_over(LogId::Catalog, 1);
    observed(&leader, 240, 60).await;
    processed(300);
    assert_eq!(figures(&former).observations, 300, "every observation counts once");
    let version = register(&leader, 0.5);
    activate(&leader, version).unwrap();
    cluster.settle();
    observed(&leader, 300, 120).await;
    processed(120);
    // Erased on the owner.
    let user = UserId::new("user-3").unwrap();
    let erased = leader.predictor.erase(&name("films"), &user).await.unwrap();
    leader.manager.forget_user(&erased.stream, &user, erased.user_epoch);
    cluster.settle();
    let id = former.manager.registry().model(&name("films")).unwrap().id;
    assert!(former.manager.monitoring().user_loss(id, &user).is_none());
    assert_eq!(figures(&former), figures(&leader));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_of_a_user_gives_default_rewards_whether_it_leads_or_not() {
    let cluster = Cluster::start(Setup::default());
    let [leader, owner] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    let reward = DefaultReward { label: 1.0, after_seconds: 1.0, slots: 2 };
    leader.manager.create(ModelConfig { default_reward: Some(reward), ..ModelConfig::new(name("films"), 2) }).unwrap();
    cluster.serve("films", 1);
    cluster.hand_over(LogId::Shard(Shard::default()), 1);
    let giving: Vec<_> =
        cluster.nodes.iter().map(|node| tokio::spawn(node.manager.decisions().clone().run())).collect();
    let request = TopkRequest {
        model: name("films"),
        user: UserId::new("u").unwrap(),
        items: ["a", "b"].map(|item| ItemId::new(item).unwrap()).into(),
        k: 2,
        policy: None,
        seed: None,
        min_epoch: None,
        segment: None,
        selection: None,
        context: None,
    };
    owner.predictor.topk(&request).await.unwrap();
    let stream = "films".parse().unwrap();
    eventually("two slots are rewarded on both nodes", || {
        cluster.nodes.iter().all(|node| node.storage.log().watermark(&stream).records() == 2)
    });
    eventually("the owner notes how far it is", || owner.storage.dir().join("default_rewards.json").exists());
    assert!(!leader.storage.dir().join("default_rewards.json").exists());
    giving.iter().for_each(tokio::task::JoinHandle::abort);
}
