//! The state machine of a study.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::collaborative::Start;
use crate::error::StudyError;
use crate::history::History;
use crate::importance::importance;
use crate::messages::{Asked, Assignment, Worker};
use crate::settings::Settings;
use crate::space::Params;
use crate::trial::{DEATHS_MAX, Outcome, Trial, TrialState};

/// A study ends if this many trials in a row fail.
const FAILURES_MAX: u32 = 5;

/// Why no trial begins any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It has made all its trials, or tried every point of its space.
    Trials,
    /// Its time is over.
    Seconds,
    /// Too many trials in a row brought no lower loss.
    Patience,
    /// It was stopped on request.
    Stopped,
    /// The trial of the present settings failed, or too many in a row.
    Failures,
}

/// The result that is kept for others to continue from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    trial: u32,
    loss: f64,
}

/// A study: a pure function of its settings and of the messages in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    settings: Settings,
    /// In Unix milliseconds.
    began: i64,
    trials: Vec<Trial>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<Kept>,
    /// Complete trials since the lowest loss.
    without_gain: u32,
    /// Failed trials since the last complete one.
    failures: u32,
    /// Trials that could have continued from another.
    decided: u32,
}

impl Study {
    /// A study that begins `now`, in Unix milliseconds.
    ///
    /// # Errors
    /// `Field` if a setting is out of its bounds.
    pub fn new(mut settings: Settings, now: i64) -> Result<Self, StudyError> {
        settings.check()?;
        settings.trials = settings.trials_in_space();
        Ok(Self {
            settings,
            began: now,
            trials: Vec::new(),
            ended: None,
            kept: None,
            without_gain: 0,
            failures: 0,
            decided: 0,
        })
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// When it began, in Unix milliseconds.
    #[must_use]
    pub fn began(&self) -> i64 {
        self.began
    }

    /// All trials, by number.
    #[must_use]
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// Why no trial begins any more; `None` while some do.
    #[must_use]
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Whether it has ended and no trial is running.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended.is_some() && self.running().next().is_none()
    }

