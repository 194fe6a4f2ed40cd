//! What somebody probably meant who wrote a name that nobody knows.

/// How alike two names have to be, from 0 to 1, that one is taken for a slip of the pen.
const LIKENESS: f64 = 0.5;

/// How alike they have to be, that a name is one where others may stand that nobody knows.
const SLIP: f64 = 0.75;

/// How many characters are enough to be the beginning of one.
const BEGINNING: usize = 3;

/// The known name that is most like `name`, or that begins with it, where there is one.
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

/// The known name that `name` is a slip of the pen of, where names that nobody knows may stand too: fewer are taken for one
/// than [`nearest`] finds.
pub fn slip<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // What is much longer is not looked at: that takes as long as it is.
    let is_alike =
        |known: &str| name.len() < 4 * known.len() && strsim::normalized_damerau_levenshtein(name, known) >= SLIP;
    known.into_iter().find(|known| is_alike(known))
}

/// The end of an error about a name that nobody knows: the nearest one, else all of them.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("known are {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// serde's text about a name that nobody knows, with the nearest known one for the list of all; none where it is about
/// something else.
pub fn suggested(text: &str) -> Option<String> {
    let is_unknown = text.starts_with("unknown field `") || text.starts_with("unknown variant `");
    let mut names = text.split('`').skip(1).step_by(2).filter(|_| is_unknown);
    let name = names.next()?;
    let known: Vec<&str> = names.collect();
    let what = text.split('`').next().unwrap_or_default();
    Some(match known.as_slice() {
        [] => format!("{what}`{name}`; nothing stands there, write {{}}"),
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
    fn fewer_names_are_a_slip_of_the_pen_where_others_may_stand() {
        assert_eq!(slip("pluign", ["name", "plugin"]), Some("plugin"));
        assert_eq!(nearest("login", ["name", "plugin"]), Some("plugin"));
        assert_eq!(slip("login", ["name", "plugin"]), None);
    }
}
