//! Attributes of users in a cluster: they are copied with the events of their users, and go with the shard.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use celeris_features::{
    AttributeEncoder, ColdItem, Theta, TrainerPart, UserMap, VersionContents, write_trained_version,
};
use celeris_formats::user_map;
use celeris_formats::version_dir::USER_ENCODER_FILE;
use celeris_model::{ItemId, LogId, Prior, Shard, Timestamp, UserId, VersionId};
use serde_json::{Map, Value, json};

use super::nodes::{Cluster, Node, Setup, name};
use super::{activate, create};

fn attributes(hobby: &str) -> Map<String, Value> {
    json!({ "hobby": hobby }).as_object().unwrap().clone()
}

/// Registers a version of `films` under which readers and players differ.
fn register_with_map(node: &Node) -> VersionId {
    let described: Vec<_> = (0..20).map(|n| attributes(["reading", "games"][n % 2])).collect();
    let encoder = AttributeEncoder::learn(&described);
    let coefficients = (0..encoder.width() * 2).map(|at| (at as f32).sin()).collect();
    let map = UserMap::new(encoder, (vec![0.1, -0.2], coefficients), 1.0).unwrap();
    let (text, tables) = map.files();
    let part =
        TrainerPart { warm: None, tables: vec![(user_map::FILE, tables)], texts: vec![(USER_ENCODER_FILE, text)] };
    let items = vec![ItemId::new("a").unwrap()];
    let contents = VersionContents {
        model: name("films"),
        theta: &Theta::new(items, vec![0.5], vec![2.0, 1.0], ColdItem::blank(2)).unwrap(),
        choices: &[],
        prior: &Prior::isotropic(2, 2.0, 0.5).unwrap(),
        label_range: Some((0.5, 5.0)),
        algorithm: "als".to_owned(),
        parent: Some(VersionId(1)),
        watermark: json!(vec![0; 64]),
        created: Timestamp(1_700_000_000_000),
        metrics: BTreeMap::new(),
    };
    write_trained_version(&node.storage.dir().join("finished"), &contents, part).unwrap();
    node.manager.versions().register(&name("films"), Path::new("finished")).unwrap().version
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_count_on_every_node_and_go_with_the_shard() {
    let cluster = Cluster::start(Setup::default());
    let [leader, follower] = [0, 1].map(|node| Arc::clone(&cluster.nodes[node]));
    let (films, user) = (name("films"), UserId::new("user-1").unwrap());
    create(&leader, "films");
    let version = register_with_map(&leader);
    activate(&leader, version).unwrap();
    cluster.serve("films", version.0);
    leader.observe("films", 1, "a", 4.0).await;
    cluster.settle();
    let without = leader.predict("films", 1, "a").await;
    assert_eq!(follower.predict("films", 1, "a").await, without);

    let describe = |node: &Arc<Node>, attributes: Map<String, Value>| {
        let (node, films, user) = (Arc::clone(node), films.clone(), user.clone());
        async move { node.predictor.ingest().describe_user(&films, &user, attributes).await }
    };
    let refused = describe(&follower, attributes("games")).await.unwrap_err();
    assert!(refused.is_of_other_node(), "{refused}");
    assert_eq!(follower.predict("films", 1, "a").await, without, "nothing is left of it");

    let mut scores = vec![without];
    let mut owner = &leader;
    for (hobby, to) in [("reading", None), ("games", Some(1)), ("reading", Some(0))] {
        if let Some(to) = to {
            cluster.settle();
            cluster.hand_over(LogId::Shard(Shard::default()), to);
            owner = if to == 0 { &leader } else { &follower };
        }
        describe(owner, attributes(hobby)).await.unwrap();
        cluster.settle();
        let [here, there] = [leader.predict("films", 1, "a").await, follower.predict("films", 1, "a").await];
        assert_eq!(here, there, "{hobby}");
        for node in &cluster.nodes {
            let view = node.predictor.explainer().user(&films, &user, 0).await.unwrap();
            assert_eq!(view.attributes, Some(attributes(hobby)));
        }
        scores.push(here);
    }
    assert_eq!(scores[1], scores[3], "both are of a reader");
    assert!(scores[0] != scores[1] && scores[1] != scores[2], "{scores:?}");

    owner.predictor.erase(&films, &user).await.unwrap();
    cluster.settle();
    for node in &cluster.nodes {
        assert_eq!(node.storage.user_attributes().get(&"films".parse().unwrap(), &user).unwrap(), None);
        assert_eq!(node.predict("films", 1, "a").await, leader.predict("films", 2, "a").await, "the user is a new one");
    }
}
