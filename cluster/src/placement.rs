//! Which node is to own which shard.

use std::collections::BTreeMap;

use celeris_model::NodeName;
use xxhash_rust::xxh3::xxh3_64;

/// A node that may own shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: NodeName,
    /// For each shard, whether it is ready for it: its copy is recent enough to take the shard over.
    pub(crate) is_recent: Vec<bool>,
}

/// Assigns the shards, whose present owners are given, to the candidates.
///
/// Each candidate gets as many shards as any other, or one more. A shard stays where it is if its
/// owner is a candidate with no more than its share; others go to the first candidate with room
/// in an order of their own (rendezvous hashing), preferably to one whose copy is recent.
#[must_use]
pub(crate) fn place(present: &[Option<NodeName>], candidates: &[Candidate]) -> Vec<Option<NodeName>> {
    if candidates.is_empty() {
        return present.to_vec();
    }
    let (least, rest) = (present.len() / candidates.len(), present.len() % candidates.len());
    let mut load: BTreeMap<&NodeName, usize> = candidates.iter().map(|candidate| (&candidate.node, 0)).collect();
    let mut placed: Vec<Option<NodeName>> = vec![None; present.len()];
    // The owner's best shards stay, and one shard more at as many owners as have to have it.
    let mut with_more = 0;
    for candidate in candidates {
        let mut own: Vec<usize> =
            (0..present.len()).filter(|shard| present[*shard].as_ref() == Some(&candidate.node)).collect();
        own.sort_by_key(|shard| std::cmp::Reverse(weight(&candidate.node, *shard)));
        let keeps_more = own.len() > least && with_more < rest;
        with_more += usize::from(keeps_more);
        own.truncate(least + usize::from(keeps_more));
        for shard in own {
            placed[shard] = Some(candidate.node.clone());
            *load.entry(&candidate.node).or_default() += 1;
        }
    }
    for shard in (0..present.len()).filter(|shard| placed[*shard].is_none()).collect::<Vec<_>>() {
        let may_have_more = with_more < rest;
        let room = |candidate: &&Candidate| load[&candidate.node] < least + usize::from(may_have_more);
        let best = candidates.iter().filter(room).max_by_key(|candidate| {
            let is_recent = candidate.is_recent.get(shard).copied().unwrap_or(false);
            let is_below = load[&candidate.node] < least;
            (is_recent, is_below, weight(&candidate.node, shard))
        });
        let is_recent = |candidate: &Candidate| candidate.is_recent.get(shard).copied().unwrap_or(false);
        let present = present[shard].as_ref().and_then(|owner| candidates.iter().find(|one| one.node == *owner));
        let fallback = candidates.iter().filter(|candidate| is_recent(candidate)).min_by_key(|one| load[&one.node]);
        // Beyond its share, an owner keeps what no other can take yet, and so does any recent copy.
        let chosen = best.filter(|best| is_recent(best)).or(present).or(fallback).or(best);
        if let Some(chosen) = chosen {
            let count = load.entry(&chosen.node).or_default();
            with_more += usize::from(*count == least);
            *count += 1;
            placed[shard] = Some(chosen.node.clone());
        }
    }
    placed
}

/// The rank of a node for a shard, the same everywhere.
fn weight(node: &NodeName, shard: usize) -> u64 {
    xxh3_64(format!("{node}/{shard}").as_bytes())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn name(node: &str) -> NodeName {
        NodeName::new(node).unwrap()
    }

    fn candidates(nodes: &[&str], shards: usize) -> Vec<Candidate> {
        nodes.iter().map(|node| Candidate { node: name(node), is_recent: vec![true; shards] }).collect()
    }

    fn counts(placed: &[Option<NodeName>]) -> BTreeMap<NodeName, usize> {
        let mut counts = BTreeMap::new();
        for owner in placed {
            *counts.entry(owner.clone().unwrap()).or_default() += 1;
        }
        counts
    }

    fn moved(before: &[Option<NodeName>], after: &[Option<NodeName>]) -> usize {
        before.iter().zip(after).filter(|(before, after)| before != after).count()
    }

    #[test]
    fn shares_are_even_and_a_placement_that_is_even_stays() {
        for shards in 1..=64 {
            for nodes in [&["a"][..], &["a", "b"], &["a", "b", "c"], &["a", "b", "c", "d", "e"]] {
                let candidates = candidates(nodes, shards);
                let placed = place(&vec![None; shards], &candidates);
                let counts = counts(&placed);
                let least = shards / nodes.len();
                let allowed = least..=least + usize::from(!shards.is_multiple_of(nodes.len()));
                assert!(counts.values().all(|count| allowed.contains(count)), "{shards} {counts:?}");
                assert_eq!(place(&placed, &candidates), placed);
            }
        }
    }

    #[test]
    fn only_what_must_move_moves() {
        let shards = 12;
        let three = place(&vec![None; shards], &candidates(&["a", "b", "c"], shards));
        let without = place(&three, &candidates(&["a", "b"], shards));
        assert_eq!(moved(&three, &without), 4, "those of the node that left");
        assert_eq!(counts(&without).into_values().collect::<Vec<_>>(), [6, 6]);
        let with = place(&three, &candidates(&["a", "b", "c", "d"], shards));
        assert_eq!(moved(&three, &with), 3, "the share of the node that came");
        assert_eq!(counts(&with)[&name("d")], 3);
    }

    #[test]
    fn a_node_that_is_behind_gets_nothing_that_another_can_serve() {
        let shards = 6;
        let mut nodes = candidates(&["a", "b", "c"], shards);
        let two = place(&vec![None; shards], &nodes[..2]);
        nodes[2].is_recent = vec![false; shards];
        assert_eq!(place(&two, &nodes), two);
        nodes[2].is_recent[two.iter().position(|owner| *owner == Some(name("a"))).unwrap()] = true;
        assert!(counts(&place(&two, &nodes)).get(&name("c")).is_none_or(|count| *count <= 1));
        // If there is no better one, it gets them.
        assert_eq!(counts(&place(&two, &nodes[2..])).into_values().collect::<Vec<_>>(), [6]);
        assert_eq!(place(&two, &[]), two);
    }
}
