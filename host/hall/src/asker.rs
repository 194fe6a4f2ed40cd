//! Whose dollars are spent: the token with which commissions are dispatched and meetings are spoken in.
//!
//! Many ways lead from a caller to the start of a session, and only both ends of them know of tokens. So the name goes along with
//! the task that carries a request out.

tokio::task_local! {
    static ASKER: Option<String>;
}

/// Carries something out that the caller with this token asked for, or one without a token.
pub async fn asked_by<T>(token: Option<String>, work: impl Future<Output = T>) -> T {
    ASKER.scope(token, work).await
}

/// The name of the token of whoever asked for what is being carried out.
pub(crate) fn asker() -> Option<String> {
    ASKER.try_with(Clone::clone).ok().flatten()
}
