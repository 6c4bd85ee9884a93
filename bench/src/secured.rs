//! `celeris-bench secured`: a node with keys and encrypted connections, against one without, under the same load on kept
//! connections.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use hyper::body::Bytes;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::runtime::Runtime;

use crate::Settings;
use crate::load::{Load, ROUND, client};
use crate::ndjson::teach;
use crate::process::{MODEL, Server, celeris_binary, command, prepare};
use crate::report::Report;
use crate::serve::{CATALOG, CONNECTIONS, DIM, HISTORY, REQUESTS, USERS, predicts, topks, warm_up};
use celeris_cli::Failure;

/// Of the node that the certificate is for.
const NAME: &str = "localhost";

pub fn run(settings: &Settings) -> Result<Report, Failure> {
    let mut report = Report::new("secured");
    let dir = tempfile::tempdir().map_err(Failure::other)?;
    let [open_dir, closed_dir] = ["open", "closed"].map(|name| dir.path().join(name));
    let items = prepare(&open_dir, CATALOG, DIM)?;
    // What the second node has is the same, so that only keys and encryption differ.
    prepare(&closed_dir, CATALOG, DIM)?;
    let client = client()?;
    let (users, history) = (settings.pick(USERS, 10), settings.pick(HISTORY, 2));
    for taught in [&open_dir, &closed_dir] {
        let node = Server::node(taught)?;
        client.block_on(teach(&node, &items, users, history))?;
        node.stop()?;
    }
    let Some(closed) = secured(dir.path(), &closed_dir)? else {
        eprintln!("  there is no `openssl` that makes a certificate: nothing is measured");
        return Ok(report);
    };
    let nodes = Nodes { closed, open: Server::node(&open_dir)? };
    let count = settings.pick(REQUESTS, 20);
    let cases = [
        ("predict", "predict", predicts(&items, users, count)?),
        ("topk/n=100", "topk", topks(&items, users, count)?),
        ("observe", "observe", crate::observe::bodies(&items, users, settings.pick(20_000, 100))?),
    ];
    for (case, call, bodies) in cases {
        nodes.measure((case, &format!("/v1/models/{MODEL}/{call}")), &bodies, (&client, settings), &mut report)?;
    }
    nodes.closed.stop()?;
    nodes.open.stop()?;
    Ok(report)
}

struct Nodes {
    closed: Server,
    open: Server,
}

impl Nodes {
    fn measure(
        &self,
        (case, path): (&str, &str),
        bodies: &[Bytes],
        (client, settings): (&Runtime, &Settings),
        report: &mut Report,
    ) -> Result<(), Failure> {
        let each = &bodies[..bodies.len().min(REQUESTS)];
        for node in [&self.closed, &self.open] {
            client.block_on(warm_up(node, path, each))?;
        }
        let load = Load {
            connections: CONNECTIONS,
            path,
            bodies,
            rounds: settings.pick(100, 1),
            round: settings.pick(ROUND[0], ROUND[1]),
        };
        let (ours, baseline) = load.drive(client, &self.closed, &self.open)?;
        report.compare(case, "req/s", ours.rate, baseline.rate);
        report.compare(format!("{case}/p99"), "us", ours.p99_micros, baseline.p99_micros);
        report.compare(format!("{case}/cpu/node"), "us/req", ours.server_micros, baseline.server_micros);
        report.compare(format!("{case}/cpu/client"), "us/req", ours.client_micros, baseline.client_micros);
        Ok(())
    }
}

/// Starts a node with a certificate, and keys: of an admin, and the one that requests have. `None` without `openssl`.
fn secured(folder: &Path, data_dir: &Path) -> Result<Option<Server>, Failure> {
    let (cert, key) = (folder.join("node.pem"), folder.join("node.key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", &format!("/CN={NAME}"), "-addext", &format!("subjectAltName=DNS:{NAME}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return Ok(None);
    }
    made_key(data_dir, &["admin"])?;
    let sent = made_key(data_dir, &["predict", "observe"])?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let (cert_file, key_file) = (text(&cert), text(&key));
    let variables =
        [("CELERIS_SERVER__TLS__CERT", cert_file.as_str()), ("CELERIS_SERVER__TLS__KEY", key_file.as_str())];
    Server::node_with(data_dir, &variables)?.secured(trusting(&cert)?, &sent).map(Some)
}

/// Makes a key with these roles in the store of a node that does not run.
fn made_key(data_dir: &Path, roles: &[&str]) -> Result<String, Failure> {
    let mut create = command(celeris_binary()?);
    create.args(["keys", "create", "--name", "bench", "--data-dir"]).arg(data_dir);
    for role in roles {
        create.args(["--role", role]);
    }
    let made = create.output().map_err(Failure::other)?;
    if !made.status.success() {
        return Err(Failure::other(format!("no key was made: {}", String::from_utf8_lossy(&made.stderr))));
    }
    Ok(String::from_utf8_lossy(&made.stdout).trim().to_owned())
}

/// Settings of a client that takes this certificate.
fn trusting(cert: &Path) -> Result<Arc<ClientConfig>, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(cert).map_err(Failure::other)?).map_err(Failure::other)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(Failure::other)?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
