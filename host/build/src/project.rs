use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use guild_contract::{Grants, manifest::ComponentSpec};
use guild_fs::durable::{self, Survives};
use serde::Deserialize;

use crate::{
    BuildError, Language, component,
    language::{BuildInput, BuildOutput, Engine},
    programs::{command_line, run},
    world,
};

/// The directory for intermediate files, below the member's.
const SCRATCH: &str = ".guild";
/// The file with the settings of a build.
const SETTINGS: &str = "guild.build.toml";

/// A member's directory with its source.
#[derive(Debug)]
pub struct Project {
    directory: PathBuf,
    component: ComponentSpec,
    settings: Settings,
}

/// `guild.build.toml`: the differences from the language's default build.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The language; by default that of the sources.
    language: Option<Language>,
    /// The source that the command begins with, in JavaScript and Python.
    entry: Option<String>,
    /// The engine of JavaScript and TypeScript; by default [`Engine::QuickJs`].
    engine: Option<Engine>,
    /// A command in place of the language's own, in the member's directory.
    #[serde(default)]
    command: Vec<String>,
    /// The file that `command` writes: a component, or a core module for WASI preview 1.
    output: Option<PathBuf>,
}

/// The result of a build.
#[derive(Debug)]
pub struct Built {
    /// The file, which the member's manifest names.
    pub file: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether the build changed the file.
    pub is_new: bool,
}

impl Project {
    /// Reads the settings of a member's build.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::Settings`] for a `guild.build.toml` that is not valid.
    pub fn open(directory: &Path, component: ComponentSpec) -> Result<Self, BuildError> {
        let directory = directory.canonicalize().map_err(|error| failed(directory, error))?;
        let file = directory.join(SETTINGS);
        let settings = match fs::read_to_string(&file) {
            Ok(text) => toml::from_str(&text).map_err(|e| BuildError::Settings(e.to_string()))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Settings::default(),
            Err(error) => return Err(failed(&file, error)),
        };
        if settings.command.is_empty() != settings.output.is_none() {
            let why = "`command` and `output` belong together: what is run, and the file that it writes";
            return Err(BuildError::Settings(why.to_owned()));
        }
        if settings.output.as_ref().is_some_and(|output| directory.join(output) == directory.join(&component.file)) {
            let why = "`output` is the manifest's component, which a build replaces only after it was checked; write another file";
            return Err(BuildError::Settings(why.to_owned()));
        }
        Ok(Self { directory, component, settings })
    }

    /// The file of the component.
    fn output(&self) -> PathBuf {
        self.directory.join(&self.component.file)
    }

    /// The files that a build writes into the member's directory.
    pub fn outputs(&self) -> Vec<PathBuf> {
        let own = self.settings.output.as_ref().map(|output| self.directory.join(output));
        own.into_iter().chain([self.output()]).collect()
    }

    /// The language of the member; `None` if the settings have a command that makes the component. A setting that would
    /// have no effect is an error.
    fn language(&self) -> Result<Option<Language>, BuildError> {
        let Settings { language, entry, engine, command, .. } = &self.settings;
        let found = match command.is_empty() {
            true => {
                let language = language.or_else(|| Language::of(&self.directory));
                Some(language.ok_or_else(|| BuildError::NoSource(self.directory.clone()))?)
            }
            false => None,
        };
        let of_js = matches!(found, Some(Language::Js | Language::Ts));
        let idle = [
            ("language", language.is_some() && found.is_none(), "a build without a `command`"),
            (
                "entry",
                entry.is_some() && !of_js && found != Some(Language::Python),
                "JavaScript, TypeScript and Python",
            ),
            ("engine", engine.is_some() && !of_js, "JavaScript and TypeScript"),
        ];
        match idle.into_iter().find(|(_, is_idle, _)| *is_idle) {
            Some((key, _, of)) => Err(BuildError::Settings(format!("`{key}` is a setting of {of}; remove it"))),
            None => Ok(found),
        }
    }

