use celeris_study::{
    Asked, Assignment, Collaborative, Ended, Outcome, Sampler, Settings, Space, Start, Study, StudyError, TrialState,
    Worker,
};

use crate::functions::Function;
use crate::{run, settings};

fn begun(settings: Settings) -> Study {
    Study::new(settings, 0).unwrap()
}

/// The next trial of a study that has one.
fn next(study: &mut Study, now: i64) -> Assignment {
    next_of(study, Worker::Local, now)
}

fn next_of(study: &mut Study, worker: Worker, now: i64) -> Assignment {
    match study.ask(worker, now) {
        Ok(Asked::Trial(assignment)) => assignment,
        other => panic!("no trial: {other:?}"),
    }
}

fn tell(study: &mut Study, assignment: &Assignment, value: f64) {
    let outcome = Ok(Outcome { standard_error: Some(0.1), ..Outcome::of(value) });
    study.tell((assignment.trial, assignment.attempt), outcome, 1).unwrap();
}

fn reread(study: &Study) -> Study {
    serde_json::from_str(&serde_json::to_string(study).unwrap()).unwrap()
}

#[test]
fn a_study_that_is_written_and_read_back_after_every_message_ends_as_an_undisturbed_one() {
    let function = Function::Mixed;
    for sampler in [Sampler::Random, Sampler::Gp, Sampler::Tpe] {
        let mut wanted = settings(function, sampler, 15, 7);
        wanted.collaborative = Some(Collaborative::default());
        let undisturbed = run(begun(wanted.clone()), function);
        let mut study = begun(wanted);
        let mut now = 0;
        loop {
            now += 1000;
            let Ok(Asked::Trial(assignment)) = study.ask(Worker::Local, now) else { break };
            study = reread(&study);
            // Every third trial loses its worker once.
            if assignment.trial % 3 == 1 && assignment.attempt == 1 {
                study.abandon((assignment.trial, assignment.attempt), now).unwrap();
                study = reread(&study);
                continue;
            }
            let value = if assignment.trial == 0 { f64::MAX } else { function.value(&assignment.params) };
            tell(&mut study, &assignment, value);
            study = reread(&study);
        }
        let of = |study: &Study| -> Vec<_> {
            study.trials().iter().map(|it| (it.params.clone(), it.start, it.outcome.map(|it| it.value))).collect()
        };
        assert_eq!(of(&study), of(&undisturbed), "{}", sampler.name());
        assert_eq!(study.ended(), Some(Ended::Trials));
    }
}

#[test]
fn the_first_trial_is_that_of_the_present_settings_and_others_wait_for_it() {
    let mut study = begun(Settings { workers: 4, ..settings(Function::Sphere, Sampler::Gp, 3, 1) });
    let baseline = next(&mut study, 0);
    assert!(baseline.trial == 0 && baseline.params.is_empty());
    assert_eq!(study.ask(Worker::Local, 0), Ok(Asked::Wait));
    assert_eq!(study.baseline(), None);
    tell(&mut study, &baseline, 5.0);
    assert_eq!(study.baseline().unwrap().outcome.unwrap().value, 5.0);
    let trials = [next(&mut study, 0), next(&mut study, 0), next(&mut study, 0)];
    assert_eq!(study.ask(Worker::Local, 0), Ok(Asked::Wait), "all trials are running");
    for trial in &trials {
        tell(&mut study, trial, 6.0);
    }
    assert_eq!(study.ask(Worker::Local, 0), Ok(Asked::Ended));
    assert_eq!(study.best().unwrap().number, 0, "the present settings stay where nothing is better");
}

#[test]
fn workers_beyond_those_of_the_study_wait() {
    let mut study = begun(Settings { workers: 2, ..settings(Function::Sphere, Sampler::Gp, 9, 1) });
    let baseline = next(&mut study, 0);
    tell(&mut study, &baseline, 5.0);
    let (first, second) = (next(&mut study, 0), next(&mut study, 0));
    assert_ne!(first.params, second.params, "what runs is known to the sampler");
    assert_eq!(study.ask(Worker::Local, 0), Ok(Asked::Wait));
    tell(&mut study, &first, 5.0);
    assert_eq!(next(&mut study, 0).trial, 3);
}

