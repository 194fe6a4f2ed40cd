//! `extract`.

use std::ops::Range;

use guild_plugin_sdk::toolbox::ToolError;
use linkify::{LinkFinder, LinkKind};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::replace::pattern_of;

/// Characters of a match that are told.
const SHOWN: usize = 1000;

/// What may be a number: what stands between white space, brackets and quotation marks.
const TOKENS: &str = r#"[^\s()\[\]{}<>"'`|/:;=*~]+"#;
/// A number with its sign, groups of thousands, fraction, exponent and percent sign.
const NUMBER: &str = r"^[-+−]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?%?$";

/// ISO dates with or without a time, `3/12/2026` and `3.12.2026`, and English ones with the month as a word.
const DATES: &str = r"\b([0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[-+][0-9]{2}:?[0-9]{2})?)?|[0-9]{1,2}/[0-9]{1,2}/[0-9]{2,4}|[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}|[0-9]{1,2}(?:st|nd|rd|th)? (?:of )?(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?,? [0-9]{4}|(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.? [0-9]{1,2}(?:st|nd|rd|th)?,? [0-9]{4})\b";

/// The input.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Input {
    /// The text to look in.
    #[schemars(length(max = 1_000_000))]
    text: String,
    /// What to look for.
    what: What,
    /// The regular expression (without look-around and back-references), for `what`: `pattern`. Where it has a group,
    /// what the first one holds is the match.
    #[serde(default)]
    #[schemars(length(min = 1, max = 10_000))]
    pattern: Option<String>,
    /// Whether each text is told only once, at its first line.
    #[serde(default)]
    unique: bool,
    /// How many to tell at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    limit: usize,
}

fn hundred() -> usize {
    100
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum What {
    Links,
    Emails,
    Numbers,
    Dates,
    Headings,
    Pattern,
}

/// What was found.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Found {
    /// How many there are, also of those beyond `limit`.
    count: usize,
    /// Those that are told, in the order of the text.
    matches: Vec<Match>,
}

/// One of them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Match {
    /// The number of the line that it begins in, from 1.
    line: usize,
    /// Its text, at most 1,000 characters; of a heading, with its `#`s.
    text: String,
}

pub(crate) fn extract(input: Input) -> Result<Found, ToolError> {
    if (input.what == What::Pattern) != input.pattern.is_some() {
        return Err(ToolError::InvalidInput(
            "`pattern` belongs to `what`: \"pattern\", and is needed there; without one, `what` is links, emails, numbers, dates or \
             headings"
                .to_owned(),
        ));
    }
    let text = input.text.as_str();
    let mut places = match input.what {
        What::Links => links(text, LinkKind::Url),
        What::Emails => links(text, LinkKind::Email),
        What::Headings => headings(text),
        What::Numbers => numbers(text)?,
        What::Dates => matches(text, DATES)?,
        What::Pattern => matches(text, input.pattern.as_deref().unwrap_or_default())?,
    };
    if input.unique {
        let mut seen = std::collections::BTreeSet::new();
        places.retain(|(_, shown)| seen.insert(shown.clone()));
    }
    let count = places.len();
    let (mut line, mut at) = (1, 0);
    let matches = places.into_iter().take(input.limit).map(|(place, text_of)| {
        // Places come in order, so each line end is counted once.
        line += text.get(at..place).unwrap_or_default().matches('\n').count();
        at = place;
        Match { line, text: text_of.chars().take(SHOWN).collect() }
    });
    Ok(Found { count, matches: matches.collect() })
}

/// Where something begins, and its text.
type Place = (usize, String);

fn links(text: &str, kind: LinkKind) -> Vec<Place> {
    let mut finder = LinkFinder::new();
    finder.kinds(&[kind]);
    finder.links(text).map(|link| (link.start(), link.as_str().to_owned())).collect()
}

fn headings(text: &str) -> Vec<Place> {
    let (mut found, mut inner): (Vec<Place>, Option<Range<usize>>) = (Vec::new(), None);
    for (event, range) in Parser::new_ext(text, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => inner = Some(range.start..range.start),
            Event::End(TagEnd::Heading(level)) => {
                let written = inner.take().and_then(|inner| text.get(inner.start..inner.end)).unwrap_or_default();
                let title = written.trim_start_matches('#').trim();
                let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
                found.push((range.start, format!("{} {title}", "#".repeat(level as usize)).trim_end().to_owned()));
            }
            _ => {
                if let Some(inner) = &mut inner {
                    inner.end = inner.end.max(range.end);
                }
            }
        }
    }
    found
}

