//! The process that becomes the program: sets limits on itself, then executes.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, Signal, getppid, getpriority_process, getrlimit, nice, set_parent_process_death_signal, setrlimit,
};

use crate::error::SandboxError;
use crate::plan::{Limits, Plan};
use crate::processes::threads_of_user;

/// Nice value of a program, so that its caller has priority.
const NICENESS: i32 = 10;

/// Sets limits on this process and executes the program of a plan. Returns only on failure.
#[must_use]
pub fn become_program(plan: &Path, parent: i32) -> SandboxError {
    match prepare(plan, parent) {
        Err(error) => error,
        Ok((program, arguments)) => {
            let source = Command::new(&program).args(arguments).exec();
            SandboxError::Execute { program, source }
        }
    }
}

fn prepare(plan: &Path, parent: i32) -> Result<(String, Vec<String>), SandboxError> {
    let plan = Plan::read(plan)?;
    let mut words = plan.command.into_iter();
    let program = words.next().ok_or(SandboxError::NoProgram)?;
    limit(plan.limits, parent)?;
    lower_priority();
    Ok((program, words.collect()))
}

/// Kernel limits, for growth between two measurements of the supervisor: the data segment of one
/// process is limited to the memory of all (reserved address space, as used by Java, does not
/// count), one file to the disk of all, and the processes of the user to the current number plus
/// the program's limit. The last one does not apply to root.
fn limit(limits: Limits, parent: i32) -> Result<(), SandboxError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(SandboxError::system("follow the supervisor"))?;
    // A parent that exited before the signal was requested will not send it.
    if getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        return Err(SandboxError::SupervisorGone);
    }
    lower(Resource::Data, limits.memory_bytes)?;
    lower(Resource::Fsize, limits.disk_bytes)?;
    lower(Resource::Nproc, threads_of_user().saturating_add(limits.processes))?;
    lower(Resource::Core, 0)
}

/// Lowers a resource limit, unless it is already lower.
fn lower(resource: Resource, most: u64) -> Result<(), SandboxError> {
    let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
        .map_err(SandboxError::system("lower a resource limit"))
}

/// Lowers the priority of this process to that of a confined program, unless it is lower already.
pub fn lower_priority() {
    let lowered = getpriority_process(None)
        .and_then(|niceness| if niceness < NICENESS { nice(NICENESS - niceness) } else { Ok(niceness) });
    if let Err(problem) = lowered {
        tracing::warn!(%problem, "cannot lower the priority of this process; it competes with serving");
    }
}
