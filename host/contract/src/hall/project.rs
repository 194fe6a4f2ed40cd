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
    /// The group that it is shown with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `registered`.
    pub status: ProjectStatus,
    /// Why no work is done in it, where that is so. The original has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where a project is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ProjectStatus {
    /// It is in `config.yaml`.
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
        "Lists the projects that commissions can be for, and why no work is done in one where that is so.",
    )
    .get("/system/config/project/list")
    .tool("list_projects", "List projects");
}

/// A project, as `config.yaml` has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectSettings {
    /// The name.
    pub name: String,
    /// The top directory of the user's working tree.
    pub path: String,
    /// The name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where it comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_url: Option<String>,
    /// The branch that work begins from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<String>,
    /// The group that it is shown with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Meetings that are open at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting_cap: Option<u32>,
    /// Commissions that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commission_cap: Option<u32>,
    /// Tokens of memories that a session is given (REQ-WKR-23).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u32>,
}

/// The default number of a project's commissions that run at once.
const COMMISSIONS_OF_A_PROJECT: u32 = 3;
/// The default number of a project's meetings that are open at once.
const MEETINGS_OF_A_PROJECT: u32 = 5;

impl ProjectSettings {
    /// The number of commissions that run at once.
    pub fn commissions(&self) -> u32 {
        self.commission_cap.unwrap_or(COMMISSIONS_OF_A_PROJECT)
    }

    /// The number of meetings that are open at once.
    pub fn meetings(&self) -> u32 {
        self.meeting_cap.unwrap_or(MEETINGS_OF_A_PROJECT)
    }

    /// The characters of memories that a session is given, if the project sets them (REQ-WKR-23).
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
    const ROW: Row = Row::new(
        "system/project/read",
        Access::Reads,
        "Hands over a project's settings, and the vision of its documents.",
    )
    .get("/system/config/project/read")
    .quirks(Quirks { aliases: &[("projectName", "name")], ..Quirks::NONE });
}

/// A project that is to be registered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegisterProjectParams {
    /// The project's name.
    pub name: String,
    /// The top directory of its working tree.
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
        "Refuses: a project is registered by its operator alone, and the answer has the command.",
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
        "Refuses: a project is taken away by its operator alone, and the answer has the command.",
    )
    .post("/system/config/project/deregister")
    .quirks(Quirks { aliases: &[("projectName", "name")], ..Quirks::NONE });
}

/// A project and the group to show it with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupParams {
    /// The project's name.
    pub name: String,
    /// The group. An empty one takes the project out of its group.
    pub group: String,
}

/// The group that a project has now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Grouped {
    /// Always true: a group that cannot be written is an error.
    pub updated: bool,
    /// The project's name.
    pub name: String,
    /// The group as it is stored; empty where the project is in none.
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
        "Changes the group that a project is shown with, in `config.yaml`. An empty group takes it out of its group.",
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
    /// Commissions of all projects that run at once.
    pub max_concurrent_commissions: u32,
}

/// Reads the configuration.
#[derive(Debug)]
pub struct ReadSettings;

impl Operation for ReadSettings {
    type Input = NoParams;
    type Output = HallSettings;
    const ROW: Row = Row::new("system/config/read", Access::Reads, "Hands over the configuration of the hall.")
        .get("/system/config/application/read");
}

/// The outcome of reading `config.yaml` again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reloaded {
    /// Whether it was read.
    pub reloaded: bool,
    /// The number of its projects.
    pub project_count: usize,
    /// The projects that were not known before.
    pub new_projects: Vec<String>,
}

/// Reads `config.yaml` again.
#[derive(Debug)]
pub struct ReloadSettings;

impl Operation for ReloadSettings {
    type Input = NoParams;
    type Output = Reloaded;
    const ROW: Row =
        Row::new("system/config/reload", Access::Dispatches, "Reads `config.yaml` of the hall's home again.")
            .post("/system/config/application/reload");
}

/// Whether the files that a hall is configured by can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// Whether there are no issues.
    pub valid: bool,
    /// What is wrong.
    pub issues: Vec<String>,
    /// What may be meant so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The number of projects in `config.yaml`, where that can be read.
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
        "Reads `config.yaml` and `guild.toml` as they are now, and says what is wrong. Nothing is put in service.",
    )
    .get("/system/config/application/validate");
}

