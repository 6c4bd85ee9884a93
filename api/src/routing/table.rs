//! Which node answers which operation: one entry for each operation of the API.

use axum::extract::{MatchedPath, Request};
use axum::http::Method;

/// The node that answers an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Any node: it has all that the answer needs.
    Any,
    /// The coordinator, which alone writes the registry and the items.
    Coordinator,
    /// The coordinator, which alone knows how trainings and comparisons stand; while it cannot be
    /// reached, any node, from what is stored.
    CoordinatorIfReached,
    /// The owner of the user whom the body names, or of the first of them; any node if the body
    /// names none.
    UserInBody,
    /// The owner of the user in the path.
    UserInPath,
    /// The owner of the parameter `user`; without it all nodes, each of which has a part of the list.
    Decisions,
    /// The owner of the user of a decision, by its id.
    Decision,
    /// The owner of the user of an observation: of the parameter `user`, or looked up by the id.
    Observation,
    /// The owner of the user of an event, which is looked up by its id.
    Event,
    /// The node that received them deals lines by the owners of their users.
    Lines,
}

/// Whether a request may be sent again although it may have been carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It has the same effect as once.
    Safe,
    /// If it has an `observation_id`.
    WithId,
    /// It could have its effect twice, or on something of the same name created since.
    Never,
}

/// How an operation is routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    pub route: Route,
    pub repeat: Repeat,
}

