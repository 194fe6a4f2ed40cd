//! Reads and changes `config.yaml`: the projects of a hall, in the original's format.
//!
//! Projects are added to the text and removed from it, so that comments, order and unknown keys stay unchanged. A
//! changed text is parsed before it is written.

use guild_contract::{OperationError, hall::ProjectSettings};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::home::SETTINGS;

/// The most bytes of the file.
pub(crate) const MAX_BYTES: u64 = 1024 * 1024;
/// The default for the most commissions of all projects that run at once.
const COMMISSIONS: u32 = 10;

const NO_INTERVAL: &str = "ticks happen only on request";
const COUNTED: &str = "briefings are made on request, without a model";
const NOT_NOTIFIED: &str = "events are sent to subscribers of the API";
/// Keys of the original that this host does not use, with the reason.
const UNUSED: [(&str, &str); 8] = [
    ("models", "a member's model is `model` in guild.toml, with the address of its provider"),
    ("systemModels", "sessions of the host run on the model of their member in guild.toml"),
    ("heartbeatIntervalMinutes", NO_INTERVAL),
    ("heartbeatBackoffMinutes", NO_INTERVAL),
    ("briefingCacheTtlMinutes", COUNTED),
    ("briefingRefreshIntervalMinutes", COUNTED),
    ("channels", NOT_NOTIFIED),
    ("notifications", NOT_NOTIFIED),
];

/// The part of the file that this host reads.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    projects: Vec<Spanned<ProjectSettings>>,
    #[serde(default)]
    max_concurrent_commissions: Option<u32>,
}

/// The file's text and its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    text: String,
    projects: Vec<ProjectSettings>,
    /// The lines on which the projects begin, from 1.
    lines: Vec<usize>,
    commissions: Option<u32>,
}

impl Settings {
    /// Parses a text. An empty text has no projects.
    ///
    /// # Errors
    ///
    /// Returns the first mistake, with its place.
    pub fn parse(text: &str) -> Result<Self, OperationError> {
        let options = serde_saphyr::options! { strict_booleans: true };
        let file: Option<File> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|e| OperationError::Invalid(format!("{SETTINGS} cannot be read: {e}")))?;
        let (projects, commissions) =
            file.map_or_else(Default::default, |file| (file.projects, file.max_concurrent_commissions));
        let line = |project: &Spanned<ProjectSettings>| usize::try_from(project.defined.line()).unwrap_or(usize::MAX);
        let lines = projects.iter().map(line).collect();
        let projects: Vec<ProjectSettings> = projects.into_iter().map(|project| project.value).collect();
        let names = |name: &str| projects.iter().filter(|project| project.name == name).count();
        if let Some(twice) = projects.iter().find(|project| names(&project.name) > 1) {
            return Err(OperationError::Invalid(format!("{SETTINGS} has two projects {:?}; rename one", twice.name)));
        }
        Ok(Self { text: text.to_owned(), projects, lines, commissions })
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The projects, in their order.
    pub fn projects(&self) -> &[ProjectSettings] {
        &self.projects
    }

    /// The most commissions of all projects that run at once.
    pub fn commissions(&self) -> u32 {
        self.commissions.unwrap_or(COMMISSIONS)
    }

    /// The keys of the original that are kept and not used, each with the reason.
    pub fn unused(&self) -> Vec<String> {
        let value: serde_json::Value = serde_saphyr::from_str(&self.text).unwrap_or_default();
        let unused = UNUSED.iter().filter(|(key, _)| value.get(key).is_some());
        unused.map(|(key, why)| format!("{SETTINGS}: `{key}` is kept and not used: {why}")).collect()
    }

    /// Adds a project at the end of the list.
    ///
    /// # Errors
    ///
    /// Returns an error when the name is taken, or when the text has a form that cannot be extended.
    pub fn with(&self, project: &ProjectSettings) -> Result<Self, OperationError> {
        if self.projects.iter().any(|known| known.name == project.name) {
            return Err(OperationError::Conflict(format!("project '{}' is already registered", project.name)));
        }
        let options = serde_saphyr::ser_options! { compact_list_indent: false };
        let yaml = serde_saphyr::to_string_with_options(&[project], options)
            .map_err(|e| OperationError::Internal(format!("the project cannot be written as YAML: {e}")))?;
        let (mut lines, line_end) = (self.text_lines(), self.line_end());
        let (indent, at) = match (self.lines.last(), self.key()) {
            (Some(_), Some(key)) => (self.dash().unwrap_or(2), self.end(key)),
            (Some(_), None) => return Err(by_hand(&yaml)),
            (None, Some(key)) => {
                // `projects:` or `projects: []`.
                if let Some(line) = lines.get_mut(key) {
                    *line = format!("projects:{line_end}");
                }
                (2, key + 1)
            }
            (None, None) => {
                lines.push(format!("projects:{line_end}"));
                (2, lines.len())
            }
        };
        let added = yaml.lines().map(|line| format!("{}{line}{line_end}", " ".repeat(indent)));
        let at = at.min(lines.len());
        lines.splice(at..at, added);
        let wanted: Vec<_> = self.projects.iter().chain([project]).cloned().collect();
        self.changed(&lines, &wanted).ok_or_else(|| by_hand(&yaml))
    }

