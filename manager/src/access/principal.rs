//! Who asks for a change, for the audit log.

tokio::task_local! {
    static PRINCIPAL: Option<String>;
}

/// Runs a request of this principal: audit events that are made meanwhile, in the same task, name it.
pub async fn acting_for<F: Future>(principal: Option<String>, request: F) -> F::Output {
    PRINCIPAL.scope(principal, request).await
}

/// The principal of the request that is running; `None` if there is none, or it is not known.
pub(crate) fn principal() -> Option<String> {
    PRINCIPAL.try_with(Clone::clone).ok().flatten()
}
