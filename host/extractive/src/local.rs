//! Offers the granted local sources as a search provider.

use std::sync::Arc;

use async_trait::async_trait;
use guild_session::{
    files::Files,
    meter::Ending,
    tools::ToolError,
    web::{Hit, Search},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    corpus::{Corpus, blocking},
    search::answer,
};

/// Searches local files for passages. It shares the indexes of an [`Extractive`](crate::Extractive)'s sessions.
pub struct LocalSearch {
    cache: Arc<Cache>,
    files: Arc<dyn Files>,
}

impl LocalSearch {
    pub(crate) fn new(cache: Arc<Cache>, files: Arc<dyn Files>) -> Self {
        Self { cache, files }
    }
}

#[async_trait]
impl Search for LocalSearch {
    /// Passages, best first. A hit's title names the page, the heading and the line; its address is the file's path,
    /// which Read takes.
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError> {
        let cancel = CancellationToken::new();
        // Dropping the search ends its work on another thread.
        let _stop = cancel.clone().drop_guard();
        let found = async {
            let corpus = self.cache.corpus(&self.files, &cancel).await?;
            let query = query.to_owned();
            blocking(move || hits(&corpus, &query, limit as usize)).await
        };
        found.await.map_err(|ending| match ending {
            Ending::Error(text) => ToolError::Unavailable(text),
            _ => ToolError::Unavailable("the search was cancelled".to_owned()),
        })
    }
}

fn hits(corpus: &Corpus, query: &str, limit: usize) -> Vec<Hit> {
    let hit = |number| {
        let (document, passage) = corpus.passage(number)?;
        let title = format!("{} (line {})", document.heading(passage), passage.line);
        Some(Hit { title, url: document.path.clone(), snippet: passage.text.clone() })
    };
    answer(corpus, query, &[], limit).hits.iter().filter_map(|found| hit(found.passage)).collect()
}
