//! Checks values of several tables of `guild.toml`.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use crate::key_source::KeySource;
use toml::Spanned;

/// An error, and its place in the file.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// The range of bytes in the file.
    pub(crate) span: Range<usize>,
    /// The error and its remedy.
    pub(crate) text: String,
}

impl Wrong {
    pub(crate) fn at(span: Range<usize>, text: impl Into<String>) -> Self {
        Self { span, text: text.into() }
    }
}

/// A table and its place in the file; the default if the file does not have it.
pub(crate) fn written_table<T: Default>(written: Option<Spanned<T>>) -> (Range<usize>, T) {
    written.map_or_else(Default::default, |table| (table.span(), table.into_inner()))
}

/// A number of at least 1. `name` is its full key.
pub(crate) fn above_zero<T: Default + PartialOrd>(
    name: &str,
    written: Option<Spanned<T>>,
    default: T,
) -> Result<T, Wrong> {
    let Some(value) = written else { return Ok(default) };
    let span = value.span();
    let number = value.into_inner();
    if number > T::default() { Ok(number) } else { Err(Wrong::at(span, format!("{name} must be above 0"))) }
}

/// An amount of US dollars. `name` is its full key.
pub(crate) fn amount(name: &str, value: &Spanned<f64>) -> Result<f64, Wrong> {
    dollars(value, || format!("{name}: {} is not an amount; write US dollars, such as 20.0", value.get_ref()))
}

/// A price in US dollars.
pub(crate) fn price_of(name: &str, value: &Spanned<f64>) -> Result<f64, Wrong> {
    dollars(value, || {
        format!("{name}: {} is not a price; write US dollars for a million tokens, such as 3.0", value.get_ref())
    })
}

fn dollars(value: &Spanned<f64>, why: impl FnOnce() -> String) -> Result<f64, Wrong> {
    let usd = *value.get_ref();
    if usd.is_finite() && usd >= 0.0 { Ok(usd) } else { Err(Wrong::at(value.span(), why())) }
}

/// A text that is not empty.
pub(crate) fn text(name: &str, value: Spanned<String>) -> Result<String, Wrong> {
    if value.get_ref().trim().is_empty() {
        return Err(Wrong::at(value.span(), format!("{name} is empty; remove the line, or write a value")));
    }
    Ok(value.into_inner())
}

/// Checks the name of an environment variable. Lower-case letters are refused, so that a key that was written here by
/// mistake is not shown as the name of an unset variable.
pub(crate) fn variable_name(name: &str, value: &Spanned<String>) -> Result<String, Wrong> {
    let variable = value.get_ref();
    let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if variable.chars().all(plain) && variable.starts_with(|c: char| !c.is_ascii_digit()) {
        return Ok(variable.clone());
    }
    Err(Wrong::at(
        value.span(),
        format!(
            "{name} is not the name of an environment variable, such as ANTHROPIC_API_KEY: capital letters, digits \
             and _"
        ),
    ))
}

/// The source of a key, from `key_env` and `key_file` of a table. A relative path starts at `base`, the directory of
/// `guild.toml`.
pub(crate) fn key_source(
    table: &str,
    variable: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    base: &Path,
) -> Result<Option<KeySource>, Wrong> {
    match (variable, file) {
        (Some(_), Some(file)) => Err(Wrong::at(
            file.span(),
            format!("{table}.key_env and {table}.key_file both name a place of the key; remove one of them"),
        )),
        (Some(variable), None) => {
            variable_name(&format!("{table}.key_env"), &variable).map(|name| Some(KeySource::Env(name)))
        }
        (None, Some(file)) => Ok(Some(KeySource::File(base.join(file.into_inner())))),
        (None, None) => Ok(None),
    }
}
