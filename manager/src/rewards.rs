//! Rewards of a model's decisions by day, version and policy: what a model earns, as people watch it.
//!
//! They are counted from decisions and the log when they are asked for, up to a bound: beyond it, the same number of
//! decisions of each hour. What was counted is kept for a minute.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use celeris_model::{Decision, DecisionId, ModelId, ModelName, Timestamp, UserEpoch, UserId, VersionId};
use celeris_predictor::Predictor;
use celeris_storage::{DecisionRange, Storage};
use parking_lot::Mutex;
use serde_json::Value;

use crate::error::ManagerError;
use crate::low_priority::at_low_priority;
use crate::registry::Registry;

/// Days that figures may be asked for.
pub const DAYS_MAX: u32 = 90;

/// Decisions that are counted at most.
const DECISIONS_MAX: usize = 20_000;

/// Rows that are returned at most, the latest.
const ROWS_MAX: usize = 5_000;

/// How long figures are kept, and of how many models and spans.
const KEPT_FOR: Duration = Duration::from_secs(60);
const KEPT_MAX: usize = 64;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The figures of a model over some days.
#[derive(Debug, Clone, PartialEq)]
pub struct RewardReport {
    /// The beginning of the first day, in UTC.
    pub from: Timestamp,
    /// When they were counted.
    pub counted: Timestamp,
    /// Decisions that were counted.
    pub decisions: u64,
    /// Whether these are all of the time; if not, they are the first ones of each hour.
    pub is_complete: bool,
    /// By day, version and policy, the earliest first.
    pub rows: Vec<RewardRow>,
}

/// What a policy has earned with a version on a day.
#[derive(Debug, Clone, PartialEq)]
pub struct RewardRow {
    /// The beginning of the day, in UTC.
    pub day: Timestamp,
    /// The model that has scored the candidates: of a selection, the arm.
    pub scored_by: ModelName,
    pub version: VersionId,
    /// The name of the policy.
    pub policy: String,
    /// Whether the rankings were drawn uniformly for the validation pool, whatever the policy.
    pub pool: bool,
    pub sums: RewardSums,
}

/// Sums over decisions.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RewardSums {
    pub decisions: u64,
    /// Shown slots.
    pub slots: u64,
    /// Slots with a reward.
    pub rewards: u64,
    /// Of these, with the default reward: none had come in time.
    pub defaults: u64,
    pub sum: f64,
}

type Key = (i64, ModelName, VersionId, String, bool);

/// A report, and when it was made.
type Kept = (Instant, Arc<RewardReport>);

/// Counts rewards by day, version and policy.
pub struct RewardFigures {
    storage: Storage,
    predictor: Arc<Predictor>,
    registry: Arc<Registry>,
    kept: Mutex<HashMap<(ModelId, u32), Kept>>,
    /// Held while figures are counted.
    counting: Mutex<()>,
}

impl RewardFigures {
    pub(crate) fn new(storage: Storage, predictor: Arc<Predictor>, registry: Arc<Registry>) -> Self {
        Self { storage, predictor, registry, kept: Mutex::default(), counting: Mutex::default() }
    }

    /// The figures of a model or selection over the last `days`, today included. A node counts for one request at a time. Blocks
    /// the thread until the deadline at most, plus the time of one user.
    ///
    /// # Errors
    /// `UnknownModel`, `CountingRewards` while others are counted, `Predictor` or `Storage`.
    pub fn of(&self, model: &ModelName, days: u32, deadline: Instant) -> Result<Arc<RewardReport>, ManagerError> {
        let id = self.registry.decides_as(model)?;
        let days = days.clamp(1, DAYS_MAX);
        let kept = || {
            let kept = self.kept.lock().get(&(id, days)).cloned();
            kept.filter(|(at, _)| at.elapsed() < KEPT_FOR).map(|(_, report)| report)
        };
        if let Some(report) = kept() {
            return Ok(report);
        }
        let _counting = self.counting.try_lock().ok_or(ManagerError::CountingRewards)?;
        // Another request may have counted them meanwhile.
        if let Some(report) = kept() {
            return Ok(report);
        }
        let now = Timestamp::from(SystemTime::now());
        let report = at_low_priority("celeris-rewards", || self.count((model, id), days, now, deadline))??;
        let report = Arc::new(report);
        let mut all = self.kept.lock();
        if all.len() >= KEPT_MAX {
            all.retain(|_, (at, _)| at.elapsed() < KEPT_FOR);
        }
        if all.len() < KEPT_MAX {
            all.insert((id, days), (Instant::now(), Arc::clone(&report)));
        }
        Ok(report)
    }