    /// Builds the component, and writes it into the file that the manifest names. The output of the programs goes to the
    /// output of this process.
    ///
    /// # Errors
    ///
    /// Returns the reason that there is no component, or that it does not fit the manifest. The earlier component then
    /// stays.
    pub fn build(&self) -> Result<Built, BuildError> {
        let language = self.language()?;
        let scratch = self.directory.join(SCRATCH);
        let wit = scratch.join("wit");
        world::write(&wit, &self.component).map_err(|error| failed(&wit, error))?;
        let output = match language {
            Some(language) => language.build(&BuildInput {
                directory: &self.directory,
                scratch: &scratch,
                entry: self.settings.entry.as_deref(),
                engine: self.settings.engine.unwrap_or_default(),
            })?,
            None => self.own_command()?,
        };
        let BuildOutput { file, command } = output;
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(BuildError::NoOutput { command, path: file }),
            Err(error) => return Err(failed(&file, error)),
        };
        if file.starts_with(&scratch) {
            // An audit reports WebAssembly that the manifest does not name.
            fs::remove_file(&file).map_err(|error| failed(&file, error))?;
        }
        let world = self.component.world;
        let bytes = component::make(bytes, world).map_err(|why| BuildError::Encode {
            path: file,
            world: world.as_str(),
            why,
        })?;
        self.check(&bytes)?;
        self.write(&bytes)
    }

    fn own_command(&self) -> Result<BuildOutput, BuildError> {
        let (Some((program, arguments)), Some(output)) = (self.settings.command.split_first(), &self.settings.output)
        else {
            return Err(BuildError::NoSource(self.directory.clone()));
        };
        let mut command = Command::new(program);
        run(command.args(arguments).current_dir(&self.directory))?;
        Ok(BuildOutput { file: self.directory.join(output), command: command_line(&command) })
    }

    /// Checks the component against the manifest, as a host does that grants every requested capability.
    fn check(&self, bytes: &[u8]) -> Result<(), BuildError> {
        let outside = guild_inspect::outside(bytes)?;
        Ok(guild_inspect::check(&outside, &self.component, &Grants::default())?)
    }

    fn write(&self, bytes: &[u8]) -> Result<Built, BuildError> {
        let file = self.output();
        let is_new = fs::read(&file).map_or(true, |before| before != bytes);
        if is_new {
            let (Some(parent), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
                return Err(failed(&file, io::ErrorKind::InvalidFilename.into()));
            };
            let replace = || {
                fs::create_dir_all(parent)?;
                durable::replace(&durable::open_directory(parent)?, name, bytes, Survives::Process)
            };
            replace().map_err(|error| failed(&file, error))?;
        }
        Ok(Built { bytes: bytes.len() as u64, file, is_new })
    }
}

pub(crate) fn failed(path: &Path, error: io::Error) -> BuildError {
    BuildError::File { path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use guild_contract::manifest::Manifest;

    use super::*;

    /// A member with these files, and with a worker's manifest.
    fn member(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    fn spec() -> ComponentSpec {
        let manifest =
            br#"{"name": "m", "displayName": "M", "description": "d", "version": "0.1.0", "transport": "http",
            "mcp": {"command": "guild", "args": ["serve", "--member", ".", "--port", "${PORT}"]},
            "capabilities": ["worker"], "component": {"file": "m.wasm", "world": "worker"}}"#;
        Manifest::parse(manifest).unwrap().component.unwrap()
    }

    fn why(files: &[(&str, &str)]) -> String {
        let directory = member(files);
        let built = Project::open(directory.path(), spec()).and_then(|project| project.build());
        assert!(!directory.path().join("m.wasm").exists());
        built.unwrap_err().to_string()
    }

    #[test]
    fn a_setting_that_is_not_valid_is_an_error_with_its_line() {
        assert!(why(&[("guild.build.toml", "entri = \"a.js\"\n")]).contains("line 1"));
        assert!(why(&[("guild.build.toml", "language = \"cobol\"\n")]).contains("`rust`"));
        assert!(why(&[("guild.build.toml", "command = [\"make\"]\n")]).contains("belong together"));
        let own = "command = [\"make\"]\noutput = \"m.wasm\"\n";
        assert!(why(&[("guild.build.toml", own)]).contains("write another file"));
    }

    #[test]
    fn a_setting_without_an_effect_is_an_error() {
        let own = "command = [\"true\"]\noutput = \"made\"\n";
        for (sources, settings, key) in [
            (&[("Cargo.toml", "")][..], "engine = \"quickjs\"\n".to_owned(), "engine"),
            (&[("go.mod", "")][..], "entry = \"main.go\"\n".to_owned(), "entry"),
            (&[][..], format!("{own}language = \"c\"\n"), "language"),
            (&[][..], format!("{own}entry = \"a.js\"\n"), "entry"),
        ] {
            let why = why(&[sources, &[("guild.build.toml", settings.as_str())]].concat());
            assert!(why.contains(&format!("`{key}` is a setting of ")), "{why}");
        }
    }

    #[test]
    fn a_directory_without_a_source_is_an_error_that_says_what_is_looked_for() {
        assert!(why(&[]).contains("go.mod"));
    }

    #[test]
    fn of_several_sources_the_entry_has_to_be_named() {
        let why = why(&[("a.c", ""), ("b.py", ""), ("c.py", ""), ("guild.build.toml", "language = \"python\"\n")]);
        assert!(why.contains("b.py, c.py; name the one"), "{why}");
    }

    #[test]
    fn the_output_of_ones_own_command_is_adapted_and_checked() {
        let own = |script: &str| format!("command = [\"sh\", \"-c\", {script:?}]\noutput = \"core.wasm\"\n");
        assert!(why(&[("guild.build.toml", &own("true"))]).contains("wrote no "));
        assert!(why(&[("guild.build.toml", &own("exit 3"))]).contains("`sh -c 'exit 3'` ended with exit status: 3"));
        let without_exports = own(r"printf '\000asm\001\000\000\000' > core.wasm");
        assert!(
            why(&[("guild.build.toml", &without_exports)]).contains("cannot become a component of the world worker")
        );
    }
}
