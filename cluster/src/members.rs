//! Which nodes are alive, by this node's own clock.

use std::collections::BTreeMap;
use std::time::Duration;

use celeris_model::NodeName;
use tokio::time::Instant;

use crate::batch::Writer;
use crate::heartbeat::Heartbeat;

/// The most nodes of which something is remembered; of further ones nothing is.
const NODES_MAX: usize = 256;

#[derive(Debug, Clone)]
struct Member {
    heard: Instant,
    heartbeat: Heartbeat,
}

/// The nodes that were heard.
#[derive(Debug)]
pub(crate) struct Members {
    own: Writer,
    dead_after: Duration,
    known: BTreeMap<NodeName, Member>,
    /// When this node last heard itself. Time stands still for the judgement of others while it does
    /// not: then it is cut off, and they are not.
    own_heard: Option<Instant>,
    /// When this node first heard itself.
    listens_since: Option<Instant>,
}

/// What a heartbeat tells beyond itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is of another node, and new.
    New,
    /// It is of this process, or was heard before.
    Nothing,
    /// Another process has this node's name, and started later.
    NameTakenByNewer,
    /// Another process has this node's name, and started earlier: this one must stop.
    NameTakenByOlder,
}

impl Members {
    pub(crate) fn new(own: Writer, dead_after: Duration) -> Self {
        Self { own, dead_after, known: BTreeMap::new(), own_heard: None, listens_since: None }
    }

    /// Notes a heartbeat. Of two processes with one name that with the smaller number is the older: both
    /// see it alike, so that one of them stays.
    pub(crate) fn hear(&mut self, now: Instant, heartbeat: Heartbeat) -> Heard {
        if heartbeat.node == self.own.node {
            if heartbeat.process == self.own.process {
                self.hear_own(now);
            }
            return match heartbeat.process {
                process if process == self.own.process || heartbeat.is_stopped => Heard::Nothing,
                process if process < self.own.process => Heard::NameTakenByOlder,
                _ => Heard::NameTakenByNewer,
            };
        }
        if let Some(member) = self.known.get(&heartbeat.node) {
            let last = &member.heartbeat;
            if last.process == heartbeat.process && last.counter >= heartbeat.counter {
                return Heard::Nothing;
            }
        } else if self.known.len() >= NODES_MAX {
            tracing::warn!(node = %heartbeat.node, "a heartbeat of one node too many is ignored");
            return Heard::Nothing;
        }
        self.known.insert(heartbeat.node.clone(), Member { heard: now, heartbeat });
        Heard::New
    }

    fn hear_own(&mut self, now: Instant) {
        let silence = now.saturating_duration_since(self.own_heard.unwrap_or(now));
        if silence > self.dead_after / 2 {
            // The others get the time back in which they could not be heard.
            self.known.values_mut().for_each(|member| member.heard += silence);
        }
        self.own_heard = Some(now);
        self.listens_since.get_or_insert(now);
    }

    /// The time by which other nodes are judged.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        self.own_heard.unwrap_or(now)
    }

    /// The last heartbeats of the other live nodes, in the order of their names.
    pub(crate) fn live(&self, now: Instant) -> impl Iterator<Item = &Heartbeat> {
        self.all(now)
            .filter(|(heartbeat, is_running)| *is_running && !heartbeat.is_starting)
            .map(|(heartbeat, _)| heartbeat)
    }

    /// The last heartbeats of the other nodes that have not said that they stop, and were heard within this time: of the
    /// live ones, of those that start, and of those that may only be paused.
    pub(crate) fn heard_within(&self, now: Instant, time: Duration) -> impl Iterator<Item = &Heartbeat> {
        let (now, time) = (self.clock(now), time.max(self.dead_after));
        let known = self
            .known
            .values()
            .filter(move |member| !member.heartbeat.is_stopped && now.saturating_duration_since(member.heard) < time);
        known.map(|member| &member.heartbeat)
    }

    /// The last heartbeats of all other nodes ever heard, and whether their processes run.
    pub(crate) fn all(&self, now: Instant) -> impl Iterator<Item = (&Heartbeat, bool)> {
        let now = self.clock(now);
        self.known.values().map(move |Member { heard, heartbeat }| {
            (heartbeat, !heartbeat.is_stopped && now.saturating_duration_since(*heard) < self.dead_after)
        })
    }

    pub(crate) fn has_heard(&self, node: &NodeName) -> bool {
        self.known.contains_key(node)
    }

    /// Whether another node may be alive. One that was never heard may be until this node has listened
    /// for long enough: a node that has just started would take its logs away otherwise.
    pub(crate) fn may_live(&self, now: Instant, node: &NodeName) -> bool {
        if self.known.contains_key(node) {
            return self.live(now).any(|heartbeat| heartbeat.node == *node);
        }
        let now = self.clock(now);
        now.saturating_duration_since(self.listens_since.unwrap_or(now)) < self.dead_after
    }
}

