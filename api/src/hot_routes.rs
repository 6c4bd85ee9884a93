//! The routes that carry the load, found without the router.
//!
//! A router of all paths keeps the path's parameters and pattern with the request, and boxes a service and a future for
//! every layer: about twenty allocations. Where a request takes some microseconds that is much: measured, a twentieth of
//! the observations that a node takes over HTTP. These routes are told from the path alone. The router knows them too,
//! and answers whatever is not plainly one of them: other methods, escaped names, names that no model can have.

use axum::extract::{FromRequest, Request, State};
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use celeris_model::ModelName;
use serde::de::DeserializeOwned;

use crate::error::ApiError;
use crate::extract::{Body, InModel};
use crate::routes::observe::observe;
use crate::routes::predict::predict;
use crate::routes::recommend::recommend;
use crate::routes::topk::topk;
use crate::state::Node;

/// What a model is asked, in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HotRoute {
    Predict,
    Topk,
    Recommend,
    Observe,
}

impl HotRoute {
    /// The route and the model that a request asks for.
    pub fn of(request: &Request) -> Option<(Self, ModelName)> {
        if request.method() != Method::POST {
            return None;
        }
        let (model, asked) = request.uri().path().strip_prefix("/v1/models/")?.split_once('/')?;
        let route = match asked {
            "predict" => Self::Predict,
            "topk" => Self::Topk,
            "recommend" => Self::Recommend,
            "observe" => Self::Observe,
            _ => return None,
        };
        Some((route, ModelName::new(model).ok()?))
    }

    /// The pattern by which the router knows it.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Predict => "/v1/models/{model}/predict",
            Self::Topk => "/v1/models/{model}/topk",
            Self::Recommend => "/v1/models/{model}/recommend",
            Self::Observe => "/v1/models/{model}/observe",
        }
    }

    /// Answers as the router would.
    pub async fn answer(self, node: Node, model: ModelName, request: Request) -> Response {
        match self {
            Self::Predict => call(predict, node, model, request).await,
            Self::Topk => call(topk, node, model, request).await,
            Self::Recommend => call(recommend, node, model, request).await,
            Self::Observe => call(observe, node, model, request).await,
        }
    }
}

async fn call<T, A, F>(
    handler: impl FnOnce(State<Node>, InModel, Body<T>) -> F,
    node: Node,
    model: ModelName,
    request: Request,
) -> Response
where
    T: DeserializeOwned,
    A: IntoResponse,
    F: Future<Output = Result<A, ApiError>>,
{
    match Body::from_request(request, &node).await {
        Ok(body) => handler(State(node), InModel(model), body).await.into_response(),
        Err(error) => error.into_response(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use axum::body::Body as HttpBody;

    use super::*;
    use crate::routes;

    const ALL: [HotRoute; 4] = [HotRoute::Predict, HotRoute::Topk, HotRoute::Recommend, HotRoute::Observe];

    fn asked(method: Method, path: &str) -> Option<(HotRoute, String)> {
        let request = Request::builder().method(method).uri(path).body(HttpBody::empty()).unwrap();
        HotRoute::of(&request).map(|(route, model)| (route, model.as_str().to_owned()))
    }

    #[test]
    fn every_one_is_found_by_the_pattern_under_which_the_router_has_it() {
        let routers =
            [routes::predict::router(), routes::topk::router(), routes::recommend::router(), routes::observe::router()];
        for (route, router) in ALL.into_iter().zip(routers) {
            let pattern = route.pattern();
            assert!(router.get_openapi().paths.paths.contains_key(pattern), "{pattern}");
            let path = pattern.replace("{model}", "films");
            assert_eq!(asked(Method::POST, &path), Some((route, "films".to_owned())));
            assert_eq!(asked(Method::POST, &format!("{path}?a=b")), Some((route, "films".to_owned())));
            // What is not plainly one of them is the router's.
            assert_eq!(asked(Method::GET, &path), None);
            for other in [format!("{path}/"), format!("{path}s"), format!("/{path}"), path.replace("films", "fi%6Cms")]
            {
                assert_eq!(asked(Method::POST, &other), None, "{other}");
            }
            assert_eq!(asked(Method::POST, &pattern.replace("{model}", "")), None);
        }
    }
}
