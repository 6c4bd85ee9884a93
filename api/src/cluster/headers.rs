//! Headers between nodes, and those that tell clients of the owner.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use celeris_model::{ModelId, Partition, PlacementRevision};

/// Marks a request that another node has forwarded: it is not forwarded again.
///
/// In a cluster without a secret, a client that sends it only gets 421 where another node owns the user.
pub const HOP: HeaderName = HeaderName::from_static("celeris-hop");

/// The revision of the placement that the sender of a request, or of a 421, knows.
const PLACEMENT: HeaderName = HeaderName::from_static("celeris-placement");

/// The id of the model that a forwarded stream was opened for.
pub const MODEL_ID: HeaderName = HeaderName::from_static("celeris-model-id");

/// The node that answers for a user: `URL; partition=37; revision=3.12`.
pub const OWNER: HeaderName = HeaderName::from_static("celeris-owner");

/// RFC 7240.
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Headers of one connection, and those that this node has checked for the next one.
const NOT_FORWARDED: [HeaderName; 17] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
    header::EXPECT,
    header::ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("sec-fetch-dest"),
    HOP,
    PREFER,
];

/// A request that another node has forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// The revision of the placement by which the sender chose this node.
    pub revision: PlacementRevision,
    /// The model that the request is for, if the sender names it.
    pub model: Option<ModelId>,
}

impl Hop {
    /// The hop of a request; `None` if a client sent it.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        headers.get(HOP)?;
        let model = headers.get(MODEL_ID).and_then(|id| id.to_str().ok()?.parse().ok()).map(ModelId);
        Some(Self { revision: placement_of(headers).unwrap_or_default(), model })
    }
}

/// The revision of the sender's placement.
#[must_use]
pub fn placement_of(headers: &HeaderMap) -> Option<PlacementRevision> {
    let (epoch, number) = headers.get(PLACEMENT)?.to_str().ok()?.split_once('.')?;
    Some(PlacementRevision { epoch: epoch.parse().ok()?, number: number.parse().ok()? })
}

/// Sets the revision of this node's placement.
pub fn set_placement(headers: &mut HeaderMap, revision: PlacementRevision) {
    headers.insert(PLACEMENT, text(&revision_text(revision)));
}

/// Turns the headers of a request into those of its next hop; the client sets its host.
pub(super) fn of_next_hop(headers: &mut HeaderMap, (node, revision): (&str, PlacementRevision)) {
    remove_of_connection(headers);
    headers.insert(HOP, HeaderValue::from_static("1"));
    set_placement(headers, revision);
    headers.append(header::VIA, text(&format!("1.1 {node}")));
}

/// Removes the headers that belong to one connection.
pub(super) fn remove_of_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|names| names.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&NOT_FORWARDED) {
        headers.remove(name);
    }
}

/// Whether the client prefers to be sent to the owner.
#[must_use]
pub fn asks_for_redirect(headers: &HeaderMap) -> bool {
    let preferences = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    preferences.flat_map(|value| value.split(',')).any(|preference| preference.trim().eq_ignore_ascii_case("redirect"))
}

/// The value of [`OWNER`].
#[must_use]
pub fn owner(url: &str, partition: Option<Partition>, revision: PlacementRevision) -> HeaderValue {
    let partition = partition.map(|partition| format!("; partition={}", partition.index())).unwrap_or_default();
    text(&format!("{url}{partition}; revision={}", revision_text(revision)))
}

fn revision_text(PlacementRevision { epoch, number }: PlacementRevision) -> String {
    format!("{epoch}.{number}")
}

/// A header's value; empty if the text cannot be one, as a URL with control characters.
fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_end_at_the_first_node() {
        let given = [
            ("host", "a:1"),
            ("connection", "keep-alive, X-Once"),
            ("x-once", "1"),
            ("origin", "http://a:1"),
            ("sec-fetch-site", "same-origin"),
            ("prefer", "redirect"),
            ("content-type", "application/json"),
            ("celeris-placement", "9.9"),
            ("via", "1.1 gateway"),
        ];
        let given = given.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut headers = HeaderMap::from_iter(given);
        assert_eq!(Hop::of(&headers), None);
        let revision = PlacementRevision { epoch: 3, number: 12 };
        of_next_hop(&mut headers, ("a", revision));
        let mut left: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        left.sort();
        let expected = [
            "celeris-hop: 1",
            "celeris-placement: 3.12",
            "content-type: application/json",
            "via: 1.1 a",
            "via: 1.1 gateway",
        ];
        assert_eq!(left, expected);
        assert_eq!(Hop::of(&headers), Some(Hop { revision, model: None }));
    }

    #[test]
    fn a_redirect_is_preferred_among_other_things() {
        let asks = |value: &str| asks_for_redirect(&HeaderMap::from_iter([(PREFER, value.parse().unwrap())]));
        assert!(asks("redirect") && asks("respond-async, Redirect"));
        assert!(!asks("respond-async") && !asks_for_redirect(&HeaderMap::new()));
    }
}