/// How long this node waits with a claim of the catalog that no node owns, so that the first of the
/// live nodes, in the order of names, is alone.
#[derive(Debug)]
pub(crate) struct Election {
    unowned_since: Option<Instant>,
    looked: Option<Instant>,
    pub(crate) dead_after: Duration,
    pub(crate) step: Duration,
}

/// What an election depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidacy {
    /// Whether a live node owns the catalog.
    pub(crate) is_owned: bool,
    /// Whether the last owner has given it up, or there was none, so that a claim need not wait.
    pub(crate) is_released: bool,
    /// Whether the last owner was not heard of for so long that it is taken for dead.
    pub(crate) is_dead: bool,
    /// This node's place among the live nodes that may own it, from 0; `None` if it is not one.
    pub(crate) place: Option<u32>,
}

impl Election {
    pub(crate) fn new(dead_after: Duration, step: Duration) -> Self {
        Self { unowned_since: None, looked: None, dead_after, step }
    }

    /// Whether this node is to claim the catalog now, by [`Members::clock`].
    pub(crate) fn is_due(&mut self, now: Instant, candidacy: Candidacy) -> bool {
        let silence = now.saturating_duration_since(self.looked.replace(now).unwrap_or(now));
        if candidacy.is_owned || silence > self.dead_after / 2 {
            self.unowned_since = None;
        }
        if candidacy.is_owned {
            return false;
        }
        let since = *self.unowned_since.get_or_insert(now);
        let Some(place) = candidacy.place else { return false };
        let wait = match candidacy {
            // That long it was waited for already.
            Candidacy { is_dead: true, .. } => Duration::ZERO,
            Candidacy { is_released: true, .. } => self.step,
            _ => self.dead_after,
        };
        now.saturating_duration_since(since) >= wait + self.step * place
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn heartbeat(node: &str, process: u64, counter: u64) -> Heartbeat {
        Heartbeat {
            node: NodeName::new(node).unwrap(),
            process,
            counter,
            url: String::new(),
            formats: vec![1],
            is_starting: false,
            is_draining: false,
            is_stopped: false,
            logs: BTreeMap::new(),
            ready: Vec::new(),
            placement: None,
        }
    }

    fn members() -> Members {
        Members::new(Writer { node: NodeName::new("me").unwrap(), process: 50 }, 4 * SECOND)
    }

    #[test]
    fn a_node_is_dead_when_its_counter_stands_still() {
        let start = Instant::now();
        let mut members = members();
        assert_eq!(members.hear(start, heartbeat("b", 1, 7)), Heard::New);
        assert_eq!(members.hear(start + 3 * SECOND, heartbeat("b", 1, 7)), Heard::Nothing);
        let b = NodeName::new("b").unwrap();
        assert!(members.may_live(start + 3 * SECOND, &b));
        assert!(!members.may_live(start + 4 * SECOND, &b));
        // A restart counts from the beginning.
        assert_eq!(members.hear(start + 5 * SECOND, heartbeat("b", 2, 1)), Heard::New);
        assert!(members.may_live(start + 8 * SECOND, &b));
        let last = Heartbeat { is_stopped: true, ..heartbeat("b", 2, 2) };
        assert_eq!(members.hear(start + 8 * SECOND, last), Heard::New);
        assert!(!members.may_live(start + 8 * SECOND, &b), "it said so");
        assert_eq!(members.all(start + 8 * SECOND).count(), 1);
    }

    #[test]
    fn a_node_that_starts_is_heard_and_not_live() {
        let (now, mut members) = (Instant::now(), members());
        let starting = Heartbeat { is_starting: true, ..heartbeat("b", 2, 1) };
        assert_eq!(members.hear(now, starting), Heard::New);
        let heard = |members: &Members, after: u32, within: u32| {
            members.heard_within(now + after * SECOND, within * SECOND).count()
        };
        assert_eq!((members.live(now).count(), heard(&members, 0, 0)), (0, 1));
        assert!(!members.may_live(now, &NodeName::new("b").unwrap()), "it owns nothing yet");
        assert_eq!(members.hear(now, heartbeat("b", 2, 2)), Heard::New);
        assert_eq!(members.live(now).count(), 1);
        // One that is silent is dead, and may only be paused.
        assert_eq!(members.live(now + 4 * SECOND).count(), 0);
        assert_eq!([(4, 0), (4, 60), (60, 60)].map(|(after, within)| heard(&members, after, within)), [0, 1, 0]);
        let last = Heartbeat { is_stopped: true, ..heartbeat("b", 2, 3) };
        assert_eq!(members.hear(now, last), Heard::New);
        assert_eq!(heard(&members, 0, 60), 0);
    }

    #[test]
    fn a_node_that_hears_nothing_takes_nobody_for_dead() {
        let start = Instant::now();
        let mut members = members();
        let b = NodeName::new("b").unwrap();
        members.hear(start, heartbeat("me", 50, 1));
        members.hear(start, heartbeat("b", 1, 1));
        assert!(members.may_live(start + 60 * SECOND, &b));
        // It hears itself again before the other.
        members.hear(start + 60 * SECOND, heartbeat("me", 50, 2));
        assert!(members.may_live(start + 60 * SECOND, &b));
        for second in 61..64 {
            members.hear(start + second * SECOND, heartbeat("me", 50, 2));
            assert!(members.may_live(start + second * SECOND, &b));
        }
        members.hear(start + 64 * SECOND, heartbeat("me", 50, 2));
        assert!(!members.may_live(start + 64 * SECOND, &b));
    }

    #[test]
    fn a_node_that_has_just_started_takes_nobody_for_dead() {
        let start = Instant::now();
        let mut members = members();
        let b = NodeName::new("b").unwrap();
        for second in 0..4 {
            members.hear(start + second * SECOND, heartbeat("me", 50, 1));
            assert!(members.may_live(start + second * SECOND, &b), "it may not have spoken yet");
        }
        members.hear(start + 4 * SECOND, heartbeat("me", 50, 2));
        assert!(!members.may_live(start + 4 * SECOND, &b));
    }

    #[test]
    fn of_two_processes_with_one_name_the_newer_is_told() {
        let (now, mut members) = (Instant::now(), members());
        assert_eq!(members.hear(now, heartbeat("me", 50, 10)), Heard::Nothing);
        assert_eq!(members.hear(now, heartbeat("me", 70, 90)), Heard::NameTakenByNewer);
        assert_eq!(members.hear(now, heartbeat("me", 7, 3)), Heard::NameTakenByOlder);
        let last = Heartbeat { is_stopped: true, ..heartbeat("me", 7, 4) };
        assert_eq!(members.hear(now, last), Heard::Nothing);
        assert_eq!(members.live(now).count(), 0);
    }

    #[test]
    fn nodes_claim_the_catalog_one_after_the_other() {
        let start = Instant::now();
        let due_if = |place: Option<u32>, is_released, is_dead| {
            let mut election = Election::new(4 * SECOND, SECOND);
            let unowned = Candidacy { is_owned: false, is_released, is_dead, place };
            (0..20).find(|second| election.is_due(start + SECOND * *second, unowned))
        };
        let due = |place, is_released| due_if(place, is_released, false);
        assert_eq!([0, 1, 2].map(|place| due(Some(place), false)), [Some(4), Some(5), Some(6)]);
        assert_eq!([0, 1].map(|place| due(Some(place), true)), [Some(1), Some(2)]);
        assert_eq!([0, 1].map(|place| due_if(Some(place), false, true)), [Some(0), Some(1)]);
        assert_eq!(due(None, true), None);
        // An owner that is heard of again begins the time again.
        let mut election = Election::new(4 * SECOND, SECOND);
        let unowned = Candidacy { is_owned: false, is_released: false, is_dead: false, place: Some(0) };
        assert!(!election.is_due(start, unowned));
        assert!(!election.is_due(start + 2 * SECOND, unowned));
        assert!(!election.is_due(start + 3 * SECOND, Candidacy { is_owned: true, ..unowned }));
        assert!(!election.is_due(start + 5 * SECOND, unowned));
        assert!(!(6..9).any(|second| election.is_due(start + SECOND * second, unowned)));
        assert!(election.is_due(start + 9 * SECOND, unowned));
        // So does a silence.
        assert!(!election.is_due(start + 15 * SECOND, unowned));
    }
}
