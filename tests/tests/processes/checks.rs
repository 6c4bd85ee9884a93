//! `celeris check`: each finding that can be provoked, with what to do.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use celeris_skip::{self as skip, Need};
use celeris_tests::binary::{self, Finished};
use celeris_tests::fixtures::config_file;
use celeris_tests::{Nats, NodeProcess, ProcessOptions};
use serde_json::{Value, json};

/// A free port, so that another node of this machine is no finding.
const LISTEN: &str = "127.0.0.1:0";

/// What `celeris check` says with these options: its exit code and its findings.
fn check(options: &[&str]) -> (Option<i32>, Vec<Value>) {
    let finished = binary::run([["check", "--json", "--listen", LISTEN].as_slice(), options].concat());
    findings(&finished)
}

fn findings(finished: &Finished) -> (Option<i32>, Vec<Value>) {
    let report: Value = serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished:?}"));
    let findings = report["findings"].as_array().unwrap().clone();
    let count = |state: &str| findings.iter().filter(|finding| finding["state"] == state).count();
    assert_eq!(
        (report["problems"].as_u64(), report["warnings"].as_u64()),
        (Some(count("problem") as u64), Some(count("warning") as u64))
    );
    assert_eq!(finished.code, Some(i32::from(count("problem") > 0)), "{finished:?}");
    (finished.code, findings)
}

/// The finding of this check in this state whose text has these words.
#[track_caller]
fn find<'a>(findings: &'a [Value], (check, state): (&str, &str), words: &str) -> &'a Value {
    let is_it = |finding: &&Value| {
        finding["check"] == check && finding["state"] == state && finding.to_string().contains(words)
    };
    let found = findings.iter().find(is_it);
    found.unwrap_or_else(|| panic!("no {check}, {state} with {words:?} in {findings:#?}"))
}

/// Runs the check with this configuration, and finds.
#[track_caller]
fn configured(settings: &str, kind: (&str, &str), words: &str) {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), settings);
    let (_, findings) = check(&["--config", config.to_str().unwrap()]);
    find(&findings, kind, words);
}

#[test]
fn a_directory_that_does_not_exist_yet_is_fine_and_is_not_created() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("below/data");
    let (_, findings) = check(&["--data-dir", data.to_str().unwrap()]);
    find(&findings, ("data directory", "ok"), "will be created");
    find(&findings, ("version", "ok"), env!("CARGO_PKG_VERSION"));
    find(&findings, ("configuration", "ok"), "valid");
    find(&findings, ("training", "ok"), "confined");
    assert!(!data.exists() && fs::read_dir(dir.path()).unwrap().next().is_none(), "nothing is left");
    // For people, in lines.
    let shown = binary::run(["check", "--listen", LISTEN, "--data-dir", data.to_str().unwrap()]);
    assert!(shown.stdout.contains("ok       data directory"), "{shown:?}");
    assert!(shown.stdout.contains("problem"), "{shown:?}");
    assert_eq!(binary::run(["check", "--no-such-option"]).code, Some(2));
}

#[test]
fn a_directory_in_use_and_its_port_are_no_problem() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    let address = node.client().address().to_owned();
    let finished = binary::run(["check", "--json", "--listen", &address, "--data-dir", data.to_str().unwrap()]);
    let (_, found) = findings(&finished);
    find(&found, ("data directory", "ok"), "a node has it open");
    find(&found, ("port", "ok"), "is taken, as by the node");
    // The node was not disturbed, and a second start is still refused.
    assert_eq!(node.client().get("/readyz").status, 200);
    assert_eq!(ProcessOptions::default().try_serve(&data).err().unwrap().code, Some(2));
    assert_eq!(node.terminate().code, Some(0));
    let (_, found) = check(&["--data-dir", data.to_str().unwrap()]);
    find(&found, ("data directory", "ok"), "has the store of a node");
    assert!(!found.iter().any(|finding| finding.to_string().contains("has it open")), "{found:?}");
}

