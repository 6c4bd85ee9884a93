//! What each operation needs: one entry for each operation of the API.

use axum::http::Method;
use celeris_manager::Role;

/// What a client needs for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: checks of health, which say nothing of users and models.
    Nothing,
    /// A role. The handler leaves out the models that the key is not for.
    Filtered(Role),
    /// A role, for the model that the path names.
    OfModel(Role),
    /// A role, in a key that is not bounded to models or streams.
    OfNode(Role),
}

/// An operation: method and path as in the description, and what it needs.
type Operation = (Method, &'static str, Needs);

static OPERATIONS: [Operation; 80] = {
    use Needs::{Filtered, Nothing, OfModel, OfNode};
    use Role::{Admin, Observe, Operate, Predict};
    [
        (Method::POST, "/v1/models/{model}/predict", OfModel(Predict)),
        (Method::POST, "/v1/models/{model}/topk", OfModel(Predict)),
        (Method::POST, "/v1/models/{model}/recommend", OfModel(Predict)),
        (Method::POST, "/v1/models/{model}/observe", OfModel(Observe)),
        (Method::POST, "/v1/models/{model}/observations", OfModel(Observe)),
        (Method::PUT, "/v1/models/{model}/observations/{observation_id}", OfModel(Observe)),
        (Method::DELETE, "/v1/models/{model}/observations/{observation_id}", OfModel(Observe)),
        (Method::POST, "/v1/models/{model}/personalizer/rank", OfModel(Predict)),
        (Method::POST, "/v1/models/{model}/personalizer/events/{event_id}/reward", OfModel(Observe)),
        (Method::POST, "/v1/models/{model}/personalizer/events/{event_id}/activate", OfModel(Observe)),
        (Method::POST, "/v1/models/{model}/personalizer/multislot/rank", OfModel(Predict)),
        (Method::POST, "/v1/models/{model}/personalizer/multislot/events/{event_id}/reward", OfModel(Observe)),
        (Method::POST, "/v1/models/{model}/personalizer/multislot/events/{event_id}/activate", OfModel(Observe)),
        (Method::GET, "/v1/models/{model}/personalizer/configurations/service", OfModel(Predict)),
        (Method::PUT, "/v1/models/{model}/personalizer/configurations/service", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/users", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/users/{user}", OfModel(Operate)),
        (Method::PUT, "/v1/models/{model}/users/{user}", OfModel(Observe)),
        (Method::DELETE, "/v1/models/{model}/users/{user}", OfModel(Admin)),
        (Method::GET, "/v1/models/{model}/users/{user}/why/{item}", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/decisions", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/decisions/{decision_id}", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/items", OfModel(Predict)),
        (Method::POST, "/v1/models/{model}/items", OfModel(Observe)),
        (Method::GET, "/v1/models/{model}/items/{item}", OfModel(Predict)),
        (Method::PUT, "/v1/models/{model}/items/{item}", OfModel(Observe)),
        (Method::DELETE, "/v1/models/{model}/items/{item}", OfModel(Observe)),
        (Method::GET, "/v1/models/{model}/items/{item}/similar", OfModel(Predict)),
        (Method::GET, "/v1/models/{model}/attributes", OfModel(Predict)),
        (Method::GET, "/v1/models", Filtered(Predict)),
        (Method::POST, "/v1/models", OfNode(Operate)),
        (Method::GET, "/v1/models/{model}", OfModel(Predict)),
        (Method::PATCH, "/v1/models/{model}", OfModel(Operate)),
        (Method::DELETE, "/v1/models/{model}", OfNode(Admin)),
        (Method::GET, "/v1/models/{model}/versions", OfModel(Operate)),
        (Method::POST, "/v1/models/{model}/versions", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/versions/{from}/diff/{to}", OfModel(Operate)),
        (Method::POST, "/v1/models/{model}/versions/{version}/activate", OfModel(Operate)),
        (Method::POST, "/v1/models/{model}/versions/{version}/pin", OfModel(Operate)),
        (Method::DELETE, "/v1/models/{model}/versions/{version}/pin", OfModel(Operate)),
        (Method::POST, "/v1/models/{model}/rollback", OfModel(Operate)),
        (Method::POST, "/v1/models/{model}/retrain", OfModel(Operate)),
        (Method::GET, "/v1/jobs", Filtered(Operate)),
        (Method::GET, "/v1/jobs/{job}", Filtered(Operate)),
        (Method::GET, "/v1/models/{model}/studies", OfModel(Operate)),
        (Method::POST, "/v1/models/{model}/studies", OfModel(Operate)),
        (Method::GET, "/v1/studies/{study}", Filtered(Operate)),
        (Method::POST, "/v1/studies/{study}/stop", Filtered(Operate)),
        (Method::POST, "/v1/studies/{study}/apply", Filtered(Operate)),
        (Method::POST, "/v1/studies/{study}/ask", Filtered(Operate)),
        (Method::GET, "/v1/studies/{study}/data", Filtered(Operate)),
        (Method::POST, "/v1/studies/{study}/trials/{trial}/report", Filtered(Operate)),
        (Method::POST, "/v1/studies/{study}/trials/{trial}/tell", Filtered(Operate)),
        (Method::GET, "/v1/models/{model}/events", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/quality", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/exploration", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/rewards", OfModel(Operate)),
        (Method::GET, "/v1/models/{model}/selection", OfModel(Operate)),
        (Method::POST, "/v1/models/{model}/evaluate-policy", OfModel(Operate)),
        (Method::GET, "/v1/pipelines", OfNode(Operate)),
        (Method::POST, "/v1/pipelines", OfNode(Operate)),
        (Method::GET, "/v1/pipelines/{pipeline}", OfNode(Operate)),
        (Method::DELETE, "/v1/pipelines/{pipeline}", OfNode(Operate)),
        (Method::POST, "/v1/pipelines/{pipeline}/run", OfNode(Operate)),
        (Method::GET, "/v1/objects/{object}", OfNode(Operate)),
        (Method::PUT, "/v1/objects/{object}", OfNode(Operate)),
        (Method::GET, "/v1/keys", OfNode(Admin)),
        (Method::POST, "/v1/keys", OfNode(Admin)),
        (Method::DELETE, "/v1/keys/{key}", OfNode(Admin)),
        (Method::GET, "/v1/ingests", OfNode(Operate)),
        (Method::GET, "/v1/backups", OfNode(Operate)),
        (Method::POST, "/v1/backups", OfNode(Admin)),
        (Method::POST, "/v1/backups/{backup}", OfNode(Admin)),
        (Method::DELETE, "/v1/backups/{backup}", OfNode(Admin)),
        (Method::GET, "/v1/backups/{backup}/files/{file}", OfNode(Admin)),
        (Method::GET, "/v1/cluster", OfNode(Operate)),
        (Method::POST, "/v1/cluster/drain", OfNode(Operate)),
        (Method::GET, "/healthz", Nothing),
        (Method::GET, "/readyz", Nothing),
        (Method::GET, "/metrics", OfNode(Operate)),
    ]
};

/// What an operation needs; `None` if it is none of the API.
pub fn needs(method: &Method, path: &str) -> Option<Needs> {
    // A `HEAD` is answered as a `GET`.
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let found = OPERATIONS.iter().find(|(of, pattern, _)| *pattern == path && of == method);
    found.map(|(_, _, needs)| *needs)
}

/// The role that an operation needs; `None` if it needs none.
#[must_use]
pub fn role_of(method: &Method, path: &str) -> Option<Role> {
    match needs(method, path)? {
        Needs::Nothing => None,
        Needs::Filtered(role) | Needs::OfModel(role) | Needs::OfNode(role) => Some(role),
    }
}

/// Method and path of each entry.
#[cfg(test)]
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str)> {
    OPERATIONS.iter().map(|(method, path, _)| (method.as_str(), *path))
}