#[test]
fn a_study_ends_by_patience_time_request_or_failures() {
    let four = || settings(Function::Sphere, Sampler::Random, 40, 1);
    let mut study = begun(Settings { patience: Some(3), ..four() });
    for value in [5.0, 4.0, 4.0, 6.0] {
        let trial = next(&mut study, 0);
        tell(&mut study, &trial, value);
    }
    assert_eq!(study.ended(), None);
    let trial = next(&mut study, 0);
    tell(&mut study, &trial, 4.5);
    assert_eq!(study.ended(), Some(Ended::Patience));

    let mut study = begun(Settings { seconds: Some(10), ..four() });
    let trial = next(&mut study, 9_999);
    assert_eq!((study.ask(Worker::Local, 10_000), study.ended()), (Ok(Asked::Ended), Some(Ended::Seconds)));
    assert!(!study.is_over());
    tell(&mut study, &trial, 4.0);
    assert!(study.is_over() && study.best().is_some(), "a trial that has begun counts");

    let mut study = begun(four());
    next(&mut study, 0);
    study.stop();
    assert_eq!((study.ended(), study.is_over()), (Some(Ended::Stopped), false));

    let mut study = begun(four());
    for number in 0..6 {
        let trial = next(&mut study, 0);
        let outcome = if number == 0 { Ok(Outcome::of(1.0)) } else { Err("no".to_owned()) };
        study.tell((trial.trial, trial.attempt), outcome, 0).unwrap();
    }
    assert_eq!(study.ended(), Some(Ended::Failures));

    let mut study = begun(four());
    let trial = next(&mut study, 0);
    study.tell((trial.trial, trial.attempt), Err("no observations".to_owned()), 0).unwrap();
    assert_eq!(study.ended(), Some(Ended::Failures), "without the present settings there is nothing to compare with");
}

#[test]
fn an_abandoned_trial_is_the_next_one_until_its_worker_has_died_too_often() {
    let mut study = begun(settings(Function::Sphere, Sampler::Gp, 9, 1));
    let baseline = next(&mut study, 0);
    tell(&mut study, &baseline, 5.0);
    let first = next(&mut study, 0);
    for attempt in 1..=5 {
        study.abandon((1, attempt), 0).unwrap();
        if attempt < 5 {
            assert_eq!(study.trials()[1].state, TrialState::Abandoned);
            assert_eq!(next(&mut study, 0), Assignment { attempt: attempt + 1, ..first.clone() });
        }
    }
    assert_eq!(study.trials()[1].state, TrialState::Failed);
    assert_eq!(next(&mut study, 0).trial, 2);
}

#[test]
fn messages_of_a_worker_that_has_lost_its_trial_change_nothing() {
    let mut study = begun(settings(Function::Sphere, Sampler::Gp, 9, 1));
    let baseline = next(&mut study, 0);
    study.abandon((0, 1), 0).unwrap();
    next(&mut study, 0);
    let before = study.clone();
    let outdated = (baseline.trial, baseline.attempt);
    let outcome = Outcome::of(1.0);
    let lost = StudyError::NotRunning { trial: 0, attempt: 1 };
    assert_eq!(study.renew(outdated, 0), Err(lost.clone()));
    assert_eq!(study.tell(outdated, Ok(outcome), 0), Err(lost.clone()));
    assert_eq!(study.abandon(outdated, 0), Err(lost));
    assert_eq!(study.tell((7, 1), Ok(outcome), 0), Err(StudyError::UnknownTrial { trial: 7, last: 0 }));
    let infinite = Outcome::of(f64::INFINITY);
    assert!(matches!(study.tell((0, 2), Ok(infinite), 0), Err(StudyError::NotFinite { field: "value", .. })));
    assert_eq!(study, before);
}

#[test]
fn trials_of_a_collaborative_study_continue_from_the_best_with_the_same_shape() {
    let mut wanted = settings(Function::Mixed, Sampler::Random, 60, 3);
    // Never from nothing, where there is a choice.
    let collaborative =
        Collaborative { alpha: 0.0, delta: 0.5, same: vec!["kind".to_owned()], ..Collaborative::default() };
    wanted.collaborative = Some(collaborative);
    let mut study = begun(wanted);
    let baseline = next(&mut study, 0);
    tell(&mut study, &baseline, 9.0);
    assert_eq!(study.kept(), Some(0));
    let first = next(&mut study, 0);
    assert_eq!(first.start, Start::Nothing, "the present settings name no kind");
    tell(&mut study, &first, 8.0);
    assert_eq!(study.kept(), Some(1));
    let kind = first.params["kind"].clone();
    let mut continued = 0;
    for _ in 0..20 {
        let trial = next(&mut study, 0);
        let expected = if trial.params["kind"] == kind { Start::Trial(1) } else { Start::Nothing };
        assert_eq!(trial.start, expected, "{:?}", trial.params);
        continued += u32::from(trial.start != Start::Nothing);
        // Lower, but by no more than delta.
        tell(&mut study, &trial, 7.6);
        assert_eq!(study.kept(), Some(1));
    }
    assert!((1..20).contains(&continued), "{continued} of 20 trials continue");
    let trial = next(&mut study, 0);
    tell(&mut study, &trial, 7.4);
    assert_eq!(study.kept(), Some(trial.trial));
}