#[test]
fn data_that_a_node_would_refuse_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("db")).unwrap();
    let options = ["--data-dir", data.to_str().unwrap()];
    for (format, words) in [
        ("{\"format\":1,\"partitions\":64}", "has format 1"),
        ("{\"format\":99,\"partitions\":64}", "has format 99"),
        ("{\"format\":3,\"partitions\":7}", "7 partitions"),
        ("gibberish", "restore that file"),
    ] {
        fs::write(data.join("FORMAT"), format).unwrap();
        find(&check(&options).1, ("data directory", "problem"), words);
    }
    fs::write(data.join("FORMAT"), "{\"format\":3,\"partitions\":64}").unwrap();
    let version = data.join("versions/films.1/2");
    fs::create_dir_all(&version).unwrap();
    for (manifest, words) in [("{\"format\": 7}", "format 7"), ("[", "cannot be read"), ("\u{1b}[2J", "cannot be read")]
    {
        fs::write(version.join("_SUCCESS"), manifest).unwrap();
        find(&check(&options).1, ("versions", "problem"), words);
    }
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    find(&check(&["--data-dir", file.to_str().unwrap()]).1, ("data directory", "problem"), "is a file");
    // Names that a terminal would obey are shown.
    let crafted = dir.path().join("\u{1b}]0;title\u{7}");
    let shown = binary::run(["check", "--listen", LISTEN, "--data-dir", crafted.to_str().unwrap()]);
    assert!(!shown.stdout.contains('\u{1b}') && shown.stdout.contains("\\u{1b}"), "{shown:?}");
}

#[test]
fn a_directory_that_cannot_be_written_is_a_problem() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o500)).unwrap();
    // Root may write everywhere.
    let writable = fs::write(data.join("probe"), "").is_ok();
    let (_, findings) = check(&["--data-dir", data.to_str().unwrap()]);
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    if !writable {
        find(&findings, ("data directory", "problem"), "cannot be written");
    }
    // /proc is read-only for everyone.
    let (_, findings) = check(&["--data-dir", "/proc/sys/data"]);
    find(&findings, ("data directory", "problem"), "cannot be written");
}

#[test]
fn file_systems_that_forget_are_warned_of() {
    let (_, findings) = check(&["--data-dir", "/dev/shm/celeris-check-test"]);
    if Path::new("/dev/shm").is_dir() {
        find(&findings, ("file system", "warning"), "tmpfs");
    }
}

