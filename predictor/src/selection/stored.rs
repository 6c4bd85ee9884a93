//! The stored form of a state shared by all users, from which a start continues to read the log.

use celeris_bandits::selection::{ArmSums, Layout, Place, State};
use celeris_model::Partition;
use celeris_storage::Watermark;
use serde::{Deserialize, Serialize};

use crate::selection::SelectionRule;

/// Increased by every change of this form, of what a record adds to the sums, or of the lengths of
/// blocks: states of other formats are not used.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    layout: Layout,
    /// What the sums depend on besides the records. After a backup was restored, the id may belong to
    /// another selection.
    rule: String,
    /// The records that the sums reflect.
    read: Watermark,
    /// The first record of a block and a group, an arm, and its sums there.
    sums: Vec<(Place, usize, ArmSums)>,
}

/// Encodes a state that reflects the records up to `read`.
pub(super) fn encode(rule: &SelectionRule, state: &State, read: &Watermark) -> Vec<u8> {
    let stored = Stored {
        format: FORMAT,
        layout: rule.layout(),
        rule: fingerprint(rule),
        read: read.clone(),
        sums: state.sums().collect(),
    };
    postcard::to_stdvec(&stored).expect("numbers and lists of them can be encoded")
}

/// The parts of a rule that sums depend on; only compared.
fn fingerprint(rule: &SelectionRule) -> String {
    let SelectionRule { name, id, stream, arms: _, arm_ids, strategy, scope, scale, half_life, defaults: _, begins } =
        rule;
    format!("{:?}", (name, id, stream, arm_ids, strategy, scope, scale, half_life, begins))
}

/// The stored state and the records that it reflects; `None` if it has another format or rule, or
/// reflects records that the log, whose last records are `end`, does not have: the log is that of a
/// backup then.
pub(super) fn decode(rule: &SelectionRule, stored: &[u8], end: &Watermark) -> Option<(State, Watermark)> {
    let Stored { format, layout, rule: of_rule, read, sums } = postcard::from_bytes(stored).ok()?;
    if format != FORMAT || layout != rule.layout() || of_rule != fingerprint(rule) {
        return None;
    }
    if Partition::all().any(|partition| read.get(partition) > end.get(partition)) {
        return None;
    }
    let ends: Vec<u64> = Partition::all().map(|partition| read.get(partition).0).collect();
    Some((State::with_sums(layout, &ends, sums)?, read))
}
