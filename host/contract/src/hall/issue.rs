//! Defines issues: documents in `.lore/work/issues/`, or in `.lore/issues/` of older projects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::operation::{Access, Operation, Row};

/// An issue to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewIssue {
    /// The project's name.
    pub project_name: String,
    /// The title: one line of at most 200 characters. Its ASCII letters and digits become the file name.
    pub title: String,
    /// The text, as Markdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// An issue that was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssueCreated {
    /// The path from the project's top directory.
    pub path: String,
    /// The file name without `.md`.
    pub slug: String,
}

/// Creates an issue.
#[derive(Debug)]
pub struct CreateIssue;

impl Operation for CreateIssue {
    type Input = NewIssue;
    type Output = IssueCreated;
    const ROW: Row = Row::new(
        "workspace/issue/create",
        Access::Dispatches,
        "Creates an issue: a document in `.lore/work/issues/` of a project, and commits it.",
    )
    .post("/workspace/issue/create")
    .answers(201)
    .tool("create_issue", "Create an issue");
}

/// The filter for a list of issues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssueFilter {
    /// The project's name.
    pub project_name: String,
    /// Lists only the issues in this state, such as `open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// An issue in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssueView {
    /// The file name without `.md`.
    pub slug: String,
    /// The title; the slug if the file has no title.
    pub title: String,
    /// The state, any word; `open` if the file has no state.
    pub status: String,
    /// The date; empty if the file has no date.
    pub date: String,
}

/// The issues of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssueList {
    /// The issues, open ones first.
    pub issues: Vec<IssueView>,
    /// Whether the project has more issues than the list can hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Lists issues.
#[derive(Debug)]
pub struct ListIssues;

impl Operation for ListIssues {
    type Input = IssueFilter;
    type Output = IssueList;
    const ROW: Row = Row::new("workspace/issue/list", Access::Reads, "Lists the issues of a project.")
        .get("/workspace/issue/list")
        .tool("list_issues", "List issues");
}

/// An issue, by its project and slug.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IssueParams {
    /// The project's name.
    pub project_name: String,
    /// The file name without `.md`.
    pub slug: String,
}

/// An issue with its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// The issue's entry in a list.
    #[serde(flatten)]
    pub view: IssueView,
    /// The text below the frontmatter.
    pub body: String,
}

/// Reads an issue.
#[derive(Debug)]
pub struct ReadIssue;

impl Operation for ReadIssue {
    type Input = IssueParams;
    type Output = Issue;
    const ROW: Row = Row::new("workspace/issue/read", Access::Reads, "Returns an issue of a project.")
        .get("/workspace/issue/read")
        .tool("read_issue", "Read an issue");
}
