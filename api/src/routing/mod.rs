//! Routing in a cluster: any node takes any request, the owner of its user answers it.
//!
//! [`answer`] runs around the handlers. It finds the owner by the rules of `table.rs`, runs the
//! request here or forwards it, and tries again elsewhere if the owner has changed. Users in bodies
//! are found by the extractor [`ForUser`], so that a body is parsed once. `lines.rs` deals streams.
//! A node on its own uses none of this.

mod events;
mod exchange;
mod for_user;
mod gather;
mod lines;
mod named;
mod observations;
mod table;

use axum::body::Bytes;
use axum::extract::{FromRequestParts, Query, RawPathParams, Request};
use axum::response::Response;
use celeris_model::{ClusterView, DecisionId, LogId, Partition, UserId};
use serde::Deserialize;

use crate::cluster::{Cluster, Hop, Kept, log_of};
use crate::error::ApiError;
use crate::media_types::MediaType;
use crate::state::Node;

pub use events::find as find_event;
pub use exchange::WroteNothing;
use exchange::{Carried, Exchange};
pub use for_user::ForUser;
use for_user::Noted;
pub use lines::answer_lines;
use observations::Located;
#[cfg(test)]
pub use table::operations;
use table::{Repeat, Route, Rule};

/// The log whose owner answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Catalog,
    Users(Partition),
}

impl Target {
    fn log(self, view: &ClusterView) -> Option<LogId> {
        match self {
            Self::Catalog => Some(LogId::Catalog),
            Self::Users(partition) => log_of(view, partition),
        }
    }

    fn partition(self) -> Option<Partition> {
        match self {
            Self::Catalog => None,
            Self::Users(partition) => Some(partition),
        }
    }
}

/// Answers a request of a cluster's node: `run` here, or on the node that owns its user.
///
/// # Errors
/// Those of `run`, or 503 if no node answers.
pub async fn answer<F>(
    node: &Node,
    cluster: &Cluster,
    request: Request,
    run: impl Fn(Request) -> F,
) -> Result<Response, ApiError>
where
    F: Future<Output = Result<Response, ApiError>>,
{
    let Some(rule) = table::rule_of(&request) else { return run(request).await };
    let hop = Hop::of(request.headers());
    let (mut request, target) = match rule.route {
        Route::Any | Route::Lines => return run(request).await,
        Route::UserInBody => (request, None),
        Route::CoordinatorIfReached if hop.is_some() => return run(request).await,
        Route::Observation => match observations::locate(node, request).await? {
            (request, Located::In(partition)) => (request, Some(Target::Users(partition))),
            (request, Located::Here) => return run(request).await,
            (request, Located::Unknown) if hop.is_some() => return run(request).await,
            (request, Located::Unknown) => return observations::ask_all(cluster, kept(request).await?, run).await,
        },
        Route::Event => match events::locate(node, request).await? {
            (request, Some(partition)) => (request, Some(Target::Users(partition))),
            // The handler says that there is no such event.
            (request, None) => return run(request).await,
        },
        route => {
            let (request, target) = target_of(route, request).await;
            match target {
                Some(target) => (request, Some(target)),
                None if route == Route::Decisions && hop.is_none() => {
                    return gather::decisions(cluster, kept(request).await?, run).await;
                }
                // A malformed id: the handler says so.
                None => return run(request).await,
            }
        }
    };
    let noted = Noted::default();
    request.extensions_mut().insert(noted.clone());
    let is_stream = MediaType::NdJson.is_declared(request.headers());
    let carried = match rule {
        // Predictions are not copied: the extractor gives back those of other nodes' users.
        Rule { route: Route::UserInBody, repeat: Repeat::Safe } => Carried::Once(Some(request)),
        _ if is_stream => Carried::Once(Some(request)),
        _ => Carried::Kept(kept(request).await?),
    };
    Exchange { cluster, rule, hop, noted, watching: cluster.watch(), target, carried, may_be_done: false }
        .run(run)
        .await
}

/// Keeps the body of a request, which the limits layer has bounded and buffered.
async fn kept(request: Request) -> Result<Kept, ApiError> {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, usize::MAX).await.map_err(ApiError::malformed)?;
    Ok(Kept { parts, body })
}

/// The parameter `user`.
#[derive(Deserialize)]
struct ByUser {
    user: Option<UserId>,
}

fn user_in_query(request: &Request) -> Option<UserId> {
    Query::<ByUser>::try_from_uri(request.uri()).ok()?.0.user
}

/// The target that the path or the query names.
async fn target_of(route: Route, request: Request) -> (Request, Option<Target>) {
    let of_user = |user: UserId| Target::Users(Partition::of(&user));
    let target = match route {
        Route::Coordinator | Route::CoordinatorIfReached => Some(Target::Catalog),
        Route::Decisions => user_in_query(&request).map(of_user),
        Route::UserInPath | Route::Decision => {
            let (request, user) =
                path_text(request, if route == Route::Decision { "decision_id" } else { "user" }).await;
            let target = user.and_then(|text| match route {
                Route::Decision => DecisionId::new(text).ok()?.partition().map(Target::Users),
                _ => UserId::new(text).ok().map(of_user),
            });
            return (request, target);
        }
        Route::Any | Route::Lines | Route::UserInBody | Route::Observation | Route::Event => None,
    };
    (request, target)
}

/// A text of the path by its name.
async fn path_text(request: Request, name: &str) -> (Request, Option<String>) {
    let (mut parts, body) = request.into_parts();
    let texts = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
    let text = texts.and_then(|texts| texts.iter().find(|(of, _)| *of == name).map(|(_, text)| text.to_owned()));
    (Request::from_parts(parts, body), text)
}