#[test]
fn mistakes_of_the_configuration_are_problems_and_the_rest_is_still_checked() {
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), "[server]\nlisten = 7\n");
    let (code, findings) = check(&["--config", config.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    let found = find(&findings, ("configuration", "problem"), "listen");
    assert!(found["remedy"].as_str().unwrap().contains("celeris config"), "{found}");
    find(&findings, ("open files", "ok"), "");
    for (settings, words) in [
        ("[servers]\n", "servers"),
        ("[cluster]\nnode = \"a\"\n", "cluster.name"),
        ("[training.limits]\nmemory = \"1 B\"\n", "training.limits"),
        ("[limits]\nitems_per_request = 0\n", "limits.items_per_request"),
        (&ingest("nats", "servers = [\"http://user:hidden@broker\"]\nstream = \"S\""), "http://…@broker"),
        (&ingest("nats", "servers = [\"nats://\"]\nstream = \"S\""), "nats.servers"),
        (&ingest("kafka", "brokers = [\"kafka://user:hidden@broker:9092\"]\ntopic = \"t\""), "kafka://…@broker"),
        (&ingest("kafka", "brokers = [\"broker\"]\ntopic = \"t\""), "kafka.brokers"),
        (&ingest("nats", "servers = \"nats://user:hidden@broker\"\nstream = \"S\""), "expected a sequence"),
    ] {
        configured(settings, ("configuration", "problem"), words);
        let config = config_file(dir.path(), settings);
        let shown = binary::run(["config", "--config", config.to_str().unwrap()]);
        assert!(shown.code == Some(2) && !format!("{shown:?}").contains("hidden"), "{shown:?}");
    }
    let absent = dir.path().join("absent.toml");
    let (_, findings) = check(&["--config", absent.to_str().unwrap()]);
    find(&findings, ("configuration", "problem"), "absent.toml");
    configured("[auth]\nadmin_key_file = \"/nowhere\"\n", ("keys", "problem"), "auth.admin_key_file");
}

/// An ingest of this broker.
fn ingest(broker: &str, settings: &str) -> String {
    format!("[[ingest]]\nname = \"clicks\"\nmodel = \"shop\"\n[ingest.{broker}]\n{settings}\n")
}

#[test]
fn limits_below_what_is_configured_are_found() {
    configured("[memory]\nusers = \"9000 TiB\"\n", ("memory", "problem"), "memory.users");
    configured("[training.limits]\nmemory = \"4000 TiB\"\n", ("memory", "warning"), "training.limits.memory");
    let limited = |files: &str| {
        let script = format!("ulimit -n {files}; exec \"$0\" check --json --listen {LISTEN}");
        let output = Command::new("sh").args(["-c", &script]).arg(binary::path()).output().unwrap();
        let finished = Finished {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        findings(&finished).1
    };
    find(&limited("512"), ("open files", "problem"), "LimitNOFILE");
    find(&limited("4096"), ("open files", "warning"), "2048 connections");
}

#[test]
fn sockets_that_are_taken_or_open_to_others_are_found() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let finished = binary::run(["check", "--json", "--listen", &address]);
    find(&findings(&finished).1, ("port", "problem"), "stop the other process");
    configured(&format!("[server]\noperators = \"{address}\"\n"), ("port", "problem"), "server.operators");
    for (listen, words) in [("nonsense", "nonsense"), ("192.0.2.1:0", "address that this machine has")] {
        let finished = binary::run(["check", "--json", "--listen", listen]);
        find(&findings(&finished).1, ("port", "problem"), words);
    }
    let open = |options: &[&str]| {
        findings(&binary::run([["check", "--json", "--listen", "0.0.0.0:0"].as_slice(), options].concat())).1
    };
    let found = open(&[]);
    find(&found, ("access", "problem"), "not encrypted");
    find(&found, ("access", "problem"), "it has no keys");
    let found = open(&["--insecure"]);
    find(&found, ("access", "warning"), "server.insecure");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("key"), "0123456789abcdef0123456789abcdef").unwrap();
    let key = config_file(dir.path(), format!("[auth]\nadmin_key_file = {:?}\n", dir.path().join("key")));
    let found = open(&["--config", key.to_str().unwrap()]);
    find(&found, ("access", "ok"), "need a key");
    find(&found, ("keys", "ok"), "holds a key");
}