#[test]
fn the_share_of_trials_from_nothing_shrinks() {
    let starts = |alpha: f64, decay: f64| -> Vec<bool> {
        let mut wanted = settings(Function::Sphere, Sampler::Random, 200, 3);
        wanted.collaborative = Some(Collaborative { alpha, decay, ..Collaborative::default() });
        let study = run(begun(wanted), Function::Sphere);
        study.trials()[1..].iter().map(|trial| trial.start == Start::Nothing).collect()
    };
    let cold = |starts: &[bool]| starts.iter().filter(|cold| **cold).count();
    let even = starts(0.5, 1.0);
    // Four standard deviations of a binomial distribution with p = 1/2 are 28.
    assert!((72..=128).contains(&cold(&even)), "{} of 200", cold(&even));
    let shrinking = starts(0.9, 0.97);
    assert!(cold(&shrinking[..30]) > cold(&shrinking[100..]), "{shrinking:?}");
    assert!(cold(&shrinking[150..]) <= 3, "{shrinking:?}");
}

#[test]
fn a_result_that_must_not_be_used_is_no_start() {
    let mut wanted = settings(Function::Sphere, Sampler::Random, 9, 3);
    wanted.collaborative = Some(Collaborative { alpha: 0.0, ..Collaborative::default() });
    let mut study = begun(wanted);
    let baseline = next(&mut study, 0);
    tell(&mut study, &baseline, 5.0);
    let trial = next(&mut study, 0);
    assert_eq!((trial.start, study.needed()), (Start::Trial(0), vec![0, 0]));
    study.abandon((trial.trial, trial.attempt), 0).unwrap();
    study.drop_kept();
    assert_eq!((next(&mut study, 0).start, study.needed()), (Start::Nothing, vec![]));
}

const REMOTE: Worker = Worker::Remote("machine-2");

#[test]
fn remote_workers_have_their_own_number_of_trials_after_the_first() {
    let mut study = begun(Settings { workers: 0, remote_workers: 2, ..settings(Function::Sphere, Sampler::Gp, 3, 1) });
    assert_eq!(study.ask(REMOTE, 0), Ok(Asked::Wait), "the present settings are tried by the node");
    let baseline = next(&mut study, 0);
    assert_eq!(study.ask(REMOTE, 0), Ok(Asked::Wait));
    tell(&mut study, &baseline, 5.0);
    assert_eq!(study.ask(Worker::Local, 0), Ok(Asked::Wait), "the node has no workers");
    let trials = [next_of(&mut study, REMOTE, 0), next_of(&mut study, REMOTE, 0)];
    assert_eq!(study.ask(REMOTE, 0), Ok(Asked::Wait), "there are two of them");
    assert_eq!((study.trials()[1].worker.as_str(), study.trials()[1].remote), ("machine-2", true));
    assert_eq!((study.trials()[0].worker.as_str(), study.trials()[0].remote), (Worker::LOCAL, false));
    trials.iter().for_each(|trial| tell(&mut study, trial, 6.0));
    let last = next_of(&mut study, REMOTE, 0);
    tell(&mut study, &last, 4.0);
    assert_eq!((study.ask(REMOTE, 0), study.best().unwrap().number), (Ok(Asked::Ended), 3));
    for name in ["", &"x".repeat(201)] {
        assert!(
            matches!(study.ask(Worker::Remote(name), 0), Err(StudyError::Field { field, .. }) if field == "worker")
        );
    }
}

