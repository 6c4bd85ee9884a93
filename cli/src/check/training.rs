//! Trainings: whether processes can be confined here, and the programs of external trainers exist.

use std::env;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use celeris_datasets::TemporaryFolder;
use celeris_sandbox::{Ending, Limits, Run};

use super::Subject;
use super::finding::Findings;

pub async fn check(subject: &Subject<'_>, findings: &mut Findings) {
    let remedy = "trainings need Linux with /proc, a temporary folder that can be written, and the right to start processes \
                  (`TasksMax` of systemd, `--pids-limit` of docker)";
    match confined().await {
        Ok(()) => findings.ok("training", "processes can be confined"),
        Err(problem) => findings.problem("training", format!("a confined process does not run: {problem}"), remedy),
    }
    let training = &subject.config.training;
    for (name, command) in &training.trainers {
        match command.first() {
            Some(program) if is_program(program) => {
                findings.ok("training", format!("trainer {name}: {program} exists"));
            }
            program => findings.problem(
                "training",
                format!("trainer {name}: {} is no program here", program.map_or("\"\"", String::as_str)),
                format!("install it, or correct training.trainers.{name}"),
            ),
        }
    }
    if let Some(folder) = &training.import_dir
        && let Err(error) = std::fs::read_dir(folder)
    {
        let what = format!("training.import_dir: {}: {error}", folder.display());
        findings.problem("training", what, "create the folder and let the user of the node read it");
    }
}

/// Runs this program once as a trainer is run.
async fn confined() -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let folder = TemporaryFolder::new().map_err(|error| text(&error))?;
    let program = env::current_exe().map_err(|error| text(&error))?;
    let limits =
        Limits { memory_bytes: 1 << 30, seconds: 10, heartbeat_seconds: 10, processes: 64, disk_bytes: 1 << 20 };
    let run = Run {
        supervisor: program.clone(),
        command: vec![program.to_string_lossy().into_owned(), "--version".to_owned()],
        folder: folder.path().to_owned(),
        output: folder.path().to_owned(),
        limits,
        is_cancelled: Box::new(|| false),
    };
    let outcome = run.finish(|_| true).await.map_err(|error| text(&error))?;
    match outcome.ending {
        Some(Ending::Exited { code: 0, .. }) => Ok(()),
        ending => Err(format!("{ending:?} {}", outcome.printed.unwrap_or_default())),
    }
}

/// Whether a shell would find it.
fn is_program(name: &str) -> bool {
    let is_executable = |path: &Path| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return is_executable(Path::new(name));
    }
    env::var_os("PATH").is_some_and(|paths| env::split_paths(&paths).any(|folder| is_executable(&folder.join(name))))
}
