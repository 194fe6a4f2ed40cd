//! Protects the files of a worktree that sessions and callers of the API must not write: files that affect git, and the
//! records of the hall.
//!
//! Names are compared like on the file systems on which people check out a project, where a file can become another
//! one: some fold case, some ignore invisible characters, some cut dots and blanks at the end, or have short names.

/// The directory of a project's documents.
pub(crate) const LORE: &str = ".lore";

/// The directories of [`LORE`] where the hall keeps its records.
pub(crate) const RECORDS: [&str; 4] = ["work/commissions", "work/meetings", "commissions", "meetings"];

/// The reason that sessions and callers must not write the file with these names, from the top of a worktree; `None` if
/// they may.
pub(crate) fn protected(names: &[&str]) -> Option<&'static str> {
    let folded: Vec<String> = names.iter().map(|name| fold(name)).collect();
    if names.iter().any(|name| name.contains('\\')) {
        return Some("a backslash in a name separates directories on other systems");
    }
    if let Some(why) = folded.iter().find_map(|name| of_git(name)) {
        return Some(why);
    }
    let folded: Vec<&str> = folded.iter().map(String::as_str).collect();
    match *folded.as_slice() {
        [LORE, ..] if names.first() != Some(&LORE) => Some("documents are below `.lore`, in lower case"),
        [LORE] | [LORE, "work"] => Some("it is a directory"),
        [LORE, ref inner @ ..] if RECORDS.iter().any(|at| inner.starts_with(&at.split('/').collect::<Vec<_>>())) => {
            Some("the hall keeps its records there, which change only through reports and requests")
        }
        _ => None,
    }
}

/// The reason that git's own files must not be written. Git accepts some variants of their names.
fn of_git(name: &str) -> Option<&'static str> {
    match name {
        ".git" => Some("git keeps the repository there"),
        ".gitmodules" => Some("it makes git fetch other repositories"),
        ".gitattributes" => Some("it decides how git reads and merges files"),
        // `git~1` is the name of `.git` in old Windows programs; the other short names have `gi` and a hash.
        _ if name.starts_with("gi") && name.contains('~') => Some("it is a short name of git's own files"),
        _ => None,
    }
}

/// A name in the form that the most tolerant file system compares.
fn fold(name: &str) -> String {
    let seen = |c: &char| {
        let code = u32::from(*c);
        !matches!(code, 0x200c..=0x200f | 0x202a..=0x202e | 0x206a..=0x206f | 0xfeff)
    };
    let name: String = name.chars().filter(seen).collect();
    // A colon separates the name of a stream of the file.
    let name = name.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    // Some lower-case letters equal an ASCII letter only in upper case.
    name.to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_protected(path: &str) -> bool {
        protected(&path.split('/').collect::<Vec<_>>()).is_some()
    }

    #[test]
    fn what_git_acts_on_is_protected_however_it_is_spelled() {
        for path in [
            ".git",
            ".git/config",
            ".GIT/config",
            "sub/.git",
            "sub/.Git/hooks/pre-commit",
            "git~1",
            "GIT~2/x",
            ".git.",
            ".git ",
            ".git. . ",
            ".git::$INDEX_ALLOCATION/x",
            ".g\u{200c}it/config",
            "\u{feff}.git",
            "a\\.git\\config",
            ".gitmodules",
            ".GitModules",
            "sub/.gitattributes",
            ".lore/.gitattributes",
            "gi7eba~1",
        ] {
            assert!(is_protected(path), "{path:?}");
        }
        for path in ["git", ".gitignore", ".github/workflows/a.yml", "src/git.rs", "a.git/x", "gift.md", "README.md"] {
            assert!(!is_protected(path), "{path:?}");
        }
    }

    #[test]
    fn the_records_of_the_hall_are_protected_however_they_are_spelled() {
        for path in [
            ".lore/work/commissions/a.md",
            ".lore/work/meetings/a.md",
            ".lore/commissions/a.md",
            ".lore/meetings/a.md",
            ".lore/Work/Commissions/a.md",
            ".lore/work/COMMISSIONS",
            ".lore/work/commissions./a.md",
            ".LORE/notes.md",
            ".lore/wor\u{212a}/commi\u{17f}sions/a.md",
            ".lore/work/mee\u{200d}tings/a/b.md",
            ".lore",
            ".lore/work",
        ] {
            assert!(is_protected(path), "{path:?}");
        }
        for path in [".lore/a.md", ".lore/work/a.md", ".lore/work/plans/commissions/a.md", "work/commissions/a.md"] {
            assert!(!is_protected(path), "{path:?}");
        }
    }
}
