//! An identity provider (OpenID Connect), for tests of tokens and sign-ins.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use celeris_skip::{Need, unless};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The id of the key that signs tokens.
const KEY_ID: &str = "k1";

/// Answers for its description and its keys, signs in every visitor, and gives tokens for the codes; on threads of its own.
pub struct Issuer {
    /// As in the claim `iss`.
    pub url: String,
    key: PathBuf,
    /// The token for the next code.
    next: Arc<Mutex<String>>,
}

/// Text of bytes in the alphabet of URLs (RFC 4648), without padding.
#[must_use]
pub fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = |chunk: &[u8]| -> String {
        let number = (0..3).fold(0_u32, |number, place| number << 8 | u32::from(*chunk.get(place).unwrap_or(&0)));
        (0..=chunk.len()).map(|digit| char::from(DIGITS[(number >> (18 - 6 * digit)) as usize & 63])).collect()
    };
    bytes.chunks(3).map(digits).collect()
}

/// A value of a query or a form, as it was before it was escaped.
fn value_of(text: &str, name: &str) -> Option<String> {
    let found = text.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    let mut bytes = found.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        let escaped = |bytes: &mut std::str::Bytes<'_>| {
            let digits = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()
        };
        plain.push(match byte {
            b'%' => escaped(&mut bytes)?,
            b'+' => b' ',
            byte => byte,
        });
    }
    String::from_utf8(plain).ok()
}

/// What a code was given for.
struct Asked {
    challenge: String,
    redirect: String,
}

impl Issuer {
    /// Starts one, whose files lie in this folder; `None`, and the test is skipped, if there is no `openssl`.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn unless_missing(folder: &Path) -> Option<Self> {
        let found = Command::new("openssl").arg("version").output().is_ok().then_some(());
        unless(Need::Commands, found, "there is no `openssl`")?;
        let key = folder.join("issuer.key");
        let made = Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").output();
        assert!(made.is_ok_and(|made| made.status.success()), "a key is made");
        let modulus = Command::new("openssl").args(["rsa", "-noout", "-modulus", "-in"]).arg(&key).output();
        let modulus = String::from_utf8(modulus.expect("there is openssl").stdout).expect("it is text");
        let modulus = modulus.trim().strip_prefix("Modulus=").expect("openssl prints it").to_owned();
        let digit = |place: usize| u8::from_str_radix(&modulus[place..place + 2], 16).expect("it is hexadecimal");
        let modulus: Vec<u8> = (0..modulus.len()).step_by(2).map(digit).collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("the socket is bound"));
        let keys = json!({"keys": [
            {"kty": "RSA", "kid": KEY_ID, "use": "sig", "alg": "RS256", "e": "AQAB", "n": base64url(&modulus)},
        ]});
        let description = json!({
            "issuer": url, "jwks_uri": format!("{url}/keys"), "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
        });
        let next = Arc::new(Mutex::new(String::new()));
        let given = Arc::clone(&next);
        let published = Arc::new((description, keys));
        let asked = Arc::new(Mutex::new(None));
        thread::spawn(move || {
            // Browsers open connections on which they may never ask, so that none is waited for.
            for stream in listener.incoming().map_while(Result::ok) {
                let (published, asked, given) = (Arc::clone(&published), Arc::clone(&asked), Arc::clone(&given));
                thread::spawn(move || {
                    let answer = answer(&stream, (&published.0, &published.1), &asked, &given);
                    // The other side sees a broken answer if this fails.
                    let _ = answer.and_then(|answer| (&stream).write_all(answer.as_bytes()));
                });
            }
        });
        Some(Self { url, key, next })
    }

    /// Gives this token to the next user who signs in.
    ///
    /// # Panics
    /// If the thread has panicked.
    pub fn signs_in_as(&self, token: String) {
        *self.next.lock().expect("no thread panics with it") = token;
    }

    /// A token with this header and these claims, over those of a valid one.
    ///
    /// # Panics
    /// If it cannot be signed.
    #[must_use]
    pub fn token(&self, header: &Value, claims: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs();
        let mut all = json!({"iss": self.url, "aud": "celeris", "sub": "ann", "exp": now + 600, "roles": ["predict"]});
        let claims = claims.as_object().expect("claims are an object");
        claims.iter().for_each(|(name, value)| all[name] = value.clone());
        let message = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(all.to_string().as_bytes()));
        let file = self.key.with_extension("message");
        fs::write(&file, &message).expect("the folder is ours");
        let signed = Command::new("openssl").args(["dgst", "-sha256", "-sign"]).arg(&self.key).arg(&file).output();
        let signed = signed.expect("there is openssl");
        assert!(signed.status.success(), "{signed:?}");
        format!("{message}.{}", base64url(&signed.stdout))
    }
}

fn answer(
    stream: &TcpStream,
    (description, keys): (&Value, &Value),
    asked: &Mutex<Option<Asked>>,
    next: &Mutex<String>,
) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line)? > 2 {
        head.push_str(&line);
        line.clear();
    }
    let path = head.split(' ').nth(1).unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let ok = |body: &Value| {
        let body = body.to_string();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    };
    let refused = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned();
    Ok(match path {
        "/keys" => ok(keys),
        "/authorize" => {
            let value = |name: &str| value_of(query, name).unwrap_or_default();
            let is_asked = value("code_challenge_method") == "S256" && value("response_type") == "code";
            let (redirect, state) = (value("redirect_uri"), value("state"));
            *asked.lock().expect("no thread panics with it") =
                is_asked.then(|| Asked { challenge: value("code_challenge"), redirect: redirect.clone() });
            let to = format!("{redirect}?code=once&state={state}");
            format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        }
        "/token" => {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let mut form = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut form)?;
            let form = String::from_utf8_lossy(&form);
            let value = |name: &str| value_of(&form, name).unwrap_or_default();
            // A code counts once, for a client that has the secret that it was asked with.
            let is_right = asked.lock().expect("no thread panics with it").take().is_some_and(|asked| {
                asked.challenge == base64url(&Sha256::digest(value("code_verifier").as_bytes()))
                    && asked.redirect == value("redirect_uri")
            });
            let token = next.lock().map(|token| token.clone()).unwrap_or_default();
            let given = json!({"access_token": "opaque", "id_token": token, "token_type": "Bearer"});
            if is_right && value("code") == "once" { ok(&given) } else { refused }
        }
        _ => ok(description),
    })
}
