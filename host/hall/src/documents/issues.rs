//! Creates and reads issues: documents in `.lore/work/issues/`, and in `.lore/issues/` of projects with the older
//! layout.

use std::{collections::BTreeSet, path::Path};

use guild_contract::{
    OperationError,
    hall::{Artifact, Issue, IssueCreated, IssueList, IssueView},
};

use super::{Documents, Edit, MAX_BYTES, artifact, failed, named};
use crate::{
    core::text::{TEXT_BYTES, cut},
    files::{Files, in_lore, is_of_host},
    home::Home,
};

/// The directory of new issues, below `.lore/`.
const NEW: &str = "work/issues";
/// The directories of issues. If both contain a slug, the first one counts.
const DIRECTORIES: [&str; 2] = [NEW, "issues"];
/// The most characters of a title.
const TITLE_CHARS: usize = 200;
/// The most characters of a state and a date in a list.
const FIELD_CHARS: usize = 40;
/// The most issues in a list.
const MAX_LISTED: usize = 2000;

impl Documents {
    /// Creates an issue and commits it. The file is named after the title, with a number if the name is taken.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no such project, the title is not acceptable, or the file cannot be written.
    pub async fn create_issue(&self, project: &str, title: &str, body: &str) -> Result<IssueCreated, OperationError> {
        let invalid = |why: &str| Err(OperationError::Invalid(why.to_owned()));
        let title = title.trim();
        if title.is_empty() {
            return invalid("Title is required");
        }
        if title.chars().count() > TITLE_CHARS {
            return invalid("Title must be 200 characters or fewer");
        }
        if title.contains(char::is_control) {
            return invalid("Title must be one line, without control characters");
        }
        if body.len() > TEXT_BYTES {
            return Err(OperationError::Invalid(format!("body has {} bytes, more than {TEXT_BYTES}", body.len())));
        }
        let name = slug(title);
        if name.is_empty() {
            return invalid("Title must contain at least one alphanumeric character");
        }
        let day = self.core.clock.now().strftime("%Y-%m-%d").to_string();
        let quoted = title.replace('\\', "\\\\").replace('"', "\\\"");
        let mut content = format!("---\ntitle: \"{quoted}\"\ndate: {day}\nstatus: open\n---");
        if !body.trim().is_empty() {
            content.push_str(&format!("\n\n{body}"));
        }
        let edit = move |files: &Files| {
            let slug = free(files, &name)?;
            let path = in_lore(&path(NEW, &slug));
            let message = format!("Add issue: {slug}");
            Ok((IssueCreated { path: path.clone(), slug }, Some(Edit { path, content, message })))
        };
        self.edit(project, edit).await
    }

    /// The issues of a project in this state, or all.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::list`].
    pub async fn issues(&self, project: &str, status: Option<&str>) -> Result<IssueList, OperationError> {
        let (_, integration) = self.core.integration(project).await?;
        let home = self.core.home.clone();
        let mut found = integration.with_files(move |top| list(&home, top)).await??;
        found.issues.retain(|issue| status.is_none_or(|status| issue.status == status));
        Ok(found)
    }

    /// One issue with its text.
    ///
    /// # Errors
    ///
    /// Returns an error when there is no issue with that slug, or it cannot be read.
    pub async fn issue(&self, project: &str, slug: &str) -> Result<Issue, OperationError> {
        for directory in DIRECTORIES {
            let path = path(directory, slug);
            if slug_of(&path, directory).is_none() {
                continue;
            }
            match self.read(project, &path).await {
                Ok(found) => {
                    let body = found.content.trim_start_matches('\n').to_owned();
                    return Ok(Issue { view: view(slug, &found), body });
                }
                Err(OperationError::NotFound(_)) => {}
                Err(e) => return Err(e),
            }
        }
        self.core.project(project)?;
        Err(OperationError::NotFound(format!("Issue not found: {slug}")))
    }
}

