//! Checks whether the `mcp` line of a manifest sets more options of the started host than the member and the port.

use std::path::Path;

use super::{Manifest, McpCommand};

/// The reason that an `mcp` line is not plain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplain {
    /// The key of the manifest.
    pub key: &'static str,
    /// The fault, worded to follow the key: `has "--sources"`.
    pub what: String,
    /// Whether the operator can allow it.
    pub allowable: bool,
}

impl Unplain {
    fn new(key: &'static str, what: impl Into<String>) -> Self {
        Self { key, what: what.into(), allowable: true }
    }

    /// Marks a line that could lead to another `guild.toml` than the user's own; the operator cannot allow it.
    fn ever(self) -> Self {
        Self { allowable: false, ..self }
    }
}

impl Manifest {
    /// The reason that the member's `mcp` line is not plain, if it sets more options of its host than the member and
    /// the port. A member without the line starts no host, and no host serves a member without a component.
    pub fn unplain(&self) -> Option<Unplain> {
        plain_line(self.mcp.as_ref().filter(|_| self.component.is_some())?).err()
    }
}

fn plain_line(McpCommand { command, args, env }: &McpCommand) -> Result<(), Unplain> {
    // Another program could start `guild` with any environment.
    let program = Path::new(command);
    if command != "guild" && !(program.is_absolute() && program.file_name().is_some_and(|name| name == "guild")) {
        return Err(Unplain::new("mcp.command", format!("is {command:?} and not \"guild\"")).ever());
    }
    // These variables determine the user's own guild.toml, and the directory of compiled components.
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
