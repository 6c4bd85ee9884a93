//! Confined child processes: runs an untrusted program with limits on memory, processes, disk and
//! time, and kills everything that it started when it ends.
//!
//! The caller starts a [`Run`]. It starts a *supervisor*, a process of the caller's own binary. The
//! supervisor becomes the subreaper of all its descendants, so that none escapes it, not even one
//! that starts its own session. It starts the program, in its own process group, through another
//! process of this binary, which sets resource limits on itself and then executes the program. A
//! run ends in one of three ways:
//!
//! - the program exits: the processes that it left running are killed;
//! - its processes exceed a limit of memory, processes or disk: they are killed;
//! - the supervisor's standard input ends. The caller holds the other end and never writes to it.
//!   It closes it to stop a run; the kernel closes it when the caller exits for any reason. So no
//!   program outlives its caller.
//!
//! If the supervisor itself is killed, the kernel kills the program (`PR_SET_PDEATHSIG`), and the
//! program's descendants become children of the caller (`orphans.rs`).
//!
//! The caller's binary has two commands for this, [`SUPERVISE`] and [`BECOME`], which call
//! [`supervise`] and [`become_program`]. The program's command line and its limits are in a file, a
//! [`Plan`]: the command lines of these processes contain only paths created by the caller.
//!
//! This crate does not isolate: a program has the rights of its user, sees all files and the
//! network. It does not know what the program computes, and formats no messages about how it ended.
//! Linux only.
//!
//! Modules: `run` and `output` (the caller's side), `orphans` (cleanup after a killed supervisor),
//! `supervisor`, `program` (limits of the program itself), `plan`, `processes` and `disk`
//! (measurements).

mod disk;
mod error;
mod orphans;
mod output;
mod plan;
mod processes;
mod program;
mod run;
mod supervisor;

pub use disk::FILES_MAX;
pub use error::SandboxError;
pub use plan::{BECOME, Ending, Limits, Plan, SUPERVISE};
pub use program::{become_program, lower_priority};
pub use run::{Outcome, Run, Stop};
pub use supervisor::supervise;
