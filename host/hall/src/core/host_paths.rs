//! Replaces the host's paths by names, for sessions, components and records, which are committed. Users see the paths.

use std::{cmp::Reverse, fs, sync::Arc};

use super::Core;
use crate::blocking::blocking;

/// The name for a path outside of the projects and the home.
const OTHER: &str = "<path>";
const QUOTES: [char; 3] = ['"', '\'', '`'];

/// The directories of a hall, each with its path and its name, the longest path first.
pub(crate) struct HostPaths(Vec<(String, String)>);

impl Core {
    /// The current paths of the projects and of the home. It blocks.
    pub(crate) fn host_paths(&self) -> HostPaths {
        let home = (self.home.path().display().to_string(), "<home of the hall>".to_owned());
        let projects = self.projects.views(&self.home).unwrap_or_default();
        let projects = projects.iter().flat_map(|project| {
            let name = format!("<directory of {}>", project.name);
            let real = fs::canonicalize(&project.path).ok().map(|path| path.display().to_string());
            [Some(project.path.clone()), real].into_iter().flatten().map(move |path| (path, name.clone()))
        });
        HostPaths::new(projects.chain([home]).collect())
    }

    /// A text for a record, without paths of the host.
    pub(crate) async fn without_paths(self: &Arc<Self>, text: String) -> String {
        let core = self.clone();
        let hidden = blocking(move || Ok(core.host_paths().hide(&text))).await;
        hidden.unwrap_or_else(|e| e.to_string())
    }
}

impl HostPaths {
    fn new(mut known: Vec<(String, String)>) -> Self {
        known.retain(|(path, _)| !path.is_empty());
        known.sort_by_key(|(path, _)| Reverse(path.len()));
        Self(known)
    }

    /// The text without absolute paths. The rest after the path of a known directory stays, since it is relative to
    /// that directory.
    pub(crate) fn hide(&self, text: &str) -> String {
        let (mut hidden, mut rest, mut before) = (String::with_capacity(text.len()), text, None);
        while let Some(next) = rest.chars().next() {
            let length = match self.begins(rest, before) {
                Some((name, length)) => {
                    hidden.push_str(name);
                    length
                }
                None => {
                    hidden.push(next);
                    next.len_utf8()
                }
            };
            let (passed, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
            (rest, before) = (after, passed.chars().next_back());
        }
        hidden
    }

    /// The name for the path with which the text begins, and the length of that path in bytes. `before` precedes the
    /// text.
    fn begins(&self, text: &str, before: Option<char>) -> Option<(&str, usize)> {
        let is_inside = before.is_some_and(|c| c.is_alphanumeric() || "._-~/)]}>".contains(c));
        // This is the authority of an address, unlike the slashes of `file:///`.
        let is_authority = before == Some(':') && text.starts_with("//") && !text.starts_with("///");
        if is_inside || is_authority || !(text.starts_with('/') || text.starts_with("~/")) {
            return None;
        }
        let is_of = |path: &str| {
            let rest = text.strip_prefix(path);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_'))
        };
        if let Some((path, name)) = self.0.iter().find(|(path, _)| is_of(path)) {
            return Some((name.as_str(), path.len()));
        }
        let is_end = |c: char| match before {
            Some(quote) if QUOTES.contains(&quote) => c == quote,
            _ => c.is_whitespace() || QUOTES.contains(&c),
        };
        let path = text.split(is_end).next()?.trim_end_matches(['.', ',', ':', ';', ')']);
        path.contains(char::is_alphanumeric).then_some((OTHER, path.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_absolute_path_is_hidden_and_nothing_else() {
        let known = [("/a/book", "<book>"), ("/a/my book", "<mine>"), ("/a/.hall", "<home>"), ("", "<nothing>")];
        let paths = HostPaths::new(known.map(|(path, name)| (path.to_owned(), name.to_owned())).into());
        for (text, expected) in [
            ("/a/book has no remote `origin`", "<book> has no remote `origin`"),
            ("git add in /a/.hall/projects/book failed", "git add in <home>/projects/book failed"),
            ("path = \"/a/my book\"; run `add /a/my book`", "path = \"<mine>\"; run `add <mine>`"),
            ("/a/books: /usr/bin/git, file:///srv/x and ~/y.", "<path>: <path>, file:<path> and <path>."),
            ("fatal: '/srv/my repos/x.git' (/a/book.) is none", "fatal: '<path>' (<book>.) is none"),
        ] {
            assert_eq!(paths.hide(text), expected);
            assert_eq!(paths.hide(expected), expected);
        }
        for text in ["claude/main and .lore/a/../b", "(https://cli.github.com/x?y=é)", "this / that, // <book>/x"] {
            assert_eq!(paths.hide(text), text);
        }
    }
}
