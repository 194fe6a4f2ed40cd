//! Reads and writes Markdown with YAML frontmatter.

use serde::Serialize;
use serde_json::Value;

/// The line before and after the YAML.
pub(crate) const FENCE: &str = "---\n";

/// Renders a document with this frontmatter above its body.
///
/// # Errors
///
/// Returns an error when YAML cannot express a value.
pub(crate) fn render(frontmatter: &impl Serialize, body: &str) -> Result<String, String> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: false,
        prefer_block_scalars: false,
        // A date is a text for this host, and a date for readers of YAML 1.1; in quotes those readers would take it for
        // a text.
        yaml_12: true,
        no_lang_directive: true,
    };
    let yaml = serde_saphyr::to_string_with_options(frontmatter, options).map_err(|e| e.to_string())?;
    Ok(format!("{FENCE}{yaml}{FENCE}{body}"))
}

/// The YAML of a document and the text below it; `None` if it has no frontmatter.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix(FENCE)?;
    let end = rest.starts_with("---").then_some(0).or_else(|| rest.find("\n---").map(|at| at + 1))?;
    let (yaml, rest) = rest.split_at_checked(end)?;
    let body = rest.get(3..)?;
    Some((yaml, body.strip_prefix('\n').unwrap_or(body)))
}

/// The value of the YAML; `None` if it is invalid.
pub(crate) fn parse(yaml: &str) -> Option<Value> {
    // A worker may have the name `yes`, which is true in YAML 1.1 only.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(yaml, options).ok()
}

/// The text in its normal form: with Unix line ends, and without a byte order mark.
pub(crate) fn plain(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n")
}

/// The text of a field; empty if the field has another type.
pub(crate) fn text(data: &Value, key: &str) -> String {
    data.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The texts of a list; `None` if the field is not a list.
pub(crate) fn texts(data: &Value, key: &str) -> Option<Vec<String>> {
    let items = data.get(key)?.as_array()?;
    Some(items.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect())
}
