//! Converts pages of the web into text for an agent.
//!
//! A child process converts each page, so that time and memory are bounded whatever the page contains. It ends with its
//! caller.

mod html;

use std::time::Instant;

use guild_confine::{Bounds, Ended, Task};
use guild_session::charset;
use serde::{Deserialize, Serialize};
use url::Url;

/// The timeout of the child: somewhat longer than [`html::MAX_TIME`], whose error says more.
const MAX_SECONDS: u32 = 12;
/// The child's memory for each byte of the maximum page size, and a fixed amount.
const MEMORY: (u64, u64) = (48, 128 << 20);

/// Converts a page into text. The request is the [`PageHead`] and the maximum length of the text, then the page's
/// bytes; the reply is the text, or the reason for its absence.
pub static PAGE_TASK: Task = Task { name: "page", run };

/// Content types with text besides `text/*` and those that end in `+json`, `+xml` or `+yaml`.
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

/// Whether a page with this content type is read; one without a content type may be.
pub(crate) fn is_readable(content_type: Option<&str>) -> bool {
    let Some(content_type) = content_type else { return true };
    let kind = essence(content_type);
    let suffixed = ["+json", "+xml", "+yaml"].iter().any(|suffix| kind.ends_with(suffix));
    kind.starts_with("text/") || suffixed || TEXTS.contains(&kind.as_str())
}

/// Whether a page with this content type becomes the Markdown of its main text instead of staying unchanged.
fn is_html(content_type: &str) -> bool {
    matches!(essence(content_type).as_str(), "text/html" | "application/xhtml+xml")
}

/// A content type without its parameters, in lower case.
pub(crate) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The response with a page, without its body.
#[derive(Serialize, Deserialize)]
pub(crate) struct PageHead {
    /// The final address, after redirects.
    pub(crate) url: Url,
    /// Whether that differs from the requested address.
    pub(crate) redirected: bool,
    pub(crate) content_type: Option<String>,
}

/// Converts a page in a child process. Dropping the future ends the child. See [`read`].
pub(crate) async fn read_confined(head: &PageHead, body: Vec<u8>, max_bytes: u64) -> Result<String, String> {
    let failed = |error: postcard::Error| format!("it could not be made into text: {error}");
    let mut request = postcard::to_allocvec(&(head, max_bytes)).map_err(failed)?;
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
        let ((head, max_bytes), body) =
            postcard::take_from_bytes::<(PageHead, u64)>(request).map_err(|error| error.to_string())?;
        read(&head, body, usize::try_from(max_bytes).unwrap_or(usize::MAX))
    };
    postcard::to_allocvec(&text()).unwrap_or_default()
}

/// The text of a page.
///
/// The text is at most `max_bytes` long: a longer one is cut, with a note.
///
/// # Errors
/// Why the page is not read: it is not text, or would take too much to parse.
fn read(head: &PageHead, body: &[u8], max_bytes: usize) -> Result<String, String> {
    let content_type = head.content_type.as_deref();
    let text = charset::decode(body, content_type);
    if text.bytes().take(1024).any(|byte| byte == 0) {
        return Err("it is no text".to_owned());
    }
    // Without a content type, the beginning of the page decides.
    let is_html = content_type.map_or_else(|| begins_like_html(&text), is_html);
    let until = Instant::now() + html::MAX_TIME;
    let (title, mut text) = if is_html { html::main_text(&text, &head.url, until)? } else { (None, text.into()) };
    if head.redirected || title.is_some() {
        let title = title.map(|title| format!("# {title}\n\n")).unwrap_or_default();
        let from = if head.redirected { format!("(read at {})\n\n", head.url) } else { String::new() };
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
        for (content_type, readable, html) in [
            ("text/html; charset=utf-8", true, true),
            ("Application/XHTML+XML", true, true),
            ("text/plain", true, false),
            ("text/markdown;charset=utf-8", true, false),
            ("application/json", true, false),
            ("application/ld+json ; x=y", true, false),
            ("application/rss+xml", true, false),
            ("application/pdf", false, false),
            ("image/png", false, false),
            ("application/octet-stream", false, false),
            ("", false, false),
        ] {
            assert_eq!((is_readable(Some(content_type)), is_html(content_type)), (readable, html), "{content_type}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_says_so() {
        let text = cut("ü".repeat(100), 101);
        assert!(text.len() <= 101 && text.ends_with("it was cut here]"), "{text}");
        assert_eq!(cut("ü".repeat(50), 100), "ü".repeat(50));
    }
}
