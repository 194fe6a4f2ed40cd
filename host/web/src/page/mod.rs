//! What came from the web, as text for an agent.
//!
//! A child process makes it: however a page is written, what it takes is bounded, and ends with whoever waits for it.

mod charset;
mod html;

use std::time::Instant;

use guild_confine::{Bounds, Ended, Task};
use serde::{Deserialize, Serialize};
use url::Url;

/// How long the child may take to make text of a page: somewhat longer than [`html::MAX_TIME`], which says what is wrong.
const MAX_SECONDS: u32 = 12;
/// Memory of the child for each byte that a page may have, and besides.
const MEMORY: (u64, u64) = (48, 128 << 20);

/// Making text of a page: what [`Request`] is, and the page's bytes behind it; the text, or why there is none.
pub static PAGE_TASK: Task = Task { name: "page", run };

/// How a page is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// Its main text, as Markdown.
    Html,
    /// As it is.
    Text,
}

/// What is text besides `text/*` and what ends in `+json`, `+xml` or `+yaml`.
const TEXTS: &[&str] = &[
    "application/json",
    "application/jsonl",
    "application/x-ndjson",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/javascript",
    "application/ecmascript",
];

impl Form {
    /// The form of a content type; nothing for what is no text. A page without a content type is guessed at by how
    /// it begins ([`read`]).
    pub(crate) fn of(content_type: Option<&str>) -> Option<Self> {
        let Some(content_type) = content_type else { return Some(Self::Text) };
        let kind = essence(content_type);
        let suffixed = ["+json", "+xml", "+yaml"].iter().any(|suffix| kind.ends_with(suffix));
        match kind.as_str() {
            "text/html" | "application/xhtml+xml" => Some(Self::Html),
            kind if kind.starts_with("text/") || suffixed || TEXTS.contains(&kind) => Some(Self::Text),
            _ => None,
        }
    }
}

/// A content type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The response with a page.
pub(crate) struct PageResponse {
    /// Where it was read in the end.
    pub(crate) url: reqwest::Url,
    /// Whether that is another address than the one asked for.
    pub(crate) redirected: bool,
    pub(crate) content_type: Option<String>,
    pub(crate) form: Form,
    pub(crate) body: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Request {
    url: String,
    redirected: bool,
    content_type: Option<String>,
    form: Form,
    max_bytes: u64,
}

/// A page's text, made in a child process. Dropping the future ends it. See [`read`].
pub(crate) async fn read_confined(answer: PageResponse, max_bytes: u64) -> Result<String, String> {
    let PageResponse { url, redirected, content_type, form, body } = answer;
    let failed = |error: postcard::Error| format!("it could not be made into text: {error}");
    let request = Request { url: url.into(), redirected, content_type, form, max_bytes };
    let mut request = postcard::to_allocvec(&request).map_err(failed)?;
    request.extend_from_slice(&body);
    drop(body);
    let (each, besides) = MEMORY;
    let bounds = Bounds { seconds: MAX_SECONDS, memory_bytes: besides + each * max_bytes };
    let text = guild_confine::run(&PAGE_TASK, bounds, request).await.map_err(|ended| match ended {
        Ended::TooLong => "it takes too long to make text of it".to_owned(),
        Ended::TooMuchMemory => "it takes too much memory to make text of it".to_owned(),
        Ended::Failed(why) => format!("it could not be made into text: {why}"),
    })?;
    postcard::from_bytes(&text).map_err(failed)?
}

fn run(request: &[u8]) -> Vec<u8> {
    let text = || -> Result<String, String> {
        let (request, body) = postcard::take_from_bytes::<Request>(request).map_err(|error| error.to_string())?;
        let Request { url, redirected, content_type, form, max_bytes } = request;
        let url = Url::parse(&url).map_err(|error| error.to_string())?;
        let answer = PageResponse { url, redirected, content_type, form, body: body.to_owned() };
        read(&answer, usize::try_from(max_bytes).unwrap_or(usize::MAX))
    };
    postcard::to_allocvec(&text()).unwrap_or_default()
}

/// A page's text.
///
/// The text is at most `max_bytes` long: what is longer is cut, and says so.
///
/// # Errors
/// A sentence about a page that is not read: it is no text after all, or made so that reading it takes too much.
fn read(answer: &PageResponse, max_bytes: usize) -> Result<String, String> {
    let text = charset::decode(&answer.body, answer.content_type.as_deref());
    if text.bytes().take(1024).any(|byte| byte == 0) {
        return Err("it is no text".to_owned());
    }
    let is_html = match (&answer.content_type, answer.form) {
        (None, _) => begins_like_html(&text),
        (Some(_), form) => form == Form::Html,
    };
    let until = Instant::now() + html::MAX_TIME;
    let (title, mut text) = if is_html { html::main_text(&text, &answer.url, until)? } else { (None, text.into()) };
    if answer.redirected || title.is_some() {
        let title = title.map(|title| format!("# {title}\n\n")).unwrap_or_default();
        let from = if answer.redirected { format!("(read at {})\n\n", answer.url) } else { String::new() };
        text.insert_str(0, &format!("{title}{from}"));
    }
    Ok(cut(text, max_bytes))
}

fn begins_like_html(text: &str) -> bool {
    let start: String = text.trim_start().chars().take(15).collect::<String>().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// At most `max_bytes` of a text.
fn cut(mut text: String, max_bytes: usize) -> String {
    const MARK: &str = "\n\n[the page goes on; it was cut here]";
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_text_is_shown_and_what_is_not_is_refused() {
        for (content_type, form) in [
            ("text/html; charset=utf-8", Some(Form::Html)),
            ("Application/XHTML+XML", Some(Form::Html)),
            ("text/plain", Some(Form::Text)),
            ("text/markdown;charset=utf-8", Some(Form::Text)),
            ("application/json", Some(Form::Text)),
            ("application/ld+json ; x=y", Some(Form::Text)),
            ("application/rss+xml", Some(Form::Text)),
            ("application/pdf", None),
            ("image/png", None),
            ("application/octet-stream", None),
            ("", None),
        ] {
            assert_eq!(Form::of(Some(content_type)), form, "{content_type}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        let text = cut("ü".repeat(100), 101);
        assert!(text.len() <= 101 && text.ends_with("it was cut here]"), "{text}");
        assert_eq!(cut("ü".repeat(50), 100), "ü".repeat(50));
    }
}
