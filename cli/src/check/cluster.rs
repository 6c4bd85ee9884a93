//! The NATS servers of a cluster: whether enough of them answer, sync each write, are new enough, and have the same time.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use celeris_api::cluster::{check_syncing, check_version};
use celeris_model::address::without_login;
use jiff::Timestamp;
use serde_json::Value;
use ureq::Agent;

use super::Subject;
use super::finding::Findings;

/// Time for a server to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A longer greeting is not of a NATS server.
const GREETING_BYTES_MAX: u64 = 64 << 10;

/// Clocks that differ by less are as good as the same: the answer takes a part of it.
const APART: Duration = Duration::from_secs(2);

pub async fn check(subject: &Subject<'_>, findings: &mut Findings) {
    let cluster = &subject.config.cluster;
    if cluster.name.is_none() {
        return;
    }
    check_servers(&cluster.nats, findings);
    match check_syncing(&cluster.nats_monitor).await {
        Ok(()) => findings.ok("NATS", "the servers sync each write"),
        Err(error) if cluster.unsafe_no_sync => {
            let remedy =
                "a power failure of several servers may lose acknowledged observations; set `sync_interval: always`";
            findings.warning("NATS", error.to_string(), remedy);
        }
        Err(error) => findings.refusal("NATS", error.to_string()),
    }
    for url in &cluster.nats_monitor {
        check_clock(url, subject.config.limits.clock_skew, findings);
    }
}

fn check_servers(urls: &[String], findings: &mut Findings) {
    let mut silent = Vec::new();
    for url in urls {
        match greeting(url) {
            Ok(greeting) => {
                let text = |name: &str| greeting[name].as_str().unwrap_or("-").to_owned();
                match check_version(&text("server_name"), &text("version")) {
                    Ok(()) => {
                        findings.ok("NATS", format!("{} answers, version {}", without_login(url), text("version")));
                    }
                    Err(error) => findings.refusal("NATS", error.to_string()),
                }
            }
            Err(problem) => silent.push(format!("{}: {problem}", without_login(url))),
        }
    }
    if silent.is_empty() {
        return;
    }
    let what = silent.join(", ");
    let remedy = "start the servers, and compare cluster.nats with `listen` in their files";
    if 2 * silent.len() >= urls.len() {
        findings.problem("NATS", what, remedy);
    } else {
        findings.warning("NATS", what, remedy);
    }
}

/// What a server says of itself to each client, encrypted or not.
fn greeting(url: &str) -> Result<Value, String> {
    let host = url.split_once("://").map_or(url, |(_, host)| host);
    let host = host.rsplit('@').next().unwrap_or(host);
    let host = host.split('/').next().unwrap_or(host);
    let address =
        if host.rsplit(']').next().unwrap_or(host).contains(':') { host.to_owned() } else { format!("{host}:4222") };
    let text = |error: std::io::Error| error.to_string();
    let address = address.to_socket_addrs().map_err(text)?.next().ok_or("the name has no address")?;
    let stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(text)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(text)?;
    let mut line = String::new();
    BufReader::new(stream.take(GREETING_BYTES_MAX)).read_line(&mut line).map_err(text)?;
    let json = line.strip_prefix("INFO ").ok_or("what answers is no NATS server")?;
    serde_json::from_str(json).map_err(|error| format!("its greeting cannot be read: {error}"))
}

fn check_clock(url: &str, skew: Duration, findings: &mut Findings) {
    let agent: Agent = Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into();
    let answer = agent.get(format!("{}/varz", url.trim_end_matches('/'))).call();
    // A server that does not answer has been reported.
    let Some(there) = answer
        .ok()
        .and_then(|mut answer| answer.body_mut().read_json::<Value>().ok()?["now"].as_str()?.parse::<Timestamp>().ok())
    else {
        return;
    };
    let (url, apart) = (without_login(url), Timestamp::now().duration_since(there).unsigned_abs());
    if apart <= APART {
        findings.ok("clock", format!("the same as that of {url}"));
        return;
    }
    let what = format!("{} s away from that of {url}", apart.as_secs());
    let remedy = "have chrony, systemd-timesyncd or ntpd keep the clocks of all machines";
    if apart > skew {
        findings.problem("clock", what, remedy);
    } else {
        findings.warning("clock", what, remedy);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::io::Write as _;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn only_the_greeting_of_a_server_is_one() {
        for (sent, expected) in [
            ("INFO {\"version\": \"2.15.1\"}\r\n", Ok("2.15.1")),
            ("HTTP/1.1 400 Bad Request\r\n", Err("no NATS server")),
            ("INFO {\"version\r\n", Err("cannot be read")),
            ("", Err("no NATS server")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("nats://user:secret@{}", listener.local_addr().unwrap());
            let server = thread::spawn(move || listener.accept().unwrap().0.write_all(sent.as_bytes()));
            let read = greeting(&url);
            server.join().unwrap().unwrap();
            match expected {
                Ok(version) => assert_eq!(read.unwrap()["version"], version),
                Err(words) => assert!(read.as_ref().unwrap_err().contains(words), "{read:?}"),
            }
        }
    }
}
