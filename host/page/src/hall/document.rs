//! Renders a document of a project.

use guild_contract::hall::Artifact;
use maud::html;

use super::{crumbs, project_path};
use crate::{
    frame::page,
    markdown,
    parts::{Viewer, encoded, text, time},
};

/// The path of a document's page.
pub fn document_path(project: &str, path: &str) -> String {
    format!("{}?document={}", project_path(project), encoded(path))
}

/// The page of a document.
pub fn document(viewer: &Viewer, project: &str, document: &Artifact) -> String {
    let title = if document.meta.title.is_empty() { &document.relative_path } else { &document.meta.title };
    let body = html! {
        (crumbs(project))
        h1 { (text(title)) }
        p.quiet { code { (text(&document.relative_path)) } ", changed " (time(&document.last_modified)) }
        section.report aria-labelledby="text" {
            h2 id="text" { "Text" }
            (markdown::render(&document.content))
        }
    };
    page(title, Some(viewer), &body)
}
