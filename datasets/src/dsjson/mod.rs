//! Logged decisions in dsjson: one JSON object a line, as Azure Personalizer stores its logs and Vowpal Wabbit reads
//! them.
//!
//! A line has the context and the actions (`c`, `c._multi`), the action that was chosen with its probability, and the
//! cost that came of it, which is minus the reward. [`Line::parse`] reads a line, [`fields`] the features of context and
//! actions, [`files`] finds the files of a log and [`Decisions`] reads them one decision at a time.
//!
//! | a decision of | actions are | cost |
//! |---|---|---|
//! | one slot | `_labelIndex`, from 0, or `_label_Action`, from 1 | `_label_cost` |
//! | several slots ("ccb") | `_outcomes[]._a`, from 0, of those not chosen above | `_outcomes[]._label_cost` |
//! | several slots with actions of their own ("slates") | `_outcomes[]._a`, from 0 in the slot | `_label_cost` of all |

mod decision;
pub mod fields;
pub mod files;
mod reading;
#[cfg(test)]
mod tests;

pub use decision::{ACTIONS_MAX, Choice, Form, Line, LoggedAction, LoggedDecision, SLOTS_MAX};
pub use reading::{Decisions, LeftOut};

/// Maximum length of a line, in bytes: fifty actions with many features take some hundred thousand.
pub const LINE_BYTES_MAX: usize = 4 << 20;

/// Whether a line looks like one of dsjson, also if it was cut off.
#[must_use]
pub fn looks_like(line: &[u8]) -> bool {
    let has = |key: &str| {
        line.windows(key.len() + 2).any(|found| found[1..=key.len()] == *key.as_bytes() && is_quoted(found))
    };
    let is_decision = has("_label_cost") || has("_outcomes") || has("_label_probability");
    line.trim_ascii_start().first() == Some(&b'{') && (is_decision && has("c") || has("_multi") && has("EventId"))
}

fn is_quoted(found: &[u8]) -> bool {
    found.first() == Some(&b'"') && found.last() == Some(&b'"')
}
