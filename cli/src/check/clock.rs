//! The clock of the machine: decisions, rewards, retention and keys go by it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;

use super::Subject;
use super::finding::Findings;

/// No node has run before or will run after these years.
const YEARS: std::ops::RangeInclusive<i16> = 2026..=2099;

const REMEDY: &str = "set the clock, and have chrony, systemd-timesyncd or ntpd keep it";

pub fn check(subject: &Subject, findings: &mut Findings) {
    let now = Timestamp::now();
    let year = now.to_zoned(jiff::tz::TimeZone::UTC).year();
    if !YEARS.contains(&year) {
        findings.problem("clock", format!("the clock says {}", now.strftime("%Y-%m-%d %H:%M UTC")), REMEDY);
        return;
    }
    if let Some(ahead) = subject.data_dir.and_then(newest).and_then(|time| time.duration_since(SystemTime::now()).ok())
    {
        let ahead = Duration::from_secs(ahead.as_secs());
        if ahead > subject.config.limits.clock_skew {
            let what =
                format!("files of the data directory are {} ahead of the clock", humantime::format_duration(ahead));
            findings.problem("clock", what, format!("it has gone back: {REMEDY}"));
            return;
        }
    }
    match is_synchronised() {
        Some(true) => findings.ok("clock", "synchronised"),
        Some(false) => findings.warning("clock", "it is not synchronised with others", REMEDY),
        None => findings
            .ok("clock", "plausible; whether it is synchronised cannot be told here (there is no systemd to ask)"),
    }
}

/// When the youngest file directly in the directory or its database was changed.
fn newest(dir: &Path) -> Option<SystemTime> {
    let files = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let times = files(dir).chain(files(&dir.join("db"))).filter_map(|entry| entry.metadata().ok()?.modified().ok());
    times.max()
}

/// What systemd knows; `None` where it does not run.
fn is_synchronised() -> Option<bool> {
    // Written by systemd-timesyncd, which others do not.
    if Path::new("/run/systemd/timesync/synchronized").exists() {
        return Some(true);
    }
    let asked = Command::new("timedatectl")
        .args(["show", "--property", "NTPSynchronized", "--value"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    match String::from_utf8_lossy(&asked.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}
