//! Defines projects, the configuration of the hall, and its state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::operation::{Access, Operation, Quirks, Row};

/// No parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoParams {}

/// A project, by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectParams {
    /// The project's name.
    pub project_name: String,
}

/// A project in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectView {
    /// The name.
    pub name: String,
    /// The top directory of the user's working tree.
    pub path: String,
    /// The group under which the project is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Always `registered`.
    pub status: ProjectStatus,
    /// The reason that no work can be done in the project, if there is one. The original has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The state of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ProjectStatus {
    /// The project is in `config.yaml`.
    Registered,
}

/// The projects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProjectList {
    /// The projects, in the order of `config.yaml`.
    pub projects: Vec<ProjectView>,
}

/// Lists the projects.
#[derive(Debug)]
pub struct ListProjects;

impl Operation for ListProjects {
    type Input = NoParams;
    type Output = ProjectList;
    const ROW: Row = Row::new(
        "system/project/list",
        Access::Reads,
        "Lists the projects that commissions can be for, with the reason why a project cannot be worked on.",
    )
    .get("/system/config/project/list")
    .tool("list_projects", "List projects");
}

/// A project's entry in `config.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSettings {
    /// The name.
    pub name: String,
    /// The top directory of the user's working tree.
    pub path: String,
    /// The display title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The address of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_url: Option<String>,
    /// The branch on which work starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
    /// The group under which the project is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The most meetings of the project that are open at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting_cap: Option<u32>,
    /// The most commissions of the project that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commission_cap: Option<u32>,
    /// The most tokens of memories that a session is given (REQ-WKR-23).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u32>,
}

/// The default for the most commissions of a project that run at once.
const COMMISSIONS_OF_A_PROJECT: u32 = 3;
/// The default for the most meetings of a project that are open at once.
const MEETINGS_OF_A_PROJECT: u32 = 5;

impl ProjectSettings {
    /// The most commissions that run at once.
    pub fn commissions(&self) -> u32 {
        self.commission_cap.unwrap_or(COMMISSIONS_OF_A_PROJECT)
    }

    /// The most meetings that are open at once.
    pub fn meetings(&self) -> u32 {
        self.meeting_cap.unwrap_or(MEETINGS_OF_A_PROJECT)
    }

    /// The most characters of memories that a session is given, if the project sets them (REQ-WKR-23).
    pub fn memory_chars(&self) -> Option<u64> {
        self.memory_limit.map(|tokens| u64::from(tokens) * 4)
    }
}

/// A project, by its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedProject {
    /// The project's name.
    pub name: String,
}

/// Reads a project's settings.
#[derive(Debug)]
pub struct ReadProject;

impl Operation for ReadProject {
    type Input = NamedProject;
    type Output = ProjectSettings;
    const ROW: Row =
        Row::new("system/project/read", Access::Reads, "Returns a project's settings, and the vision document.")
            .get("/system/config/project/read")
            .quirks(Quirks { aliases: &[("projectName", "name")], ..Quirks::NONE });
}

/// A project to register.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterProjectParams {
    /// The project's name.
    pub name: String,
    /// The top directory of the project's working tree.
    pub path: String,
}

/// Refuses to register a project.
#[derive(Debug)]
pub struct RegisterProject;

impl Operation for RegisterProject {
    type Input = RegisterProjectParams;
    type Output = super::Done;
    const ROW: Row = Row::new(
        "system/project/register",
        Access::Dispatches,
        "Always refuses: only the operator registers projects. The answer names the command.",
    )
    .post("/system/config/project/register")
    .quirks(Quirks { aliases: &[("projectName", "name")], ..Quirks::NONE });
}

/// Refuses to deregister a project.
#[derive(Debug)]
pub struct DeregisterProject;

