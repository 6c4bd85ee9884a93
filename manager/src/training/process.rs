//! Why a confined trainer ended, in words for the record of its job.

use celeris_sandbox::{Ending, FILES_MAX, Limits, Outcome, Stop};

use crate::error::ManagerError;

/// Maps the outcome of a trainer to a result.
///
/// # Errors
/// `Outdated`, or `Trainer` with the reason and a remedy.
pub(super) fn result_of(outcome: &Outcome, limits: &Limits) -> Result<(), ManagerError> {
    let reason = match (outcome.stopped, outcome.ending) {
        (Some(Stop::Cancelled), _) => return Err(ManagerError::Outdated),
        (Some(Stop::Time), _) => format!(
            "it exceeded its time limit of {} seconds and was stopped; raise trainer.limits.seconds",
            limits.seconds
        ),
        (Some(Stop::Silence), _) => format!(
            "it printed nothing and wrote no file for {} seconds and was stopped as hung; have it print a line of \
             progress now and then, or raise trainer.limits.heartbeat_seconds",
            limits.heartbeat_seconds
        ),
        (None, Some(Ending::Exited { code: 0, .. })) => return Ok(()),
        (None, Some(Ending::Exited { code, memory_peak })) => {
            let hint = memory_hint(memory_peak, limits, outcome);
            if let Some(refusal) = outcome.printed.as_deref().and_then(own_words) {
                return Err(ManagerError::Trainer { reason: format!("{refusal}{hint}") });
            }
            format!("it ended with exit code {code}{hint}")
        }
        (None, Some(Ending::Signalled { signal, memory_peak })) => {
            format!("it was ended by signal {signal}{}", memory_hint(memory_peak, limits, outcome))
        }
        (None, Some(Ending::FileTooLarge)) => format!(
            "one of its files reached the disk limit of {} MiB; raise trainer.limits.disk",
            limits.disk_bytes >> 20
        ),
        (None, Some(Ending::TooMuchMemory { held })) => format!(
            "its processes held {} MiB of memory, more than the {} MiB they may, and were stopped; raise \
             trainer.limits.memory, or lower the model's dim",
            held >> 20,
            limits.memory_bytes >> 20
        ),
        (None, Some(Ending::TooManyProcesses { running })) => format!(
            "it ran {running} processes and threads, more than the {} it may, and was stopped; raise \
             trainer.limits.processes",
            limits.processes
        ),
        (None, Some(Ending::TooMuchDisk { written })) => format!(
            "it wrote {} MiB into the folder of its job, more than the {} MiB it may, and was stopped; raise \
             trainer.limits.disk",
            written >> 20,
            limits.disk_bytes >> 20
        ),
        (None, Some(Ending::TooManyFiles)) => format!(
            "it wrote more than {FILES_MAX} files into the folder of its job and was stopped; have it write fewer, \
             larger ones"
        ),
        (None, Some(Ending::DiskNearlyFull { free })) => format!(
            "the disk has only {} MiB free, which are reserved for the log, so it was stopped; make room",
            free >> 20
        ),
        (None, Some(Ending::Stopped) | None) => {
            "it was stopped from outside, or its supervisor was; start it again".to_owned()
        }
    };
    let reason = match &outcome.printed {
        Some(printed) => format!("{reason}; it printed: {printed}"),
        None => format!("{reason}; it printed nothing"),
    };
    Err(ManagerError::Trainer { reason })
}

/// A hint if a program ran into the memory limit itself, which it sees as a failed allocation.
fn memory_hint(memory_peak: u64, limits: &Limits, outcome: &Outcome) -> String {
    const SIGNS: [&str; 7] = [
        "bad_alloc",
        "cannot allocate memory",
        "memory allocation of",
        "memory exhausted",
        "memoryerror",
        "out of memory",
        "outofmemory",
    ];
    let printed = outcome.printed.as_deref().map(str::to_lowercase);
    let complains = printed.is_some_and(|printed| SIGNS.iter().any(|sign| printed.contains(sign)));
    if !complains && memory_peak < limits.memory_bytes / 10 * 9 {
        return String::new();
    }
    let limit = limits.memory_bytes >> 20;
    format!(
        ", after reaching its limit of {limit} MiB of memory; raise trainer.limits.memory, or lower the model's dim"
    )
}

/// The error message of this binary: the trainer rejected its input, or the program could not be
/// executed.
fn own_words(printed: &str) -> Option<&str> {
    printed.lines().rev().find_map(|line| line.strip_prefix("celeris: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { memory_bytes: 100 << 20, seconds: 5, heartbeat_seconds: 2, processes: 9, disk_bytes: 3 << 20 };

    fn reason(stopped: Option<Stop>, ending: Option<Ending>, printed: Option<&str>) -> String {
        let outcome = Outcome { stopped, ending, printed: printed.map(str::to_owned) };
        result_of(&outcome, &LIMITS).expect_err("the trainer failed").to_string()
    }

    #[test]
    fn every_failure_names_its_remedy() {
        for (stopped, ending, remedy) in [
            (Some(Stop::Time), Some(Ending::Stopped), "trainer.limits.seconds"),
            (Some(Stop::Silence), Some(Ending::Stopped), "trainer.limits.heartbeat_seconds"),
            (None, Some(Ending::TooMuchMemory { held: 101 << 20 }), "trainer.limits.memory"),
            (None, Some(Ending::TooManyProcesses { running: 10 }), "trainer.limits.processes"),
            (None, Some(Ending::TooMuchDisk { written: 4 << 20 }), "trainer.limits.disk"),
            (None, Some(Ending::FileTooLarge), "trainer.limits.disk"),
            (None, Some(Ending::Exited { code: 1, memory_peak: 99 << 20 }), "trainer.limits.memory"),
            (None, Some(Ending::DiskNearlyFull { free: 1 }), "make room"),
            (None, None, "start it again"),
        ] {
            let reason = reason(stopped, ending, Some("last words"));
            assert!(reason.contains(remedy) && reason.ends_with("it printed: last words"), "{reason}");
        }
    }

    #[test]
    fn an_error_of_this_binary_replaces_the_exit_code() {
        let ending = Ending::Exited { code: 2, memory_peak: 0 };
        let reason = reason(None, Some(ending), Some("log line\nceleris: cannot run nothing"));
        assert!(reason.ends_with("cannot run nothing") && !reason.contains("exit code"), "{reason}");
        let success =
            Outcome { stopped: None, ending: Some(Ending::Exited { code: 0, memory_peak: 0 }), printed: None };
        assert!(result_of(&success, &LIMITS).is_ok());
    }
}
