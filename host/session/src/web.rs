//! Defines access to the web within the operator's policy: searching, and reading pages.
//!
//! Each half may be missing. Then its tool is absent from sessions.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::tools::ToolError;

/// One hit of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hit {
    /// The page's title.
    pub title: String,
    /// Its address; for a local source, its path as [`crate::files::Files`] spells it.
    pub url: String,
    /// An excerpt of its text.
    pub snippet: String,
}

/// Finds pages, or local sources.
#[async_trait]
pub trait Search: Send + Sync {
    /// At most `limit` hits, best first.
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError>;
}

/// Reads pages.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// A page's main text as Markdown. The error is `InvalidInput` for an address other than `http` or `https`,
    /// `NotGranted` for a host that the operator did not allow, `OverLimit` for a page that is too large, and
    /// `Unavailable` for a host that did not answer.
    async fn fetch(&self, url: &str) -> Result<String, ToolError>;
}

/// The web of one job.
#[derive(Clone, Default)]
pub struct Web {
    /// The search, if there is one.
    pub search: Option<Arc<dyn Search>>,
    /// The reader of pages, if there is one.
    pub fetch: Option<Arc<dyn Fetch>>,
}
