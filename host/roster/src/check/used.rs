//! Finds the grants that the jobs of a member have really used, in the transcripts of its jobs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use guild_contract::{
    JobId,
    capability::{ARTIFACTS, Capability, FILES, MEMORY, MEMORY_WRITE, SEARCH, WEB},
    manifest::FILE_TOOLS,
};
use guild_session::transcript::{Entry, Line};
use jiff::Timestamp;
use serde_json::Value;
use url::Url;

use crate::jobs::files::{Follow, OfflineJobs, made_at};

/// The runtime that reads sources without calls of tools.
const EXTRACTIVE: &str = "extractive";

/// The grants that the jobs of a member used.
#[derive(Debug, Default)]
pub struct UsedGrants {
    /// The number of its jobs.
    pub jobs: usize,
    /// The capabilities that a job used, as `guild.toml` spells them. `files:*` is a search of all read roots.
    pub capabilities: BTreeMap<String, Use>,
    /// The tools that sessions called.
    pub tools: BTreeMap<String, Use>,
}

/// The use of one capability or tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The number of jobs that used it.
    pub jobs: usize,
    /// The time at which the newest of them was made, according to its id.
    pub last: Option<Timestamp>,
}

impl UsedGrants {
    /// The grants that the jobs of a member used, as far as their transcripts go. It blocks.
    ///
    /// # Errors
    ///
    /// Returns an error when a transcript cannot be read.
    pub fn of(jobs: &OfflineJobs) -> io::Result<Self> {
        let ids = jobs.ids()?;
        let mut used = Self { jobs: ids.len(), ..Self::default() };
        for id in ids {
            let of_job = OfJob::read(jobs, &id)?;
            let made = made_at(&id);
            for (all, names) in [(&mut used.capabilities, of_job.capabilities), (&mut used.tools, of_job.tools)] {
                for name in names {
                    let of_name = all.entry(name).or_default();
                    of_name.jobs += 1;
                    of_name.last = of_name.last.max(made);
                }
            }
        }
        Ok(used)
    }
}

/// The capabilities and tools that one job used.
#[derive(Default)]
struct OfJob {
    capabilities: BTreeSet<String>,
    tools: BTreeSet<String>,
}

impl OfJob {
    fn read(jobs: &OfflineJobs, id: &JobId) -> io::Result<Self> {
        let mut used = Self::default();
        let Some(mut follow) = Follow::open(jobs.dir(), id)? else { return Ok(used) };
        while let Some(line) = follow.next_line()? {
            // A line of another version of the host says nothing here.
            if let Ok(Line { entry, .. }) = serde_json::from_slice(&line) {
                used.add(entry);
            }
        }
        Ok(used)
    }

    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Used { capabilities, .. } => self.capabilities.extend(capabilities),
            Entry::Session { agent, tools, .. }
                if agent == EXTRACTIVE && tools.iter().any(|tool| FILE_TOOLS.contains(&&**tool)) =>
            {
                self.read_root(None);
            }
            Entry::Call { tool, input, .. } => {
                self.call(&tool, &input);
                self.tools.insert(tool);
            }
            _ => {}
        }
    }

    fn call(&mut self, tool: &str, input: &Value) {
        let text = |key: &str| input.get(key).and_then(Value::as_str);
        match tool {
            tool if FILE_TOOLS.contains(&tool) => self.read_root(text("file_path").or_else(|| text("path"))),
            "WebSearch" => {
                self.kind(SEARCH.name);
                // Without a provider it searches the read roots.
                self.read_root(None);
            }
            "WebFetch" => {
                self.kind(WEB.name);
                let url = text("url").and_then(|url| Url::parse(url).ok());
                let host = url.as_ref().and_then(Url::host_str).map(|host| Capability::Host(host.to_owned()));
                self.capabilities.extend(host.map(|host| host.to_string()));
            }
            "read_memory" => self.kind(MEMORY.name),
            "store_memory" => self.kind(MEMORY_WRITE.name),
            "write_artifact" => self.kind(ARTIFACTS.name),
            _ => {}
        }
    }

    fn kind(&mut self, name: &str) {
        self.capabilities.insert(name.to_owned());
    }

    /// The read root of a path; all of them without one.
    fn read_root(&mut self, path: Option<&str>) {
        self.kind(FILES.name);
        let root = path.and_then(|path| path.split('/').next()).filter(|root| !root.is_empty()).unwrap_or("*");
        self.capabilities.insert(Capability::Root(root.to_owned()).to_string());
    }
}