/// The issues of a worktree, open ones first. It blocks.
fn list(home: &Home, top: &Path) -> Result<IssueList, OperationError> {
    let files = Files::open(home, top).map_err(OperationError::io("the integration worktree"))?;
    let (mut found, mut seen, mut truncated) = (Vec::new(), BTreeSet::new(), false);
    for directory in DIRECTORIES {
        let full = in_lore(directory);
        let names = named(&full)?;
        let listed = match files.list(&names) {
            Ok(Some(listed)) => listed,
            Err(e) if is_of_host(e.kind()) => return Err(failed(&names, "listed", &e)),
            // The directory's name is taken by something else.
            Ok(None) | Err(_) => continue,
        };
        truncated |= listed.truncated;
        for file in listed.files {
            let path = format!("{directory}/{file}");
            let Some(slug) = slug_of(&path, directory).filter(|slug| !seen.contains(*slug)) else { continue };
            if seen.len() == MAX_LISTED {
                truncated = true;
                break;
            }
            // A file that cannot be read, or was removed in the meantime, is left out of the list.
            let full = in_lore(&path);
            let Ok(names) = named(&full) else { continue };
            let Ok(Some((bytes, state))) = files.read(&names, MAX_BYTES) else { continue };
            seen.insert(slug.to_owned());
            let document = artifact::document(&path, &String::from_utf8_lossy(&bytes), artifact::time(&state));
            found.push(Artifact { content: String::new(), ..document });
        }
    }
    artifact::sort(&mut found);
    let slug = |artifact: &Artifact| {
        DIRECTORIES.iter().find_map(|dir| slug_of(&artifact.relative_path, dir).map(str::to_owned))
    };
    let issues = found.iter().filter_map(|artifact| Some(view(&slug(artifact)?, artifact)));
    Ok(IssueList { issues: issues.collect(), truncated })
}

fn path(directory: &str, slug: &str) -> String {
    format!("{directory}/{slug}.md")
}

/// The slug of the issue at this path; `None` if the path is not that of a file in the directory itself.
fn slug_of<'a>(path: &'a str, directory: &str) -> Option<&'a str> {
    let slug = path.strip_prefix(directory)?.strip_prefix('/')?.strip_suffix(".md")?;
    (!slug.is_empty() && !slug.contains('/')).then_some(slug)
}

/// Makes a file name from a title: its ASCII letters and digits in lower case, with one `-` for each gap.
fn slug(title: &str) -> String {
    let title = title.to_lowercase();
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

/// The slug itself, or the slug with the first number from 2 that is free in all directories of issues. It blocks.
fn free(files: &Files, name: &str) -> Result<String, OperationError> {
    let mut slug = name.to_owned();
    let mut number = 2_u32;
    loop {
        let mut is_taken = false;
        for directory in DIRECTORIES {
            let path = in_lore(&path(directory, &slug));
            let names = named(&path)?;
            is_taken |= files.state(&names).map_err(|e| failed(&names, "read", &e))?.is_some();
        }
        if !is_taken {
            return Ok(slug);
        }
        slug = format!("{name}-{number}");
        number += 1;
    }
}

fn view(slug: &str, artifact: &Artifact) -> IssueView {
    let or = |text: &str, other: &str, chars| cut(if text.is_empty() { other } else { text }.to_owned(), chars);
    let meta = &artifact.meta;
    IssueView {
        slug: slug.to_owned(),
        title: or(&meta.title, slug, TITLE_CHARS),
        status: or(&meta.status, "open", FIELD_CHARS),
        date: or(&meta.date, "", FIELD_CHARS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slug_is_of_letters_and_digits_in_small_letters() {
        for (title, expected) in [
            ("Quick Add Issues", "quick-add-issues"),
            ("Build fails on Linux (with spaces)", "build-fails-on-linux-with-spaces"),
            ("a--b___c", "a-b-c"),
            ("../../etc/passwd", "etc-passwd"),
            ("!@#$%", ""),
            ("Über 9", "ber-9"),
        ] {
            assert_eq!(slug(title), expected, "{title}");
        }
    }
}
