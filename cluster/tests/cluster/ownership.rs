//! Who owns the logs, and that nothing acknowledged is lost or doubled when that changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use celeris_cluster::Phase;
use celeris_model::LogId;
use celeris_storage::{RegistryBatch, RegistryKey, Storage, StorageError};
use rand::SeedableRng as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;
use tokio::sync::Mutex;

use crate::nodes::{
    TestNode, Told, USERS, assert_equal_and_complete, eventually, options, settled, start, stop, user, write, write_at,
};
use crate::servers::{Servers, Sync};

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_equal_over_hand_overs() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let nodes = start(&servers, 3).await;
    settled(&[&nodes[0], &nodes[1], &nodes[2]]).await;
    let nodes = Arc::new(Mutex::new(nodes));
    let written = Arc::new(AtomicUsize::new(0));
    let count = 600;
    let writer = tokio::spawn({
        let (nodes, written) = (Arc::clone(&nodes), Arc::clone(&written));
        async move {
            for number in 0..count {
                write(&nodes, number).await;
                written.store(number + 1, Ordering::Relaxed);
            }
        }
    });
    for round in 1..=4 {
        eventually("some records are written", || written.load(Ordering::Relaxed) >= round * 100).await;
        let at = round % 3;
        let mut node = {
            let mut nodes = nodes.lock().await;
            let replacement = TestNode::new(options(&servers, 9));
            std::mem::replace(&mut nodes[at], replacement)
        };
        node.stop().await;
        node.start().await.unwrap();
        nodes.lock().await[at] = node;
    }
    writer.await.unwrap();
    let mut nodes = Arc::into_inner(nodes).unwrap().into_inner();
    settled(&[&nodes[0], &nodes[1], &nodes[2]]).await;
    assert_equal_and_complete(&nodes, count).await;
    for log in nodes[0].running().logs() {
        let epochs = nodes.iter().map(|node| node.running().status(log).epoch).max();
        assert!(epochs > Some(1), "{log} never changed hands");
    }
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_nodes_that_claim_at_once_one_wins() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes: Vec<TestNode> = (0..3).map(|number| TestNode::new(options(&servers, number))).collect();
    for node in &mut nodes {
        // All claim the catalog at once.
        node.options.timing.election_step = Duration::from_millis(1);
    }
    let started = futures_util::future::join_all(nodes.iter_mut().map(TestNode::start)).await;
    started.into_iter().for_each(Result::unwrap);
    settled(&[&nodes[0], &nodes[1], &nodes[2]]).await;
    let catalog: Vec<_> = nodes.iter().map(|node| node.running().status(LogId::Catalog)).collect();
    let owners: Vec<_> = catalog.iter().map(|status| status.owner.clone()).collect();
    assert!(owners.iter().all(|owner| *owner == owners[0]), "{catalog:?}");
    let views: Vec<_> = nodes.iter().map(|node| node.running().cluster.view()).collect();
    eventually("all know one placement", || {
        views.iter().all(|view| view.borrow().placement == views[0].borrow().placement)
            && views[0].borrow().placement.coordinator == owners[0]
    })
    .await;
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_gives_everything_up() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes = start(&servers, 2).await;
    settled(&[&nodes[0], &nodes[1]]).await;
    nodes[0].running().cluster.drain();
    let (drained, other) = (nodes[0].running(), nodes[1].running());
    eventually("the other owns everything", || other.logs().iter().all(|log| other.owns(*log) && !drained.owns(*log)))
        .await;
    for log in drained.logs() {
        assert!(!drained.cluster.lease_valid(log));
        assert!(drained.cluster.confirm(log).await.is_err());
        other.cluster.confirm(log).await.unwrap();
        assert!(other.cluster.lease_valid(log));
    }
    let writes = |storage: &Arc<Storage>| {
        let storage = Arc::clone(storage);
        async move { write_at(&storage, 0).await }
    };
    assert!(matches!(writes(&drained.storage).await, Err(StorageError::NotOwner)));
    writes(&other.storage).await.unwrap();
    let shard = LogId::Shard(other.storage.log().shard_of(&user(0)));
    eventually("the copy vouches for its age", || {
        drained.cluster.staleness(shard).is_some_and(|staleness| staleness < Duration::from_secs(2))
            && drained.storage.histories().of(&crate::nodes::films(), &user(0)).unwrap().len() == 1
    })
    .await;
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_was_cut_off_is_fenced_and_acknowledges_nothing() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let gate = crate::faults::Gate::start(servers.port(0)).await;
    let mut nodes: Vec<TestNode> = (0..2).map(|number| TestNode::new(options(&servers, number))).collect();
    nodes[0].options.servers = vec![format!("nats://127.0.0.1:{}", gate.port)];
    for node in &mut nodes {
        node.start().await.unwrap();
    }
    settled(&[&nodes[0], &nodes[1]]).await;
    let mut rng = ChaCha8Rng::seed_from_u64(22);
    let (cut, other) = (nodes[0].running(), nodes[1].running());
    let owned: Vec<usize> =
        (0..USERS).filter(|number| cut.owns(LogId::Shard(cut.storage.log().shard_of(&user(*number))))).collect();
    let number = *owned.choose(&mut rng).unwrap();
    let shard = LogId::Shard(cut.storage.log().shard_of(&user(number)));
    gate.close();
    // It does not know that it is alone; what it appends is not acknowledged.
    let waiting = tokio::spawn({
        let storage = Arc::clone(&cut.storage);
        async move { write_at(&storage, number).await }
    });
    eventually("the other owns everything", || other.logs().iter().all(|log| other.owns(*log))).await;
    assert!(!waiting.is_finished());
    assert!(!cut.cluster.lease_valid(shard));
    write_at(&other.storage, number + USERS).await.unwrap();
    gate.open();
    let refused = waiting.await.unwrap();
    assert!(matches!(refused, Err(StorageError::Fenced)), "{refused:?}");
    eventually("it follows", || cut.logs().iter().all(|log| cut.status(*log).phase != Phase::Releasing)).await;
    let told = cut.hooks.of(shard);
    assert!(told.contains(&Told::TermEnded), "{told:?}");
    let both = [Arc::clone(&cut.storage), Arc::clone(&other.storage)];
    eventually("both have what was acknowledged", || {
        both.iter().all(|storage| {
            let history = storage.histories().of(&crate::nodes::films(), &user(number)).unwrap();
            history.len() == 1 && history[0].1.label == (number + USERS) as f32
        })
    })
    .await;
    drop(both);
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_applied_after_what_their_owner_has_seen_of_the_catalog() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes = start(&servers, 3).await;
    settled(&[&nodes[0], &nodes[1], &nodes[2]]).await;
    let coordinator = nodes.iter().position(|node| node.running().owns(LogId::Catalog)).unwrap();
    let shard = LogId::Shard(nodes[0].running().storage.log().shard_of(&user(0)));
    let owner = nodes.iter().position(|node| node.running().owns(shard)).unwrap();
    let reader = (0..3).rev().find(|node| ![coordinator, owner].contains(node)).unwrap();
    let [coordinator, owner, reader] = [coordinator, owner, reader].map(|at| Arc::clone(&nodes[at].running().storage));
    let key = |number: usize| RegistryKey::new(["test", number.to_string().as_str()]).unwrap();
    let has = |storage: &Storage, number: usize| storage.registry().get::<usize>(&key(number)).unwrap().is_some();
    for number in 0..40 {
        let mut batch = RegistryBatch::new();
        batch.put(key(number), &number).unwrap();
        let storage = Arc::clone(&coordinator);
        tokio::task::spawn_blocking(move || storage.registry().commit(&batch)).await.unwrap().unwrap();
        eventually("the owner has the document", || has(&owner, number)).await;
        write_at(&owner, number * USERS).await.unwrap();
        eventually("the reader has the record", || {
            reader.histories().of(&crate::nodes::films(), &user(0)).unwrap().len() > number
        })
        .await;
        assert!(has(&reader, number), "the record came before the document");
    }
    drop((coordinator, owner, reader));
    stop(&mut nodes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_owners_go_on_confirming_that_they_own_their_logs() {
    let Some(servers) = Servers::start(1, Sync::Always) else { return };
    let mut nodes: Vec<TestNode> = (0..2).map(|number| TestNode::new(options(&servers, number))).collect();
    for node in &mut nodes {
        node.options.timing.renew = Duration::from_millis(200);
        node.start().await.unwrap();
    }
    settled(&[&nodes[0], &nodes[1]]).await;
    let ends = |node: &TestNode| -> Vec<u64> {
        node.running().logs().iter().map(|log| node.running().status(*log).applied).collect()
    };
    let before = ends(&nodes[0]);
    eventually("all logs grow without writes", || {
        ends(&nodes[0]).iter().zip(&before).all(|(now, before)| *now >= before + 5)
    })
    .await;
    // Neither the owners nor the copies count the time since the last write.
    eventually("all nodes know that they are current", || {
        nodes.iter().all(|node| {
            let staleness = |log: &LogId| node.running().cluster.staleness(*log);
            node.running().logs().iter().all(|log| staleness(log).is_some_and(|age| age < Duration::from_secs(1)))
        })
    })
    .await;
    stop(&mut nodes).await;
}
