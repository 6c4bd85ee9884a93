//! Checks the direction of dependencies: which crates of the workspace each crate may use, and
//! which external crates.
//!
//! Dev-dependencies follow the same rules, so that tests cannot add dependencies that the code may
//! not have.

use crate::manifest::Crate;

/// The workspace crates that one crate of the workspace may depend on.
struct CrateRule {
    name: &'static str,
    may_use: &'static [&'static str],
}

/// The rules of all crates of the workspace, in dependency order. A new crate must be added here
/// first.
const RULES: [CrateRule; 26] = [
    CrateRule { name: "celeris-skip", may_use: &[] },
    CrateRule { name: "celeris-kernel", may_use: &[] },
    CrateRule { name: "celeris-location", may_use: &["celeris-skip"] },
    CrateRule { name: "celeris-sandbox", may_use: &[] },
    CrateRule { name: "celeris-model", may_use: &["celeris-kernel"] },
    CrateRule { name: "celeris-storage", may_use: &["celeris-model", "celeris-skip"] },
    CrateRule { name: "celeris-cluster", may_use: &["celeris-model", "celeris-storage", "celeris-skip"] },
    CrateRule { name: "celeris-formats", may_use: &["celeris-model"] },
    CrateRule { name: "celeris-export", may_use: &["celeris-model", "celeris-storage", "celeris-formats"] },
    CrateRule { name: "celeris-pipelines", may_use: &["celeris-kernel", "celeris-model"] },
    CrateRule {
        name: "celeris-features",
        may_use: &["celeris-kernel", "celeris-model", "celeris-pipelines", "celeris-formats"],
    },
    CrateRule { name: "celeris-bandits", may_use: &["celeris-model"] },
    CrateRule { name: "celeris-study", may_use: &[] },
    CrateRule { name: "celeris-datasets", may_use: &["celeris-model", "celeris-skip"] },
    CrateRule {
        name: "celeris-import",
        may_use: &["celeris-location", "celeris-model", "celeris-formats", "celeris-datasets"],
    },
    CrateRule { name: "celeris-ingest", may_use: &["celeris-model", "celeris-skip"] },
    CrateRule { name: "celeris-retrieval", may_use: &["celeris-kernel", "celeris-model"] },
    CrateRule {
        name: "celeris-predictor",
        may_use: &["celeris-model", "celeris-storage", "celeris-features", "celeris-bandits", "celeris-retrieval"],
    },
    CrateRule {
        name: "celeris-retrain",
        may_use: &[
            "celeris-kernel",
            "celeris-model",
            "celeris-pipelines",
            "celeris-formats",
            "celeris-features",
            "celeris-skip",
        ],
    },
    CrateRule {
        name: "celeris-manager",
        may_use: &[
            "celeris-model",
            "celeris-pipelines",
            "celeris-storage",
            "celeris-formats",
            "celeris-export",
            "celeris-features",
            "celeris-bandits",
            "celeris-study",
            "celeris-sandbox",
            "celeris-retrain",
            "celeris-retrieval",
            "celeris-predictor",
        ],
    },
    CrateRule {
        name: "celeris-api",
        may_use: &[
            "celeris-model",
            "celeris-pipelines",
            "celeris-storage",
            "celeris-cluster",
            "celeris-export",
            "celeris-features",
            "celeris-bandits",
            "celeris-study",
            "celeris-predictor",
            "celeris-retrieval",
            "celeris-manager",
            "celeris-ingest",
        ],
    },
    CrateRule {
        name: "celeris-evaluate",
        may_use: &[
            "celeris-model",
            "celeris-storage",
            "celeris-formats",
            "celeris-features",
            "celeris-bandits",
            "celeris-datasets",
            "celeris-retrain",
            "celeris-retrieval",
            "celeris-predictor",
            "celeris-api",
            "celeris-skip",
        ],
    },
    CrateRule {
        name: "celeris-cli",
        may_use: &[
            "celeris-kernel",
            "celeris-sandbox",
            "celeris-model",
            "celeris-pipelines",
            "celeris-storage",
            "celeris-formats",
            "celeris-export",
            "celeris-features",
            "celeris-bandits",
            "celeris-study",
            "celeris-datasets",
            "celeris-import",
            "celeris-ingest",
            "celeris-location",
            "celeris-predictor",
            "celeris-retrain",
            "celeris-retrieval",
            "celeris-manager",
            "celeris-api",
            "celeris-evaluate",
        ],
    },
    CrateRule {
        name: "celeris-bench",
        may_use: &[
            "celeris-kernel",
            "celeris-model",
            "celeris-pipelines",
            "celeris-storage",
            "celeris-features",
            "celeris-bandits",
            "celeris-study",
            "celeris-datasets",
            "celeris-predictor",
            "celeris-retrain",
            "celeris-retrieval",
            "celeris-manager",
            "celeris-api",
            "celeris-evaluate",
            "celeris-cli",
        ],
    },
    CrateRule { name: "celeris-tests", may_use: &["celeris-model", "celeris-datasets", "celeris-api", "celeris-skip"] },
    CrateRule { name: "xtask", may_use: &[] },
];

