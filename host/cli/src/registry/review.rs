//! Shows a pulled member to the operator, and asks.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use guild_config::Config;
use guild_registry::Unpacked;
use guild_roster::{
    check::members::tools_of,
    discovery::{granted::Granted, single},
};
use guild_trust::{Approval, Source, Standing};

use crate::{
    audit::first_screen_before,
    failure::Failure,
    members::approve::{is_confirmed, write_standing},
    output::{LABEL, harmless, one_line, print, progress::Progress},
};

/// A pulled member that is not in place yet.
pub(super) struct Review<'a> {
    pub(super) config: &'a Config,
    pub(super) approval: &'a Approval,
    pub(super) unpacked: &'a Unpacked,
    /// The directory of members, and the member's own there: absolute, without symlinks.
    pub(super) members: &'a Path,
    pub(super) directory: &'a Path,
    pub(super) source: &'a Source,
    /// The action after a confirmation: `Install`, and `installed`.
    pub(super) verbs: [&'static str; 2],
    pub(super) yes: bool,
}

impl Review<'_> {
    /// Shows what the member can do, its signature, and how it differs from the member in its place. Returns the
    /// confirmed state of a member that loads. A member that is not confirmed, does not load, or whose signature does not
    /// permit it, is an error.
    pub(super) fn confirmed(&self) -> Result<Standing, Failure> {
        let Self { config, approval, .. } = self;
        let staged = self.unpacked.directory();
        let find = || single(&staged, Some(self.unpacked.members()), config).map_err(Failure::error);
        let found = find()?;
        let name = found.key.to_string();
        let Some(spec) = &found.manifest.component else {
            return Err(Failure::error(format!("{name} has no `component`")));
        };
        let max = Granted::of(&found, spec, config, approval).map_err(Failure::error)?.limits.limits.component_bytes;
        let directory = self.directory.to_str().map(str::to_owned);
        let directory = directory.ok_or_else(|| Failure::error("the path of the directory of members is not UTF-8"))?;
        let (_, standing) = approval.look_for(&found.key, &found.dir, spec, max, directory)?;
        let members = BTreeSet::from([self.members.to_owned(), PathBuf::from(self.unpacked.members())]);
        let screen =
            first_screen_before(&staged, find()?, &members, guild_roster::audit::trusted(&standing).as_ref(), config)?;
        print(|out| {
            writeln!(out, "{screen}")?;
            for (label, value) in [("artifact", &self.source.reference), ("digest", &self.source.digest)] {
                writeln!(out, "{LABEL}{label:<10}{LABEL:#} {}", one_line(value, usize::MAX))?;
            }
            write_standing(out, &name, &standing)
        })?;
        approval.check_signature(&standing)?;
        let [verb, done] = self.verbs;
        let undone = format!("{name} was not {done}");
        match if self.yes { Ok(true) } else { is_confirmed(&format!("{verb} {name}?"), &undone) } {
            Ok(true) => {
                let progress = Progress::start();
                let loads = tools_of(&find()?, config, &|what| progress.compiling(what));
                drop(progress);
                let why = |why: String| Failure::error(format!("{undone}, since it does not load: {}", harmless(&why)));
                loads.map(|_| standing).map_err(why)
            }
            unconfirmed => {
                approval.refused(&standing);
                unconfirmed.and(Err(Failure::error(undone)))
            }
        }
    }
}
