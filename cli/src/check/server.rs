//! The sockets: whether they are free, and closed to those who should not come in.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

use celeris_api::tls::Tls;
use celeris_storage::DirectoryContents;

use super::Subject;
use super::certificate;
use super::finding::Findings;

pub fn check(subject: &Subject, findings: &mut Findings) {
    let server = &subject.config.server;
    let mut is_exposed = false;
    let sockets = [("server.listen", Some(&server.listen)), ("server.operators", server.operators.as_ref())];
    for (setting, address) in sockets.into_iter().filter_map(|(setting, address)| Some((setting, address?))) {
        match address.to_socket_addrs().map(Iterator::collect::<Vec<_>>) {
            Ok(addresses) => {
                is_exposed |= addresses.iter().any(|address| !address.ip().is_loopback());
                check_is_free(subject, (setting, address), &addresses, findings);
            }
            Err(error) => findings.problem(
                "port",
                format!("{setting}: {address:?}: {error}"),
                "give an address of this machine and a port, such as 127.0.0.1:7117",
            ),
        }
    }
    check_tls(subject, findings);
    if is_exposed {
        check_is_closed(subject, findings);
    }
}

fn check_is_free(subject: &Subject, (setting, text): (&str, &str), addresses: &[SocketAddr], findings: &mut Findings) {
    match TcpListener::bind(addresses) {
        Ok(_) => findings.ok("port", format!("{setting}: {text} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && subject.is_in_use => {
            findings.ok("port", format!("{setting}: {text} is taken, as by the node that has the data directory open"));
        }
        Err(error) => {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => "stop the other process (`ss -ltnp` shows it), or choose another port",
                ErrorKind::PermissionDenied => {
                    "choose a port from 1024 on, or give the node the right to take this one"
                }
                _ => "choose an address that this machine has (`ip address`)",
            };
            findings.problem("port", format!("{setting}: {text}: {error}"), remedy);
        }
    }
}

fn check_tls(subject: &Subject, findings: &mut Findings) {
    let tls = &subject.config.server.tls;
    let Some(cert) = &tls.cert else { return };
    if let Err(error) = Tls::check(tls) {
        let remedy =
            "server.tls.cert is the certificate with its chain, server.tls.key its own private key, both in PEM";
        findings.problem("certificate", error, remedy);
        return;
    }
    certificate::check(cert, findings);
}

/// What `celeris serve` refuses, as far as it can be known without opening the store.
fn check_is_closed(subject: &Subject, findings: &mut Findings) {
    let (server, auth) = (&subject.config.server, &subject.config.auth);
    if server.insecure {
        let what = "other machines reach the node, and server.insecure lets it serve without keys and TLS";
        findings.warning(
            "access",
            what,
            "do so only in a network that your services alone reach, or behind a proxy that does both",
        );
        return;
    }
    if server.tls.cert.is_none() {
        let what = "other machines reach the node, and its connections are not encrypted";
        findings.problem("access", what, "set server.tls.cert and server.tls.key, or server.insecure behind a proxy");
    }
    if subject.config.cluster.name.is_some() && subject.config.cluster.secret_file.is_none() {
        let what = "other machines reach the node, and its cluster has no secret";
        findings.problem("access", what, "set cluster.secret_file on all nodes");
    }
    if auth.admin_key_file.is_some() || auth.oidc.issuer.is_some() {
        findings.ok("access", "requests need a key");
        return;
    }
    let has_store =
        subject.data_dir.is_some_and(|dir| !matches!(DirectoryContents::of(dir), Ok(DirectoryContents::Nothing)));
    let remedy = "make the first key by `celeris keys create --role admin --name NAME --data-dir DIR`, or set auth.admin_key_file";
    if has_store {
        let what = "other machines reach the node; whether its store has keys is known when it starts";
        findings.warning("access", what, format!("if it has none, {remedy}"));
    } else {
        findings.problem("access", "other machines reach the node, and it has no keys", remedy);
    }
}
