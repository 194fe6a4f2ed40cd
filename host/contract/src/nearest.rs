//! What somebody probably meant who wrote a name that nobody knows.

/// How alike two names have to be, from 0 to 1, that one is taken for a slip of the pen.
const LIKENESS: f64 = 0.5;

/// The known name that is most like `name`, where one is like it at all.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let alike = |candidate: &'a str| (strsim::normalized_damerau_levenshtein(name, candidate), candidate);
    let found = known.into_iter().map(alike).filter(|(likeness, _)| *likeness >= LIKENESS);
    found.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, candidate)| candidate)
}

/// The end of an error about a name that nobody knows: the nearest one, else all of them.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => format!("known are {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_the_name_and_nonsense_lists_all() {
        assert_eq!(nearest("grant", ["file", "grants"]), Some("grants"));
        assert_eq!(hint("grnats", ["file", "grants"]), "did you mean `grants`?");
        assert_eq!(hint("xyzzy", ["file", "grants"]), "known are file, grants");
    }
}
