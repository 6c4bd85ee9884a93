//! `celeris config` prints every key with its default and the value in force.

use std::fs;

use celeris_api::config::{Config, load_from};
use celeris_tests::binary;

/// Each key with its section, and its default as the documentation writes it.
fn defaults(listing: &str) -> Vec<(String, String)> {
    let (mut section, mut default) = ("", None);
    let mut keys = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        } else if let Some(value) = line.strip_prefix("# Default: ") {
            default = Some(format!("`{}`", value.trim_matches('"')));
        } else if line == "# Not set by default." {
            default = Some("not set".to_owned());
        } else if let Some(default) = default.take() {
            let key = line.trim_start_matches("# ").split(" =").next().unwrap();
            keys.push((format!("{section}.{key}"), default));
        }
    }
    keys
}

#[test]
fn a_listing_configures_a_node_in_the_same_way() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    let text = "[limits]\nbody = \"1500 B\"\n[training]\nimport_dir = \"/srv/in\"\n\
                [training.trainers]\nsvd = [\"run\", \"{job}\"]\n[training.limits]\nmemory = \"3 GiB\"\n";
    fs::write(&file, text).unwrap();
    let output = binary::command()
        .args(["config", "--config", file.to_str().unwrap(), "--listen", "127.0.0.1:0"])
        .env("CELERIS_DECISIONS__RETENTION", "2h")
        .env("CELERIS_SERVER__HOSTS", r#"["a.example"]"#)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let listing = String::from_utf8(output.stdout).unwrap();
    for lines in [
        "# Maximum size of a JSON body.\n# Default: \"4 MiB\"\nbody = \"1500 B\"\n",
        "# Default: \"30days\"\nretention = \"2h\"\n",
        "# Default: []\nhosts = [\"a.example\"]\n",
        "# Not set by default.\nmemory = \"3 GiB\"\n",
        "# Not set by default.\n# disk =\n",
        "[training.trainers]\nsvd = [\"run\",\"{job}\"]\n",
    ] {
        assert!(listing.contains(lines), "no {lines:?} in:\n{listing}");
    }

    fs::write(&file, &listing).unwrap();
    let again = load_from(Some(&file), [], None).unwrap();
    let mut expected: Config = toml_of(text);
    // Set by the environment of all tests.
    expected.training.automatic = false;
    expected.server.listen = "127.0.0.1:0".to_owned();
    expected.server.hosts = vec!["a.example".to_owned()];
    expected.decisions.retention = std::time::Duration::from_secs(7200);
    assert_eq!(again, expected);
}

#[test]
fn a_listing_has_addresses_without_passwords() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[cluster]\nname = \"c\"\nnode = \"a\"\nnats = [\"nats://user:hidden@h1:4222\"]\n\
                nats_monitor = [\"http://user:hidden@h1:8222\"]\n[[ingest]]\nname = \"i\"\nmodel = \"m\"\n\
                [ingest.nats]\nservers = [\"nats://hidden@h2\"]\nstream = \"S\"\n";
    let file = dir.path().join("node.toml");
    fs::write(&file, text).unwrap();
    let shown = binary::run(["config", "--config", file.to_str().unwrap()]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for line in
        ["nats = [\"nats://…@h1:4222\"]", "nats_monitor = [\"http://…@h1:8222\"]", "servers = [\"nats://…@h2\"]"]
    {
        assert!(shown.stdout.contains(line), "no {line} in {}", shown.stdout);
    }
    assert!(!shown.stdout.contains("hidden"), "{}", shown.stdout);
}

#[test]
fn the_documentation_has_every_key_with_its_default() {
    let finished = binary::run(["config"]);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    let page = include_str!("../../../docs/run/configuration.md");
    let keys = defaults(&finished.stdout);
    assert!(keys.len() > 30, "{keys:?}");
    for (key, default) in keys {
        assert!(page.contains(&format!("| `{key}` | {default} |")), "no row of {key}, by default {default}");
    }
}

/// The configuration of a file with this text, and no environment.
fn toml_of(text: &str) -> Config {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    fs::write(&file, text).unwrap();
    load_from(Some(&file), [], None).unwrap()
}
