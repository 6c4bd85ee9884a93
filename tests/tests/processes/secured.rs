//! Keys and TLS of a node in a process of its own: the commands, what is on the wire, and what is not in its output.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use celeris_skip::{self as skip, Need};
use celeris_tests::fixtures::config_file;
use celeris_tests::{Issuer, NodeProcess, ProcessOptions, base64url, binary, eventually};
use serde_json::{Value, json};

/// `celeris` with these arguments and this key.
fn celeris(key: &str, arguments: &[&str]) -> Output {
    binary::command().env("CELERIS_API_KEY", key).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn keys_are_made_listed_and_revoked_and_are_in_no_output() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = NodeProcess::serve(&data);
    let url = node.client().url().to_owned();
    let create = |key: &str, more: &[&str]| {
        let arguments = [&["keys", "create", "--url", &url, "--name", "canary"], more].concat();
        let made = celeris(key, &arguments);
        assert!(made.status.success(), "{made:?}");
        text(&made.stdout).trim().to_owned()
    };
    let refused = celeris("", &["keys", "create", "--url", &url, "--name", "n", "--role", "predict"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let admin = create("", &["--role", "admin"]);
    let web = create(&admin, &["--role", "predict", "--role", "observe", "--model", "m", "--expires", "90d"]);
    let listed = text(&celeris(&admin, &["keys", "list", "--url", &url]).stdout);
    assert!(
        listed.contains("predict, observe") && listed.contains("model m") && listed.contains("89 days"),
        "{listed}"
    );
    let file = dir.path().join("admin.key");
    fs::write(&file, format!("{admin}\n")).unwrap();
    let created = node.client().with_key(&admin).post("/v1/models", &json!({"name": "m", "dim": 4}));
    assert_eq!(created.status, 201);
    // All commands send the key.
    for arguments in [["models", "--url", &url], ["status", "--url", &url]] {
        let told = celeris(&admin, &arguments);
        assert!(told.status.success(), "{told:?}");
        let refused = celeris("", &arguments);
        assert!(text(&refused.stderr).contains("CELERIS_API_KEY"), "{refused:?}");
        let by_file = celeris("", &[&arguments[..], &["--key-file", file.to_str().unwrap()]].concat());
        assert!(by_file.status.success(), "{by_file:?}");
    }
    let id = web.split('_').nth(1).unwrap();
    let revoked = celeris(&admin, &["keys", "revoke", id, "--url", &url]);
    assert!(revoked.status.success(), "{revoked:?}");
    assert_eq!(node.client().with_key(&web).get("/v1/models").status, 401);
    // A key in wrong places, and in errors.
    let secret = admin.rsplit('_').next().unwrap();
    let client = node.client().with_key(&admin);
    let mut replies =
        vec![client.get("/v1/keys").text, client.get("/metrics").text, client.get("/v1/models/m/events").text];
    let wrong = [("authorization", format!("Basic {admin}")), ("x-api-key", admin.clone())];
    for (name, value) in &wrong {
        replies.push(node.client().try_with(("GET", "/v1/models"), &[(name, value)], &Value::Null).unwrap().text);
    }
    assert!(replies.iter().all(|reply| !reply.contains(secret)), "{replies:?}");
    drop(replies);
    let exit = node.terminate();
    assert!(!exit.stderr.contains(secret), "the log has the key");
    let stored: Vec<PathBuf> = walk(&data);
    let has_it =
        |file: &&PathBuf| fs::read(file).unwrap().windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
    assert_eq!(stored.iter().find(has_it), None, "the store has the key");
    // Without the node: a new key when the others are lost.
    let data = data.to_str().unwrap();
    let made = celeris("", &["keys", "create", "--data-dir", data, "--name", "new", "--role", "admin"]);
    assert!(made.status.success(), "{made:?}");
    let node = NodeProcess::serve(Path::new(data));
    node.client().with_key(text(&made.stdout).trim()).get("/v1/keys").expect(200);
    node.client().with_key(&admin).get("/v1/keys").expect(200);
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn a_node_that_others_reach_needs_keys_and_tls_or_the_word() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    // The first key of a node that was never started makes its data directory.
    let fresh = dir.path().join("fresh");
    let keys = |command: &[&str]| celeris("", &[&["keys"], command, &["--data-dir", fresh.to_str().unwrap()]].concat());
    let said = text(&keys(&["list"]).stderr);
    assert!(said.contains("keys create --role admin --name NAME") && !fresh.exists(), "{said}");
    let made = keys(&["create", "--role", "admin", "--name", "root"]);
    assert!(made.status.success(), "{made:?}");
    assert!(text(&keys(&["list"]).stdout).contains("root"));
    NodeProcess::serve(&fresh).client().with_key(text(&made.stdout).trim()).get("/v1/keys").expect(200);
    let serve = |more: &[&str]| {
        let arguments = [&["serve", "--listen", "0.0.0.0:0", "--data-dir", data.to_str().unwrap()], more].concat();
        binary::command().args(arguments).output().unwrap()
    };
    let refused = serve(&[]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    for what in ["keys create --role admin", "server.tls.cert", "--insecure"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let admin = ["keys", "create", "--name", "root", "--role", "admin", "--data-dir", data.to_str().unwrap()];
    assert!(celeris("", &admin).status.success());
    let said = text(&serve(&[]).stderr);
    assert!(!said.contains("keys create") && said.contains("server.tls.cert"), "{said}");
    let config = config_file(dir.path(), "[server]\ninsecure = true\nlisten = \"0.0.0.0:0\"\n");
    let node = ProcessOptions::default().config(config).listen("0.0.0.0:0").serve(&data);
    drop(node);
}

#[test]
fn operators_have_a_socket_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = config_file(dir.path(), format!("[server]\noperators = \"{free}\"\n"));
    let node = ProcessOptions::default().config(config).serve(&dir.path().join("data"));
    let operators = node.client_at(&format!("http://{free}"));
    for path in ["/metrics", "/docs/", "/", "/openapi.json"] {
        assert_eq!((node.client().get(path).status, operators.get(path).status), (404, 200), "{path}");
    }
    for client in [node.client(), operators] {
        assert_eq!(client.get("/v1/models").status, 200);
        assert_eq!(client.get("/healthz").status, 200);
    }
    assert_eq!(node.terminate().code, Some(0));
}

/// A certificate of its own for `localhost`, by `openssl`; returns the paths of certificate and key.
fn certificate(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    certificate_for(folder, name, "CA:FALSE")
}

/// The same with these constraints.
fn certificate_for(folder: &Path, name: &str, constraints: &str) -> (PathBuf, PathBuf) {
    let (cert, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", &format!("basicConstraints=critical,{constraints}")])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    (cert, key)
}

/// What `openssl s_client` says of a connection to this port.
fn connected(address: &str, more: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", address, "-servername", "localhost", "-verify_return_error"])
        .args(more)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

/// Asserts that a command is refused as bad usage, with these words.
#[track_caller]
fn refused_with(node: &[&str], words: &str) {
    for command in [&["status"][..], &["work"], &["keys", "list"]] {
        let refused = celeris("", &[command, node].concat());
        let said = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains(words), "no {words:?} in {said}");
        assert!(!said.contains("no node answers"), "{said}");
    }
}

#[test]
fn certificates_and_schemes_that_do_not_fit_are_told_from_a_node_that_is_down() {
    let found = Command::new("openssl").arg("version").output().is_ok().then_some(());
    let Some(()) = skip::unless(Need::Commands, found, "there is no `openssl`") else { return };
    let dir = tempfile::tempdir().unwrap();
    let plain = NodeProcess::serve(&dir.path().join("plain"));
    refused_with(&["--url", &plain.client().url().replace("http://", "https://")], "write http://");
    let (cert, key) = certificate_for(dir.path(), "authority", "CA:TRUE");
    let config = config_file(dir.path(), format!("[server.tls]\ncert = {cert:?}\nkey = {key:?}\n"));
    let node = ProcessOptions::default().config(config).serve(&dir.path().join("data"));
    refused_with(
        &["--url", node.client().url(), "--ca-file", cert.to_str().unwrap()],
        "the certificate of an authority",
    );
}

#[test]
fn connections_are_encrypted_by_the_newest_certificate() {
    let found = Command::new("openssl").arg("version").output().is_ok().then_some(());
    let Some(()) = skip::unless(Need::Commands, found, "there is no `openssl`") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (cert, key) = certificate(dir.path(), "first");
    let (client_cert, client_key) = certificate(dir.path(), "client");
    let config = |client_ca: bool| {
        let ca = if client_ca { format!("client_ca = {client_cert:?}\n") } else { String::new() };
        config_file(dir.path(), format!("[server.tls]\ncert = {cert:?}\nkey = {key:?}\n{ca}"))
    };
    let data = dir.path().join("data");
    let node = ProcessOptions::default().config(config(false)).serve(&data);
    let url = node.client().url().to_owned();
    let address = url.strip_prefix("https://").unwrap().to_owned();
    let ca = cert.to_str().unwrap().to_owned();
    let said = connected(&address, &["-CAfile", &ca]);
    assert!(
        said.contains("Verify return code: 0") && said.contains("CN=first") || said.contains("CN = first"),
        "{said}"
    );
    assert!(said.contains("TLSv1.3"), "{said}");
    assert!(connected(&address, &["-CAfile", &ca, "-tls1_2"]).contains("TLSv1.2"));
    let old = connected(&address, &["-CAfile", &ca, "-tls1_1"]);
    assert!(!old.contains("Cipher is EC") && !old.contains("Cipher is AES"), "{old}");
    // Commands, by name and with the authority; not without, and not in the clear.
    let named = format!("https://localhost:{}", address.rsplit(':').next().unwrap());
    let told = celeris("", &["status", "--url", &named, "--ca-file", &ca]);
    assert!(told.status.success(), "{told:?}");
    refused_with(&["--url", &named], "--ca-file");
    refused_with(&["--url", &format!("http://{address}")], "write https://");
    let (other, _) = certificate(dir.path(), "other");
    refused_with(&["--url", &named, "--ca-file", other.to_str().unwrap()], "UnknownIssuer");
    // Another certificate in the same files.
    let (next_cert, next_key) = certificate(dir.path(), "second");
    fs::write(&key, "damaged").unwrap();
    fs::copy(next_cert, &cert).unwrap();
    fs::copy(next_key, &key).unwrap();
    eventually("the new certificate", || {
        let said = connected(&address, &["-CAfile", &ca]);
        (said.contains("CN=second") || said.contains("CN = second")).then_some(())
    });
    drop(node);
    // With certificates of clients.
    let node = ProcessOptions::default().config(config(true)).serve(&data);
    let address = node.client().url().strip_prefix("https://").unwrap().to_owned();
    let asked = |more: &[&str]| {
        let url = format!("https://{address}/healthz");
        Command::new("curl").args(["-s", "--cacert", &ca, &url]).args(more).output().unwrap().status.success()
    };
    assert!(!asked(&[]));
    assert!(asked(&["--cert", client_cert.to_str().unwrap(), "--key", client_key.to_str().unwrap()]));
    drop(node);
    fs::write(&key, "no key").unwrap();
    let mut serve = binary::command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data).arg("--config").arg(config(false));
    let refused = serve.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("server.tls.key"), "{refused:?}");
}

#[test]
fn tokens_of_an_identity_provider_are_taken_like_keys() {
    let dir = tempfile::tempdir().unwrap();
    let Some(issuer) = Issuer::unless_missing(dir.path()) else { return };
    let config = format!("[auth.oidc]\nissuer = {:?}\naudience = \"celeris\"\n", issuer.url);
    let node = ProcessOptions::default().config(config_file(dir.path(), config)).serve(&dir.path().join("data"));
    let client = node.client();
    let header = json!({"alg": "RS256", "kid": "k1", "typ": "JWT"});
    let with = |claims: Value| client.with_key(&issuer.token(&header, &claims));
    assert_eq!(client.get("/v1/models").status, 401);
    let operator = with(json!({"roles": "operate unknown"}));
    operator.post("/v1/models", &json!({"name": "m", "dim": 4})).expect(201);
    operator.post("/v1/models", &json!({"name": "n", "dim": 4})).expect(201);
    assert_eq!(with(json!({})).get("/v1/models/m").status, 200);
    assert_eq!(with(json!({})).get("/v1/models/m/events").status, 403);
    assert_eq!(with(json!({"roles": ["chief"]})).get("/v1/models").status, 403);
    let bounded = with(json!({"celeris_models": ["m"]}));
    assert_eq!((bounded.get("/v1/models/m").status, bounded.get("/v1/models/n").status), (200, 403));
    assert_eq!(with(json!({"celeris_models": [7]})).get("/v1/models").status, 403);
    let path = "/v1/models/m";
    operator.try_json("PATCH", path, &json!({"keep_versions": 4})).unwrap().expect(200);
    assert_eq!(operator.get(&format!("{path}/events")).expect(200)["events"][0]["principal"], "token of ann");
    // What is no valid token.
    let refused = |token: &str, why: &str| {
        let reply = client.with_key(token).get("/v1/models");
        assert!(reply.status == 401 && reply.text.contains(why), "{why}: {reply:?}");
    };
    let token = |claims: Value| issuer.token(&header, &claims);
    refused(&token(json!({"exp": 1_000_000_000})), "expired");
    refused(&token(json!({"exp": null})), "exp");
    refused(&token(json!({"nbf": 4_000_000_000_u64})), "not valid yet");
    refused(&token(json!({"iss": "http://127.0.0.1:1"})), "another issuer");
    refused(&token(json!({"aud": "other"})), "another audience");
    refused(&issuer.token(&json!({"alg": "RS256", "kid": "k2"}), &json!({})), "no such key");
    refused(&issuer.token(&json!({"alg": "HS256", "kid": "k1"}), &json!({})), "HS256 is not taken");
    refused(&issuer.token(&json!({"alg": "none"}), &json!({})), "not valid");
    refused(&issuer.token(&json!({"alg": "RS512", "kid": "k1"}), &json!({})), "signature");
    let valid = token(json!({}));
    let parts: Vec<&str> = valid.split('.').collect();
    let forged = base64url(
        json!({"iss": issuer.url, "aud": "celeris", "sub": "eve", "exp": 4_000_000_000_u64, "roles": ["admin"]})
            .to_string()
            .as_bytes(),
    );
    refused(&format!("{}.{forged}.{}", parts[0], parts[2]), "signature");
    refused(&format!("{}.{}.", parts[0], parts[1]), "signature");
    refused(&issuer.token(&json!({"alg": "RS256", "kid": "k1", "crit": ["x"]}), &json!({})), "crit");
    refused(&token(json!({"sub": "eve\n"})), "control characters");
    refused(&token(json!({"sub": ""})), "sub");
    refused("a.b.c", "not valid");
    // Keys are taken too.
    let admin =
        with(json!({"roles": ["admin"]})).post("/v1/keys", &json!({"name": "k", "roles": ["admin"]})).expect(201);
    client.with_key(admin["key"].as_str().unwrap()).get("/v1/models").expect(200);
}

#[test]
fn a_code_of_the_identity_provider_is_redeemed_for_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let Some(issuer) = Issuer::unless_missing(dir.path()) else { return };
    let serve = |more: &str| {
        let oidc = format!("[auth.oidc]\nissuer = {:?}\naudience = \"celeris\"\n{more}\n", issuer.url);
        ProcessOptions::default().config(config_file(dir.path(), oidc)).serve(&dir.path().join("data"))
    };
    let node = serve("");
    assert_eq!(node.client().get("/page/sign-in").status, 404);
    assert_eq!(
        node.client().post("/page/sign-in", &json!({"code": "c", "verifier": "v", "redirect": "r"})).status,
        404
    );
    drop(node);
    let node = serve("client_id = \"page\"\nscopes = \"openid roles\"");
    let client = node.client();
    let told = client.get("/page/sign-in").expect(200);
    assert_eq!(
        told,
        json!({"authorize": format!("{}/authorize", issuer.url), "client_id": "page", "scopes": "openid roles"})
    );
    let verifier = "v".repeat(43);
    let challenge = base64url(&sha256(verifier.as_bytes()));
    let redirect = format!("{}/", client.url());
    let authorized = || {
        let query = format!("response_type=code&state=s&code_challenge_method=S256&code_challenge={challenge}");
        let sent = client.at(&issuer.url).get(&format!("/authorize?{query}&redirect_uri={redirect}"));
        assert!(sent.status == 302 && sent.header("location").unwrap().starts_with(&redirect), "{sent:?}");
    };
    let redeem = |code: &str, verifier: &str| {
        client.post("/page/sign-in", &json!({"code": code, "verifier": verifier, "redirect": redirect}))
    };
    let token = issuer.token(&json!({"alg": "RS256", "kid": "k1"}), &json!({"roles": ["operate"]}));
    issuer.signs_in_as(token.clone());
    authorized();
    let given = redeem("once", &verifier);
    assert_eq!(given.header("cache-control"), Some("no-store"));
    assert_eq!(given.expect(200), json!({"token": token}));
    client.with_key(&token).get("/v1/models").expect(200);
    // A code counts once, and only with its secret; a token that is not for this node is none.
    assert_eq!(redeem("once", &verifier).status, 401);
    authorized();
    assert_eq!(redeem("once", "another").status, 401);
    authorized();
    issuer.signs_in_as(issuer.token(&json!({"alg": "RS256", "kid": "k1"}), &json!({"aud": "other"})));
    let refused = redeem("once", &verifier);
    assert!(refused.status == 401 && refused.text.contains("another audience"), "{refused:?}");
    for (body, status) in [
        (json!({"code": "c", "verifier": "v"}), 422),
        (json!({"code": "c", "verifier": "v", "redirect": "r", "more": 1}), 422),
        (json!({"code": "c".repeat(20_000), "verifier": "v", "redirect": "r"}), 413),
    ] {
        assert_eq!(client.post("/page/sign-in", &body).status, status);
    }
    // Pages of other sites cannot ask.
    let foreign = [("origin", "https://evil.example")];
    assert_eq!(client.try_with(("POST", "/page/sign-in"), &foreign, &json!({})).unwrap().status, 403);
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).to_vec()
}
