//! A model of the ownership of a log, checked exhaustively: two nodes, a log of a few positions, and a
//! network that delays, loses and repeats what they send.
//!
//! The model contains what `cluster/src` does: conditional appends of unknown fate that are repeated
//! until they are known, `Epoch` and `Release` entries, and the lease by which an owner answers
//! `consistency: "latest"` reads without asking the log. A node may pause between any two steps, since
//! every step is an action that may come at any time.

use stateright::{Checker, HasDiscoveries, Model, Property};

/// Positions of the log: a claim, then a term that another node begins and releases, then one that writes.
const POSITIONS: usize = 5;

/// Duration of a lease in ticks.
const LEASE: u8 = 2;

/// The clock stops here; the lease of every append that can be made has then expired in some path.
const TIME_MAX: u8 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Epoch,
    Write,
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Entry {
    node: u8,
    epoch: u8,
    kind: Kind,
    /// Distinguishes the writes of an epoch.
    number: u8,
}

/// An append whose fate the node does not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Pending {
    entry: Entry,
    /// The length of the log on which it is conditional.
    expected: u8,
    /// When it was first sent.
    sent: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Term {
    epoch: u8,
    writes: u8,
    /// Before this, no write is acknowledged and nothing released: the previous owner may still answer by its lease.
    acknowledges_from: u8,
    /// When the last append that succeeded was sent.
    confirmed: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Node {
    /// The part of the log that it has applied.
    applied: u8,
    term: Option<Term>,
    pending: Option<Pending>,
    /// A write that is in the log and that the client does not know of.
    unacknowledged: Option<u8>,
}

/// An append under way, in any number of copies, since it is repeated: it may arrive at any time from now on,
/// or never. Replies are not modelled as messages: one that arrives late says what a look at the log
/// says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    from: u8,
    entry: Entry,
    expected: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    time: u8,
    log: Vec<Entry>,
    nodes: [Node; 2],
    /// Sorted, since messages arrive in any order.
    network: Vec<Message>,
    /// Positions of acknowledged writes.
    acknowledged: Vec<u8>,
    /// Whether a node has acknowledged a write in an epoch that a later one had ended in the log before the
    /// write.
    late: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Claim(u8),
    Write(u8),
    Release(u8),
    /// Only in a broken variant: otherwise a repetition changes nothing.
    Repeat(u8),
    Apply(u8),
    Acknowledge(u8),
    /// An append reaches the log, and the reply reaches the node or is lost.
    Deliver(usize, bool),
    /// Only in a broken variant: the log refuses a copy of an append ("wrong last sequence") although it could take
    /// it, since it counts another copy that is under way.
    Refuse(usize),
    /// A node with an append of unknown fate reads its position, and finds something there.
    Look(u8),
}

/// What is wrong in a broken variant of the protocol, to see that the model finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A refusal is taken as proof that the append failed.
    RefusalIsProof,
    /// A new owner acknowledges at once, while the lease of the previous one lasts.
    NoWait,
    /// A new owner serves before it has applied the log up to its own epoch.
    ClaimsBlindly,
    /// A lease lasts from the last repetition of an append, not from when it was first sent.
    LeaseFromRepetition,
    /// A new owner releases the log while the lease of the previous one lasts, so that the next one does not wait.
    ReleasesAtOnce,
    /// A node answers by its lease until it knows that its release is in the log.
    KeepsLease,
}

struct Ownership {
    flaw: Flaw,
}

impl State {
    fn send(&mut self, message: Message) {
        if !self.network.contains(&message) {
            self.network.push(message);
            self.network.sort_unstable();
        }
    }

    fn append(&mut self, from: u8, entry: Entry) {
        let time = self.time;
        let node = &mut self.nodes[usize::from(from)];
        let expected = node.applied;
        node.pending = Some(Pending { entry, expected, sent: time });
        self.send(Message { from, entry, expected });
    }

    fn epoch(&self, node: &Node) -> u8 {
        self.log[..usize::from(node.applied)].iter().map(|entry| entry.epoch).max().unwrap_or(0)
    }

    /// Whether the last owner that the node knows of has released the log.
    fn is_released(&self, applied: u8) -> bool {
        applied == 0 || self.log[usize::from(applied) - 1].kind == Kind::Release
    }

