//! A newcomer's first commands: from an empty folder and the binary to recommendations, on files as
//! people have them.
//!
//! Every command after the second was printed by an earlier one, so no manual is needed.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use celeris_tests::{ProcessOptions, binary};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// Users like the items of their own parity.
fn rows(mut row: impl FnMut(&mut String, usize, usize, bool)) -> String {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let mut text = String::new();
    for user in 0..80 {
        for _ in 0..20 {
            let item = random.random_range(0..50);
            row(&mut text, user, item, user % 2 == item % 2);
        }
    }
    text
}

/// Runs the commands in an empty folder with this file, the first of which starts the node; returns
/// the reply of the last one.
fn run(file: &str, text: &str, commands: &[&str]) -> Value {
    assert!(commands.len() <= 6, "{} commands", commands.len());
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(file), text).unwrap();
    let (serve, others) = commands.split_first().unwrap();
    assert_eq!(*serve, "celeris serve --data-dir data");
    let node = ProcessOptions::default().automatic().serve(&dir.path().join("data"));
    let client = node.client();
    let mut said = String::new();
    let mut last = String::new();
    for (index, command) in others.iter().enumerate() {
        // The node of a test has another port than the default, which has to be named.
        let here = command.replace("http://127.0.0.1:7117", client.url());
        let url = format!(" --url {}", client.url());
        assert!(index == 0 || said.replace(&url, "").contains(&here), "{here:?} was not said in:\n{said}");
        let needs_url = here.starts_with("celeris") && !here.contains("--url");
        let here = if needs_url { here + &url } else { here };
        last = in_shell(&here, dir.path(), &mut said);
    }
    serde_json::from_str(&last).unwrap_or_else(|_| panic!("{last:?} after\n{said}"))
}

/// Runs a command line; adds all that it writes to `said`, and returns its standard output.
fn in_shell(line: &str, folder: &Path, said: &mut String) -> String {
    let binary = binary::path();
    let path = std::env::join_paths(
        std::iter::once(binary.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let output = Command::new("bash")
        .args(["-c", line])
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let _ = write!(said, "$ {line}\n{stdout}{stderr}");
    stdout
}

/// The parities of the recommended items; each id ends with its number.
fn are_of_parity(reply: &Value, parity: usize) -> usize {
    let items = reply["items"].as_array().unwrap_or_else(|| panic!("{reply}"));
    assert_eq!(items.len(), 10, "{reply}");
    let number = |item: &Value| -> usize {
        let digits = item["item"].as_str().unwrap().trim_start_matches(|c: char| !c.is_ascii_digit());
        digits.parse().unwrap()
    };
    items.iter().filter(|item| number(item) % 2 == parity).count()
}

const JSON: &str = "-H 'content-type: application/json'";

#[test]
fn purchases_of_a_shop() {
    let purchases = rows(|text, user, item, likes| {
        if likes {
            let _ = writeln!(text, "C-{user};P{item};{};2024-03-{:02} 10:{:02}:00", 1 + item % 3, 1 + user % 28, item);
        }
    });
    let first_user = purchases.split(';').next().unwrap().to_owned();
    let reply = run(
        "retail.csv",
        &format!("customer_id;product_id;qty;created_at\n{purchases}"),
        &[
            "celeris serve --data-dir data",
            "celeris import retail.csv --dry-run",
            &format!("curl http://127.0.0.1:7117/v1/models {JSON} -d '{{\"loss\":\"implicit\",\"name\":\"retail\"}}'"),
            "celeris import retail.csv --model retail",
            "celeris retrain retail --wait",
            &format!(
                "curl http://127.0.0.1:7117/v1/models/retail/recommend {JSON} -d '{{\"k\":10,\"user\":\"{first_user}\"}}'"
            ),
        ],
    );
    assert!(are_of_parity(&reply, 0) >= 8, "{reply}");
}

#[test]
fn clicks_without_times() {
    let clicks = rows(|text, user, item, likes| {
        if likes {
            let _ = writeln!(text, "visitor{user},/page/{item}");
        }
    });
    let reply = run(
        "clicks.csv",
        &format!("visitor_id,page_id\n{clicks}"),
        &[
            "celeris serve --data-dir data",
            "celeris import clicks.csv --label 1 --dry-run",
            &format!("curl http://127.0.0.1:7117/v1/models {JSON} -d '{{\"loss\":\"implicit\",\"name\":\"clicks\"}}'"),
            "celeris import clicks.csv --label 1 --model clicks",
            "celeris retrain clicks --wait",
            &format!(
                "curl http://127.0.0.1:7117/v1/models/clicks/recommend {JSON} -d '{{\"k\":10,\"user\":\"visitor0\"}}'"
            ),
        ],
    );
    assert!(are_of_parity(&reply, 0) >= 8, "{reply}");
}

#[test]
fn ratings_with_half_stars() {
    let ratings = rows(|text, user, item, likes| {
        let stars = if likes { "4.5" } else { "1.5" };
        let _ = write!(text, "u{user},film{item},{stars},{}\r\n", 1_700_000_000 + 60 * item);
    });
    let reply = run(
        "ratings.csv",
        &format!("\u{feff}User,Item,Stars,Timestamp\r\n{ratings}"),
        &[
            "celeris serve --data-dir data",
            "celeris import ratings.csv --dry-run",
            &format!("curl http://127.0.0.1:7117/v1/models {JSON} -d '{{\"loss\":\"squared\",\"name\":\"ratings\"}}'"),
            "celeris import ratings.csv --model ratings",
            "celeris retrain ratings --wait",
            &format!("curl http://127.0.0.1:7117/v1/models/ratings/recommend {JSON} -d '{{\"k\":10,\"user\":\"u0\"}}'"),
        ],
    );
    assert!(are_of_parity(&reply, 0) >= 8, "{reply}");
}
