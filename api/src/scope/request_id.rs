//! Ids of requests, by which answers, log lines and reports of clients are put together.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The longest id that is taken from a client.
const BYTES_MAX: usize = 128;

/// Digits of an id that a node makes.
const DIGITS: usize = 32;

/// The id of a request: that of the client, or one that the node has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The header of requests and answers.
    pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

    /// The id that a request brings, if it brings one that is well-formed; otherwise a new one.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(&Self::HEADER).iter();
        match (given.next(), given.next()) {
            (Some(id), None) if is_well_formed(id.as_bytes()) => Self(id.clone()),
            _ => Self::random(),
        }
    }

    /// A new id, which no other request has.
    fn random() -> Self {
        let random: u128 = rand::random();
        let mut digits = [0; DIGITS];
        for (place, digit) in digits.iter_mut().rev().enumerate() {
            *digit = b"0123456789abcdef"[(random >> (4 * place) & 0xf) as usize];
        }
        Self(HeaderValue::from_bytes(&digits).expect("hexadecimal digits are a header's value"))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().expect("an id consists of visible ASCII characters")
    }

    /// The value of the header.
    #[must_use]
    pub fn value(&self) -> HeaderValue {
        self.0.clone()
    }
}

/// Whether an id can be in a header, a line of a log and a search without quoting.
fn is_well_formed(id: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=/+".contains(byte);
    (1..=BYTES_MAX).contains(&id.len()) && id.iter().all(is_plain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn of(ids: &[&[u8]]) -> RequestId {
        RequestId::of(&ids.iter().map(|id| (RequestId::HEADER, HeaderValue::from_bytes(id).unwrap())).collect())
    }

    #[test]
    fn a_well_formed_id_is_kept_and_any_other_is_replaced() {
        let longest = "a".repeat(BYTES_MAX);
        for kept in ["7", "01995e0a-6f1c-7000-8000-00000000abcd", "Root=1-67891233-abcdef/part:2+1_x.y", &*longest] {
            assert_eq!(of(&[kept.as_bytes()]).as_str(), kept);
        }
        let too_long = "a".repeat(BYTES_MAX + 1);
        let refused: [&[&[u8]]; 8] = [
            &[],
            &[b""],
            &[b"two words"],
            &[b"a\"b"],
            &[b"line\tbreak"],
            &["\u{fc}".as_bytes()],
            &[too_long.as_bytes()],
            &[b"one", b"two"],
        ];
        for ids in refused {
            let made = of(ids);
            assert!(made.as_str().len() == DIGITS && is_well_formed(made.as_str().as_bytes()), "{made:?}");
            assert_ne!(of(ids), made);
        }
    }
}
