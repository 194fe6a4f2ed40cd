//! Bounds and cuts the texts of callers.

use guild_contract::OperationError;

/// The most bytes of a prompt, a note, an agenda, or a message.
pub(crate) const TEXT_BYTES: usize = 1024 * 1024;

/// Refuses a field's text that is empty or too long.
pub(crate) fn check_text(field: &str, text: &str, max: usize) -> Result<(), OperationError> {
    if text.trim().is_empty() {
        return Err(OperationError::Invalid(format!("Missing required field: {field}")));
    }
    if text.len() > max {
        return Err(OperationError::Invalid(format!("{field} has {} bytes, more than {max}", text.len())));
    }
    Ok(())
}

/// The beginning of a text, with a mark if it was cut.
pub(crate) fn cut(text: String, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
