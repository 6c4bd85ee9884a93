//! What Gorse writes: JSON lines of its exports, its binary dump, CSV of its older versions, and rows of its database.
//!
//! | table | columns of the exports |
//! |---|---|
//! | feedback | `FeedbackType`, `UserId`, `ItemId`, `Value`, `Timestamp`, `Updated`, `Labels`, `Comment` |
//! | items | `ItemId`, `IsHidden`, `Categories`, `Timestamp`, `Labels`, `Comment` |
//! | users | `UserId`, `Labels`, `Comment` |
//!
//! In CSV and in the database these are `feedback_type`, `user_id`, `time_stamp` and so on.

use super::Subject;
use crate::mapping::{listed, plain};

/// The beginning of the ids of all its observations: an export, a dump and the database have the same feedback.
pub(crate) const NAME: &str = "gorse";

/// How Gorse writes that there is no time.
pub(crate) const NO_TIME: &str = "0001-01-01T00:00:00Z";

fn has(columns: &[String], name: &str) -> bool {
    columns.iter().any(|column| plain(column) == name)
}

/// What a file with these columns is about, if it is of Gorse.
pub(super) fn recognised(columns: &[String]) -> Option<Subject> {
    let has = |name| has(columns, name);
    if has("feedbacktype") && has("userid") && has("itemid") {
        Some(Subject::Feedback)
    } else if has("itemid") && has("ishidden") && has("categories") && !has("userid") {
        Some(Subject::Items)
    } else {
        let is_of_users =
            |column: &String| matches!(plain(column).as_str(), "userid" | "labels" | "comment" | "subscribe");
        (has("userid") && has("labels") && columns.iter().all(is_of_users)).then_some(Subject::Users)
    }
}

/// What a file of Gorse with these columns is about.
pub(super) fn subject_of(columns: &[String]) -> Result<Subject, String> {
    let found = match (has(columns, "userid"), has(columns, "itemid")) {
        (true, true) => Some(Subject::Feedback),
        (false, true) => Some(Subject::Items),
        (true, false) => Some(Subject::Users),
        (false, false) => None,
    };
    found.ok_or_else(|| {
        format!(
            "no columns UserId and ItemId of feedback, ItemId of items or UserId of users among {}",
            listed(columns)
        )
    })
}
