//! The configuration, and the files of keys that it names.

use std::path::Path;

use celeris_api::access::{Access, NodeSecret};
use celeris_api::config::Config;

use super::finding::Findings;

pub fn check(file: Option<&Path>, loaded: &Result<Config, String>, findings: &mut Findings) {
    let source = file.map_or_else(|| "the defaults".to_owned(), |file| file.display().to_string());
    let config = match loaded {
        Ok(config) => config,
        Err(error) => {
            findings.problem(
                "configuration",
                error.as_str(),
                "correct it: `celeris config` prints every key; what else is configured was not checked",
            );
            return;
        }
    };
    findings.ok("configuration", format!("{source} and the environment are valid"));
    let secret = NodeSecret::open(config.cluster.secret_file.as_deref());
    match secret.and_then(|secret| Access::open(&config.auth, secret, config.limits.streams_per_key)) {
        Err(error) => findings.refusal("keys", error),
        Ok(_) if config.auth.admin_key_file.is_some() => findings.ok("keys", "auth.admin_key_file holds a key"),
        Ok(_) => {}
    }
}