/// An operation: method and path as in the description.
type Operation = (Method, &'static str, Route, Repeat);

static OPERATIONS: [Operation; 80] = {
    use Repeat::{Never, Safe, WithId};
    use Route::{
        Any, Coordinator, CoordinatorIfReached, Decision, Decisions, Event, Lines, Observation, UserInBody, UserInPath,
    };
    [
        (Method::POST, "/v1/models/{model}/predict", UserInBody, Safe),
        (Method::POST, "/v1/models/{model}/topk", UserInBody, Safe),
        (Method::POST, "/v1/models/{model}/recommend", UserInBody, Safe),
        (Method::POST, "/v1/models/{model}/observe", UserInBody, WithId),
        (Method::POST, "/v1/models/{model}/observations", Lines, Never),
        (Method::PUT, "/v1/models/{model}/observations/{observation_id}", Observation, Safe),
        (Method::DELETE, "/v1/models/{model}/observations/{observation_id}", Observation, Safe),
        (Method::POST, "/v1/models/{model}/personalizer/rank", UserInBody, Safe),
        (Method::POST, "/v1/models/{model}/personalizer/events/{event_id}/reward", Event, Safe),
        (Method::POST, "/v1/models/{model}/personalizer/events/{event_id}/activate", Event, Safe),
        (Method::POST, "/v1/models/{model}/personalizer/multislot/rank", UserInBody, Safe),
        (Method::POST, "/v1/models/{model}/personalizer/multislot/events/{event_id}/reward", Event, Safe),
        (Method::POST, "/v1/models/{model}/personalizer/multislot/events/{event_id}/activate", Event, Safe),
        (Method::GET, "/v1/models/{model}/personalizer/configurations/service", CoordinatorIfReached, Safe),
        (Method::PUT, "/v1/models/{model}/personalizer/configurations/service", Coordinator, Safe),
        (Method::GET, "/v1/models/{model}/users", Any, Safe),
        (Method::GET, "/v1/models/{model}/users/{user}", UserInPath, Safe),
        (Method::PUT, "/v1/models/{model}/users/{user}", UserInPath, Safe),
        (Method::DELETE, "/v1/models/{model}/users/{user}", UserInPath, Safe),
        (Method::GET, "/v1/models/{model}/users/{user}/why/{item}", UserInPath, Safe),
        (Method::GET, "/v1/models/{model}/decisions", Decisions, Safe),
        (Method::GET, "/v1/models/{model}/decisions/{decision_id}", Decision, Safe),
        (Method::GET, "/v1/models/{model}/items", Any, Safe),
        (Method::POST, "/v1/models/{model}/items", Coordinator, Safe),
        (Method::GET, "/v1/models/{model}/items/{item}", Any, Safe),
        (Method::PUT, "/v1/models/{model}/items/{item}", Coordinator, Safe),
        (Method::DELETE, "/v1/models/{model}/items/{item}", Coordinator, Safe),
        (Method::GET, "/v1/models/{model}/items/{item}/similar", Any, Safe),
        (Method::GET, "/v1/models/{model}/attributes", Any, Safe),
        (Method::GET, "/v1/models", CoordinatorIfReached, Safe),
        (Method::POST, "/v1/models", Coordinator, Never),
        (Method::GET, "/v1/models/{model}", CoordinatorIfReached, Safe),
        (Method::PATCH, "/v1/models/{model}", Coordinator, Safe),
        (Method::DELETE, "/v1/models/{model}", Coordinator, Never),
        (Method::GET, "/v1/models/{model}/versions", Any, Safe),
        (Method::POST, "/v1/models/{model}/versions", Coordinator, Never),
        (Method::GET, "/v1/models/{model}/versions/{from}/diff/{to}", Any, Safe),
        (Method::POST, "/v1/models/{model}/versions/{version}/activate", Coordinator, Never),
        (Method::POST, "/v1/models/{model}/versions/{version}/pin", Coordinator, Safe),
        (Method::DELETE, "/v1/models/{model}/versions/{version}/pin", Coordinator, Safe),
        (Method::POST, "/v1/models/{model}/rollback", Coordinator, Never),
        (Method::POST, "/v1/models/{model}/retrain", Coordinator, Never),
        (Method::GET, "/v1/jobs", CoordinatorIfReached, Safe),
        (Method::GET, "/v1/jobs/{job}", CoordinatorIfReached, Safe),
        (Method::GET, "/v1/models/{model}/studies", CoordinatorIfReached, Safe),
        (Method::POST, "/v1/models/{model}/studies", Coordinator, Never),
        (Method::GET, "/v1/studies/{study}", CoordinatorIfReached, Safe),
        (Method::POST, "/v1/studies/{study}/stop", Coordinator, Safe),
        (Method::POST, "/v1/studies/{study}/apply", Coordinator, Never),
        (Method::POST, "/v1/studies/{study}/ask", Coordinator, Never),
        (Method::GET, "/v1/studies/{study}/data", Coordinator, Safe),
        (Method::POST, "/v1/studies/{study}/trials/{trial}/report", Coordinator, Never),
        (Method::POST, "/v1/studies/{study}/trials/{trial}/tell", Coordinator, Never),
        (Method::GET, "/v1/models/{model}/events", Any, Safe),
        (Method::GET, "/v1/models/{model}/quality", CoordinatorIfReached, Safe),
        (Method::GET, "/v1/models/{model}/exploration", Any, Safe),
        (Method::GET, "/v1/models/{model}/rewards", Any, Safe),
        (Method::GET, "/v1/models/{model}/selection", Any, Safe),
        (Method::POST, "/v1/models/{model}/evaluate-policy", Any, Safe),
        (Method::GET, "/v1/pipelines", Any, Safe),
        (Method::POST, "/v1/pipelines", Coordinator, Safe),
        (Method::GET, "/v1/pipelines/{pipeline}", Any, Safe),
        (Method::DELETE, "/v1/pipelines/{pipeline}", Coordinator, Never),
        (Method::POST, "/v1/pipelines/{pipeline}/run", Any, Safe),
        (Method::GET, "/v1/objects/{object}", Any, Safe),
        (Method::PUT, "/v1/objects/{object}", Coordinator, Safe),
        (Method::GET, "/v1/keys", Any, Safe),
        (Method::POST, "/v1/keys", Coordinator, Never),
        (Method::DELETE, "/v1/keys/{key}", Coordinator, Safe),
        (Method::GET, "/v1/ingests", Any, Safe),
        (Method::GET, "/v1/backups", Any, Safe),
        (Method::POST, "/v1/backups", Any, Never),
        (Method::POST, "/v1/backups/{backup}", Any, Safe),
        (Method::DELETE, "/v1/backups/{backup}", Any, Safe),
        (Method::GET, "/v1/backups/{backup}/files/{file}", Any, Safe),
        (Method::GET, "/v1/cluster", Any, Safe),
        (Method::POST, "/v1/cluster/drain", Any, Safe),
        (Method::GET, "/healthz", Any, Safe),
        (Method::GET, "/readyz", Any, Safe),
        (Method::GET, "/metrics", Any, Safe),
    ]
};

/// The rule of a request; `None` if the path is none of the API.
pub fn rule_of(request: &Request) -> Option<Rule> {
    let path = request.extensions().get::<MatchedPath>()?;
    // A `HEAD` is answered as a `GET`.
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    rule(method, path.as_str())
}

/// The rule of an operation.
pub fn rule(method: &Method, path: &str) -> Option<Rule> {
    let found = OPERATIONS.iter().find(|(of, pattern, ..)| of == method && *pattern == path);
    found.map(|(_, _, route, repeat)| Rule { route: *route, repeat: *repeat })
}

/// Method and path of each entry.
#[cfg(test)]
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPERATIONS.iter().map(|(method, path, ..)| (method.as_str(), *path))
}
