//! The web page at `/`, embedded in the binary.

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use crate::error::ApiError;
use crate::extract::parse;
use crate::state::Node;

/// Allows only scripts, styles, images and requests of the node itself.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                                       connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// No other site shows the page, learns where its visitor was, or has its files read as something else.
const SECURITY_HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

const CSS: &str = "text/css; charset=utf-8";

const SVG: &str = "image/svg+xml";

/// Of what a sign-in brings, in bytes.
const SIGN_IN_BYTES_MAX: usize = 16 << 10;

const NOT_STORED: (HeaderName, &str) = (header::CACHE_CONTROL, "no-store");

macro_rules! files {
    ($(($name:literal, $kind:expr)),* $(,)?) => {
        /// The files of the page: name, media type, contents.
        const FILES: &[(&str, &str, &[u8])] = &[
            $(($name, $kind, include_bytes!(concat!("../../page/", $name))),)*
            ("regret.svg", SVG, include_bytes!("../../../docs/benchmarks/regret-shared.svg")),
        ];
    };
}

// `vendor/` holds uPlot 1.6.32 as published on npm (https://github.com/leeoniya/uPlot, MIT), unchanged. Its licence
// asks for the notice in every copy, so that the binary holds it too.
files![
    ("index.html", "text/html; charset=utf-8"),
    ("style.css", CSS),
    ("favicon.svg", SVG),
    ("amount.js", JAVASCRIPT),
    ("api.js", JAVASCRIPT),
    ("app.js", JAVASCRIPT),
    ("browse.js", JAVASCRIPT),
    ("card.js", JAVASCRIPT),
    ("catalog.js", JAVASCRIPT),
    ("chart.js", JAVASCRIPT),
    ("cluster.js", JAVASCRIPT),
    ("command.js", JAVASCRIPT),
    ("confirm.js", JAVASCRIPT),
    ("context.js", JAVASCRIPT),
    ("dom.js", JAVASCRIPT),
    ("error.js", JAVASCRIPT),
    ("events.js", JAVASCRIPT),
    ("exploration.js", JAVASCRIPT),
    ("features.js", JAVASCRIPT),
    ("feedback.js", JAVASCRIPT),
    ("filter.js", JAVASCRIPT),
    ("flow.js", JAVASCRIPT),
    ("format.js", JAVASCRIPT),
    ("graph.js", JAVASCRIPT),
    ("jobs.js", JAVASCRIPT),
    ("keys.js", JAVASCRIPT),
    ("layers.js", JAVASCRIPT),
    ("login.js", JAVASCRIPT),
    ("models.js", JAVASCRIPT),
    ("newmodel.js", JAVASCRIPT),
    ("operate.js", JAVASCRIPT),
    ("pipelines.js", JAVASCRIPT),
    ("plays.js", JAVASCRIPT),
    ("policies.js", JAVASCRIPT),
    ("quality.js", JAVASCRIPT),
    ("ranking.js", JAVASCRIPT),
    ("ratings.js", JAVASCRIPT),
    ("rewards.js", JAVASCRIPT),
    ("route.js", JAVASCRIPT),
    ("run.js", JAVASCRIPT),
    ("selection.js", JAVASCRIPT),
    ("session.js", JAVASCRIPT),
    ("setup.js", JAVASCRIPT),
    ("signin.js", JAVASCRIPT),
    ("stars.js", JAVASCRIPT),
    ("studies.js", JAVASCRIPT),
    ("thumbs.js", JAVASCRIPT),
    ("training.js", JAVASCRIPT),
    ("triggers.js", JAVASCRIPT),
    ("try.js", JAVASCRIPT),
    ("typed.js", JAVASCRIPT),
    ("upkeep.js", JAVASCRIPT),
    ("users.js", JAVASCRIPT),
    ("versions.js", JAVASCRIPT),
    ("vendor/uPlot.esm.js", JAVASCRIPT),
    ("vendor/uPlot.min.css", CSS),
    ("vendor/uPlot.LICENSE", "text/plain; charset=utf-8"),
];

pub fn router() -> Router<Node> {
    Router::new()
        .route("/", get(|| async { file("index.html") }))
        .route("/page/sign-in", get(sign_in).post(redeem).layer(DefaultBodyLimit::max(SIGN_IN_BYTES_MAX)))
        .route("/page/{*name}", get(|Path(name): Path<String>| async move { file(&name) }))
}

/// Where the page signs its users in.
async fn sign_in(State(node): State<Node>) -> Result<Response, ApiError> {
    let found = node.access.sign_in().await?;
    let found = found.ok_or_else(|| ApiError::not_found("this node has no sign-in by an identity provider"))?;
    Ok(([NOT_STORED], Json(found)).into_response())
}

/// A token for what a sign-in has brought.
#[derive(Serialize)]
struct SignedIn {
    token: String,
}

async fn redeem(State(node): State<Node>, body: Bytes) -> Result<Response, ApiError> {
    let token = node.access.redeem(parse(&body)?).await?;
    Ok(([NOT_STORED], Json(SignedIn { token })).into_response())
}

fn file(name: &str) -> Response {
    let Some((_, kind, contents)) = FILES.iter().find(|(known, ..)| *known == name) else {
        return ApiError::not_found(format!("the page has no file {name}")).into_response();
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.extend(SECURITY_HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    // The files change with the binary and have no version of their own.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    (headers, *contents).into_response()
}
