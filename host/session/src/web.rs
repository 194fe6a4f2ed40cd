//! The web, as far as the operator opened it: searching, and reading pages.
//!
//! Each half is there or not. What is not there does not exist for a session: its tool is absent.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::tools::ToolError;

/// One answer of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// The page's title.
    pub title: String,
    /// Its address; for a local source, its path as [`crate::files::Files`] spells it.
    pub url: String,
    /// Some of its text.
    pub snippet: String,
}

/// Finds pages, or local sources.
#[async_trait]
pub trait Search: Send + Sync {
    /// At most `limit` answers, best first.
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError>;
}

/// Reads pages.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// A page's main text as Markdown. `InvalidInput` for what is no `http` or `https` address, `NotGranted` for a
    /// host that the operator did not allow, `OverLimit` for a page that is too large, `Unavailable` where it did not
    /// answer.
    async fn fetch(&self, url: &str) -> Result<String, ToolError>;
}

/// The web of one job.
#[derive(Clone, Default)]
pub struct Web {
    /// What searches, if anything does.
    pub search: Option<Arc<dyn Search>>,
    /// What reads pages, if anything does.
    pub fetch: Option<Arc<dyn Fetch>>,
}
