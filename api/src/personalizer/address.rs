//! Paths and keys as the SDKs of Personalizer send them.
//!
//! `/personalizer/v1.0/rank` is `/v1/models/MODEL/personalizer/rank` with the configured model, and so is
//! `/personalizer/rank?api-version=…`. A client with another model has `…/v1/models/MODEL` as its endpoint, to which the
//! SDKs append the same. All versions of that API have the same calls as far as this one has them.

use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Request, Uri, header};

use super::Personalizer;
use crate::error::ApiError;

/// The header with the key of a client.
pub const KEY_HEADER: &str = "ocp-apim-subscription-key";

/// The first segment of all paths.
const ROOT: &str = "personalizer";

/// Path of the models of this API.
const MODELS: &str = "/v1/models/";

/// What Personalizer does and this node does not, by the beginning of the path, and what to do instead.
const NOT_DONE: [(&str, &str); 7] = [
    ("configurations/policy", "the learning settings of a model are those of /v1/models/MODEL"),
    ("configurations/applyFromEvaluation", "set the policy of the model by PATCH /v1/models/MODEL"),
    ("evaluations", "evaluate policies by POST /v1/models/MODEL/evaluate-policy"),
    ("featureImportances", "GET /v1/models/MODEL/users/USER/why/ITEM says what a score consists of"),
    (
        "logs",
        "observations are erased with their users by DELETE /v1/models/MODEL/users/USER, decisions by decisions.retention",
    ),
    ("model", "versions of the model are at /v1/models/MODEL/versions"),
    ("status", "GET /v1/models/MODEL describes the model"),
];

/// Whether a request is one of Personalizer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressed {
    /// Its answer has that form.
    Theirs,
    Ours,
}

/// The path below `personalizer`, and the model if the path names one.
fn parts(path: &str) -> Option<(Option<&str>, &str)> {
    let below = |rest: &'_ str| -> Option<usize> {
        let after = rest.strip_prefix(ROOT)?;
        (after.is_empty() || after.starts_with('/')).then_some(ROOT.len())
    };
    // An endpoint may end with a slash.
    let from_root = path.trim_start_matches('/');
    if below(from_root).is_some() {
        return Some((None, &from_root[ROOT.len()..]));
    }
    let (model, rest) = path.strip_prefix(MODELS)?.split_once('/')?;
    let rest = rest.trim_start_matches('/');
    below(rest).map(|length| (Some(model), &rest[length..]))
}

/// Whether a segment is a version, such as `v1.0` or `v1.1-preview.3`.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix(['v', 'V']) else { return false };
    rest.starts_with(|first: char| first.is_ascii_digit())
        && rest.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
}

/// The call, without the version.
fn call(below: &str) -> &str {
    let below = below.trim_matches('/');
    match below.split_once('/') {
        Some((first, rest)) if is_version(first) => rest.trim_start_matches('/'),
        _ if is_version(below) => "",
        _ => below,
    }
}

impl Personalizer {
    /// Gives a request in the form of Personalizer the path and the key of this API.
    ///
    /// # Errors
    /// 404 if no model is configured, 501 for a call that the node does not have.
    pub fn address<B>(&self, request: &mut Request<B>) -> Result<Addressed, ApiError> {
        let Some((model, below)) = parts(request.uri().path()) else { return Ok(Addressed::Ours) };
        let call = call(below);
        let begins = |name: &str| call.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if let Some((_, instead)) = NOT_DONE.iter().find(|(name, _)| begins(name)) {
            return Err(ApiError::not_implemented(format!("this node has no {call}; {instead}")));
        }
        let model = model.or(self.settings.model.as_ref().map(|model| model.as_str())).ok_or_else(|| {
            ApiError::not_found(
                "no model is configured to answer this; set personalizer.model, or use /v1/models/MODEL as the endpoint",
            )
        })?;
        let path = format!("{MODELS}{model}/{ROOT}/{call}");
        *request.uri_mut() = with_path(request.uri(), &path).ok_or_else(|| ApiError::not_found("no such path"))?;
        give_key(request);
        Ok(Addressed::Theirs)
    }
}