    fn count(
        &self,
        (model, id): (&ModelName, ModelId),
        days: u32,
        now: Timestamp,
        deadline: Instant,
    ) -> Result<RewardReport, ManagerError> {
        let from = now.0.div_euclid(DAY_MS) * DAY_MS - i64::from(days - 1) * DAY_MS;
        let (decisions, mut is_complete) = self.decisions(id, (from, now.0 + 1), deadline)?;
        let mut of_users: HashMap<(UserId, ModelName), Vec<Ranking>> = HashMap::new();
        for (user, ranking) in decisions {
            of_users.entry((user, ranking.key.1.clone())).or_default().push(ranking);
        }
        let mut sums: BTreeMap<Key, RewardSums> = BTreeMap::new();
        let mut counted = 0;
        for ((user, scored_by), rankings) in of_users {
            if Instant::now() >= deadline {
                is_complete = false;
                break;
            }
            let made: Vec<(DecisionId, UserEpoch)> =
                rankings.iter().map(|ranking| (ranking.id.clone(), ranking.user_epoch)).collect();
            let rewards = match self.predictor.attribution().rewards((&scored_by, &user), &made) {
                Ok(rewards) => rewards,
                Err(error) => {
                    // Only an arm that is deleted has nothing to count; a model that is says so.
                    if scored_by == *model {
                        return Err(error.into());
                    }
                    is_complete = false;
                    continue;
                }
            };
            for Ranking { id, slots, key, .. } in rankings {
                counted += 1;
                let of = sums.entry(key).or_default();
                of.decisions += 1;
                of.slots += slots;
                for reward in rewards.get(&id).into_iter().flatten() {
                    of.rewards += 1;
                    of.defaults += u64::from(reward.is_default);
                    of.sum += f64::from(reward.label);
                }
            }
        }
        let skipped = sums.len().saturating_sub(ROWS_MAX);
        let rows = sums.into_iter().skip(skipped).map(|((day, scored_by, version, policy, pool), sums)| RewardRow {
            day: Timestamp(day),
            scored_by,
            version,
            policy,
            pool,
            sums,
        });
        let rows = rows.collect();
        Ok(RewardReport { from: Timestamp(from), counted: now, decisions: counted, is_complete, rows })
    }

    /// The decisions of a span, and whether they are all: of more than can be counted, the first ones of each hour.
    fn decisions(
        &self,
        model: ModelId,
        (from, to): (i64, i64),
        deadline: Instant,
    ) -> Result<(Vec<(UserId, Ranking)>, bool), ManagerError> {
        let (all, is_complete) = self.some((model, from, to), DECISIONS_MAX)?;
        if is_complete {
            return Ok((all, true));
        }
        drop(all);
        let hours = usize::try_from((to - from) / HOUR_MS + 1).unwrap_or(usize::MAX);
        let each = (DECISIONS_MAX / hours).max(1);
        let mut sample = Vec::new();
        // The latest first: they are what is asked for most, if time runs out.
        let mut end = to;
        while end > from && Instant::now() < deadline {
            let begin = (end - 1).div_euclid(HOUR_MS) * HOUR_MS;
            sample.extend(self.some((model, begin.max(from), end), each)?.0);
            end = begin;
        }
        Ok((sample, false))
    }

    /// The first decisions of a span, at most so many, and whether there are no more.
    fn some(
        &self,
        (model, from, to): (ModelId, i64, i64),
        max: usize,
    ) -> Result<(Vec<(UserId, Ranking)>, bool), ManagerError> {
        let after = Some(DecisionId::first_at(Timestamp(from)));
        let range = DecisionRange { model, after, before: Timestamp(to) };
        let mut some = Vec::new();
        let outcome = self.storage.decisions().scan_in(&range, |decision| {
            if some.len() == max {
                return ControlFlow::Break(());
            }
            some.push((decision.user.clone(), Ranking::of(&decision)));
            ControlFlow::Continue(())
        })?;
        Ok((some, outcome.is_continue()))
    }
}

/// What is counted of a decision: no candidates and no slots, which may be many.
struct Ranking {
    id: DecisionId,
    user_epoch: UserEpoch,
    slots: u64,
    key: Key,
}

impl Ranking {
    fn of(decision: &Decision) -> Self {
        // The time by which the span is read.
        let time = decision.id.made_at().unwrap_or(decision.timestamp);
        let policy: Value = serde_json::from_str(&decision.policy).unwrap_or_default();
        let policy = policy["name"].as_str().unwrap_or("unknown").to_owned();
        let day = time.0.div_euclid(DAY_MS) * DAY_MS;
        let key = (day, decision.scored_by().clone(), decision.version, policy, decision.pool);
        Self { id: decision.id.clone(), user_epoch: decision.user_epoch, slots: decision.shown.len() as u64, key }
    }
}