/// The state of a hall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Always `ok`.
    pub status: super::Ok,
    /// Meetings that are open.
    pub meetings: usize,
    /// Its commissions.
    pub commissions: RunningCommissions,
    /// Seconds since its start.
    pub uptime: u64,
}

/// The commissions of a hall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunningCommissions {
    /// Those under way.
    pub running: usize,
}

/// Tells the state of the hall.
#[derive(Debug)]
pub struct ReadHealth;

impl Operation for ReadHealth {
    type Input = NoParams;
    type Output = Health;
    const ROW: Row = Row::new(
        "system/health",
        Access::Reads,
        "Tells since when the hall is up, how many meetings are open, and how many commissions run.",
    )
    .get("/system/runtime/daemon/health");
}

/// A briefing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Briefing {
    /// A few sentences.
    pub briefing: String,
    /// When it was made: RFC 3339.
    pub generated_at: String,
    /// Whether it was made before: never.
    pub cached: bool,
}

/// A project, or all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MaybeProjectParams {
    /// The project's name; without it, all projects.
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
        "Tells in a few sentences how the work on a project stands, or on all.",
    )
    .get("/coordination/review/briefing/read")
    .tool("read_briefing", "Read a briefing");
}

/// The outcome of bringing `claude/main` of a project up to date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Synced {
    /// The project.
    pub project: String,
    /// What was done.
    pub action: SyncAction,
    /// Why.
    #[serde(default)]
    pub reason: String,
    /// The reason again, where it could not be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What was done to `claude/main`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SyncAction {
    /// It was set to the default branch, which has all of it.
    Reset,
    /// It was rebased onto the default branch.
    Rebase,
    /// The default branch was merged into it.
    Merge,
    /// It was up to date.
    Noop,
    /// It was left alone for now.
    Skip,
    /// It could not be done.
    Error,
}

/// The outcome of a sync, by project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SyncResults {
    /// In the order of the projects.
    pub results: Vec<Synced>,
}

/// Makes `claude/main` follow the default branch.
#[derive(Debug)]
pub struct SyncProjects;

impl Operation for SyncProjects {
    type Input = MaybeProjectParams;
    type Output = SyncResults;
    const ROW: Row = Row::new(
        "workspace/git/sync",
        Access::Dispatches,
        "Has `claude/main` follow the default branch, in one project or in all.",
    )
    .slow()
    .post("/workspace/git/integration/sync");
}

/// The outcome of a rebase of `claude/main` in one project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rebased {
    /// The project.
    pub project: String,
    /// Whether `claude/main` now has nothing but its own commits on top of the default branch.
    pub rebased: bool,
    /// What was done instead, or why nothing was. The original has no such field.
    #[serde(default)]
    pub reason: String,
    /// The reason again, where the branch could not be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The outcome of a rebase, by project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RebaseResults {
    /// In the order of the projects.
    pub results: Vec<Rebased>,
}

/// Syncs as [`SyncProjects`] does, and tells whether that was a rebase.
#[derive(Debug)]
pub struct RebaseProjects;

impl Operation for RebaseProjects {
    type Input = MaybeProjectParams;
    type Output = RebaseResults;
    const ROW: Row = Row::new(
        "workspace/git/rebase",
        Access::Dispatches,
        "Syncs one project or all, and tells whether `claude/main` is on top of the default branch. Where both have commits \
         of their own, the default branch is merged.",
    )
    .slow()
    .post("/workspace/git/branch/rebase");
}

/// A pull request that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewPullRequest {
    /// The project's name.
    pub project_name: String,
    /// A short title.
    pub title: String,
    /// What changed, and why, as Markdown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

/// A pull request of `claude/main`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PullRequest {
    /// The address.
    pub url: String,
    /// The commit of `claude/main` that was pushed.
    pub claude_main_tip: String,
    /// Whether it was open before. It has the commits that were pushed, and its own title.
    #[serde(default)]
    pub existed: bool,
}

/// Makes a pull request.
#[derive(Debug)]
pub struct CreatePullRequest;

impl Operation for CreatePullRequest {
    type Input = NewPullRequest;
    type Output = PullRequest;
    // In the original only the manager makes pull requests.
    const ROW: Row = Row::new(
        "workspace/git/pr/create",
        Access::Dispatches,
        "Pushes `claude/main` of a project, and makes a pull request of it.",
    )
    .slow()
    .post("/workspace/git/pr/create")
    .answers(201);
}
