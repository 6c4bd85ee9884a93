//! What the NATS servers must be and be set to, checked when a node starts.
//!
//! A client sees the version of the server that it is connected to. Whether servers sync each write
//! is shown only by their monitoring ports (`/varz`) and to the system account, so the ports must be
//! named in the options.

use std::collections::BTreeSet;
use std::time::Duration;

use celeris_model::address::without_login;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::error::ClusterError;

/// Earlier servers can lose or double conditional appends after elections.
const NEEDED: (u64, u64, u64) = (2, 14, 4);
const NEEDED_TEXT: &str = "2.14.4";

/// Earlier servers sync more often than is needed.
const RECOMMENDED: (u64, u64, u64) = (2, 15, 1);

const TIMEOUT: Duration = Duration::from_secs(3);
const REPLY_BYTES_MAX: u64 = 4 << 20;

/// The part of `/varz` that is read.
#[derive(Debug, Default, Deserialize)]
struct Variables {
    #[serde(default)]
    server_name: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    jetstream: JetStream,
}

#[derive(Debug, Default, Deserialize)]
struct JetStream {
    config: Option<JetStreamConfig>,
    meta: Option<MetaGroup>,
}

/// The servers that JetStream is made of.
#[derive(Debug, Default, Deserialize)]
struct MetaGroup {
    #[serde(default)]
    cluster_size: usize,
}

/// What a monitoring port tells.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Checked {
    server: String,
    /// The number of servers that logs may be on.
    servers: usize,
}

/// Why a monitoring port tells nothing.
enum Silence {
    /// It may answer later.
    NoAnswer(String),
    /// Something else is there.
    NotMonitor(String),
}

#[derive(Debug, Default, Deserialize)]
struct JetStreamConfig {
    #[serde(default)]
    sync_always: bool,
}

/// Checks the version of a server.
///
/// # Errors
/// `ServerVersion` if it is too old.
pub fn check_version(server: &str, version: &str) -> Result<(), ClusterError> {
    let parsed = parse(version);
    if parsed < NEEDED {
        let (server, version) = (server.to_owned(), version.to_owned());
        return Err(ClusterError::ServerVersion { server, version, needed: NEEDED_TEXT });
    }
    if parsed < RECOMMENDED {
        tracing::warn!(server, version, "NATS servers from 2.15.1 on take more appends per second; update them");
    }
    Ok(())
}

/// Checks that the servers with these monitoring ports sync each write, their versions, and that no server is missing
/// among them. A minority of them may be down: a node must be able to start while a server is replaced.
///
/// # Errors
/// `NoSync`, `SyncUnknown`, `MonitorSilent` or `ServerVersion`.
pub async fn check_syncing(monitor_urls: &[String]) -> Result<(), ClusterError> {
    if monitor_urls.is_empty() {
        return Err(ClusterError::SyncUnknown { reason: "no monitoring port is named".to_owned() });
    }
    let (mut silent, mut answered) = (Vec::new(), BTreeSet::new());
    let mut servers = 0;
    for url in monitor_urls {
        let answer = tokio::time::timeout(TIMEOUT, get(url, "/varz")).await;
        let url = &without_login(url);
        match answer.unwrap_or_else(|_| Err(Silence::NoAnswer("no answer".to_owned()))) {
            Ok(body) => {
                let checked = check_variables(url, &body)?;
                servers = servers.max(checked.servers);
                answered.insert(checked.server);
            }
            Err(Silence::NoAnswer(reason)) => silent.push(format!("{url}: {reason}")),
            Err(Silence::NotMonitor(reason)) => {
                return Err(ClusterError::SyncUnknown { reason: format!("{url}: {reason}") });
            }
        }
    }
    let reason = silent.join(", ");
    if 2 * silent.len() >= monitor_urls.len() {
        return Err(ClusterError::MonitorSilent { reason });
    }
    if answered.len() + silent.len() < servers {
        let known = answered.into_iter().collect::<Vec<_>>().join(", ");
        let reason =
            format!("there are {servers} servers, and the monitoring ports that are named are of {known} only");
        return Err(ClusterError::SyncUnknown { reason });
    }
    if !silent.is_empty() {
        tracing::warn!("whether these NATS servers sync each write is not known: {reason}");
    }
    Ok(())
}

fn check_variables(url: &str, body: &[u8]) -> Result<Checked, ClusterError> {
    let unknown = |reason: &str| ClusterError::SyncUnknown { reason: format!("{url}: {reason}") };
    let variables: Variables = serde_json::from_slice(body)
        .map_err(|error| unknown(&format!("the answer is not of a NATS server: {error}")))?;
    check_version(&variables.server_name, &variables.version)?;
    let config = variables.jetstream.config.ok_or_else(|| unknown("the server has no JetStream"))?;
    if !config.sync_always {
        return Err(ClusterError::NoSync { server: variables.server_name });
    }
    let servers = variables.jetstream.meta.unwrap_or_default().cluster_size.max(1);
    Ok(Checked { server: variables.server_name, servers })
}