/// A certificate of its own and its key, by `openssl`, valid for so many days from now on.
fn certificate(folder: &Path, name: &str, days: &str) -> String {
    let (cert, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-days", days, "-addext", "subjectAltName=DNS:localhost", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    format!("[server.tls]\ncert = {cert:?}\nkey = {key:?}\n")
}

/// Has a certificate end in 2020. No tool makes one that has ended; its signature, which a server does not verify, is false then.
fn expire(cert: &Path) {
    let convert = |from: (&str, &Path), to: (&str, &Path)| {
        let mut command = Command::new("openssl");
        command.args(["x509", "-inform", from.0, "-outform", to.0, "-in"]).arg(from.1).arg("-out").arg(to.1);
        assert!(command.status().unwrap().success());
    };
    let der = cert.with_extension("der");
    convert(("PEM", cert), ("DER", &der));
    let mut bytes = fs::read(&der).unwrap();
    // The times of the validity, of 13 characters each: the second is the end.
    let ends =
        (0..bytes.len() - 15).filter(|place| bytes[*place..].starts_with(&[0x17, 13]) && bytes[place + 14] == b'Z');
    let end = ends.take(2).last().unwrap() + 2;
    bytes[end..end + 13].copy_from_slice(b"200101000000Z");
    fs::write(&der, bytes).unwrap();
    convert(("DER", &der), ("PEM", cert));
}

#[test]
fn certificates_are_checked_with_their_keys_and_times() {
    let found = Command::new("openssl").arg("version").output().is_ok().then_some(());
    let Some(()) = skip::unless(Need::Commands, found, "there is no `openssl`") else { return };
    let dir = tempfile::tempdir().unwrap();
    configured(&certificate(dir.path(), "good", "400"), ("certificate", "ok"), "fits its key");
    configured(&certificate(dir.path(), "short", "5"), ("certificate", "warning"), "renew it");
    let expired = certificate(dir.path(), "expired", "400");
    expire(&dir.path().join("expired.pem"));
    configured(&expired, ("certificate", "problem"), "has expired on 2020-01-01");
    let mixed = certificate(dir.path(), "other", "400").replace("other.key", "good.key");
    configured(&mixed, ("certificate", "problem"), "server.tls");
    let absent = certificate(dir.path(), "gone", "400");
    fs::remove_file(dir.path().join("gone.pem")).unwrap();
    configured(&absent, ("certificate", "problem"), "gone.pem");
}

#[test]
fn a_clock_behind_the_data_is_found() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("VERIFICATION"), "").unwrap();
    let touched = Command::new("touch").args(["-d", "+3 days"]).arg(dir.path().join("VERIFICATION")).status().unwrap();
    assert!(touched.success());
    let (_, findings) = check(&["--data-dir", dir.path().to_str().unwrap()]);
    find(&findings, ("clock", "problem"), "ahead of the clock");
}

#[test]
fn trainers_and_folders_that_do_not_exist_are_found() {
    configured(
        "[training.trainers]\nsvd = [\"/nowhere/svd\", \"{job}\"]\n",
        ("training", "problem"),
        "training.trainers.svd",
    );
    configured("[training.trainers]\nsh = [\"sh\", \"{job}\"]\n", ("training", "ok"), "trainer sh");
    configured("[training]\nimport_dir = \"/nowhere\"\n", ("training", "problem"), "training.import_dir");
}

#[test]
fn servers_of_a_cluster_that_do_not_answer_or_are_something_else_are_found() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let of = |nats: &str, monitor: &str| {
        format!(
            "[cluster]\nname = \"c\"\nnode = \"a\"\nnats = [\"nats://user:secret@{nats}\"]\nnats_monitor = [\"http://{monitor}\"]\n"
        )
    };
    configured(&of("127.0.0.1:1", "127.0.0.1:1"), ("NATS", "problem"), "start the servers");
    configured(&of(&address.to_string(), "127.0.0.1:1"), ("NATS", "problem"), &address.to_string());
    let dir = tempfile::tempdir().unwrap();
    let config = config_file(dir.path(), of("127.0.0.1:1", "127.0.0.1:1"));
    let (_, findings) = check(&["--config", config.to_str().unwrap()]);
    assert!(!json!(findings).to_string().contains("secret"), "{findings:?}");
}

#[test]
fn servers_of_a_cluster_that_are_fit_for_it_are_said_to_be() {
    let Some(nats) = Nats::start(1) else { return };
    let settings = format!(
        "[cluster]\nname = \"c\"\nnode = \"a\"\nreplicas = 1\nnats = {:?}\nnats_monitor = {:?}\n",
        nats.urls(),
        nats.monitor_urls()
    );
    for (kind, words) in [
        (("NATS", "ok"), "answers, version"),
        (("NATS", "ok"), "sync each write"),
        (("clock", "ok"), "the same as that of"),
    ] {
        configured(&settings, kind, words);
    }
}
