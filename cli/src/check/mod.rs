//! `celeris check`: whether a node can run here, and what to do if it cannot.
//!
//! It changes nothing: it reads the configuration and the data directory, asks the system and the
//! NATS servers, and starts one confined process. Each file has the checks of one subject.

mod certificate;
mod clock;
mod cluster;
mod configuration;
mod data_dir;
mod disk;
mod finding;
mod limits;
mod memory;
mod server;
mod training;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use celeris_api::config::{self, Config};
use serde_json::json;

use self::finding::{Finding, Findings, State};
use crate::Failure;
use crate::models::print;
use crate::serve::runtime;

/// Checks configuration, data directory, disk, limits, clock and versions before a node is started,
/// and says what is wrong and what to do.
///
/// Give it the options of `celeris serve`, as the user and with the limits by which the node runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data directory; without it, directory and disk are not checked.
    #[arg(long)]
    data_dir: Option<PathBuf>,
    /// The configuration file, in TOML.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Address and port, as for `celeris serve`.
    #[arg(long)]
    listen: Option<String>,
    /// As for `celeris serve`.
    #[arg(long)]
    insecure: bool,
    /// Prints `version`, `problems`, `warnings` and `findings` as one JSON object.
    #[arg(long)]
    json: bool,
}

/// What a check is about.
pub struct Subject<'a> {
    pub config: &'a Config,
    pub data_dir: Option<&'a Path>,
    /// Whether another process has the data directory open.
    pub is_in_use: bool,
}

/// # Errors
/// Also if there is a problem, after the findings were printed.
pub fn run(args: &Args) -> Result<(), Failure> {
    let findings = check(args)?;
    let of = |state| findings.0.iter().filter(|finding| finding.state == state).count();
    let (problems, warnings) = (of(State::Problem), of(State::Warning));
    let text = if args.json {
        let version = env!("CARGO_PKG_VERSION");
        format!("{}\n", json!({"version": version, "problems": problems, "warnings": warnings, "findings": findings.0}))
    } else {
        let sum = format!("{}, {}", counted(problems, "problem"), counted(warnings, "warning"));
        format!("{}\n{sum}\n", shown(&findings.0))
    };
    print(&text)?;
    if problems == 0 {
        Ok(())
    } else {
        Err(Failure::other(format!("a node would not run well: {}", counted(problems, "problem"))))
    }
}

fn check(args: &Args) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    findings.ok("version", format!("celeris {}", env!("CARGO_PKG_VERSION")));
    let loaded = config::load(args.config.as_deref(), args.listen.as_deref());
    configuration::check(args.config.as_deref(), &loaded, &mut findings);
    let is_in_use = args.data_dir.as_deref().is_some_and(|dir| data_dir::check(dir, &mut findings));
    if let Some(dir) = &args.data_dir {
        disk::check(dir, &mut findings);
    }
    let is_loaded = loaded.is_ok();
    let mut config = loaded.unwrap_or_default();
    config.server.insecure |= args.insecure;
    let subject = Subject { config: &config, data_dir: args.data_dir.as_deref(), is_in_use };
    limits::check(&subject, &mut findings);
    if is_loaded {
        memory::check(&subject, &mut findings);
        server::check(&subject, &mut findings);
    }
    clock::check(&subject, &mut findings);
    runtime()?.block_on(async {
        if is_loaded {
            cluster::check(&subject, &mut findings).await;
        }
        training::check(&subject, &mut findings).await;
    });
    Ok(findings)
}

fn counted(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// One line on each finding, and one on what to do.
fn shown(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { check, state, what, remedy } in findings {
        let _ = writeln!(text, "{:<7}  {check:<width$}  {what}", state.name());
        if let Some(remedy) = remedy {
            let _ = writeln!(text, "{:<7}  {:<width$}  -> {remedy}", "", "");
        }
    }
    text
}
