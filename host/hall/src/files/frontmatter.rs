//! Markdown with YAML before it.

use serde::Serialize;
use serde_json::Value;

/// The line before and after the YAML.
pub(crate) const FENCE: &str = "---\n";

/// A document with that before its body.
///
/// # Errors
/// What YAML cannot say.
pub(crate) fn render(frontmatter: &impl Serialize, body: &str) -> Result<String, String> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: false,
        prefer_block_scalars: false,
        // A date is a text to us, and a date to readers of YAML 1.1; in quotes it would be a text to those, too.
        yaml_12: true,
        no_lang_directive: true,
    };
    let yaml = serde_saphyr::to_string_with_options(frontmatter, options).map_err(|e| e.to_string())?;
    Ok(format!("{FENCE}{yaml}{FENCE}{body}"))
}

/// The YAML of a document and what stands below it; `None` where there is none.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix(FENCE)?;
    let end = rest.starts_with("---").then_some(0).or_else(|| rest.find("\n---").map(|at| at + 1))?;
    let (yaml, rest) = rest.split_at_checked(end)?;
    let body = rest.get(3..)?;
    Some((yaml, body.strip_prefix('\n').unwrap_or(body)))
}

/// What the YAML says; `None` where it is none.
pub(crate) fn parse(yaml: &str) -> Option<Value> {
    // A worker may be called `yes`, which is true in YAML 1.1 alone.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(yaml, options).ok()
}

/// The text as it is split: with the line ends of Unix, and without a mark of its byte order.
pub(crate) fn plain(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n")
}

/// The text of a field; none where it has another kind.
pub(crate) fn text(data: &Value, key: &str) -> String {
    data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The texts of a list; `None` where the field is no list.
pub(crate) fn texts(data: &Value, key: &str) -> Option<Vec<String>> {
    let items = data.get(key)?.as_array()?;
    Some(items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
}
