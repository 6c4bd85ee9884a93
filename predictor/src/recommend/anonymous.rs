//! Recommendations for an anonymous user, whose history and attributes are part of the request.
//!
//! The state is that of a user with these: the prior, and the canonical solve over the history. It
//! exists for the request only. Nothing is stored, cached or recorded, and no decision is logged,
//! so rewards cannot join it.

use celeris_model::{Context, Observation, Timestamp, UserEpoch, UserId, UserModel};
use celeris_retrieval::CandidateSet;
use celeris_retrieval::catalog::check_of_user;
use celeris_storage::Event;
use serde_json::{Map, Value};

use super::{PastItem, Recommendation, Recommender, Recommending, SeenRule};
use crate::error::PredictorError;
use crate::users::{Persistence, Profile, ResolvedEvents, Stretch, Subject, UserEntry, UserKey, UserSnapshot};

/// Maximum number of observations in the history of a request.
pub const PAST_MAX: usize = 1000;

/// Placeholder for the user id; never stored, since such a request leaves nothing behind.
const ANONYMOUS: &str = "nobody";

impl Recommender {
    /// Recommends for a user with this history, in its order, and these attributes.
    pub(super) fn recommend_to_anonymous(
        &self,
        (past, attributes): (&[PastItem], &Map<String, Value>),
        recommending: Recommending<'_>,
    ) -> Result<Recommendation, PredictorError> {
        if recommending.request.min_epoch.is_some() {
            return Err(field("min_epoch", "belongs to one known user; leave it out".to_owned()));
        }
        check_of_user(attributes)?;
        let subject = self.anonymous(&recommending)?;
        self.check_past(past, &subject)?;
        let snapshot = self.snapshot_after((past, attributes), &subject, recommending.now)?;
        let mut allowed = self.showable(&subject, &recommending);
        if let Some(rule) = &recommending.request.exclude_seen {
            take_out(past, rule, (&subject, recommending.now), &mut allowed);
        }
        self.recommend_at(&subject, snapshot, &allowed, recommending)
    }

    fn anonymous(&self, recommending: &Recommending<'_>) -> Result<Subject, PredictorError> {
        let model = self.models.get(recommending.model)?;
        let user = UserId::new(ANONYMOUS).expect("a word is a valid id");
        Ok(Subject {
            version: model.active.load_full(),
            key: UserKey { stream: model.stream.clone(), user },
            model,
            entry: UserEntry::new(),
            persistence: Persistence::Nothing,
            losses: 0,
        })
    }

    /// The state of a user with exactly this history and these attributes.
    fn snapshot_after(
        &self,
        (past, attributes): (&[PastItem], &Map<String, Value>),
        subject: &Subject,
        now: Timestamp,
    ) -> Result<UserSnapshot, PredictorError> {
        let fields = subject.model.catalog.fields();
        let context = |context: &Context| fields.numbered(&fields.known(context)).map(|context| context.numbers());
        let event = |(past, epoch): (&PastItem, u64)| Event {
            item: past.item.clone(),
            label: past.label,
            weight: past.weight,
            timestamp: past.timestamp.unwrap_or(now),
            epoch: UserEpoch(epoch),
            context: past.context.as_ref().and_then(context).map(Box::new),
        };
        let events: Vec<Event> = past.iter().zip(1..).map(event).collect();
        let version = &*subject.version;
        let history = ResolvedEvents::of(Stretch::whole(&events, version), version, &self.users.sources(&subject.key))?;
        let model = UserModel::rebuild(&version.learning, &history, events.len() as u64)?;
        let model = model.with_profile(&version.learning, version.profile(attributes));
        Ok(UserSnapshot { model: model.into(), epoch: UserEpoch(0), profile: Profile::NONE, pending: None })
    }

    /// Checks every entry like an observation.
    fn check_past(&self, past: &[PastItem], subject: &Subject) -> Result<(), PredictorError> {
        if past.len() > PAST_MAX {
            return Err(field("history", format!("at most {PAST_MAX} at once, got {}", past.len())));
        }
        for (index, entry) in past.iter().enumerate() {
            let observation = Observation {
                user: subject.key.user.clone(),
                item: entry.item.clone(),
                label: entry.label,
                weight: entry.weight,
                timestamp: entry.timestamp,
                observation_id: None,
                feedback: None,
                decision: None,
                context: None,
            };
            let checked = observation.validate(&self.accepted_times.now()).map_err(PredictorError::from);
            let checked = checked.and_then(|()| subject.model.accepted_label(entry.label));
            let fits = |context: &Context| Ok(subject.model.catalog.fields().check(context)?);
            let checked = checked.and_then(|_| entry.context.as_ref().map_or(Ok(()), fits));
            checked.map_err(|error| field("history", format!("[{index}]: {error}")))?;
        }
        Ok(())
    }
}

/// Removes the items of this history that count as seen by `rule` from `allowed`.
fn take_out(past: &[PastItem], rule: &SeenRule, (subject, now): (&Subject, Timestamp), allowed: &mut CandidateSet) {
    let since = rule.since(now);
    let counts = |entry: &&PastItem| {
        let is_of_kind =
            rule.feedback.is_empty() || entry.feedback.as_ref().is_some_and(|kind| rule.feedback.contains(kind));
        is_of_kind && entry.timestamp.unwrap_or(now) >= since
    };
    let seen = past.iter().filter(counts).map(|entry| &entry.item);
    subject.model.catalog.rows_of(seen).into_iter().flatten().for_each(|row| allowed.remove(row));
}

fn field(field: &'static str, problem: String) -> PredictorError {
    PredictorError::Field { field, problem }
}