impl Operation for DeregisterProject {
    type Input = NamedProject;
    type Output = super::Done;
    const ROW: Row = Row::new(
        "system/project/deregister",
        Access::Dispatches,
        "Always refuses: only the operator deregisters projects. The answer names the command.",
    )
    .post("/system/config/project/deregister")
    .quirks(Quirks { aliases: &[("projectName", "name")], ..Quirks::NONE });
}

/// A project and its new group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupParams {
    /// The project's name.
    pub name: String,
    /// The group. An empty text removes the project from its group.
    pub group: String,
}

/// The project's group after the change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grouped {
    /// Always true: a group that cannot be written is an error.
    pub updated: bool,
    /// The project's name.
    pub name: String,
    /// The group as it is stored; empty if the project has none.
    pub group: String,
}

/// Changes the group of a project.
#[derive(Debug)]
pub struct GroupProject;

impl Operation for GroupProject {
    type Input = GroupParams;
    type Output = Grouped;
    const ROW: Row = Row::new(
        "system/project/group",
        Access::Dispatches,
        "Changes the group of a project in `config.yaml`. An empty group removes the project from its group.",
    )
    .post("/system/config/project/group")
    .quirks(Quirks {
        missing: Some("name, group"),
        aliases: &[("projectName", "name")],
        may_be_empty: &["group"],
        ..Quirks::NONE
    });
}

/// The configuration of the hall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HallSettings {
    /// The projects.
    pub projects: Vec<ProjectSettings>,
    /// The most commissions of all projects that run at once.
    pub max_concurrent_commissions: u32,
}

/// Reads the configuration.
#[derive(Debug)]
pub struct ReadSettings;

impl Operation for ReadSettings {
    type Input = NoParams;
    type Output = HallSettings;
    const ROW: Row = Row::new("system/config/read", Access::Reads, "Returns the configuration of the hall.")
        .get("/system/config/application/read");
}

/// The outcome of reading `config.yaml` again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Whether the file was read.
    pub reloaded: bool,
    /// The number of projects in the file.
    pub project_count: usize,
    /// The names of projects that are new.
    pub new_projects: Vec<String>,
}

/// Reads `config.yaml` again.
#[derive(Debug)]
pub struct ReloadSettings;

impl Operation for ReloadSettings {
    type Input = NoParams;
    type Output = Reloaded;
    const ROW: Row = Row::new("system/config/reload", Access::Dispatches, "Reads the hall's `config.yaml` again.")
        .post("/system/config/application/reload");
}

/// Whether the configuration files of a hall can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// Whether there are no issues.
    pub valid: bool,
    /// The faults, each as a sentence.
    pub issues: Vec<String>,
    /// Settings that may be intended, each as a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The number of projects in `config.yaml`, if the file can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_count: Option<usize>,
}

/// Checks the configuration.
#[derive(Debug)]
pub struct ValidateSettings;

impl Operation for ValidateSettings {
    type Input = NoParams;
    type Output = Validation;
    const ROW: Row = Row::new(
        "system/config/validate",
        Access::Reads,
        "Checks the current `config.yaml` and `guild.toml`, and returns their faults. The running configuration does \
         not change.",
    )
    .get("/system/config/application/validate");
}

/// The state of a hall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: super::Ok,
    /// The number of open meetings.
    pub meetings: usize,
    /// The running commissions.
    pub commissions: RunningCommissions,
    /// The seconds since the start of the hall.
    pub uptime: u64,
}

/// The running commissions of a hall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningCommissions {
    /// The number of running commissions.
    pub running: usize,
}

/// Reads the state of the hall.
#[derive(Debug)]
pub struct ReadHealth;

impl Operation for ReadHealth {
    type Input = NoParams;
    type Output = Health;
    const ROW: Row = Row::new(
        "system/health",
        Access::Reads,
        "Returns the hall's uptime, and the numbers of open meetings and running commissions.",
    )
    .get("/system/runtime/daemon/health");
}

/// A briefing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Briefing {
    /// The briefing, a few sentences.
    pub briefing: String,
    /// The time at which the briefing was made: RFC 3339.
    pub generated_at: String,
    /// Always false: each briefing is made on request.
    pub cached: bool,
}

