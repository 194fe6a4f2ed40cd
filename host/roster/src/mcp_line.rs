//! The `mcp` line of a manifest: what a member may say of the host that serves it.
//!
//! Guild Hall starts a member's host with the command, the arguments and the environment that the member's manifest has.
//! Options of `guild serve` widen what members may do, and so does another `guild.toml`: a plugin must not choose either.
//! So a host that such a line may have started looks at the line, and serves nobody where it says more than which member
//! to serve at which port. The operator can allow more, in the one file that the line cannot choose.

use std::{
    env,
    path::{Path, PathBuf},
};

use guild_config::Config;
use guild_contract::{
    Manifest, MemberKey,
    manifest::{FILE_NAME, McpCommand},
};
use guild_jobs::durable::open_directory;

use crate::discovery::{self, FoundMember};

/// What a manifest says that needs nobody's permission.
const PLAIN: &str = r#""command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]"#;

/// Why a line is not plain: the key of the manifest, and what stands there.
#[derive(Debug, PartialEq, Eq)]
struct Unplain {
    key: &'static str,
    what: String,
    /// Whether the operator can allow it.
    allowable: bool,
}

impl Unplain {
    fn new(key: &'static str, what: impl Into<String>) -> Self {
        Self { key, what: what.into(), allowable: true }
    }

    /// It could lead to another `guild.toml` than the user's own.
    fn ever(self) -> Self {
        Self { allowable: false, ..self }
    }
}

/// Refuses to serve where a manifest that may have started this process has another `mcp` line than the plain one, and the
/// operator did not allow it: the manifest of `member`, where one member is to be served, and that of the member in whose
/// directory this process was started, as Guild Hall does. It reads these files.
///
/// # Errors
/// A sentence that names the file, the line and the key, and what to write instead.
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
    if plain(&manifest).is_ok() {
        return Ok(());
    }
    let user = Config::of_user().map_err(|e| e.to_string())?;
    let own = discovery::single(directory, user.members.as_deref(), &user)?.key;
    refusal(&manifest, &own, &user).map_or(Ok(()), |why| Err(failed(why)))
}

impl FoundMember {
    /// What is wrong with a manifest that is loaded all the same: nothing could be dispatched to the member, or Guild Hall
    /// could not start it. Each says what to write.
    pub fn warnings(&self) -> Vec<String> {
        let unusable = self.manifest.warnings().into_iter().map(|warning| warning.to_string());
        unusable.chain(warning(&self.manifest, &self.key)).collect()
    }
}

/// Why Guild Hall could not start the member of that key by its manifest; none where it can, and where it does not start it.
fn warning(manifest: &Manifest, key: &MemberKey) -> Option<String> {
    plain(manifest).err()?;
    let why = match Config::of_user() {
        Ok(user) => refusal(manifest, key, &user)?,
        Err(e) => e.to_string(),
    };
    Some(format!("Guild Hall cannot start it by its manifest: {why}"))
}

/// Why a host does not start by the line of this manifest, with the manifest's line and what to write instead.
fn refusal(manifest: &Manifest, own: &MemberKey, user: &Config) -> Option<String> {
    let Unplain { key, what, allowable } = plain(manifest).err()?;
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
        "{FILE_NAME}:{}: `{key}` {what}; a manifest does not say how its own host is set up, since that could widen what \
         members may do. Write {PLAIN}, without `env`{instead}",
        manifest.lines.of_key(key)
    ))
}

/// Whether a manifest says no more of its host than whom to serve, and where. One without a line starts none, and one
/// without a component is served by none.
fn plain(manifest: &Manifest) -> Result<(), Unplain> {
    match (&manifest.mcp, &manifest.component) {
        (Some(line), Some(_)) => plain_line(line),
        _ => Ok(()),
    }
}

fn plain_line(McpCommand { command, args, env }: &McpCommand) -> Result<(), Unplain> {
    // Another program could start `guild` with whatever environment it likes.
    let program = PathBuf::from(command);
    if command != "guild" && !(program.is_absolute() && program.file_name().is_some_and(|name| name == "guild")) {
        return Err(Unplain::new("mcp.command", format!("is {command:?} and not \"guild\"")).ever());
    }
    // These say where the user's own guild.toml is, and where compiled components are kept.
    if let Some(name) = env.keys().find(|name| *name == "HOME" || name.starts_with("XDG_")) {
        return Err(Unplain::new("mcp.env", format!("sets {name:?}, which chooses the user's directories")).ever());
    }
    plain_args(args)?;
    match env.keys().next() {
        Some(name) => Err(Unplain::new("mcp.env", format!("sets {name:?}"))),
        None => Ok(()),
    }
}

fn plain_args(args: &[String]) -> Result<(), Unplain> {
    let (mut command, mut member) = (false, false);
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let is_verbose = word == "--verbose" || word.strip_prefix('-').is_some_and(|v| v.bytes().all(|v| v == b'v'));
        match word {
            _ if is_verbose && word != "-" => {}
            "serve" | "mcp" if !command => command = true,
            "--member" if matches!(words.next(), Some("." | "./")) => member = true,
            "--member=." | "--member=./" => member = true,
            "--port" => drop(words.next()),
            _ if word.starts_with("--port=") => {}
            _ => return Err(Unplain::new("mcp.args", format!("has {word:?}"))),
        }
    }
    if command && member { Ok(()) } else { Err(Unplain::new("mcp.args", "does not name the member as \".\"")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(command: &str, args: &[&str], env: &[&str]) -> Result<(), Unplain> {
        plain_line(&McpCommand {
            command: command.to_owned(),
            args: args.iter().map(|&word| word.to_owned()).collect(),
            env: env.iter().map(|&name| (name.to_owned(), String::new())).collect(),
        })
    }

    #[test]
    fn a_line_that_says_whom_to_serve_and_where_is_plain() {
        for args in [
            &["serve", "--member", ".", "--port", "${PORT}"][..],
            &["-v", "serve", "--port=${PORT}", "--member=."],
            &["mcp", "--member", "./", "-vv", "--verbose"],
        ] {
            assert_eq!(line("guild", args, &[]), Ok(()));
            assert_eq!(line("/usr/local/bin/guild", args, &[]), Ok(()));
        }
    }

    #[test]
    fn a_line_that_says_more_is_not() {
        let serve = ["serve", "--member", "."];
        for more in [
            &["--sources", "/home"][..],
            &["--config", "x"],
            &["--config-file=x"],
            &["--agent", "claude"],
            &["--members", ".."],
            &["--sources=/"],
            &["-"],
            &["--"],
            &["-vx"],
            &["serve"],
        ] {
            let wrong = line("guild", &[&serve[..], more].concat(), &[]).unwrap_err();
            assert_eq!(wrong, Unplain::new("mcp.args", format!("has {:?}", more[0])), "{more:?}");
        }
        for args in [&[][..], &["serve"], &["--member", "."], &["serve", "--member", "/"], &["approve", "."]] {
            assert_eq!(line("guild", args, &[]).unwrap_err().key, "mcp.args", "{args:?}");
        }
        assert_eq!(line("guild", &serve, &["GUILD_CONFIG"]), Err(Unplain::new("mcp.env", "sets \"GUILD_CONFIG\"")));
        for moved in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
            assert!(!line("guild", &serve, &["A", moved]).unwrap_err().allowable, "{moved}");
        }
        for command in ["sh", "env", "./guild", "bin/guild", "/usr/bin/guild-x", ""] {
            let wrong = line(command, &serve, &[]).unwrap_err();
            assert!(wrong.key == "mcp.command" && !wrong.allowable, "{command}");
        }
    }
}
