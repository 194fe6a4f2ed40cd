//! Defines workers that can be commissioned, and the models that they can run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NoParams;
use crate::operation::{Access, Operation, Row};

/// A worker that can be commissioned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// The name of the worker's package.
    pub name: String,
    /// The worker's display name.
    pub display_name: String,
    /// The worker's display title.
    pub display_title: String,
    /// The worker's description.
    pub description: String,
    /// The URL of the worker's picture.
    pub portrait_url: Option<String>,
    /// The model of the worker's sessions, if it is known; the built-in search has none.
    pub model: Option<WorkerModel>,
    /// The runtime of the worker's sessions. The original has no such field.
    pub agent: String,
}

/// The model of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerModel {
    /// The name.
    pub name: String,
    /// Whether the model is at the user's own address. On this host, the one provider of `[api]` has all models.
    pub is_local: bool,
}

/// The workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerList {
    /// The workers, sorted by name.
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
        "Lists the workers that commissions and meetings can be for, with their own descriptions.",
    )
    .get("/system/packages/worker/list")
    .tool("list_workers", "List workers");
}

/// A model that the sessions of a host can run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// The name.
    pub name: String,
    /// The runtime that offers the model.
    pub agent: String,
}

/// The models that a host can run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelCatalogue {
    /// All models, each with the `agent` that a worker needs to run it.
    pub builtin: Vec<Model>,
    /// Models at the user's own addresses, which the original lists separately: always empty.
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
        "Lists the models that this host can run, each with the `agent` that a worker needs to run it.",
    )
    .get("/system/models/catalog/list")
    .tool("list_models", "List models");
}