/// A project, or all projects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MaybeProjectParams {
    /// The project's name; all projects by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_name: Option<String>,
}

/// Summarizes the state of the work on projects.
#[derive(Debug)]
pub struct ReadBriefing;

impl Operation for ReadBriefing {
    type Input = MaybeProjectParams;
    type Output = Briefing;
    const ROW: Row = Row::new(
        "coordination/briefing",
        Access::Reads,
        "Summarizes the state of the work on one project or on all projects in a few sentences.",
    )
    .get("/coordination/review/briefing/read")
    .tool("read_briefing", "Read a briefing");
}

/// The outcome of updating `claude/main` of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Synced {
    /// The project.
    pub project: String,
    /// The action on `claude/main`.
    pub action: SyncAction,
    /// The reason for the action.
    #[serde(default)]
    pub reason: String,
    /// The reason again, if the update failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The action on `claude/main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SyncAction {
    /// The branch was set to the default branch, which contains all of its commits.
    Reset,
    /// The branch was rebased onto the default branch.
    Rebase,
    /// The default branch was merged into the branch.
    Merge,
    /// The branch was up to date.
    Noop,
    /// The branch was not updated this time.
    Skip,
    /// The update failed.
    Error,
}

/// The outcomes of a sync.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncResults {
    /// The outcomes, in the order of the projects.
    pub results: Vec<Synced>,
}

/// Updates `claude/main` from the default branch.
#[derive(Debug)]
pub struct SyncProjects;

impl Operation for SyncProjects {
    type Input = MaybeProjectParams;
    type Output = SyncResults;
    const ROW: Row = Row::new(
        "workspace/git/sync",
        Access::Dispatches,
        "Updates `claude/main` from the default branch, in one project or in all projects.",
    )
    .slow()
    .post("/workspace/git/integration/sync");
}

/// The outcome of a rebase of `claude/main` in one project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rebased {
    /// The project.
    pub project: String,
    /// Whether `claude/main` now has only its own commits on top of the default branch.
    pub rebased: bool,
    /// The other action, or the reason that there was none. The original has no such field.
    #[serde(default)]
    pub reason: String,
    /// The reason again, if the branch could not be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The outcomes of a rebase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RebaseResults {
    /// The outcomes, in the order of the projects.
    pub results: Vec<Rebased>,
}

/// Syncs like [`SyncProjects`], and returns whether `claude/main` was rebased.
#[derive(Debug)]
pub struct RebaseProjects;

impl Operation for RebaseProjects {
    type Input = MaybeProjectParams;
    type Output = RebaseResults;
    const ROW: Row = Row::new(
        "workspace/git/rebase",
        Access::Dispatches,
        "Syncs one project or all projects, and returns whether `claude/main` is on top of the default branch. If \
         both have commits of their own, the default branch is merged.",
    )
    .slow()
    .post("/workspace/git/branch/rebase");
}

/// A pull request to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewPullRequest {
    /// The project's name.
    pub project_name: String,
    /// A short title.
    pub title: String,
    /// The changes and their reasons, as Markdown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// A pull request of `claude/main`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequest {
    /// The pull request's URL.
    pub url: String,
    /// The pushed commit of `claude/main`.
    pub claude_main_tip: String,
    /// Whether the pull request was open before. It then has the pushed commits, and keeps its title.
    #[serde(default)]
    pub existed: bool,
}

/// Creates a pull request.
#[derive(Debug)]
pub struct CreatePullRequest;

impl Operation for CreatePullRequest {
    type Input = NewPullRequest;
    type Output = PullRequest;
    // In the original, only the manager creates pull requests.
    const ROW: Row = Row::new(
        "workspace/git/pr/create",
        Access::Dispatches,
        "Pushes `claude/main` of a project, and creates a pull request for it.",
    )
    .slow()
    .post("/workspace/git/pr/create")
    .answers(201);
}
