//! `find_replace`, and how patterns are compiled.

use guild_plugin_sdk::toolbox::ToolError;
use regex::{NoExpand, Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of a compiled pattern: a search takes time by this and by the text, and it has to end within a call.
const PATTERN_BYTES: usize = 256 << 10;
/// Bytes of a text that came of replacing.
const RESULT_BYTES: usize = 4 << 20;

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Input {
    /// The text to change.
    #[schemars(length(max = 1_000_000))]
    text: String,
    /// What to look for.
    #[schemars(length(min = 1, max = 10_000))]
    find: String,
    /// What to put in its place; empty to remove it.
    #[schemars(length(max = 10_000))]
    replace: String,
    /// Whether `find` is a regular expression (without look-around and back-references); `^` and `$` are a line's.
    #[serde(default)]
    regex: bool,
    /// Whether capital and small letters are the same.
    #[serde(default)]
    ignore_case: bool,
}

/// The changed text.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Replaced {
    /// How many places were replaced.
    replacements: usize,
    /// The text with the replacements.
    text: String,
}

pub(crate) fn find_replace(input: Input) -> Result<Replaced, ToolError> {
    let pattern = if input.regex { input.find } else { regex::escape(&input.find) };
    let pattern = pattern_of("find", &pattern, input.ignore_case)?;
    if input.regex {
        check_groups(&pattern, &input.replace)?;
    }
    let replacements = pattern.find_iter(&input.text).count();
    // A group can be as long as its match, and all matches together as long as the text.
    let groups = if input.regex { input.replace.matches('$').count() } else { 0 };
    let most = input.replace.len().saturating_mul(replacements) + input.text.len().saturating_mul(groups + 1);
    if most > RESULT_BYTES {
        return Err(ToolError::Failed(format!(
            "{replacements} replacements could make a text of {most} bytes; more than {RESULT_BYTES} are not made"
        )));
    }
    let text = if input.regex {
        pattern.replace_all(&input.text, input.replace.as_str())
    } else {
        pattern.replace_all(&input.text, NoExpand(&input.replace))
    };
    Ok(Replaced { replacements, text: text.into_owned() })
}

/// Refuses a replacement that names a group which the pattern does not have: it would stand for nothing, without a word.
fn check_groups(pattern: &Regex, replacement: &str) -> Result<(), ToolError> {
    let known: Vec<String> = pattern
        .capture_names()
        .enumerate()
        .map(|(number, name)| name.map_or_else(|| number.to_string(), str::to_owned))
        .collect();
    let is_known = |group: &str| {
        known.iter().any(|known| known == group)
            || group.parse::<usize>().is_ok_and(|number| number < pattern.captures_len())
    };
    let mut rest = replacement;
    while let Some((_, after)) = rest.split_once('$') {
        if let Some(literal) = after.strip_prefix('$') {
            rest = literal;
            continue;
        }
        let group = match after.strip_prefix('{') {
            Some(braced) => braced.split_once('}').map_or("", |(group, _)| group),
            None => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                after.split(|c| !is_name(c)).next().unwrap_or_default()
            }
        };
        rest = after;
        if !group.is_empty() && !is_known(group) {
            return Err(ToolError::InvalidInput(format!(
                "`replace` names the group `{group}`, which `find` does not have; its groups are {} (0 is the whole match). \
                 Write ${{1}} where a letter, a digit or `_` follows, and $$ for a dollar sign",
                known.join(", ")
            )));
        }
    }
    Ok(())
}

/// A regular expression out of a field of the input. `^` and `$` are a line's.
pub(crate) fn pattern_of(field: &str, pattern: &str, ignore_case: bool) -> Result<Regex, ToolError> {
    let mut builder = RegexBuilder::new(pattern);
    builder.multi_line(true).case_insensitive(ignore_case).size_limit(PATTERN_BYTES);
    builder.build().map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => ToolError::InvalidInput(format!(
            "`{field}` is a regular expression that is too large when it is compiled; repeat less often in it"
        )),
        e => ToolError::InvalidInput(format!("`{field}` is no regular expression: {e}")),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tests::call;

    fn replace(mut input: Value, text: &str) -> (u64, String) {
        input["text"] = text.into();
        let output = call("find_replace", input).unwrap();
        (output["replacements"].as_u64().unwrap(), output["text"].as_str().unwrap().to_owned())
    }

    #[test]
    fn a_literal_is_a_literal_and_a_pattern_has_groups() {
        let dots = json!({"find": "a.b", "replace": "$1"});
        assert_eq!(replace(dots, "a.b axb a.b"), (2, "$1 axb $1".into()));
        let names = json!({"find": r"^(\w+), (?<first>\w+)$", "replace": "${first} $1", "regex": true});
        assert_eq!(replace(names, "Lovelace, Ada\nMüller, Zoë"), (2, "Ada Lovelace\nZoë Müller".into()));
        assert_eq!(replace(json!({"find": "É", "replace": "", "ignoreCase": true}), "éaÉ"), (2, "a".into()));
        assert_eq!(replace(json!({"find": "x", "replace": "y"}), "none"), (0, "none".into()));
    }

    #[test]
    fn a_replacement_that_names_a_group_that_is_not_there_is_refused() {
        let pattern = "(a)(?<last>b)";
        for (replacement, group) in [("$2_$1", "`2_`"), ("$1x", "`1x`"), ("$9", "`9`"), ("${first}", "`first`")] {
            let input = json!({"text": "ab", "find": pattern, "replace": replacement, "regex": true});
            let error = call("find_replace", input).unwrap_err();
            assert!(error.contains(group) && error.contains("0, 1, last"), "{error}");
        }
        for (replacement, text) in [("${2}_$1", "b_a"), ("$$9 $last", "$9 b"), ("5 $", "5 $"), ("$0!", "ab!")] {
            let input = json!({"find": pattern, "replace": replacement, "regex": true});
            assert_eq!(replace(input, "ab"), (1, text.into()));
        }
    }

    #[test]
    fn a_pattern_that_is_none_or_too_large_is_refused_by_its_field() {
        for (pattern, part) in [("(a", "unclosed group"), ("(?=a)", "look"), (r"\w{5000}", "too large")] {
            let input = json!({"text": "a", "find": pattern, "replace": "", "regex": true});
            let error = call("find_replace", input).unwrap_err();
            assert!(error.contains("`find`") && error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_text_that_would_grow_too_large_is_not_made() {
        let long = "y".repeat(10_000);
        let error = call("find_replace", json!({"text": "x".repeat(1000), "find": "x", "replace": long})).unwrap_err();
        assert!(error.contains("1000 replacements"), "{error}");
        let doubled = json!({"text": "x".repeat(1_000_000), "find": ".*", "replace": "$0".repeat(10), "regex": true});
        assert!(call("find_replace", doubled).is_err());
    }

    #[test]
    fn no_pattern_takes_more_than_linear_time() {
        let input = json!({"text": "a".repeat(200_000), "find": "(a+)+b", "replace": "", "regex": true});
        assert_eq!(call("find_replace", input).unwrap()["replacements"], 0);
    }
}