    /// The pending append of a node is known to be in the log.
    fn succeeded(&mut self, of: u8, flaw: Flaw) {
        let released = self.is_released(self.nodes[usize::from(of)].applied);
        let time = self.time;
        let node = &mut self.nodes[usize::from(of)];
        let Some(Pending { entry, expected, sent }) = node.pending.take() else { return };
        node.applied = expected + 1;
        match entry.kind {
            Kind::Epoch => {
                let waits = !released && flaw != Flaw::NoWait;
                let acknowledges_from = if waits { time + LEASE } else { 0 };
                node.term = Some(Term { epoch: entry.epoch, writes: 0, acknowledges_from, confirmed: sent });
            }
            Kind::Write => {
                if let Some(term) = &mut node.term {
                    term.confirmed = sent;
                }
                node.unacknowledged = Some(expected);
            }
            Kind::Release => node.term = None,
        }
    }

    /// Another node owns the log.
    fn fenced(&mut self, node: u8) {
        let node = &mut self.nodes[usize::from(node)];
        node.pending = None;
        node.term = None;
    }
}

impl Model for Ownership {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            time: 0,
            log: Vec::new(),
            nodes: Default::default(),
            network: Vec::new(),
            acknowledged: Vec::new(),
            late: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.time < TIME_MAX {
            actions.push(Action::Tick);
        }
        for (of, node) in (0..).zip(&state.nodes) {
            let idle = node.pending.is_none();
            let room = usize::from(node.applied) < POSITIONS;
            if idle && room && node.term.is_none() {
                actions.push(Action::Claim(of));
            }
            if let Some(term) = node.term
                && idle
                && room
            {
                if term.writes < 1 && node.unacknowledged.is_none() {
                    actions.push(Action::Write(of));
                }
                let may_release = self.flaw == Flaw::ReleasesAtOnce || state.time >= term.acknowledges_from;
                if node.unacknowledged.is_none() && may_release {
                    actions.push(Action::Release(of));
                }
            }
            if node.unacknowledged.is_some() {
                actions.push(Action::Acknowledge(of));
            }
            if let Some(pending) = node.pending {
                if self.flaw == Flaw::LeaseFromRepetition {
                    actions.push(Action::Repeat(of));
                }
                if usize::from(pending.expected) < state.log.len() {
                    actions.push(Action::Look(of));
                }
            }
            if idle && node.term.is_none() && usize::from(node.applied) < state.log.len() {
                actions.push(Action::Apply(of));
            }
        }
        for index in 0..state.network.len() {
            actions.extend([Action::Deliver(index, true), Action::Deliver(index, false)]);
            if self.flaw == Flaw::RefusalIsProof {
                actions.push(Action::Refuse(index));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.time += 1,
            Action::Claim(of) => {
                let epoch = state.epoch(&state.nodes[usize::from(of)]) + 1;
                if self.flaw == Flaw::ClaimsBlindly {
                    // It makes its append conditional on a length that it has heard of, and not applied.
                    let length = u8::try_from(state.log.len()).ok()?;
                    state.nodes[usize::from(of)].applied = length;
                }
                state.append(of, Entry { node: of, epoch, kind: Kind::Epoch, number: 0 });
            }
            Action::Write(of) => {
                let term = state.nodes[usize::from(of)].term.as_mut()?;
                term.writes += 1;
                let (epoch, number) = (term.epoch, term.writes);
                state.append(of, Entry { node: of, epoch, kind: Kind::Write, number });
            }
            Action::Release(of) => {
                let epoch = state.nodes[usize::from(of)].term?.epoch;
                state.append(of, Entry { node: of, epoch, kind: Kind::Release, number: 0 });
            }
            Action::Repeat(of) => {
                let time = state.time;
                let pending = state.nodes[usize::from(of)].pending.as_mut()?;
                pending.sent = time;
            }
            Action::Apply(of) => state.nodes[usize::from(of)].applied += 1,
            Action::Acknowledge(of) => {
                let time = state.time;
                let node = &mut state.nodes[usize::from(of)];
                if node.term.is_some_and(|term| time < term.acknowledges_from) {
                    return None;
                }
                let position = node.unacknowledged.take()?;
                let epoch = state.log.get(usize::from(position)).map_or(0, |entry| entry.epoch);
                state.late |= state.log[..usize::from(position)].iter().any(|earlier| earlier.epoch > epoch);
                state.acknowledged.push(position);
                state.acknowledged.sort_unstable();
            }
            Action::Deliver(index, replies) => {
                let Message { from, entry, expected } = state.network[index];
                if usize::from(expected) != state.log.len() || state.log.len() == POSITIONS {
                    return None;
                }
                state.log.push(entry);
                // The log takes no other append with this expectation, nor another copy of it.
                state.network.retain(|message| usize::from(message.expected) >= state.log.len());
                let is_pending = state.nodes[usize::from(from)].pending.is_some_and(|pending| pending.entry == entry);
                if replies && is_pending {
                    state.succeeded(from, self.flaw);
                }
            }
            Action::Refuse(index) => {
                let Message { from, entry, .. } = state.network[index];
                let node = &mut state.nodes[usize::from(from)];
                node.pending.take_if(|pending| pending.entry == entry)?;
            }
            Action::Look(of) => {
                let pending = state.nodes[usize::from(of)].pending?;
                if state.log[usize::from(pending.expected)] == pending.entry {
                    state.succeeded(of, self.flaw);
                } else {
                    // A claimant has to read on, and an owner is none any more.
                    state.fenced(of);
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("acknowledged writes are in the log", |_, state: &State| {
                let is_write = |position: &u8| {
                    state.log.get(usize::from(*position)).is_some_and(|entry| entry.kind == Kind::Write)
                };
                state.acknowledged.iter().all(is_write)
            }),
            Property::always("no write is in the log twice", |_, state: &State| {
                let twice = |(index, entry): (usize, &Entry)| state.log[..index].contains(entry);
                !state.log.iter().enumerate().any(twice)
            }),
            Property::always("nothing is appended in an epoch after a later one", |_, state: &State| {
                state.log.is_sorted_by_key(|entry| entry.epoch) && !state.late
            }),
            Property::always("a node knows what it writes upon", |_, state: &State| {
                let follows = |(index, entry): (usize, &Entry)| match entry.kind {
                    Kind::Epoch => true,
                    _ => {
                        index > 0
                            && state.log[index - 1].node == entry.node
                            && state.log[index - 1].epoch == entry.epoch
                    }
                };
                state.log.iter().enumerate().all(follows)
            }),
            Property::always("an epoch has one owner", |_, state: &State| {
                state.log.iter().all(|a| state.log.iter().all(|b| a.epoch != b.epoch || a.node == b.node))
            }),
            Property::always("a leased read contains all acknowledged writes", |model: &Self, state: &State| {
                // A node gives its lease up before it sends the release.
                let is_releasing =
                    |node: &Node| node.pending.is_some_and(|pending| pending.entry.kind == Kind::Release);
                let leased = |node: &&Node| {
                    node.term.is_some_and(|term| state.time < term.confirmed + LEASE)
                        && (model.flaw == Flaw::KeepsLease || !is_releasing(node))
                };
                let contains = |node: &Node| state.acknowledged.iter().all(|position| *position < node.applied);
                state.nodes.iter().filter(leased).all(contains)
            }),
            Property::sometimes("a write is acknowledged after a take-over", |_, state: &State| {
                state.acknowledged.iter().any(|position| state.log[usize::from(*position)].epoch == 2)
            }),
        ]
    }
}

/// A broken variant is checked until something is found.
fn check(flaw: Flaw) -> impl Checker<Ownership> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let until = if flaw == Flaw::None { HasDiscoveries::All } else { HasDiscoveries::AnyFailures };
    Ownership { flaw }.checker().finish_when(until).threads(threads).spawn_bfs().join()
}

#[test]
fn no_acknowledged_write_is_lost_and_no_leased_read_is_stale() {
    let checked = check(Flaw::None);
    eprintln!("{} states, {} distinct", checked.state_count(), checked.unique_state_count());
    checked.assert_properties();
}

#[test]
fn the_model_finds_what_is_wrong_in_broken_protocols() {
    let found = |flaw| -> Vec<&'static str> {
        let checked = check(flaw);
        let wrong = checked.discoveries().into_keys();
        let mut wrong: Vec<_> = wrong.filter(|name| *name != "a write is acknowledged after a take-over").collect();
        wrong.sort_unstable();
        wrong
    };
    assert!(!found(Flaw::RefusalIsProof).is_empty());
    assert_eq!(found(Flaw::NoWait), ["a leased read contains all acknowledged writes"]);
    assert_eq!(found(Flaw::LeaseFromRepetition), ["a leased read contains all acknowledged writes"]);
    assert_eq!(found(Flaw::ReleasesAtOnce), ["a leased read contains all acknowledged writes"]);
    assert_eq!(found(Flaw::KeepsLease), ["a leased read contains all acknowledged writes"]);
    assert!(!found(Flaw::ClaimsBlindly).is_empty());
}
