//! Founding and joining a cluster, and leaving it.

use celeris_cluster::{ClusterError, ClusterOptions, Joined, Phase};
use celeris_model::{LogId, Shards};
use serde_json::json;

use crate::nodes::{TestNode, Told, eventually, options, settled, start, stop};
use crate::servers::{Servers, Sync};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_founders_one_wins_and_both_have_its_identity() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let [mut first, second] = [0, 1].map(|number| options(&servers, number));
    first.shards = Shards::new(5).unwrap();
    let (first, second) = tokio::join!(Joined::join(first), Joined::join(second));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.identity(), second.identity());
    assert_eq!(first.identity().incarnation, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_a_copy_founds_no_cluster() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let new = options(&servers, 0);
    let with_copy = ClusterOptions { copy: Some(1), ..new.clone() };
    let refused = Joined::join(with_copy.clone()).await.err();
    assert!(matches!(refused, Some(ClusterError::NoCluster { .. })), "{refused:?}");
    Joined::join(new).await.unwrap();
    assert_eq!(Joined::join(with_copy.clone()).await.unwrap().identity().incarnation, 1);
    let of_later = Joined::join(ClusterOptions { copy: Some(2), ..with_copy }).await.err();
    assert!(matches!(of_later, Some(ClusterError::NoCluster { .. })), "{of_later:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_do_not_sync_are_refused_unless_that_is_accepted() {
    let Some(servers) = Servers::start(1, Sync::Seldom) else { return };
    let mut options = options(&servers, 0);
    let refused = Joined::join(options.clone()).await.err();
    assert!(matches!(refused, Some(ClusterError::NoSync { .. })), "{refused:?}");
    options.monitor_urls.clear();
    let unknown = Joined::join(options.clone()).await.err();
    assert!(matches!(unknown, Some(ClusterError::SyncUnknown { .. })), "{unknown:?}");
    options.unsafe_no_sync = true;
    Joined::join(options).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_with_the_name_of_a_node_is_refused() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    // Of two that start at once, one is notified and gives everything up.
    let mut both = [0, 0].map(|number| TestNode::new(options(&servers, number)));
    let [one, other] = &mut both;
    let (first, second) = tokio::join!(one.start(), other.start());
    first.unwrap();
    second.unwrap();
    let failed = |node: &TestNode| node.running().cluster.failure().borrow().is_some();
    eventually("one gives in", || failed(&both[0]) || failed(&both[1])).await;
    let stays = usize::from(failed(&both[0]));
    both[1 - stays].stop().await;
    settled(&[&both[stays]]).await;
    assert!(!failed(&both[stays]));
    // One that comes later is refused.
    let refused = TestNode::new(options(&servers, 0)).start().await.err();
    assert!(matches!(refused, Some(ClusterError::NameTaken { .. })), "{refused:?}");
    both[stays].stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_stop_releases_all_logs() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes = start(&servers, 2).await;
    settled(&[&nodes[0], &nodes[1]]).await;
    let owned: Vec<LogId> = nodes[0].running().logs().into_iter().filter(|log| nodes[0].running().owns(*log)).collect();
    let hooks = std::sync::Arc::clone(&nodes[0].running().hooks);
    nodes[0].stop().await;
    for log in owned {
        let told: Vec<Told> =
            hooks.of(log).into_iter().filter(|told| !matches!(told, Told::Records(_) | Told::Catalog)).collect();
        assert_eq!(told[told.len() - 3..], [Told::TermBegan, Told::Releasing, Told::TermEnded]);
    }
    settled(&[&nodes[1]]).await;
    stop(&mut nodes[1..]).await;
    // The streams end with releases, so that a later node need not wait.
    let mut later = TestNode::new(options(&servers, 2));
    later.start().await.unwrap();
    eventually("it is read", || {
        let node = later.running();
        node.logs().iter().all(|log| {
            let status = node.status(*log);
            status.phase == Phase::Owning || (status.epoch > 0 && status.owner.is_none())
        })
    })
    .await;
    settled(&[&later]).await;
    later.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_that_no_coordinator_sent_place_nothing_and_stop_nobody() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes = start(&servers, 2).await;
    settled(&[&nodes[0], &nodes[1]]).await;
    let view = |node: &TestNode| node.running().cluster.view().borrow().clone();
    let before = [view(&nodes[0]), view(&nodes[1])];
    let client = async_nats::connect(servers.urls()).await.unwrap();
    let heartbeat = |node: &str, counter: u64| {
        json!({
            "node": node, "process": 1, "counter": counter, "url": "http://127.0.0.1:1", "formats": [1],
            "is_starting": false, "is_draining": false, "is_stopped": false, "logs": {}, "ready": [],
            "placement": {
                "revision": {"epoch": u64::MAX, "number": u64::MAX}, "nodes": {}, "coordinator": node, "shards": [],
            },
        })
    };
    for counter in 1..=3 {
        // The second is in the name of a node, and would be older than its process.
        for node in ["stranger", "node-0"] {
            let message = serde_json::to_vec(&heartbeat(node, counter)).unwrap();
            client.publish("celeris.test.1.heartbeat.stranger", message.into()).await.unwrap();
        }
    }
    client.flush().await.unwrap();
    // It was heard, which says that what is with it was too.
    let heard = |node: &TestNode| node.running().cluster.live().iter().any(|other| other.node.as_str() == "stranger");
    eventually("the stranger is heard", || heard(&nodes[0]) && heard(&nodes[1])).await;
    for (node, before) in nodes.iter().zip(&before) {
        let (now, known) = (view(node).placement, &before.placement);
        assert_eq!(now.revision.epoch, known.revision.epoch);
        assert_eq!(now.coordinator, known.coordinator);
        assert!(node.running().cluster.failure().borrow().is_none());
    }
    eventually("the stranger is dead", || !heard(&nodes[0]) && !heard(&nodes[1])).await;
    settled(&[&nodes[0], &nodes[1]]).await;
    stop(&mut nodes).await;
}