#[test]
fn a_remote_worker_that_is_not_heard_of_costs_its_trial() {
    let lease_seconds = 10;
    let remote = Settings { remote_workers: 2, lease_seconds, ..settings(Function::Sphere, Sampler::Random, 9, 1) };
    let mut study = begun(remote);
    let baseline = next(&mut study, 0);
    tell(&mut study, &baseline, 5.0);
    let local = next(&mut study, 0);
    let (silent, heard) = (next_of(&mut study, REMOTE, 0), next_of(&mut study, REMOTE, 0));
    assert_eq!(study.lease_until(0), 10_000);
    assert_eq!(study.renew((heard.trial, heard.attempt), 9_000), Ok(()));
    assert_eq!((study.expire(10_000), study.expire(10_001)), (0, 1));
    let lost = &study.trials()[silent.trial as usize];
    assert_eq!(lost.state, TrialState::Failed);
    assert!(lost.error.as_ref().unwrap().contains("machine-2 was not heard of for 10 seconds"));
    assert_eq!(study.running().map(|trial| trial.number).collect::<Vec<_>>(), [local.trial, heard.trial]);
    let late = StudyError::NotRunning { trial: silent.trial, attempt: 1 };
    assert_eq!(study.tell((silent.trial, silent.attempt), Ok(Outcome::of(1.0)), 10_002), Err(late.clone()));
    assert_eq!(study.renew((silent.trial, silent.attempt), 10_002), Err(late));
    // While the node is down, it receives no messages of workers.
    study.renew_all(60_000);
    assert_eq!(study.expire(70_000), 0);
    assert_eq!(study.ended(), None, "workers that die do not end a study");
}

#[test]
fn a_trial_that_is_recalled_costs_its_worker_nothing() {
    let mut study = begun(Settings { remote_workers: 1, ..settings(Function::Sphere, Sampler::Random, 9, 1) });
    let baseline = next(&mut study, 0);
    tell(&mut study, &baseline, 5.0);
    let local = next(&mut study, 0);
    let first = next_of(&mut study, REMOTE, 0);
    for attempt in 2..=9 {
        study.recall_remote();
        let again = next_of(&mut study, REMOTE, 0);
        assert_eq!((again.trial, again.attempt, &again.params), (first.trial, attempt, &first.params));
    }
    let late = study.tell((first.trial, 1), Ok(Outcome::of(1.0)), 0);
    assert_eq!(late, Err(StudyError::NotRunning { trial: first.trial, attempt: 1 }));
    tell(&mut study, &local, 4.0);
    assert_eq!(study.trials()[local.trial as usize].state, TrialState::Complete, "trials of the node go on");
}

#[test]
fn remote_trials_begin_from_nothing_and_others_do_not_continue_from_them() {
    let collaborative = Some(Collaborative { alpha: 0.0, ..Collaborative::default() });
    let both = Settings { remote_workers: 1, collaborative, ..settings(Function::Sphere, Sampler::Random, 9, 3) };
    let mut study = begun(both);
    let baseline = next(&mut study, 0);
    tell(&mut study, &baseline, 5.0);
    let remote = next_of(&mut study, REMOTE, 0);
    assert_eq!(remote.start, Start::Nothing);
    tell(&mut study, &remote, 1.0);
    assert_eq!((study.kept(), study.best().unwrap().number), (Some(0), remote.trial));
    let local = next(&mut study, 0);
    assert_eq!(local.start, Start::Trial(0));
    study.abandon((local.trial, local.attempt), 0).unwrap();
    assert_eq!(next_of(&mut study, REMOTE, 0).start, Start::Nothing);
}

#[test]
fn every_point_of_a_small_space_is_tried_once_and_the_study_ends_with_the_last() {
    let spec = r#"{"dim": {"int": [3, 5]}, "kind": {"choice": ["a", null]}, "steps": {"int": [1, 2], "log": true}}"#;
    for sampler in [Sampler::Random, Sampler::Gp, Sampler::Tpe] {
        let space = serde_json::from_str(spec).unwrap();
        let mut study = begun(Settings { space, ..settings(Function::Mixed, sampler, 100, 2) });
        assert_eq!(study.settings().trials, 12);
        let mut tried = Vec::new();
        while let Ok(Asked::Trial(trial)) = study.ask(Worker::Local, 0) {
            assert!(!tried.contains(&trial.params), "{}: {:?} twice", sampler.name(), trial.params);
            // A failure is no reason to try the same again.
            let outcome = if trial.trial == 3 { Err("lost".to_owned()) } else { Ok(Outcome::of(1.0)) };
            study.tell((trial.trial, trial.attempt), outcome, 0).unwrap();
            tried.push(trial.params);
            study = reread(&study);
        }
        assert_eq!((tried.len(), study.ended()), (13, Some(Ended::Trials)), "{}", sampler.name());
    }
    let wide: Space = serde_json::from_str(r#"{"dim": {"int": [3, 5]}, "rate": {"float": [0, 1]}}"#).unwrap();
    assert_eq!(wide.points(), None);
}
