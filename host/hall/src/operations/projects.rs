//! Handles the operations on projects, workers, models, and the hall itself.

use std::{path::Path, sync::Arc};

use guild_config::shell_word;
use guild_contract::{
    OperationError,
    hall::{
        Briefing, CreatePullRequest, DeregisterProject, Done, GroupParams, GroupProject, Grouped, HallSettings, Health,
        HeartbeatStatus, HeartbeatTicked, ListModels, ListProjects, ListWorkers, MaybeProjectParams, ModelCatalogue,
        NamedProject, NewPullRequest, NoParams, Ok as Yes, ProjectList, ProjectParams, ProjectSettings, PullRequest,
        ReadBriefing, ReadHealth, ReadHeartbeat, ReadProject, ReadSettings, RebaseProjects, RebaseResults, Rebased,
        RegisterProject, RegisterProjectParams, ReloadSettings, Reloaded, RunningCommissions, SyncAction, SyncProjects,
        SyncResults, Synced, TickHeartbeat, ValidateSettings, Validation, WorkerList, WorkerModel, WorkerView,
    },
};
use jiff::Timestamp;

use super::{Handle, Reply};
use crate::{Hall, Worker};

impl Handle for SyncProjects {
    async fn handle(
        hall: Arc<Hall>,
        MaybeProjectParams { project_name }: MaybeProjectParams,
    ) -> Result<Reply<SyncResults>, OperationError> {
        Ok(SyncResults { results: hall.projects.sync(project_name.as_deref()).await? }.into())
    }
}

impl Handle for RebaseProjects {
    async fn handle(
        hall: Arc<Hall>,
        MaybeProjectParams { project_name }: MaybeProjectParams,
    ) -> Result<Reply<RebaseResults>, OperationError> {
        let synced = hall.projects.sync(project_name.as_deref()).await?;
        let rebased = |Synced { project, action, reason, error }| {
            let rebased = matches!(action, SyncAction::Reset | SyncAction::Rebase | SyncAction::Noop);
            Rebased { project, rebased, reason, error }
        };
        Ok(RebaseResults { results: synced.into_iter().map(rebased).collect() }.into())
    }
}

impl Handle for CreatePullRequest {
    async fn handle(
        hall: Arc<Hall>,
        NewPullRequest { project_name, title, body }: NewPullRequest,
    ) -> Result<Reply<PullRequest>, OperationError> {
        Ok(hall.projects.create_pull_request(&project_name, &title, &body, None).await?.into())
    }
}

impl Handle for ListWorkers {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<WorkerList>, OperationError> {
        Ok(WorkerList { workers: hall.all_workers().into_iter().map(worker).collect() }.into())
    }
}

fn worker(worker: Worker) -> WorkerView {
    WorkerView {
        name: worker.package,
        display_name: worker.display_name,
        display_title: worker.display_title,
        description: worker.description,
        portrait_url: worker.portrait,
        model: worker.model.map(|name| WorkerModel { name, is_local: false }),
        agent: worker.agent,
    }
}

impl Handle for ListModels {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<ModelCatalogue>, OperationError> {
        Ok(ModelCatalogue { builtin: hall.models().await?, local: Vec::new() }.into())
    }
}

impl Handle for ListProjects {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<ProjectList>, OperationError> {
        Ok(ProjectList { projects: hall.projects.list()? }.into())
    }
}

impl Handle for ReadProject {
    async fn handle(
        hall: Arc<Hall>,
        NamedProject { name }: NamedProject,
    ) -> Result<Reply<ProjectSettings>, OperationError> {
        let mut settings = hall.projects.settings_of(&name)?;
        settings.description = hall.documents.vision(&name).await.or(settings.description);
        Ok(settings.into())
    }
}

impl Handle for RegisterProject {
    async fn handle(
        _: Arc<Hall>,
        RegisterProjectParams { name, path }: RegisterProjectParams,
    ) -> Result<Reply<Done>, OperationError> {
        let (name, path) = (shell_word(Path::new(&name)), shell_word(Path::new(&path)));
        Err(OperationError::Conflict(format!(
            "only the operator registers projects: run `guild project add {path} --name {name}`"
        )))
    }
}

impl Handle for DeregisterProject {
    async fn handle(hall: Arc<Hall>, NamedProject { name }: NamedProject) -> Result<Reply<Done>, OperationError> {
        hall.projects.settings_of(&name)?;
        let name = shell_word(Path::new(&name));
        Err(OperationError::Conflict(format!(
            "only the operator deregisters projects: run `guild project remove {name}`"
        )))
    }
}

/// Callers may change a project's group, unlike its registration: the group only affects how the project is shown.
impl Handle for GroupProject {
    async fn handle(
        hall: Arc<Hall>,
        GroupParams { name, group }: GroupParams,
    ) -> Result<Reply<Grouped>, OperationError> {
        let group = hall.projects.group(&name, &group).await?;
        Ok(Grouped { updated: true, name, group }.into())
    }
}

impl Handle for ReadSettings {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<HallSettings>, OperationError> {
        let settings = hall.projects.settings()?;
        Ok(HallSettings { projects: settings.projects().to_vec(), max_concurrent_commissions: settings.commissions() }
            .into())
    }
}

impl Handle for ReloadSettings {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<Reloaded>, OperationError> {
        Ok(hall.projects.reload().await?.into())
    }
}

impl Handle for ValidateSettings {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<Validation>, OperationError> {
        Ok(hall.projects.validate().await?.into())
    }
}

impl Handle for ReadHealth {
    async fn handle(hall: Arc<Hall>, _: NoParams) -> Result<Reply<Health>, OperationError> {
        Ok(Health {
            status: Yes::Ok,
            meetings: hall.meetings.sessions().len(),
            commissions: RunningCommissions { running: hall.commissions.running() },
            uptime: hall.uptime().as_secs(),
        }
        .into())
    }
}

impl Handle for ReadBriefing {
    async fn handle(
        hall: Arc<Hall>,
        MaybeProjectParams { project_name }: MaybeProjectParams,
    ) -> Result<Reply<Briefing>, OperationError> {
        let briefing = match project_name.filter(|name| name != "all") {
            Some(name) => hall.projects.briefing(&name).await?,
            None => {
                let mut all = Vec::new();
                for project in hall.projects.list()? {
                    all.push(format!("{}: {}", project.name, hall.projects.briefing(&project.name).await?));
                }
                if all.is_empty() { "No project is registered.".to_owned() } else { all.join("\n") }
            }
        };
        Ok(Briefing { briefing, generated_at: Timestamp::now().to_string(), cached: false }.into())
    }
}

impl Handle for ReadHeartbeat {
    async fn handle(
        hall: Arc<Hall>,
        ProjectParams { project_name }: ProjectParams,
    ) -> Result<Reply<HeartbeatStatus>, OperationError> {
        Ok(hall.commissions.heartbeat(&project_name).await?.into())
    }
}

impl Handle for TickHeartbeat {
    async fn handle(
        hall: Arc<Hall>,
        ProjectParams { project_name }: ProjectParams,
    ) -> Result<Reply<HeartbeatTicked>, OperationError> {
        Ok(hall.commissions.tick(&project_name).await?.into())
    }
}