/// The body of the reply to a GET request.
async fn get(url: &str, path: &str) -> Result<Vec<u8>, Silence> {
    let not_monitor = |reason: &str| Silence::NotMonitor(reason.to_owned());
    let failed = |error: std::io::Error| Silence::NoAnswer(error.to_string());
    let host = url.strip_prefix("http://").ok_or_else(|| not_monitor("it does not begin with http://"))?;
    let host = host.split('/').next().unwrap_or(host);
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:8222") };
    let mut stream = TcpStream::connect(&address).await.map_err(failed)?;
    // The older version, whose bodies end with the connection.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut reply = Vec::new();
    stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply).await.map_err(failed)?;
    if reply.starts_with(b"INFO ") {
        return Err(not_monitor("this is the port of clients; the monitoring port is the `http` of the server"));
    }
    let status = reply.split(|byte| *byte == b'\r').next().unwrap_or_default();
    if !status.windows(5).any(|window| window == b" 200 ") {
        let status: String = String::from_utf8_lossy(status).chars().take(80).collect();
        return Err(Silence::NoAnswer(format!("the answer is {status}")));
    }
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.ok_or_else(|| Silence::NoAnswer("the answer is cut off".to_owned()))?;
    Ok(reply.split_off(end + 4))
}

/// The numbers of a version; what is missing or no number is 0.
fn parse(version: &str) -> (u64, u64, u64) {
    let version = version.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused() {
        for (version, is_accepted) in
            [("2.14.3", false), ("2.9.10", false), ("", false), ("2.14.4", true), ("2.15.1", true), ("3.0.0-dev", true)]
        {
            assert_eq!(check_version("n1", version).is_ok(), is_accepted, "{version}");
        }
    }

    #[test]
    fn servers_that_do_not_sync_are_refused() {
        let check = |config: &str| {
            let body = format!(r#"{{"server_name":"n1","version":"2.15.1","jetstream":{config}}}"#);
            check_variables("http://n1:8222", body.as_bytes())
        };
        let of_three = r#"{"config":{"sync_interval":120000000000,"sync_always":true},"meta":{"cluster_size":3}}"#;
        assert_eq!(check(of_three).unwrap(), Checked { server: "n1".to_owned(), servers: 3 });
        let alone = check(r#"{"config":{"sync_always":true}}"#).unwrap();
        assert_eq!(alone.servers, 1);
        let without = check(r#"{"config":{"sync_interval":120000000000}}"#);
        assert!(matches!(&without, Err(ClusterError::NoSync { server }) if server == "n1"), "{without:?}");
        assert!(matches!(check("{}"), Err(ClusterError::SyncUnknown { .. })));
        assert!(matches!(check_variables("http://n1", b"<html>"), Err(ClusterError::SyncUnknown { .. })));
    }

    #[tokio::test]
    async fn an_unknown_setting_is_refused_with_the_remedy() {
        let message = check_syncing(&[]).await.unwrap_err().to_string();
        assert!(message.contains("cluster.nats_monitor") && message.contains("unsafe_no_sync"), "{message}");
    }

    /// A port that answers each request with this.
    async fn answering_port(answer: String) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 512];
                let _read = stream.read(&mut request).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        url
    }

    /// The monitoring port of one of three servers, which sync.
    async fn monitoring_port(name: &str) -> String {
        let jetstream = r#"{"config":{"sync_always":true},"meta":{"cluster_size":3}}"#;
        let body = format!(r#"{{"server_name":"{name}","version":"2.15.1","jetstream":{jetstream}}}"#);
        answering_port(format!("HTTP/1.0 200 OK\r\n\r\n{body}")).await
    }

    #[tokio::test]
    async fn all_servers_are_to_be_named() {
        let (first, second, third) =
            (monitoring_port("n1").await, monitoring_port("n2").await, monitoring_port("n3").await);
        check_syncing(&[first.clone(), second.clone(), third]).await.unwrap();
        for urls in [vec![first.clone()], vec![first.clone(), second], vec![first.clone(), first.clone(), first]] {
            let message = check_syncing(&urls).await.unwrap_err().to_string();
            assert!(message.contains("there are 3 servers") && message.contains("n1"), "{message}");
        }
    }

    #[tokio::test]
    async fn the_port_of_clients_is_told_from_the_monitoring_port() {
        let url = answering_port(r#"INFO {"server_id":"NABC"}"#.to_owned()).await;
        let error = check_syncing(&[url]).await.unwrap_err();
        assert!(!error.is_silence() && error.to_string().contains("port of clients"), "{error}");
    }

    #[tokio::test]
    async fn a_minority_of_the_servers_may_be_down() {
        let (first, second) = (monitoring_port("n1").await, monitoring_port("n2").await);
        // Bound and closed again: nothing answers there.
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let down = format!("http://{closed}");
        check_syncing(&[first.clone(), down.clone(), second]).await.unwrap();
        for (up, silent) in [(vec![], 1), (vec![first.clone()], 1), (vec![first], 2)] {
            let urls: Vec<String> = up.into_iter().chain(std::iter::repeat_n(down.clone(), silent)).collect();
            let error = check_syncing(&urls).await.unwrap_err();
            assert!(error.is_silence() && error.to_string().contains(&down), "{error}");
        }
    }
}
