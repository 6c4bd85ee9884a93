//! What the layout of a file says of its columns, where the caller says nothing else.

use super::Rules;
use crate::layout::gorse::NO_TIME;
use crate::layout::personalize::{EVENT_TYPE, EVENT_VALUE, ITEM, RESERVED, Schema, USER, has, name_of};
use crate::layout::{Layout, Subject};
use crate::mapping::{Role, Wish, plain};
use crate::times::TimeUnit;

/// The rules with what the layout says of these columns.
///
/// # Errors
/// If the columns are not those of the layout or of its schema.
pub(super) fn complete(mut rules: Rules, layout: Layout, columns: &[String]) -> Result<Rules, String> {
    match layout {
        Layout::Open => {}
        Layout::MovieLens { .. } => {
            rules.time_unit = rules.time_unit.or(Some(TimeUnit::Seconds));
            rules.feedback = rules.feedback.or_else(|| Some("rating".to_owned()));
        }
        Layout::Gorse(subject) => {
            rules.no_time = Some(NO_TIME);
            let kind = columns.iter().find(|column| plain(column) == "feedbacktype");
            if let (Subject::Feedback, Some(kind)) = (subject, kind) {
                wish(&mut rules, Role::Feedback, kind);
            }
        }
        Layout::Personalize(subject) => of_personalize(&mut rules, subject, columns)?,
    }
    Ok(rules)
}

/// Has a column play a role that the caller gives to no other.
fn wish(rules: &mut Rules, role: Role, column: &str) {
    let is_given = rules.given().contains(&role) || rules.wishes.iter().any(|wish| wish.role == role);
    if !is_given {
        rules.wishes.push(Wish { role, column: Some(column.to_owned()) });
    }
}

/// Columns that are not reserved are circumstances of interactions and attributes of items and users, of the types in the schema.
fn of_personalize(rules: &mut Rules, subject: Subject, columns: &[String]) -> Result<(), String> {
    let schema = rules.schemas.iter().find(|schema| schema.subject() == subject);
    if schema.is_none() && !rules.schemas.is_empty() {
        return Err(format!("none of the schemas given by --schema is that of {}", name_of(subject)));
    }
    let others: Vec<String> = match schema {
        Some(schema) => {
            schema.check(columns)?;
            schema.names().map(str::to_owned).collect()
        }
        None => columns.to_vec(),
    };
    rules.kinds = schema.map(Schema::kinds).unwrap_or_default();
    match subject {
        Subject::Users => {
            if rules.user_attributes.is_empty() {
                rules.user_attributes = others.into_iter().filter(|name| name != USER).collect();
            }
        }
        Subject::Items => {
            if rules.attributes.is_empty() {
                rules.attributes = others.into_iter().filter(|name| name != ITEM).collect();
            }
        }
        Subject::Feedback => {
            for (role, column) in [(Role::Feedback, EVENT_TYPE), (Role::Label, EVENT_VALUE)] {
                if has(columns, column) {
                    wish(rules, role, column);
                }
            }
            let is_named = |name: &String| rules.wishes.iter().any(|wish| wish.column.as_ref() == Some(name));
            if rules.context.is_empty() {
                let is_free = |name: &String| !RESERVED.contains(&name.as_str()) && !is_named(name);
                let named = others.into_iter().filter(|name| is_free(name) && !rules.attributes.contains(name));
                rules.context = named.collect();
            }
        }
    }
    Ok(())
}