/// External crates that only some crates of the workspace may use.
struct Confined {
    packages: &'static [&'static str],
    to: &'static [&'static str],
    why: &'static str,
}

const CONFINED: [Confined; 7] = [
    Confined {
        packages: &["rocksdb", "librocksdb-sys"],
        to: &["celeris-storage"],
        why: "only celeris-storage knows RocksDB",
    },
    Confined {
        packages: &["async-nats"],
        to: &["celeris-cluster", "celeris-ingest", "celeris-bench", "celeris-tests"],
        why: "only celeris-cluster, celeris-ingest, and tests and benches know NATS",
    },
    Confined {
        packages: &["rskafka"],
        to: &["celeris-ingest", "celeris-tests"],
        why: "only celeris-ingest, and its tests, know Kafka",
    },
    Confined {
        packages: &["object_store", "reqwest"],
        to: &["celeris-location"],
        why: "only celeris-location knows object stores",
    },
    Confined {
        packages: &["arrow-array", "arrow-buffer", "arrow-cast", "arrow-schema", "parquet"],
        // Tests of celeris-retrain and celeris-tests write damaged files and read files as other
        // programs do.
        to: &["celeris-formats", "celeris-retrain", "celeris-tests"],
        why: "only celeris-formats, and tests, know columnar files",
    },
    Confined {
        packages: &["axum", "axum-extra", "hyper", "tower-http", "utoipa", "utoipa-axum"],
        to: &["celeris-api", "celeris-bench", "celeris-tests"],
        why: "only celeris-api, and the benches and tests that drive it, know HTTP serving",
    },
    Confined {
        packages: &["tract-onnx", "tract-core", "tract-hir"],
        to: &["celeris-pipelines"],
        why: "only celeris-pipelines runs graphs of other libraries",
    },
];

/// The crates that do no I/O.
const PURE: [&str; 4] = ["celeris-kernel", "celeris-model", "celeris-bandits", "celeris-study"];

/// External crates that do I/O or scheduling, or implement file formats.
const IO: [&str; 23] = [
    "arrow-array",
    "arrow-cast",
    "async-std",
    "axum",
    "csv",
    "flate2",
    "hyper",
    "memmap2",
    "mio",
    "parquet",
    "rayon",
    "reqwest",
    "rocksdb",
    "rustls",
    "smol",
    "socket2",
    "tempfile",
    "tokio",
    "tokio-util",
    "tower",
    "tower-http",
    "tracing-subscriber",
    "ureq",
];

/// Crates of tests and benches, which the server's binary does not link if it is built alone.
const NOT_IN_SERVER: [&str; 4] = ["fail", "hdrhistogram", "plotters", "tempfile"];

/// The package of the server's binary.
pub const SERVER: &str = "celeris-cli";

/// Returns one line for each crate of tests and benches among the packages that the server links.
#[must_use]
pub fn check_server(linked: &[String]) -> Vec<String> {
    let unwanted = linked.iter().filter(|package| NOT_IN_SERVER.contains(&package.as_str()));
    unwanted
        .map(|package| {
            format!(
                "{SERVER} links {package}, which is for tests and benches: see \
                 `cargo tree -p {SERVER} -e normal -i {package}`"
            )
        })
        .collect()
}