    /// Removes the project with that name.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or when the text has a form that cannot be changed.
    pub fn without(&self, name: &str) -> Result<Self, OperationError> {
        let index = self.projects.iter().position(|project| project.name == name);
        let Some(index) = index else { return Err(OperationError::NotFound(format!("project '{name}' not found"))) };
        let by_hand = || {
            OperationError::Conflict(format!(
                "{SETTINGS} has a form that cannot be changed automatically; remove {name:?} from it"
            ))
        };
        let (Some(key), Some(from)) = (self.key(), self.lines.get(index)) else { return Err(by_hand()) };
        let to = self.lines.get(index + 1).map_or_else(|| self.end(key), |next| next - 1);
        let mut lines = self.text_lines();
        let from = from - 1;
        if from >= to || to > lines.len() {
            return Err(by_hand());
        }
        lines.drain(from..to);
        if self.projects.len() == 1
            && let Some(line) = lines.get_mut(key)
        {
            *line = format!("projects: []{}", self.line_end());
        }
        let wanted: Vec<_> = self.projects.iter().filter(|project| project.name != name).cloned().collect();
        self.changed(&lines, &wanted).ok_or_else(by_hand)
    }

    /// Changes the path of the project with that name, which was moved.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or when the text has a form that cannot be changed.
    pub fn moved(&self, name: &str, path: &str) -> Result<Self, OperationError> {
        self.with_value(name, "path", Some(path), |project| path.clone_into(&mut project.path))
    }

    /// Changes or removes the group of the project with that name.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, or when the text has a form that cannot be changed.
    pub fn grouped(&self, name: &str, group: Option<&str>) -> Result<Self, OperationError> {
        self.with_value(name, "group", group, |project| project.group = group.map(str::to_owned))
    }

    /// Changes a value of a project, on the key's own line, or removes the key and its line. `change` does the same to
    /// the parsed settings.
    fn with_value(
        &self,
        name: &str,
        key: &str,
        value: Option<&str>,
        change: impl FnOnce(&mut ProjectSettings),
    ) -> Result<Self, OperationError> {
        let mut wanted = self.projects.clone();
        let Some((index, project)) = wanted.iter_mut().enumerate().find(|(_, project)| project.name == name) else {
            return Err(OperationError::NotFound(format!("project '{name}' not found")));
        };
        change(project);
        let by_hand = || {
            let what = match value {
                Some(value) => format!("set the {key} of {name:?} in it to {value:?}"),
                None => format!("remove the {key} of {name:?} from it"),
            };
            OperationError::Conflict(format!("{SETTINGS} has a form that cannot be changed automatically; {what}"))
        };
        let first = self.lines.get(index).and_then(|line| line.checked_sub(1)).ok_or_else(by_hand)?;
        let written = match value.map(|value| serde_saphyr::to_string(&value)).transpose() {
            Ok(yaml) => yaml.map(|yaml| format!("{key}: {}", yaml.trim_end())),
            Err(_) => return Err(by_hand()),
        };
        let (mut lines, line_end) = (self.text_lines(), self.line_end());
        let behind = self.lines.get(index + 1).map_or(lines.len(), |next| next - 1);
        // All keys of the project itself begin in the same column.
        let column = |line: &str| line.len() - line.trim_start_matches(['-', ' ']).len();
        let own = lines.get(first).map_or(0, |line| column(line));
        let is_key = |line: &str| {
            let rest = line.get(own..).and_then(|line| line.strip_prefix(key));
            column(line) == own && rest.is_some_and(|rest| rest.starts_with(':'))
        };
        let found = (first..behind).find(|at| lines.get(*at).is_some_and(|line| is_key(line)));
        match (found, written) {
            (Some(at), Some(written)) => {
                if let Some(line) = lines.get_mut(at) {
                    let rest = behind_value(line.get(own + key.len() + 1..).unwrap_or_default()).to_owned();
                    line.replace_range(own.., &format!("{written}{rest}"));
                }
            }
            (Some(at), None) => drop(lines.remove(at)),
            (None, Some(written)) => lines.insert(first + 1, format!("{}{written}{line_end}", " ".repeat(own))),
            (None, None) => {}
        }
        self.changed(&lines, &wanted).ok_or_else(by_hand)
    }

