//! The granted local sources as a search provider.

use std::sync::Arc;

use async_trait::async_trait;
use guild_session::{
    files::Files,
    tools::ToolError,
    web::{Hit, Search},
};
use tokio_util::sync::CancellationToken;

use super::{Extractive, cache::Cache, corpus::Corpus, cpu::CpuError, question::Question, search};

/// Searches local files for passages, in the indexes that the sessions of an [`Extractive`] have of them.
pub struct LocalSearch {
    cache: Arc<Cache>,
    files: Arc<dyn Files>,
}

impl LocalSearch {
    /// Searches these files, with what this runtime has indexed.
    pub fn new(runtime: &Extractive, files: Arc<dyn Files>) -> Self {
        Self { cache: runtime.cache.clone(), files }
    }
}

#[async_trait]
impl Search for LocalSearch {
    /// Passages, best first, at most three of a file. A hit's title names the page, the heading and the line; its
    /// address is the file's path, which Read takes.
    async fn search(&self, query: &str, limit: u32) -> Result<Vec<Hit>, ToolError> {
        let cancel = CancellationToken::new();
        // Dropping the search ends its work on another thread.
        let _stop = cancel.clone().drop_guard();
        let found = async {
            let corpus = self.cache.corpus(&self.files, &cancel).await?;
            let query = query.to_owned();
            self.cache.cpu(&self.files).run(&cancel, move || hits(&corpus, &query, limit as usize)).await
        };
        found.await.map_err(|stop| match stop {
            CpuError::Cancelled => ToolError::Unavailable("the search was cancelled".to_owned()),
            CpuError::Failed(text) => ToolError::Unavailable(text),
        })
    }
}

fn hits(corpus: &Corpus, query: &str, limit: usize) -> Vec<Hit> {
    let Some(question) = Question::new(query, None) else { return Vec::new() };
    let search = search::Search { corpus, question: &question };
    let hit = |number| {
        let (_, document) = corpus.passage(number)?;
        let quote = search.quote(number)?;
        let mut place = vec![corpus.title(number), corpus.heading(number)];
        place.retain(|part| !part.is_empty());
        let page = match place.as_slice() {
            [title, heading] if title != heading => format!("{title} › {heading}"),
            [title, ..] => (*title).to_owned(),
            [] => document.path.clone(),
        };
        Some(Hit {
            title: format!("{page} (line {})", quote.line),
            url: document.path.clone(),
            snippet: quote.text.to_owned(),
        })
    };
    search.passages(limit).iter().filter_map(|finding| hit(finding.passage)).collect()
}
