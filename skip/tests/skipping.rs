//! A skip is recorded with its reason, and fails if its need is required.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::env;
use std::fs;
use std::process::{Command, Output};

use celeris_skip::{Need, RECORD, REQUIRE, unless};

const LACKING: &str = "a_test_that_lacks_a_browser";

/// Run by the other tests, as a process.
#[test]
#[ignore = "run by the other tests"]
fn a_test_that_lacks_a_browser() {
    let Some(found) = unless(Need::Browser, None::<u8>, "no browser") else { return };
    panic!("a browser was found: {found}");
}

#[test]
#[ignore = "run by the other tests"]
fn a_test_that_has_a_browser() {
    assert_eq!(unless(Need::Browser, Some(7), "no browser"), Some(7));
}

/// Runs one of the ignored tests, and returns its output and the skips that it recorded.
fn run(test: &str, require: &str) -> (Output, String) {
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("skipped");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--show-output"]).env(RECORD, &record).env(REQUIRE, require);
    let output = command.output().unwrap();
    (output, fs::read_to_string(record).unwrap_or_default())
}

#[test]
fn a_skip_is_printed_and_recorded_with_its_reason() {
    for require in ["", "peers, mount"] {
        let (output, recorded) = run(LACKING, require);
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("SKIPPED, browser: no browser"), "{output:?}");
        assert_eq!(recorded, format!("browser\t{LACKING}\tno browser\n"));
    }
}

#[test]
fn a_required_need_fails_its_tests_instead() {
    let (output, recorded) = run(LACKING, "peers,browser");
    assert!(!output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("CELERIS_REQUIRE names browser: no browser"),
        "{output:?}"
    );
    assert_eq!(recorded, "");
}

#[test]
fn a_need_that_is_met_is_no_skip() {
    let (output, recorded) = run("a_test_that_has_a_browser", "browser");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(recorded, "");
}

#[test]
fn an_unknown_name_is_an_error_for_every_test_that_may_skip() {
    for test in [LACKING, "a_test_that_has_a_browser"] {
        let (output, recorded) = run(test, "browsers");
        assert!(!output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        let names = Need::ALL.map(Need::name).join(", ");
        assert!(text.contains(r#""browsers""#) && text.contains(&names), "{text}");
        assert_eq!(recorded, "");
    }
}