    /// The lines with their ends. The last line gets an end if it has none.
    fn text_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.text.split_inclusive('\n').map(str::to_owned).collect();
        if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
            last.push_str(self.line_end());
        }
        lines
    }

    /// The end of an added line.
    fn line_end(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// The index of the line with the key.
    fn key(&self) -> Option<usize> {
        self.text
            .lines()
            .position(|line| line.split('#').next().unwrap_or_default().trim_end().starts_with("projects:"))
    }

    /// The number of columns before the `-` of a project.
    fn dash(&self) -> Option<usize> {
        let line = self.text.lines().nth(self.lines.last()?.checked_sub(1)?)?;
        line.trim_start().starts_with('-').then(|| line.len() - line.trim_start().len())
    }

    /// The index of the line after the list, without trailing blank lines and comments that may belong to the next key.
    fn end(&self, key: usize) -> usize {
        let dash = self.dash().unwrap_or(0);
        let (mut end, last) = (key + 1, self.lines.last().copied().unwrap_or(key + 1));
        for (index, line) in self.text.lines().enumerate().skip(key + 1) {
            let plain = line.trim_start();
            let depth = line.len() - plain.len();
            let belongs = depth > dash || (depth == dash && plain.starts_with("- ")) || index < last;
            match plain.is_empty() || plain.starts_with('#') {
                true => {}
                false if belongs => end = index + 1,
                false => break,
            }
        }
        end
    }

    /// The text of those lines, if it parses to the wanted projects and otherwise unchanged settings.
    fn changed(&self, lines: &[String], projects: &[ProjectSettings]) -> Option<Self> {
        let new = Self::parse(&lines.concat()).ok()?;
        let rest = |text: &str| {
            let value: serde_json::Value = serde_saphyr::from_str(text).ok()?;
            let mut value = value.as_object().cloned().unwrap_or_default();
            value.remove("projects");
            Some(value)
        };
        (new.projects == projects && rest(&new.text)? == rest(&self.text)?).then_some(new)
    }
}

/// The comment after a value with the blanks before it, and the end of the line; only the end if there is no comment.
fn behind_value(value: &str) -> &str {
    let end = value.trim_end().len();
    let mut comments = value.match_indices(" #").map(|(at, _)| value.split_at(at));
    // A `#` within quotes does not start a comment: the text before it is not a complete value.
    let comment = comments.find(|(before, _)| serde_saphyr::from_str::<serde_json::Value>(before).is_ok());
    match comment {
        Some((before, _)) => value.get(before.trim_end().len()..).unwrap_or_default(),
        None => value.get(end..).unwrap_or_default(),
    }
}