/// A target with another path. A host that it names stays, and is checked with the request.
fn with_path(target: &Uri, path: &str) -> Option<Uri> {
    let mut parts = target.clone().into_parts();
    parts.path_and_query = Some(path.parse::<PathAndQuery>().ok()?);
    Uri::from_parts(parts).ok()
}

/// The key as this API expects it, if there is no other.
fn give_key<B>(request: &mut Request<B>) {
    let headers = request.headers_mut();
    let mut keys = headers.get_all(KEY_HEADER).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else { return };
    let bearer = [b"Bearer ", key.as_bytes()].concat();
    if !headers.contains_key(header::AUTHORIZATION)
        && let Ok(mut bearer) = HeaderValue::from_bytes(&bearer)
    {
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use celeris_model::ModelName;

    use super::*;
    use crate::config;

    fn addressed(path: &str, model: Option<&str>) -> Result<(Addressed, String), u16> {
        let model = model.map(|model| ModelName::new(model).unwrap());
        let personalizer = Personalizer::new(config::Personalizer { model, ..config::Personalizer::default() });
        let mut request = Request::get(path).body(()).unwrap();
        let addressed = personalizer.address(&mut request).map_err(|error| error.status().as_u16())?;
        Ok((addressed, request.uri().to_string()))
    }

    #[test]
    fn all_versions_of_all_endpoints_are_one_path() {
        let rank = Ok((Addressed::Theirs, "/v1/models/home/personalizer/rank".to_owned()));
        for path in [
            "/personalizer/v1.0/rank",
            "//personalizer/v1.0/rank",
            "/personalizer/v1.1/rank",
            "/personalizer/v1.1-preview.3/rank",
            "/personalizer/rank?api-version=2022-09-01-preview",
            "/personalizer/rank/",
        ] {
            assert_eq!(addressed(path, Some("home")), rank, "{path}");
            assert_eq!(addressed(path, None), Err(404), "{path}");
        }
        for path in [
            "/v1/models/home/personalizer/v1.0/rank",
            "/v1/models/home//personalizer/v1.1/rank",
            "/v1/models/home/personalizer/rank",
        ] {
            assert_eq!(addressed(path, Some("other")), rank, "{path}");
        }
        let reward = "/v1/models/home/personalizer/events/v1.0/reward".to_owned();
        let path = "/personalizer/v1.0/events/v1.0/reward";
        assert_eq!(addressed(path, Some("home")), Ok((Addressed::Theirs, reward)), "an event may be named so");
        for path in
            ["/v1/models/home/topk", "/v1/models/personalizer/topk", "/personalizers", "/", "/v1/personalizer/x"]
        {
            assert_eq!(addressed(path, Some("home")), Ok((Addressed::Ours, path.to_owned())));
        }
    }

    #[test]
    fn calls_that_the_node_does_not_have_are_named() {
        for path in
            ["/personalizer/v1.0/evaluations", "/personalizer/v1.1-preview.1/evaluations/e-1", "/personalizer/model"]
        {
            assert_eq!(addressed(path, None), Err(501), "{path}");
        }
        let unknown = Ok((Addressed::Theirs, "/v1/models/home/personalizer/modelling".to_owned()));
        assert_eq!(addressed("/personalizer/v1.0/modelling", Some("home")), unknown);
    }

    #[test]
    fn the_subscription_key_is_a_key_of_the_node() {
        let personalizer = Personalizer::new(config::Personalizer::default());
        let key_of = |given: &[(&'static str, &'static str)]| {
            let mut request = Request::get("/v1/models/home/personalizer/rank").body(()).unwrap();
            for (name, value) in given {
                request.headers_mut().append(*name, HeaderValue::from_static(value));
            }
            personalizer.address(&mut request).unwrap();
            request.headers().get(header::AUTHORIZATION).map(|key| key.to_str().unwrap().to_owned())
        };
        assert_eq!(key_of(&[("ocp-apim-subscription-key", "k-1")]), Some("Bearer k-1".to_owned()));
        assert_eq!(
            key_of(&[("ocp-apim-subscription-key", "k-1"), ("authorization", "Bearer k-2")]).unwrap(),
            "Bearer k-2"
        );
        assert_eq!(key_of(&[("ocp-apim-subscription-key", "k-1"), ("ocp-apim-subscription-key", "k-2")]), None);
        assert_eq!(key_of(&[]), None);
    }
}