    pub fn running(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| trial.state == TrialState::Running)
    }

    /// The trial of the present settings, once it has a loss.
    #[must_use]
    pub fn baseline(&self) -> Option<&Trial> {
        self.trials.first().filter(|trial| trial.outcome.is_some())
    }

    /// The trial with the lowest loss; the first of equals, so that the present settings stay
    /// unless others are better.
    #[must_use]
    pub fn best(&self) -> Option<&Trial> {
        let complete = self.trials.iter().filter_map(|trial| Some((trial.loss()?, trial)));
        complete.reduce(|best, next| if next.0 < best.0 { next } else { best }).map(|(_, trial)| trial)
    }

    /// The trial whose result is kept for others to continue from.
    #[must_use]
    pub fn kept(&self) -> Option<u32> {
        self.kept.map(|kept| kept.trial)
    }

    /// Trials whose result may be needed: the one that is kept, and those that running trials
    /// continue from.
    #[must_use]
    pub fn needed(&self) -> Vec<u32> {
        let waits = |trial: &&Trial| matches!(trial.state, TrialState::Running | TrialState::Abandoned);
        let starts = self.trials.iter().filter(waits).filter_map(|trial| match trial.start {
            Start::Trial(from) => Some(from),
            Start::Nothing => None,
        });
        self.kept().into_iter().chain(starts).collect()
    }

    /// Share of the differences in loss that each setting explains, with enough trials.
    #[must_use]
    pub fn importance(&self) -> std::collections::BTreeMap<String, f64> {
        importance(&self.settings.space, &self.history())
    }

    /// A worker asks for a trial. One that was abandoned comes first, with the settings and the start
    /// that it had; a remote worker begins it from nothing.
    ///
    /// # Errors
    /// `Field` if the name of the worker is too long, or there is none.
    pub fn ask(&mut self, worker: Worker<'_>, now: i64) -> Result<Asked, StudyError> {
        worker.check()?;
        self.end_if_due(now);
        let has_none = worker != Worker::Local && self.settings.remote_workers == 0;
        if self.ended.is_some() || has_none {
            return Ok(Asked::Ended);
        }
        if !self.has_room_for(worker) {
            return Ok(Asked::Wait);
        }
        let abandoned = self.trials.iter().position(|trial| trial.state == TrialState::Abandoned);
        let place = match abandoned {
            Some(place) => place,
            // Others are compared with the present settings, whose failure ends the study.
            None if self.trials.first().is_some_and(|first| first.state == TrialState::Running) => {
                return Ok(Asked::Wait);
            }
            None if self.trials.len() > self.settings.trials as usize => return Ok(Asked::Wait),
            None => {
                self.add_trial(worker, now);
                self.trials.len() - 1
            }
        };
        let trial = &mut self.trials[place];
        trial.state = TrialState::Running;
        trial.attempts += 1;
        trial.worker = worker.name();
        trial.remote = worker != Worker::Local;
        if trial.remote {
            trial.start = Start::Nothing;
        }
        (trial.began, trial.heard) = (now, now);
        let (params, start) = (trial.params.clone(), trial.start);
        Ok(Asked::Trial(Assignment { trial: trial.number, attempt: trial.attempts, params, start }))
    }

    /// Whether the worker may begin a trial beside those that are running.
    fn has_room_for(&self, worker: Worker<'_>) -> bool {
        let is_remote = worker != Worker::Local;
        let running = self.running().filter(|trial| trial.remote == is_remote).count();
        let has_baseline = self.trials.first().is_some_and(|first| first.state != TrialState::Abandoned);
        match worker {
            Worker::Local if !has_baseline => true,
            Worker::Local => running < self.settings.workers as usize,
            // The present settings are tried where their losses are kept, to compare others with.
            Worker::Remote(_) => has_baseline && running < self.settings.remote_workers as usize,
        }
    }

    /// The random numbers of a trial: they depend on the seed and its number, not on how often the
    /// study was read back.
    fn random_of(&self, number: u32) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.settings.seed);
        rng.set_stream(number.into());
        rng
    }

    fn add_trial(&mut self, worker: Worker<'_>, now: i64) {
        #[expect(clippy::cast_possible_truncation, reason = "settings bound the number of trials")]
        let number = self.trials.len() as u32;
        let mut rng = self.random_of(number);
        let is_baseline = number == 0;
        let params = if is_baseline {
            Params::new()
        } else {
            let tried: Vec<&Params> = self.trials.iter().map(|trial| &trial.params).collect();
            let params = self.settings.sampler.next(&self.settings.space, &self.history(), &mut rng);
            self.settings.space.untried(params, &tried)
        };
        let mut start = Start::Nothing;
        let may_continue = !is_baseline && worker == Worker::Local;
        if let (Some(collaborative), Some(kept), true) = (&self.settings.collaborative, self.kept, may_continue) {
            let of_kept = &self.trials[kept.trial as usize].params;
            start = collaborative.start(&params, (kept.trial, of_kept), self.decided, &mut rng);
            self.decided += 1;
        }
        self.trials.push(Trial {
            number,
            params,
            start,
            state: TrialState::Abandoned,
            attempts: 0,
            deaths: 0,
            worker: String::new(),
            remote: false,
            began: now,
            ended: None,
            heard: now,
            outcome: None,
            error: None,
        });
    }

    /// What samplers know. A failed trial counts as the worst complete one, so that they keep away
    /// from it.
    fn history(&self) -> History {
        let worst = self.trials.iter().filter_map(Trial::loss).reduce(f64::max);
        let mut history = History::default();
        for trial in &self.trials {
            let Some(position) = self.settings.space.position_of(&trial.params) else { continue };
            let loss = match trial.state {
                TrialState::Complete => trial.loss(),
                TrialState::Failed => worst,
                TrialState::Running | TrialState::Abandoned => {
                    history.pending.push(position);
                    continue;
                }
            };
            history.complete.extend(loss.map(|loss| (position, loss)));
        }
        history
    }

    /// The running trial that a worker speaks of.
    fn running_trial(&mut self, number: u32, attempt: u32) -> Result<&mut Trial, StudyError> {
        let last = u32::try_from(self.trials.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let trial = self.trials.get_mut(number as usize).ok_or(StudyError::UnknownTrial { trial: number, last })?;
        if trial.state != TrialState::Running || trial.attempts != attempt {
            return Err(StudyError::NotRunning { trial: number, attempt });
        }
        Ok(trial)
    }

    /// A worker says that it is at work on its trial.
    ///
    /// # Errors
    /// `UnknownTrial`, `NotRunning`.
    pub fn renew(&mut self, (trial, attempt): (u32, u32), now: i64) -> Result<(), StudyError> {
        self.running_trial(trial, attempt)?.heard = now;
        Ok(())
    }

    /// Keeps the result of a trial for others if it is here and its loss is low enough.
    fn keep_if_lower(&mut self, trial: u32, loss: f64) {
        let Some(collaborative) = &self.settings.collaborative else { return };
        let is_lower = self.kept.is_none_or(|kept| loss < kept.loss - collaborative.delta);
        if is_lower && !self.trials[trial as usize].remote {
            self.kept = Some(Kept { trial, loss });
        }
    }

    /// A worker tells the result of its trial: its loss, or why there is none.
    ///
    /// # Errors
    /// `UnknownTrial`, `NotRunning`, `NotFinite`.
    pub fn tell(
        &mut self,
        (trial, attempt): (u32, u32),
        outcome: Result<Outcome, String>,
        now: i64,
    ) -> Result<(), StudyError> {
        if let Ok(outcome) = &outcome {
            outcome.check()?;
        }
        let lowest = self.best().and_then(Trial::loss).unwrap_or(f64::INFINITY);
        let of = self.running_trial(trial, attempt)?;
        (of.ended, of.heard) = (Some(now), now);
        match outcome {
            Ok(outcome) => {
                (of.state, of.outcome) = (TrialState::Complete, Some(outcome));
                self.failures = 0;
                self.without_gain = if outcome.value < lowest { 0 } else { self.without_gain + 1 };
                self.keep_if_lower(trial, outcome.value);
            }
            Err(error) => {
                (of.state, of.error) = (TrialState::Failed, Some(error));
                self.failures += 1;
                if trial == 0 || self.failures >= FAILURES_MAX {
                    self.ended.get_or_insert(Ended::Failures);
                }
            }
        }
        self.end_if_due(now);
        Ok(())
    }

    /// The worker of a trial has died. The trial is asked for again, a few times.
    ///
    /// # Errors
    /// `UnknownTrial`, `NotRunning`.
    pub fn abandon(&mut self, (trial, attempt): (u32, u32), now: i64) -> Result<(), StudyError> {
        let of = self.running_trial(trial, attempt)?;
        of.deaths += 1;
        if of.deaths >= DEATHS_MAX {
            return self.tell((trial, attempt), Err(format!("its worker died {DEATHS_MAX} times")), now);
        }
        of.state = TrialState::Abandoned;
        Ok(())
    }

    /// Takes the trials of remote workers back, whose data must not be used any more. They are asked for again.
    pub fn recall_remote(&mut self) {
        self.running_remote().for_each(|trial| trial.state = TrialState::Abandoned);
    }

    /// Abandons the running trials for which `is_dead` holds.
    pub fn abandon_where(&mut self, is_dead: impl Fn(&Trial) -> bool, now: i64) {
        let dead: Vec<(u32, u32)> =
            self.running().filter(|trial| is_dead(trial)).map(|trial| (trial.number, trial.attempts)).collect();
        for of in dead {
            // Those that are running can be abandoned.
            let _ = self.abandon(of, now);
        }
    }

    /// Ends the trials of remote workers that were not heard of within the lease: a worker that dies costs its trial.
    /// Returns their number.
    pub fn expire(&mut self, now: i64) -> usize {
        let seconds = self.settings.lease_seconds;
        let lease = i64::from(seconds) * 1000;
        let mut expired = 0;
        for trial in self.running_remote().filter(|trial| now - trial.heard > lease) {
            let error = format!("its worker {} was not heard of for {seconds} seconds", trial.worker);
            (trial.state, trial.error, trial.ended) = (TrialState::Failed, Some(error), Some(now));
            expired += 1;
        }
        if expired > 0 {
            self.end_if_due(now);
        }
        expired
    }

    /// Begins the leases of remote workers again, after a time in which they could not be heard.
    pub fn renew_all(&mut self, now: i64) {
        self.running_remote().for_each(|trial| trial.heard = now);
    }

    /// The running trials of workers on other machines.
    fn running_remote(&mut self) -> impl Iterator<Item = &mut Trial> {
        self.trials.iter_mut().filter(|trial| trial.state == TrialState::Running && trial.remote)
    }

    /// When the lease of a trial ends, in Unix milliseconds.
    #[must_use]
    pub fn lease_until(&self, now: i64) -> i64 {
        now + i64::from(self.settings.lease_seconds) * 1000
    }

    /// Ends the study. The results of running trials still count; they may as well be abandoned.
    pub fn stop(&mut self) {
        self.ended.get_or_insert(Ended::Stopped);
    }

    /// Forgets the result that is kept for others, which was lost or must not be used. Trials that
    /// continue from it start from nothing when they are begun again.
    pub fn drop_kept(&mut self) {
        self.kept = None;
        for trial in &mut self.trials {
            if matches!(trial.state, TrialState::Running | TrialState::Abandoned) {
                trial.start = Start::Nothing;
            }
        }
    }

    /// Ends the study if its trials are made, its time is over, or its patience is lost.
    fn end_if_due(&mut self, now: i64) {
        if self.ended.is_some() {
            return;
        }
        let waits = |trial: &Trial| matches!(trial.state, TrialState::Running | TrialState::Abandoned);
        let made = self.trials.len() > self.settings.trials as usize && !self.trials.iter().any(waits);
        let late = self.settings.seconds.is_some_and(|most| (now - self.began).max(0) as u64 >= most * 1000);
        let idle = self.settings.patience.is_some_and(|most| self.without_gain >= most);
        self.ended = match (made, idle, late) {
            (true, ..) => Some(Ended::Trials),
            (_, true, _) => Some(Ended::Patience),
            (.., true) => Some(Ended::Seconds),
            _ => None,
        };
    }
}