/// Returns one line for each forbidden dependency, in the order of the crates.
#[must_use]
pub fn check(crates: &[Crate]) -> Vec<String> {
    let mut findings = Vec::new();
    for member in crates {
        let Some(rule) = RULES.iter().find(|rule| rule.name == member.name) else {
            findings.push(format!(
                "{}: is not in the table of crates; add it to xtask/src/deps.rs with what it may use",
                member.name
            ));
            continue;
        };
        for dependency in &member.dependencies {
            let package = dependency.package.as_str();
            let is_member = crates.iter().any(|other| other.name == package);
            let mut forbid = |why: &str| findings.push(format!("{} -> {package}: {why}", member.name));
            if is_member && !rule.may_use.contains(&package) {
                forbid(&match rule.may_use {
                    [] => "it may use no other crate of the workspace".to_owned(),
                    allowed => format!("of the workspace it may use only {}", allowed.join(", ")),
                });
            }
            for confined in CONFINED {
                if confined.packages.contains(&package) && !confined.to.contains(&rule.name) {
                    forbid(confined.why);
                }
            }
            if PURE.contains(&rule.name) && IO.contains(&package) {
                forbid("it is pure: no I/O, no threads, no formats of files");
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Dependency;

    /// A workspace of these crates, each with its dependencies.
    fn workspace(graph: &[(&str, &[&str])]) -> Vec<Crate> {
        let dependency =
            |package: &&str| Dependency { package: (*package).to_owned(), import: package.replace('-', "_") };
        let member = |(name, packages): &(&str, &[&str])| Crate {
            name: (*name).to_owned(),
            folder: name.into(),
            dependencies: packages.iter().map(dependency).collect(),
        };
        graph.iter().map(member).collect()
    }

    #[test]
    fn allowed_directions_pass() {
        let crates = workspace(&[
            ("celeris-model", &["serde", "nalgebra"]),
            ("celeris-storage", &["celeris-model", "rocksdb", "tokio"]),
            ("celeris-bandits", &["celeris-model", "rand"]),
            ("celeris-predictor", &["celeris-model", "celeris-storage", "celeris-bandits"]),
            ("celeris-manager", &["celeris-predictor", "celeris-storage"]),
            ("celeris-api", &["celeris-manager", "celeris-predictor", "axum", "utoipa", "tower-http"]),
            ("celeris-tests", &["celeris-api", "celeris-model", "axum"]),
            ("xtask", &["anyhow"]),
        ]);
        assert_eq!(check(&crates), Vec::<String>::new());
    }

    #[test]
    fn no_crate_uses_one_above_or_beside_it() {
        let crates = workspace(&[
            ("celeris-model", &["celeris-storage"]),
            ("celeris-storage", &["celeris-model"]),
            ("celeris-predictor", &["celeris-manager", "celeris-model"]),
            ("celeris-manager", &[]),
            ("celeris-tests", &["celeris-storage"]),
            ("xtask", &["celeris-model"]),
        ]);
        assert_eq!(
            check(&crates),
            [
                "celeris-model -> celeris-storage: of the workspace it may use only celeris-kernel",
                "celeris-predictor -> celeris-manager: of the workspace it may use only celeris-model, \
                 celeris-storage, celeris-features, celeris-bandits, celeris-retrieval",
                "celeris-tests -> celeris-storage: of the workspace it may use only celeris-model, celeris-datasets, \
                 celeris-api, celeris-skip",
                "xtask -> celeris-model: it may use no other crate of the workspace",
            ]
        );
    }

    #[test]
    fn rocksdb_nats_http_columnar_files_and_foreign_graphs_stay_in_their_crates() {
        let crates = workspace(&[
            ("celeris-features", &["arrow-array"]),
            ("celeris-formats", &["arrow-array", "parquet"]),
            ("celeris-predictor", &["rocksdb"]),
            ("celeris-manager", &["axum", "tower"]),
            ("celeris-api", &["async-nats"]),
            ("celeris-pipelines", &["tract-onnx"]),
            ("celeris-manager", &["tract-onnx"]),
            ("celeris-tests", &["rocksdb", "utoipa"]),
        ]);
        assert_eq!(
            check(&crates),
            [
                "celeris-features -> arrow-array: only celeris-formats, and tests, know columnar files",
                "celeris-predictor -> rocksdb: only celeris-storage knows RocksDB",
                "celeris-manager -> axum: only celeris-api, and the benches and tests that drive it, know HTTP serving",
                "celeris-api -> async-nats: only celeris-cluster, celeris-ingest, and tests and benches know NATS",
                "celeris-manager -> tract-onnx: only celeris-pipelines runs graphs of other libraries",
                "celeris-tests -> rocksdb: only celeris-storage knows RocksDB",
            ]
        );
    }

    #[test]
    fn pure_crates_do_no_io() {
        let crates = workspace(&[("celeris-model", &["tokio"]), ("celeris-bandits", &["rayon", "serde"])]);
        let findings = check(&crates);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("celeris-model -> tokio: it is pure"), "{findings:?}");
        assert!(findings[1].starts_with("celeris-bandits -> rayon: it is pure"), "{findings:?}");
    }

    #[test]
    fn the_server_links_no_crates_of_tests_and_benches() {
        let linked = ["celeris-cli", "serde", "tempfile"].map(str::to_owned);
        let findings = check_server(&linked);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("celeris-cli links tempfile"), "{findings:?}");
    }

    #[test]
    fn a_crate_without_a_rule_is_found() {
        let findings = check(&workspace(&[("celeris-attic", &[])]));
        assert_eq!(
            findings,
            ["celeris-attic: is not in the table of crates; add it to xtask/src/deps.rs with what it may use"]
        );
    }

    #[test]
    fn allowed_dependencies_have_no_cycles() {
        // Each crate uses only crates before it, so the table is topologically sorted.
        for (position, rule) in RULES.iter().enumerate() {
            for used in rule.may_use {
                assert!(RULES[..position].iter().any(|before| before.name == *used), "{} uses {used}", rule.name);
            }
        }
    }
}
