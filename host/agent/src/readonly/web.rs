//! Implements WebSearch and WebFetch.

use std::num::NonZeroU32;

use guild_contract::text::cut;
use guild_session::{
    tools::ToolError,
    web::{Fetch, Hit, Search},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// The default and the greatest number of hits of a search.
const HITS: (u32, u32) = (10, 20);
/// Characters of a page that are shown at a time.
const PAGE_CHARS: usize = 40_000;
/// Characters of a title and of a snippet.
const HIT_CHARS: (usize, usize) = (200, 1000);

/// Searches for pages, best first: a numbered list of titles, each with its address and some of its text. An address
/// that begins with http is read with WebFetch, any other is a file for Read.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchInput {
    /// The search query, a few words.
    query: String,
    /// The number of results; 10 by default.
    #[schemars(range(max = HITS.1))]
    limit: Option<NonZeroU32>,
}

/// Reads a web page: its main text as Markdown, 40000 characters at a time. Only hosts that the operator allows can be
/// read.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchInput {
    /// The address: http or https.
    url: String,
    /// The number of characters to skip; the end of a part has the offset of the next one.
    #[serde(default)]
    offset: usize,
}

pub(super) async fn search(search: &dyn Search, input: SearchInput) -> Result<String, ToolError> {
    if input.query.trim().is_empty() {
        return Err(ToolError::InvalidInput("WebSearch: query must not be empty".to_owned()));
    }
    let limit = input.limit.map_or(HITS.0, |limit| limit.get().min(HITS.1));
    let hits = search.search(input.query.trim(), limit).await?;
    if hits.is_empty() {
        return Ok("No results found".to_owned());
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(hits.iter().take(limit).enumerate().map(|(at, hit)| shown(at + 1, hit)).collect::<Vec<_>>().join("\n"))
}

/// A hit as an item of a numbered list.
fn shown(number: usize, hit: &Hit) -> String {
    let line = |text: &str, max| {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match cut(&line, max) {
            (_, true) => line,
            (start, false) => format!("{start}…"),
        }
    };
    let title = line(if hit.title.trim().is_empty() { &hit.url } else { &hit.title }, HIT_CHARS.0);
    let indent = " ".repeat(number.to_string().len() + 2);
    let mut item = format!("{number}. **{title}**\n{indent}{}\n", hit.url.trim());
    let snippet = line(&hit.snippet, HIT_CHARS.1);
    if !snippet.is_empty() {
        item.push_str(&format!("{indent}{snippet}\n"));
    }
    item
}

pub(super) async fn fetch(fetch: &dyn Fetch, input: FetchInput, room: usize) -> Result<String, ToolError> {
    let page = fetch.fetch(&input.url).await?;
    if page.is_empty() && input.offset == 0 {
        return Ok("(the page has no text)".to_owned());
    }
    let Some((start, _)) = page.char_indices().nth(input.offset) else {
        let all = page.chars().count();
        return Err(ToolError::InvalidInput(format!("offset: the page has {all} characters")));
    };
    let rest = page.get(start..).unwrap_or_default();
    let (part, _) = cut(rest, PAGE_CHARS);
    // At least one character is shown, so that the model makes progress.
    let first = part.chars().next().map_or(0, char::len_utf8);
    let part = part.get(..part.floor_char_boundary(room).max(first)).unwrap_or(part);
    if part.len() == rest.len() {
        return Ok(part.to_owned());
    }
    let (next, all) = (input.offset + part.chars().count(), page.chars().count());
    Ok(format!("{part}\n\n(characters {} to {next} of {all}: go on with offset {next})", input.offset + 1))
}
