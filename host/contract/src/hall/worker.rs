//! Defines workers that can be commissioned, and the models that they can run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NoParams;
use crate::operation::{Access, Operation, Row};

/// A worker that can be commissioned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// The name of its package.
    pub name: String,
    /// The name for people.
    pub display_name: String,
    /// The title for people.
    pub display_title: String,
    /// What it does.
    pub description: String,
    /// Where its picture is.
    pub portrait_url: Option<String>,
    /// The model of its sessions, where that is known; the built-in search has none.
    pub model: Option<WorkerModel>,
    /// The runtime of its sessions. The original has no such field.
    pub agent: String,
}

/// The model of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerModel {
    /// The name.
    pub name: String,
    /// Whether it is at an address of the user's: the one provider of `[api]` has all models here.
    pub is_local: bool,
}

/// The workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerList {
    /// The workers, by name.
    pub workers: Vec<WorkerView>,
}

/// Lists the workers.
#[derive(Debug)]
pub struct ListWorkers;

impl Operation for ListWorkers {
    type Input = NoParams;
    type Output = WorkerList;
    const ROW: Row = Row::new(
        "system/worker/list",
        Access::Reads,
        "Lists the workers that commissions and meetings can be for, in their own words.",
    )
    .get("/system/packages/worker/list")
    .tool("list_workers", "List workers");
}

/// A model that the sessions of a host can run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// The name.
    pub name: String,
    /// The runtime that has it.
    pub agent: String,
}

/// The models that a host can run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCatalogue {
    /// All of them, each with the `agent` that a worker has to run on.
    pub builtin: Vec<Model>,
    /// Those at addresses of the user's, which the original tells apart: always empty.
    pub local: Vec<Model>,
}

/// Lists the models.
#[derive(Debug)]
pub struct ListModels;

impl Operation for ListModels {
    type Input = NoParams;
    type Output = ModelCatalogue;
    const ROW: Row = Row::new(
        "system/model/list",
        Access::Reads,
        "Lists the models that this host can run, each with the `agent` that a worker has to run on.",
    )
    .get("/system/models/catalog/list")
    .tool("list_models", "List models");
}