fn by_hand(yaml: &str) -> OperationError {
    OperationError::Conflict(format!(
        "{SETTINGS} has a form that cannot be changed automatically; add this to its `projects`:\n{yaml}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(name: &str) -> ProjectSettings {
        let path = format!("/p/{name}");
        ProjectSettings { name: name.to_owned(), path, default_branch: Some("main".to_owned()), ..Default::default() }
    }

    fn names(settings: &Settings) -> Vec<&str> {
        settings.projects().iter().map(|project| project.name.as_str()).collect()
    }

    #[test]
    fn a_project_is_added_to_whatever_is_there() {
        for (text, expected) in [
            ("", "projects:\n  - name: a\n    path: /p/a\n    defaultBranch: main\n"),
            ("projects: []\n", "projects:\n  - name: a\n    path: /p/a\n    defaultBranch: main\n"),
            (
                "# mine\nprojects:\n  # first\n  - name: x\n    path: /x # here\n    runner:\n      shouldYolo: true\n\n# caps\nmaxConcurrentCommissions: 4\n",
                "# mine\nprojects:\n  # first\n  - name: x\n    path: /x # here\n    runner:\n      shouldYolo: true\n  - name: a\n    path: /p/a\n    defaultBranch: main\n\n# caps\nmaxConcurrentCommissions: 4\n",
            ),
            (
                "settings: {a: 1}\nprojects:\n- path: /x\n  name: x\n",
                "settings: {a: 1}\nprojects:\n- path: /x\n  name: x\n- name: a\n  path: /p/a\n  defaultBranch: main\n",
            ),
        ] {
            let before = Settings::parse(text).unwrap();
            let after = before.with(&project("a")).unwrap();
            assert_eq!(after.text(), expected);
            assert_eq!(after.without("a").unwrap().projects(), before.projects(), "{text}");
        }
    }

    #[test]
    fn a_project_is_removed_with_nothing_else() {
        let text = "projects:\n  - name: a\n    path: /a\n    other: [1, 2]\n  # about b\n  - name: b\n    path: /b\nmodels: []\n";
        let settings = Settings::parse(text).unwrap();
        assert_eq!(settings.without("b").unwrap().text(), text.replace("  - name: b\n    path: /b\n", ""));
        let without = settings.without("a").unwrap();
        assert_eq!(names(&without), ["b"]);
        assert!(without.text().ends_with("  - name: b\n    path: /b\nmodels: []\n"), "{}", without.text());
        assert_eq!(names(&without.without("b").unwrap()), Vec::<&str>::new());
        assert_eq!(settings.without("c").unwrap_err().to_string(), "project 'c' not found");
    }

    #[test]
    fn a_project_that_was_moved_keeps_all_but_its_path() {
        let text = "projects:\n  - name: a\n    path: /a\n  - path: /b # here\n    name: b\n    other: 1\n# end\n";
        let moved = Settings::parse(text).unwrap().moved("b", "/new: place").unwrap();
        assert_eq!(moved.projects().last().unwrap().path, "/new: place");
        let expected =
            text.replace("/b #", &format!("{} #", serde_saphyr::to_string(&"/new: place").unwrap().trim_end()));
        assert_eq!(moved.text(), expected);
        let flow = Settings::parse("projects: [{name: a, path: /a}]\n").unwrap();
        assert!(flow.moved("a", "/x").unwrap_err().to_string().contains("set the path of \"a\" in it to \"/x\""));
    }

    #[test]
    fn a_group_is_changed_on_its_own_line_and_nothing_else() {
        let text = "# mine\nprojects:\n  - name: a # first\n    path: /a\n    runner:\n      group: x\n  - group: old\n    name: b\n    \
                    path: /b\nheartbeatIntervalMinutes: 30\nmodels:\n  - {name: m, modelId: m}\n";
        let settings = Settings::parse(text).unwrap();
        let grouped = settings.grouped("a", Some("new: one")).unwrap();
        let yaml = serde_saphyr::to_string(&"new: one").unwrap();
        assert_eq!(grouped.text(), text.replace("# first\n", &format!("# first\n    group: {yaml}")));
        assert_eq!(grouped.grouped("a", None).unwrap().text(), text);
        assert_eq!(settings.grouped("a", None).unwrap().text(), text);
        assert_eq!(settings.grouped("b", Some("g")).unwrap().text(), text.replace("group: old", "group: g"));
        assert_eq!(settings.grouped("c", Some("g")).unwrap_err().to_string(), "project 'c' not found");
        // The first line of a project is not removed by itself.
        let refused = settings.grouped("b", None).unwrap_err().to_string();
        assert!(refused.contains("remove the group of \"b\" from it"), "{refused}");
        let flow = Settings::parse("projects: [{name: a, path: /a}]\n").unwrap();
        assert!(
            flow.grouped("a", Some("g")).unwrap_err().to_string().contains("set the group of \"a\" in it to \"g\"")
        );
    }

    #[test]
    fn comments_and_line_ends_stay() {
        let text = "projects:\r\n  - name: a\r\n    path: \"/a # b\"  # mine # it's\r\n    group: 'x # ''y' # other\r\nmodels: []";
        let settings = Settings::parse(text).unwrap();
        let grouped = settings.grouped("a", Some("z")).unwrap();
        assert_eq!(grouped.text(), text.replace("'x # ''y'", "z") + "\r\n");
        let moved = settings.moved("a", "/c").unwrap();
        assert_eq!(moved.text(), text.replace("\"/a # b\"", "/c") + "\r\n");
        let more = settings.with(&project("b")).unwrap();
        let added = "  - name: b\r\n    path: /p/b\r\n    defaultBranch: main\r\nmodels";
        assert_eq!(more.text(), text.replace("models", added) + "\r\n");
        assert_eq!(more.without("b").unwrap().text(), format!("{text}\r\n"));
    }

    #[test]
    fn a_form_that_cannot_be_changed_is_refused_with_what_to_write() {
        let flow = Settings::parse("projects: [{name: a, path: /a}, {name: c, path: /c}]\n").unwrap();
        let error = flow.with(&project("b")).unwrap_err().to_string();
        assert!(error.contains("- name: b\n"), "{error}");
        assert!(flow.without("a").is_err());
        assert!(matches!(flow.with(&project("a")), Err(OperationError::Conflict(_))));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, expected) in [
            ("projects:\n  - name: a\n", "path"),
            ("projects:\n  - name: a\n    path: 1\n    commissionCap: many\n", "line 4"),
            ("projects: {", "config.yaml"),
            ("projects:\n  - {name: a, path: x}\n  - {name: a, path: y}\n", "two projects \"a\""),
        ] {
            let error = Settings::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
