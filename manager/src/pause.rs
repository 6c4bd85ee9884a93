//! A hook for tests: a node that stops at a named step of a switch or a training, to be killed there.
//!
//! With `CELERIS_PAUSE_AT=STEP` in its environment, a node says `paused at STEP` on standard error when a job, a switch,
//! a pruning or a deletion first comes to that step, and its thread goes no further. Everything else goes on. Tests that kill
//! a node set it: `kill_in_retrain.rs` and `identities.rs` in `tests/tests/`.

/// The environment variable.
pub const VARIABLE: &str = "CELERIS_PAUSE_AT";

/// Where a node can be made to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A part of the trainer's input is written.
    Export,
    /// The trainer is about to run.
    Training,
    /// The candidate is read back, and neither judged nor taken over.
    Validation,
    /// The candidate is one of the model's versions, and what is hot is computed under it.
    Warming,
    /// The registry names another active version, and requests are still answered by the one before.
    Flip,
    /// The registry names versions no more whose files are still there.
    Pruning,
    /// The registry names a model no more of which everything else is still there.
    Deletion,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Training => "training",
            Self::Validation => "validation",
            Self::Warming => "warming",
            Self::Flip => "flip",
            Self::Pruning => "pruning",
            Self::Deletion => "deletion",
        }
    }
}

/// Stops here for good where a test says so.
pub(crate) fn at(step: Step) {
    if std::env::var_os(VARIABLE).is_some_and(|wanted| wanted == step.name()) {
        eprintln!("paused at {}", step.name());
        loop {
            std::thread::park();
        }
    }
}
