//! Partitions of the network, one-way ones too, and slow and lossy links.

use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use celeris_tests::eventually;

use crate::run::{Run, scenarios};

scenarios! {
    Network: an_owner_is_cut_off_from_the_servers,
    Network: an_owner_is_cut_off_from_the_other_nodes,
    Network: an_owner_is_cut_off_from_everything,
    Network: an_owner_loses_one_direction_to_the_servers,
    Network: an_owner_loses_one_direction_to_the_other_nodes,
    Network: a_leader_of_a_log_is_cut_off_from_the_other_servers,
    Network: a_leader_of_a_log_loses_one_direction_to_the_other_servers,
    Network: all_links_are_slow_and_lossy,
}

/// The directions of links that are cut, from host to host.
type Links = Vec<(usize, usize)>;

/// The links from a host to others.
fn to(host: usize, others: &[usize]) -> Links {
    others.iter().filter(|other| **other != host).map(|other| (host, *other)).collect()
}

fn both_ways(links: &Links) -> Links {
    links.iter().flat_map(|(from, to)| [(*from, *to), (*to, *from)]).collect()
}

/// Either to a host or from it.
fn one_way(run: &mut Run, links: Links) -> Links {
    if run.rng.random() { links } else { links.into_iter().map(|(from, to)| (to, from)).collect() }
}

/// The hosts of the nodes, and of the servers.
fn hosts(run: &Run) -> (Vec<usize>, Vec<usize>) {
    let (nodes, servers) = (run.cluster.len(), run.cluster.nats.len());
    ((0..nodes).collect(), (nodes..nodes + servers).collect())
}

/// Cuts links for a time in which others take over.
fn cut(run: &mut Run, links: &Links) {
    lose(run, links);
    pass(run, links);
}

/// Cuts links of a node. The clients either go on asking it, which may hold their requests until it is
/// connected again, or ask the others, which serve them.
fn cut_node(run: &mut Run, node: usize, links: &Links) {
    let is_avoided = run.rng.random();
    if is_avoided {
        run.avoid(node);
    }
    lose(run, links);
    if is_avoided {
        run.await_operations(50);
    }
    pass(run, links);
    run.reach_all();
}

fn lose(run: &mut Run, links: &Links) {
    let seconds = run.rng.random_range(4.0..14.0);
    eprintln!("without {links:?} for {seconds:.1} s");
    links.iter().for_each(|(from, to)| run.cluster.network().lose(*from, *to));
    Run::go_on(seconds);
}

fn pass(run: &Run, links: &Links) {
    links.iter().for_each(|(from, to)| run.cluster.network().pass(*from, *to));
}

fn an_owner_is_cut_off_from_the_servers(run: &mut Run) {
    let owner = run.any_owner();
    let (_, servers) = hosts(run);
    cut_node(run, owner, &both_ways(&to(owner, &servers)));
}

/// The heartbeats of the owner still reach the other nodes through the NATS servers, so no node takes its shards over,
/// and only requests sent to the owner itself are answered.
fn an_owner_is_cut_off_from_the_other_nodes(run: &mut Run) {
    let owner = run.any_owner();
    let (nodes, _) = hosts(run);
    cut(run, &both_ways(&to(owner, &nodes)));
}

fn an_owner_is_cut_off_from_everything(run: &mut Run) {
    let owner = run.any_owner();
    let (nodes, servers) = hosts(run);
    cut_node(run, owner, &both_ways(&to(owner, &[nodes, servers].concat())));
}

fn an_owner_loses_one_direction_to_the_servers(run: &mut Run) {
    let owner = run.any_owner();
    let (_, servers) = hosts(run);
    let links = one_way(run, to(owner, &servers));
    cut_node(run, owner, &links);
}

fn an_owner_loses_one_direction_to_the_other_nodes(run: &mut Run) {
    let owner = run.any_owner();
    let (nodes, _) = hosts(run);
    let links = one_way(run, to(owner, &nodes));
    cut(run, &links);
}

/// The host of the server that leads any of the logs.
fn leader(run: &mut Run) -> usize {
    let stream = run.any_stream();
    let leader = eventually("the stream has a leader", || run.cluster.nats.leader(&stream));
    run.cluster.len() + leader
}

fn a_leader_of_a_log_is_cut_off_from_the_other_servers(run: &mut Run) {
    let (leader, (_, servers)) = (leader(run), hosts(run));
    cut(run, &both_ways(&to(leader, &servers)));
}

fn a_leader_of_a_log_loses_one_direction_to_the_other_servers(run: &mut Run) {
    let (leader, (_, servers)) = (leader(run), hosts(run));
    let links = one_way(run, to(leader, &servers));
    cut(run, &links);
}

fn all_links_are_slow_and_lossy(run: &mut Run) {
    let (nodes, servers) = hosts(run);
    for host in nodes.iter().chain(&servers) {
        // Half of it on each way.
        if run.cluster.network().slow_down(*host, 25, 0.5).is_none() {
            return;
        }
    }
    Run::go_on(5.0);
    run.await_operations(20);
    let owner = *nodes.choose(&mut run.rng).unwrap();
    run.kill_node(owner);
    run.await_operations(20);
    run.start_node(owner);
}
