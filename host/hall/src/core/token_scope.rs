//! Keeps the token whose owner pays for the work of the current task.
//!
//! Many paths lead from a request to the start of a session, and only their two ends know about tokens. So the token's
//! name is kept in the task that carries out the request.

tokio::task_local! {
    static TOKEN: Option<String>;
}

/// Runs work on behalf of the caller with this token; `None` stands for a caller without a token.
pub async fn with_token<T>(token: Option<String>, work: impl Future<Output = T>) -> T {
    TOKEN.scope(token, work).await
}

/// The name of the token for which the current task works.
pub(crate) fn current_token() -> Option<String> {
    TOKEN.try_with(Clone::clone).ok().flatten()
}
