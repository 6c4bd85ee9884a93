//! Skipping of tests that a machine cannot run, because it lacks a program, a data set or a right.
//!
//! A test passes what it found to [`unless`]. Every skip is printed on standard error, and appended
//! to the file that [`RECORD`] names, which `scripts/test` counts. A [`Need`] whose name is listed
//! in [`REQUIRE`] must be met: its tests fail instead.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::thread;

/// Environment variable with the names of needs that must be met, separated by commas.
pub const REQUIRE: &str = "CELERIS_REQUIRE";

/// Environment variable with the path of a file, to which one line is appended for each skipped
/// test: the name of the need, the name of the test, and what is missing, separated by tabs.
pub const RECORD: &str = "CELERIS_SKIPPED";

/// What a test needs beyond what the build needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// `chromium` and `chromedriver`.
    Browser,
    /// The packages from the registries of npm and Python that `clients/python/check` and `clients/typescript/check` install, and
    /// which alone need them.
    ClientTools,
    /// `curl`, `python3` and `node`, which commands of the documents call, and `openssl`.
    Commands,
    /// A broker that speaks the protocol of Kafka.
    Kafka,
    /// The right to mount a small file system.
    Mount,
    /// The data set `ml-latest-small` of MovieLens.
    MovieLens,
    /// The right to make network namespaces, and `ip` of iproute2.
    Namespaces,
    /// `nats-server`, which replicates the logs of a cluster.
    Nats,
    /// A kernel that can delay and lose packets.
    Netem,
    /// `moto_server`, which has the interface of S3.
    ObjectStore,
    /// The sample of the Open Bandit Dataset.
    OpenBandit,
    /// The tools from the registries of npm and Python that `tests/openapi/run` installs, and which
    /// alone needs them.
    OpenApiTools,
    /// The Python packages that `cargo xtask peers` installs.
    Peers,
    /// The logs in the tests of Vowpal Wabbit's repository.
    VowpalWabbit,
}

impl Need {
    pub const ALL: [Self; 14] = [
        Self::Browser,
        Self::ClientTools,
        Self::Commands,
        Self::Kafka,
        Self::Mount,
        Self::MovieLens,
        Self::Namespaces,
        Self::Nats,
        Self::Netem,
        Self::ObjectStore,
        Self::OpenBandit,
        Self::OpenApiTools,
        Self::Peers,
        Self::VowpalWabbit,
    ];

    /// The name in [`REQUIRE`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Browser => "browser",
            Self::ClientTools => "client-tools",
            Self::Commands => "commands",
            Self::Kafka => "kafka",
            Self::Mount => "mount",
            Self::MovieLens => "movielens",
            Self::Namespaces => "namespaces",
            Self::Nats => "nats",
            Self::Netem => "netem",
            Self::ObjectStore => "object-store",
            Self::OpenBandit => "open-bandit",
            Self::OpenApiTools => "openapi-tools",
            Self::Peers => "peers",
            Self::VowpalWabbit => "vowpal-wabbit",
        }
    }
}

/// Returns `found`. If there is nothing, the calling test, or the rest of it, is skipped: the skip
/// is recorded, and the caller returns. `missing` describes what is missing.
///
/// # Panics
/// If the need is required and not met, if [`REQUIRE`] has an unknown name, or if the skip cannot
/// be recorded.
#[must_use]
#[track_caller]
pub fn unless<T>(need: Need, found: Option<T>, missing: &str) -> Option<T> {
    let required = required(&env::var(REQUIRE).unwrap_or_default()).unwrap_or_else(|problem| panic!("{problem}"));
    if found.is_none() {
        assert!(!required.contains(&need), "{REQUIRE} names {}: {missing}", need.name());
        record(need, missing);
    }
    found
}

/// The folder of a data set: `../shared/data/NAME`, relative to the checkout. The test is skipped
/// if it does not exist.
///
/// # Panics
/// As [`unless`].
#[must_use]
#[track_caller]
pub fn unless_downloaded(need: Need, name: &str) -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")).join(name);
    unless(need, folder.is_dir().then_some(folder), &format!("there is no ../shared/data/{name} beside the checkout"))
}

/// The needs of these names.
fn required(names: &str) -> Result<Vec<Need>, String> {
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| Need::ALL.into_iter().find(|need| need.name() == name).ok_or_else(|| unknown(name))).collect()
}

fn unknown(name: &str) -> String {
    format!("{REQUIRE}: there is no need {name:?}; the names are {}", Need::ALL.map(Need::name).join(", "))
}

fn record(need: Need, missing: &str) {
    let thread = thread::current();
    // The test harness names threads after their tests.
    let test = thread.name().unwrap_or("a test");
    eprintln!("SKIPPED, {}: {missing}", need.name());
    let Some(file) = env::var_os(RECORD) else { return };
    let line = format!("{}\t{test}\t{missing}\n", need.name());
    let appended =
        OpenOptions::new().create(true).append(true).open(&file).and_then(|mut file| file.write_all(line.as_bytes()));
    appended.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
