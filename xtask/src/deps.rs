//! The direction of dependencies: which room of the workspace may know which, and which outside crates.
//!
//! Dev-dependencies follow the same rules, so that a test cannot bring in what the code may not.

use crate::manifest::Crate;

/// What one crate of the workspace may depend on among the others.
struct Room {
    name: &'static str,
    may_use: &'static [&'static str],
}

/// What the command line wires.
const BELOW_THE_COMMAND_LINE: [&str; 11] = [
    "celeris-model",
    "celeris-storage",
    "celeris-features",
    "celeris-bandits",
    "celeris-datasets",
    "celeris-predictor",
    "celeris-retrain",
    "celeris-retrieval",
    "celeris-manager",
    "celeris-api",
    "celeris-evaluate",
];

/// Every crate of the workspace, from the vocabulary up. A new crate gets its line here first.
const ROOMS: [Room; 16] = [
    Room { name: "celeris-model", may_use: &[] },
    Room { name: "celeris-storage", may_use: &["celeris-model"] },
    Room { name: "celeris-features", may_use: &["celeris-model"] },
    Room { name: "celeris-bandits", may_use: &["celeris-model"] },
    Room { name: "celeris-datasets", may_use: &["celeris-model"] },
    Room { name: "celeris-retrieval", may_use: &["celeris-model"] },
    Room {
        name: "celeris-predictor",
        may_use: &["celeris-model", "celeris-storage", "celeris-features", "celeris-bandits", "celeris-retrieval"],
    },
    Room { name: "celeris-retrain", may_use: &["celeris-model", "celeris-storage", "celeris-features"] },
    Room {
        name: "celeris-manager",
        may_use: &[
            "celeris-model",
            "celeris-storage",
            "celeris-features",
            "celeris-bandits",
            "celeris-retrain",
            "celeris-retrieval",
            "celeris-predictor",
        ],
    },
    Room { name: "celeris-cluster", may_use: &["celeris-model", "celeris-storage"] },
    Room {
        name: "celeris-api",
        may_use: &[
            "celeris-model",
            "celeris-storage",
            "celeris-features",
            "celeris-bandits",
            "celeris-predictor",
            "celeris-retrieval",
            "celeris-manager",
            "celeris-cluster",
        ],
    },
    Room {
        name: "celeris-evaluate",
        may_use: &[
            "celeris-model",
            "celeris-storage",
            "celeris-features",
            "celeris-bandits",
            "celeris-datasets",
            "celeris-retrain",
            "celeris-retrieval",
            "celeris-api",
        ],
    },
    Room { name: "celeris-cli", may_use: &BELOW_THE_COMMAND_LINE },
    Room {
        name: "celeris-bench",
        may_use: &[
            "celeris-model",
            "celeris-storage",
            "celeris-features",
            "celeris-bandits",
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
    Room { name: "celeris-tests", may_use: &["celeris-model", "celeris-datasets", "celeris-api"] },
    Room { name: "xtask", may_use: &[] },
];

/// Outside crates that only some rooms may know.
struct Confined {
    packages: &'static [&'static str],
    to: &'static [&'static str],
    why: &'static str,
}

const CONFINED: [Confined; 2] = [
    Confined {
        packages: &["rocksdb", "librocksdb-sys"],
        to: &["celeris-storage"],
        why: "only celeris-storage knows RocksDB",
    },
    Confined {
        packages: &["axum", "axum-extra", "hyper", "tower-http", "utoipa", "utoipa-axum"],
        to: &["celeris-api", "celeris-bench", "celeris-tests"],
        why: "only celeris-api, and the benches and tests that drive it, know HTTP serving",
    },
];

/// The rooms that do no I/O.
const PURE: [&str; 2] = ["celeris-model", "celeris-bandits"];

/// Crates that read, write, listen or schedule, or are formats of files.
const IO: [&str; 22] = [
    "arrow",
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

/// One line for each dependency that points where it may not, in the order of the crates.
#[must_use]
pub fn check(crates: &[Crate]) -> Vec<String> {
    let mut findings = Vec::new();
    for member in crates {
        let Some(room) = ROOMS.iter().find(|room| room.name == member.name) else {
            findings.push(format!(
                "{}: is not in the table of rooms; add it to xtask/src/deps.rs with what it may use",
                member.name
            ));
            continue;
        };
        for dependency in &member.dependencies {
            let package = dependency.package.as_str();
            let is_member = crates.iter().any(|other| other.name == package);
            let mut forbid = |why: &str| findings.push(format!("{} -> {package}: {why}", member.name));
            if is_member && !room.may_use.contains(&package) {
                forbid(&match room.may_use {
                    [] => "it may use no other crate of the workspace".to_owned(),
                    allowed => format!("of the workspace it may use only {}", allowed.join(", ")),
                });
            }
            for confined in CONFINED {
                if confined.packages.contains(&package) && !confined.to.contains(&room.name) {
                    forbid(confined.why);
                }
            }
            if PURE.contains(&room.name) && IO.contains(&package) {
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

    /// A workspace of these crates, each with the packages it depends on.
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
    fn the_drawn_directions_are_allowed() {
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
    fn no_room_uses_one_above_or_beside_it() {
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
                "celeris-model -> celeris-storage: it may use no other crate of the workspace",
                "celeris-predictor -> celeris-manager: of the workspace it may use only celeris-model, \
                 celeris-storage, celeris-features, celeris-bandits, celeris-retrieval",
                "celeris-tests -> celeris-storage: of the workspace it may use only celeris-model, celeris-datasets, \
                 celeris-api",
                "xtask -> celeris-model: it may use no other crate of the workspace",
            ]
        );
    }

    #[test]
    fn rocksdb_and_http_stay_in_their_rooms() {
        let crates = workspace(&[
            ("celeris-predictor", &["rocksdb"]),
            ("celeris-manager", &["axum", "tower"]),
            ("celeris-tests", &["rocksdb", "utoipa"]),
        ]);
        assert_eq!(
            check(&crates),
            [
                "celeris-predictor -> rocksdb: only celeris-storage knows RocksDB",
                "celeris-manager -> axum: only celeris-api, and the benches and tests that drive it, know HTTP serving",
                "celeris-tests -> rocksdb: only celeris-storage knows RocksDB",
            ]
        );
    }

    #[test]
    fn the_pure_rooms_do_no_io() {
        let crates = workspace(&[("celeris-model", &["tokio"]), ("celeris-bandits", &["parquet", "serde"])]);
        let findings = check(&crates);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("celeris-model -> tokio: it is pure"), "{findings:?}");
        assert!(findings[1].starts_with("celeris-bandits -> parquet: it is pure"), "{findings:?}");
    }

    #[test]
    fn a_crate_without_a_room_is_found() {
        let findings = check(&workspace(&[("celeris-attic", &[])]));
        assert_eq!(
            findings,
            ["celeris-attic: is not in the table of rooms; add it to xtask/src/deps.rs with what it may use"]
        );
    }

    #[test]
    fn rooms_are_drawn_without_circles() {
        // Each room uses only rooms that stand before it, so the table itself is an order.
        for (position, room) in ROOMS.iter().enumerate() {
            for used in room.may_use {
                assert!(ROOMS[..position].iter().any(|before| before.name == *used), "{} uses {used}", room.name);
            }
        }
    }
}
