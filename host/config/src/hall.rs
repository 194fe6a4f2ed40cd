//! Reads `[hall]` and `[[project]]`: the hall's home, and the permissions for each repository.

use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

use guild_contract::{Delegation, MemberKey};
use serde::Deserialize;
use toml::Spanned;

use super::value::{Wrong, amount};

/// The variable that names the hall's home if no option does. The original Guild Hall uses it too.
const HOME_VARIABLE: &str = "GUILD_HALL_HOME";
/// The default directory of the hall, in the user's home directory.
const USUAL: &str = ".guild-hall";

/// The hall of `guild serve --hall`.
#[derive(Deserialize)]
pub(crate) struct WrittenHall {
    /// The hall's home, if neither `--hall` nor `GUILD_HALL_HOME` names it. A relative path starts at the directory of
    /// `guild.toml`. Without this key, it is `~/.guild-hall`.
    home: Option<PathBuf>,
    /// The key of the member that is the manager: the only member that can hold `hall:manage`. Without this key, there
    /// is no manager.
    manager: Option<Spanned<String>>,
    /// The most levels of the manager's commissions that follow from one another. Commissions that the manager creates
    /// in a meeting or a commission of the user's have level 1. Default: `3`.
    delegation_depth: Option<u32>,
    /// The most commissions of the manager's that follow from one meeting or commission of the user's. Default: `20`.
    delegation_commissions: Option<u32>,
    /// US dollars that these commissions have spent, or may still spend by their budgets. Default: `50.0`.
    delegation_budget_usd: Option<Spanned<f64>>,
    /// The number of days after which the branches of ended commissions and meetings are removed, as by `guild project
    /// tidy`. Branches of failed or cancelled attempts, and branches that could not be merged, stay. Without this key,
    /// all branches stay.
    tidy_branches_after_days: Option<u32>,
}

/// A repository on which workers may work. `guild project add` writes such a table for each one.
///
/// A project that only `config.yaml` names is listed and never touched: agents can change that file.
#[derive(Deserialize)]
pub(crate) struct WrittenProject {
    /// The top directory of the working tree. A relative path starts at the directory of `guild.toml`.
    path: Spanned<PathBuf>,
    /// Whether `claude/main` may be pushed to `origin`, and the default branch fetched from there. Without this key, it
    /// may not.
    #[serde(default)]
    push: bool,
    /// Whether pull requests may be created for `claude/main`, which is pushed for them. Without this key, they may
    /// not.
    #[serde(default)]
    pull_requests: bool,
}

/// An entry of `[[project]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermittedProject {
    /// The top directory of the working tree.
    pub path: PathBuf,
    /// Whether `claude/main` may be pushed.
    pub push: bool,
    /// Whether pull requests may be created.
    pub pull_requests: bool,
}

impl WrittenHall {
    pub(crate) fn home(&self, base: &Path) -> Option<PathBuf> {
        self.home.as_ref().map(|home| base.join(home))
    }

    pub(crate) fn tidy_after(&self) -> Option<Duration> {
        self.tidy_branches_after_days.map(|days| Duration::from_secs(u64::from(days) * 24 * 3600))
    }

    pub(crate) fn delegation(&self) -> Result<Delegation, Wrong> {
        let default = Delegation::default();
        let budget = self.delegation_budget_usd.as_ref();
        Ok(Delegation {
            depth: self.delegation_depth.unwrap_or(default.depth),
            commissions: self.delegation_commissions.unwrap_or(default.commissions),
            budget_usd: budget.map_or(Ok(default.budget_usd), |usd| amount("hall.delegation_budget_usd", usd))?,
        })
    }

    pub(crate) fn manager(&self) -> Result<Option<MemberKey>, Wrong> {
        let Some(manager) = &self.manager else { return Ok(None) };
        let key = manager.get_ref().parse();
        key.map(Some).map_err(|_| {
            let why =
                format!("hall.manager: {:?} is not a member's key; `guild members` lists the keys", manager.get_ref());
            Wrong::at(manager.span(), why)
        })
    }
}

/// Reads `[[project]]`.
pub(crate) fn projects(written: Vec<WrittenProject>, base: &Path) -> Result<Vec<PermittedProject>, Wrong> {
    let mut rules: Vec<PermittedProject> = Vec::new();
    for WrittenProject { path, push, pull_requests } in written {
        let (span, path) = (path.span(), base.join(path.into_inner()));
        if rules.iter().any(|known| known.path == path) {
            let why =
                format!("project.path: {} is the path of another [[project]]; remove one of them", path.display());
            return Err(Wrong::at(span, why));
        }
        rules.push(PermittedProject { path, push, pull_requests });
    }
    Ok(rules)
}

/// The hall's home; `None` if it is not set and the user has no home directory.
pub(crate) fn home(option: Option<&Path>, configured: Option<&Path>) -> Option<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || Some(variable("HOME").filter(|home| home.is_absolute())?.join(USUAL));
    let named = option.map(Path::to_owned).or_else(|| variable(HOME_VARIABLE));
    named.or_else(|| configured.map(Path::to_owned)).or_else(usual)
}
