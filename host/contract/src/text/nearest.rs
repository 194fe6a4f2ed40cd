//! Suggests known names in errors about unknown ones.

use std::fmt::{Display, Write as _};

/// The least likeness, from 0 to 1, of a misspelling to a known name.
const LIKENESS: f64 = 0.5;

/// The least likeness if unknown names are allowed.
const SLIP: f64 = 0.75;

/// The least characters of a prefix that suggests a name.
const BEGINNING: usize = 3;

/// The most choices that an error lists, and the most bytes of them.
const CHOICES: usize = 50;
const CHOICES_BYTES: usize = 1024;

/// The most bytes of names that are compared if there can be many, since the time grows with the product of both
/// lengths.
const COMPARED_BYTES: usize = 64;

/// A list of choices for an error: up to 50 or one KiB of them, then the number of further ones. At least one is
/// listed.
pub fn choices<T: Display>(all: impl IntoIterator<Item = T>) -> String {
    let (mut text, mut listed, mut more) = (String::new(), 0_usize, 0_usize);
    for choice in all {
        let before = text.len();
        if more == 0 && listed < CHOICES {
            // A String takes whatever is written.
            let _ = write!(text, "{}{choice}", if listed == 0 { "" } else { ", " });
        }
        if text.len() == before || (listed > 0 && text.len() > CHOICES_BYTES) {
            text.truncate(before);
            more += 1;
        } else {
            listed += 1;
        }
    }
    if more > 0 {
        let _ = write!(text, " ... and {more} more");
    }
    text
}

/// Completes an error about an unknown name, for readers who cannot look up the known names: the nearest name, and all
/// names.
pub fn either<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let is_short = |name: &&str| name.len() <= COMPARED_BYTES;
    let near = Some(name).filter(is_short).and_then(|name| nearest(name, known.clone().into_iter().filter(is_short)));
    let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
    format!("{near}known are {}", choices(known))
}

/// The known name that is most like `name` or begins with it, if there is one.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let begun = |candidate: &str| name.len() >= BEGINNING && candidate.starts_with(name);
    let likeness = |candidate: &str| {
        let likeness = strsim::normalized_damerau_levenshtein(name, candidate);
        if begun(candidate) { likeness.max(LIKENESS) } else { likeness }
    };
    let alike = |candidate: &'a str| (likeness(candidate), candidate);
    let found = known.into_iter().map(alike).filter(|(likeness, _)| *likeness >= LIKENESS);
    found.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, candidate)| candidate)
}

/// The known name that `name` probably misspells, if unknown names are allowed too. This is stricter than [`nearest`].
pub fn slip<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Much longer names are not compared, since the time grows with their length.
    let is_alike =
        |known: &str| name.len() < 4 * known.len() && strsim::normalized_damerau_levenshtein(name, known) >= SLIP;
    known.into_iter().find(|known| is_alike(known))
}

/// Completes an error about an unknown name: the nearest name, or all names.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("known are {}", choices(known)),
    }
}

/// serde's text about an unknown name, with the nearest known one in place of the list of all; `None` for another
/// error.
pub fn suggested(text: &str) -> Option<String> {
    let is_unknown = text.starts_with("unknown field `") || text.starts_with("unknown variant `");
    let mut names = text.split('`').skip(1).step_by(2).filter(|_| is_unknown);
    let name = names.next()?;
    let known: Vec<&str> = names.collect();
    let what = text.split('`').next().unwrap_or_default();
    Some(match known.as_slice() {
        [] => format!("{what}`{name}`; no keys are allowed there, write {{}}"),
        known => format!("{what}`{name}`; {}", hint(name, known.iter().copied())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_the_name_and_nonsense_lists_all() {
        assert_eq!(nearest("grant", ["file", "grants"]), Some("grants"));
        assert_eq!(nearest("cert", ["key", "certificate"]), Some("certificate"));
        assert_eq!(hint("grnats", ["file", "grants"]), "did you mean `grants`?");
        assert_eq!(hint("xyzzy", ["file", "grants"]), "known are file, grants");
    }

    #[test]
    fn choices_are_listed_up_to_a_bound_and_the_rest_is_counted() {
        assert_eq!(choices(["a", "b"]), "a, b");
        let many: Vec<String> = (0..60).map(|n| n.to_string()).collect();
        assert!(choices(&many).ends_with("48, 49 ... and 10 more"), "{}", choices(&many));
        let long = vec!["x".repeat(400); 5];
        assert_eq!(choices(&long), format!("{0}, {0} ... and 3 more", long[0]));
        assert_eq!(choices(["y".repeat(5000)]).len(), 5000);
    }

    #[test]
    fn a_name_that_nobody_knows_is_answered_with_the_nearest_and_with_all() {
        assert_eq!(either("taks", ["description", "task"]), "did you mean `task`? known are description, task");
        assert_eq!(either("xyzzy", ["description", "task"]), "known are description, task");
        assert_eq!(either(&"task".repeat(1000), ["task"]), "known are task");
    }

    #[test]
    fn fewer_names_are_a_slip_of_the_pen_where_others_may_stand() {
        assert_eq!(slip("pluign", ["name", "plugin"]), Some("plugin"));
        assert_eq!(nearest("login", ["name", "plugin"]), Some("plugin"));
        assert_eq!(slip("login", ["name", "plugin"]), None);
    }
}
