//! Sends the attributes of users, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use celeris_import::check::CheckedDescriptions;
use celeris_import::described::Content;
use celeris_import::error::Place;
use celeris_import::{BadRow, DescribedRows, Input};
use serde_json::json;

use super::node::{Node, UserAnswer};
use super::report;
use super::sending::Sending;
use crate::Failure;
use crate::node_client::{Unanswered, escaped};

/// Requests at a time: they share the node's syncs.
const AT_ONCE: usize = 16;

/// Users that are sent before more are read.
const BATCH_USERS: usize = 2000;

/// A user on the way to the node.
struct Pending {
    user: String,
    body: Vec<u8>,
    place: Place,
    /// The row, if refused ones are set aside.
    raw: Vec<u8>,
}

impl Sending<'_> {
    /// Sends the attributes of the users of a file.
    pub fn users(&mut self, input: &Input, checked: &CheckedDescriptions) -> Result<(), Failure> {
        self.progress.begin("describing", input);
        let mut rows = DescribedRows::open(input, self.rules, Content::Users)?;
        let mut batch = Vec::new();
        loop {
            match rows.advance(&checked.kinds) {
                Ok(None) => break,
                // Attributes that the node has are not removed because this file has none.
                Ok(Some(row)) if row.attributes.is_empty() => self.counts.undescribed += 1,
                Ok(Some(row)) => {
                    let body = json!({"attributes": row.attributes}).to_string().into_bytes();
                    let raw = if self.bad_rows.is_some() { rows.raw() } else { Vec::new() };
                    batch.push(Pending { user: row.id, body, place: rows.place(), raw });
                }
                Err(fault) => self.set_aside(fault)?,
            }
            if batch.len() >= BATCH_USERS {
                self.send_users(std::mem::take(&mut batch))?;
                self.progress.at(self.counts.users, rows.bytes_read());
            }
        }
        self.send_users(batch)?;
        self.counts.contradictions += rows.contradictions();
        Ok(())
    }

    /// Sends users; those that the node could not take now are sent again.
    fn send_users(&mut self, mut open: Vec<Pending>) -> Result<(), Failure> {
        let mut first_refused: Option<BadRow> = None;
        let mut patience = self.patience();
        while !open.is_empty() {
            self.check_model()?;
            let answers = put_all(self.node, &open);
            let (mut again, mut busy) = (Vec::new(), None);
            for (pending, answer) in open.into_iter().zip(answers) {
                match answer {
                    Ok(UserAnswer::Taken) => self.counts.users += 1,
                    Ok(UserAnswer::Refused(reason)) => {
                        self.counts.refused += 1;
                        let reason = format!("the node refused the user: {reason}");
                        let row = BadRow { place: pending.place, reason, raw: pending.raw };
                        if let Some(file) = &mut self.bad_rows {
                            file.write(&row)?;
                        }
                        first_refused.get_or_insert(row);
                    }
                    Err(Unanswered::Away { why, after }) => {
                        busy = Some((why, after));
                        again.push(pending);
                    }
                    Err(Unanswered::Refused(failure)) => return Err(failure),
                }
            }
            if let Some((why, after)) = busy {
                patience.pause(&why, after)?;
            }
            open = again;
        }
        match first_refused {
            Some(row) if self.bad_rows.is_none() => Err(report::first_bad(&row, 1)),
            _ => Ok(()),
        }
    }
}

/// The answers to all users, in their order.
fn put_all(node: &Node, users: &[Pending]) -> Vec<Result<UserAnswer, Unanswered>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut answers = Vec::new();
        while let Some((index, pending)) = take(&next, users) {
            answers.push((index, node.put_user(&escaped(&pending.user), &pending.body)));
        }
        answers
    };
    let mut answers = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE.min(users.len())).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().flat_map(|thread| thread.join().expect("a request does not panic"));
        joined.collect::<Vec<_>>()
    });
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn take<'u>(next: &AtomicUsize, users: &'u [Pending]) -> Option<(usize, &'u Pending)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    users.get(index).map(|pending| (index, pending))
}