/// Numbers that stand alone: no parts of words, versions or addresses.
fn numbers(text: &str) -> Result<Vec<Place>, ToolError> {
    let number = pattern_of("number", NUMBER, false)?;
    let tokens = matches(text, TOKENS)?.into_iter().map(|(place, token)| {
        let number = token.trim_start_matches(['$', '€', '£']).trim_end_matches(['.', ',', '!', '?', '$', '€', '£']);
        (place, number.to_owned())
    });
    Ok(tokens.filter(|(_, token)| number.is_match(token)).collect())
}

/// What a pattern matches: its first group where it has one. Empty matches say nothing.
fn matches(text: &str, pattern: &str) -> Result<Vec<Place>, ToolError> {
    let pattern = pattern_of("pattern", pattern, false)?;
    let found = pattern.captures_iter(text).filter_map(|captures| captures.get(1).or_else(|| captures.get(0)));
    Ok(found.filter(|one| !one.is_empty()).map(|one| (one.start(), one.as_str().to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tests::call;

    fn extract(mut input: Value, text: &str) -> Vec<(u64, String)> {
        input["text"] = text.into();
        let output = call("extract", input).unwrap();
        let matches = output["matches"].as_array().unwrap().iter();
        matches.map(|m| (m["line"].as_u64().unwrap(), m["text"].as_str().unwrap().to_owned())).collect()
    }

    fn texts(what: &str, text: &str) -> Vec<String> {
        extract(json!({"what": what}), text).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn links_and_addresses_end_where_a_reader_says() {
        let text = "See https://a.example/x_(y), or\n<http://b.example/?q=1&r=2>. Write to ann@c.example.";
        let links = [(1, "https://a.example/x_(y)".to_owned()), (2, "http://b.example/?q=1&r=2".to_owned())];
        assert_eq!(extract(json!({"what": "links"}), text), links);
        assert_eq!(extract(json!({"what": "emails"}), text), [(2, "ann@c.example".to_owned())]);
    }

    #[test]
    fn numbers_are_whole_and_not_parts_of_words() {
        let text = "1 -2.5 +3, 1,234,567.8 (12%) 6.02e23. v1.2.3 a4 5b 10.0.0.1 7,8 $9.";
        assert_eq!(texts("numbers", text), ["1", "-2.5", "+3", "1,234,567.8", "12%", "6.02e23", "9"]);
    }

    #[test]
    fn dates_are_found_in_the_usual_forms() {
        let text = "2026-03-01, 2026-03-01T10:00:00Z, 3/12/2026, 3.12.2026, 3 March 2026, the 4th of July 1776,\n\
                    Mar. 5, 2026 and March 5th, 2026; not 1-2-3, 12 Marching 2026, 1.2.3";
        let dates = [
            "2026-03-01",
            "2026-03-01T10:00:00Z",
            "3/12/2026",
            "3.12.2026",
            "3 March 2026",
            "4th of July 1776",
            "Mar. 5, 2026",
            "March 5th, 2026",
        ];
        assert_eq!(texts("dates", text), dates);
    }

    #[test]
    fn headings_are_those_of_markdown() {
        let text = "# One `x`\n\ntext\n\nTwo\n---\n\n```\n# not\n```\n### Three ###\n";
        let headings = [(1, "# One `x`".to_owned()), (5, "## Two".to_owned()), (11, "### Three".to_owned())];
        assert_eq!(extract(json!({"what": "headings"}), text), headings);
    }

    #[test]
    fn a_pattern_gives_its_first_group_and_each_match_once_where_that_is_wanted() {
        let pattern = json!({"what": "pattern", "pattern": r"^(\w+):"});
        assert_eq!(extract(pattern, "ä: 1\nb: 2\nä: 3"), [(1, "ä".to_owned()), (2, "b".into()), (3, "ä".into())]);
        let unique = json!({"what": "pattern", "pattern": r"\w", "unique": true});
        assert_eq!(extract(unique, "aba\nc").len(), 3);
        assert_eq!(extract(json!({"what": "pattern", "pattern": "x*"}), "éx"), [(1, "x".to_owned())]);
    }

    #[test]
    fn what_is_over_the_limit_is_counted() {
        let output = call("extract", json!({"text": "1 2 3", "what": "numbers", "limit": 2})).unwrap();
        assert_eq!((&output["count"], output["matches"].as_array().unwrap().len()), (&json!(3), 2));
    }

    #[test]
    fn a_pattern_goes_with_its_kind_only() {
        for input in [json!({"what": "pattern"}), json!({"what": "links", "pattern": "x"})] {
            let mut input = input;
            input["text"] = "".into();
            assert!(call("extract", input).unwrap_err().contains("`pattern`"));
        }
    }
}
