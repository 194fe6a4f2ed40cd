//! Checks the `mcp` line of a manifest, so that a member cannot choose the options of its own host.
//!
//! Guild Hall starts a member's host with the command, the arguments and the environment that the member's manifest
//! has. Options of `guild serve` widen what members may do, and so does another `guild.toml`: a plugin must not choose
//! either. So a host that such a line may have started checks the line, and does not start if it sets more than the
//! member and the port. The operator can allow more, in the one file that the line cannot choose.

use std::{env, path::Path};

use guild_config::Config;
use guild_contract::{
    Manifest, MemberKey,
    manifest::{FILE_NAME, Unplain},
};
use guild_fs::durable::open_directory;

use super::FoundMember;
use crate::discovery;

/// The line that a manifest may have without permission.
const PLAIN: &str = r#""command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]"#;

/// Refuses to serve if a manifest that may have started this process has another `mcp` line than the plain one, and the
/// operator did not allow it. These are the manifest of `member`, if one member is to be served, and that of the member
/// in whose directory this process was started, as Guild Hall does. It reads these files.
///
/// # Errors
///
/// Returns a sentence that names the file, the line, the key and the remedy.
pub fn check(member: Option<&Path>) -> Result<(), String> {
    let is_member = |directory: &&Path| directory.join(FILE_NAME).symlink_metadata().is_ok();
    let here = env::current_dir().ok();
    let here = here.as_deref().and_then(|here| here.ancestors().find(is_member));
    member.filter(|member| is_member(member)).into_iter().chain(here).try_for_each(check_member)
}

fn check_member(directory: &Path) -> Result<(), String> {
    let failed = |why: String| directory.join(why).display().to_string();
    let dir = open_directory(directory).map_err(|e| failed(format!("{FILE_NAME}: {e}")))?;
    let (manifest, _) = discovery::manifest(&dir).map_err(failed)?;
    if manifest.unplain().is_none() {
        return Ok(());
    }
    let user = Config::of_user().map_err(|e| e.to_string())?;
    let own = discovery::single(directory, user.members.as_deref(), &user)?.key;
    refusal(&manifest, &own, &user).map_or(Ok(()), |why| Err(failed(why)))
}

impl FoundMember {
    /// Warnings about a manifest that is loaded all the same: no work could be dispatched to the member, or Guild Hall
    /// could not start it. Each tells the remedy.
    pub fn warnings(&self) -> Vec<String> {
        let unusable = self.manifest.warnings().into_iter().map(|warning| warning.to_string());
        unusable.chain(warning(&self.manifest, &self.key)).collect()
    }
}

/// The reason that Guild Hall could not start the member of that key by its manifest; `None` if it can, or does not
/// start it.
fn warning(manifest: &Manifest, key: &MemberKey) -> Option<String> {
    manifest.unplain()?;
    let why = match Config::of_user() {
        Ok(user) => refusal(manifest, key, &user)?,
        Err(e) => e.to_string(),
    };
    Some(format!("Guild Hall cannot start it by its manifest: {why}"))
}

/// The reason that a host does not start by the line of this manifest, with the place and the remedy.
fn refusal(manifest: &Manifest, own: &MemberKey, user: &Config) -> Option<String> {
    let Unplain { key, what, allowable } = manifest.unplain()?;
    if allowable && user.any_mcp.iter().any(|pattern| pattern.matches(own.as_str())) {
        return None;
    }
    let instead = match (&user.directory, allowable) {
        (Some(place), true) => format!(
            "; or allow it by `mcp = \"any\"` under [member.{:?}] in {}",
            own.as_str(),
            place.join("guild.toml").display()
        ),
        _ => String::new(),
    };
    Some(format!(
        "{}: `{key}` {what}; a manifest does not say how its own host is set up, since that could widen what \
         members may do. Write {PLAIN}, without `env`{instead}",
        manifest.lines.place(key)
    ))
}
