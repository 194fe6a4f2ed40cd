//! Compiles a component in a child process, which is ended if a hostile component takes too much time or memory.

pub(crate) mod cache;
pub(crate) mod memories;

use std::sync::Arc;

use guild_confine::{Bounds, Ended, Task};
use guild_contract::Limits;
use guild_inspect::functions;
use wasmtime::{Engine, component::Component};

use self::{
    cache::{Code, CompileCache},
    memories::{INSTANCE_BYTES, Memories, config},
};
use crate::{
    error::{LoadError, reason},
    load::Candidate,
};

/// Compiles a component. The request is a byte for the strategy, one for the placement of memories, and the component;
/// the answer is the code and a zero, or a sentence and a one.
pub static COMPILE: Task = Task { name: "compile", run: compiled };

/// The compiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Makes fast code: of hosts that serve.
    #[default]
    Cranelift,
    /// Makes code several times as soon: for an author who waits for it, and trusts the component.
    Winch,
}

/// The permitted effort for a component that is not in the cache. A host has a queue for each, so that quick
/// compilations do not wait for slow ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// The component is taken from the cache, or is [`LoadError::Later`].
    Cached,
    /// The component is compiled within some seconds and half a gigabyte, as most are, or is [`LoadError::Later`].
    Short,
    /// The component is compiled within `limits.compile_seconds` and `limits.compile_memory_bytes`.
    Full,
}

const SHORT: Bounds = Bounds { seconds: 3, memory_bytes: 512 * 1024 * 1024 };

/// Makes components of candidates, with the engine, the bounds of compiling, and the compile cache.
pub(crate) struct Compiler {
    pub(crate) engine: Engine,
    pub(crate) strategy: Strategy,
    pub(crate) memories: Memories,
    pub(crate) limits: Arc<Limits>,
    pub(crate) cache: CompileCache,
}

impl Compiler {
    /// The component of a candidate, from the cache or compiled.
    pub(crate) fn component(&self, candidate: &Candidate, effort: Effort) -> Result<Component, LoadError> {
        let (engine, limits) = (&self.engine, &self.limits);
        if let Some(code) = self.cache.get(engine, self.strategy, &candidate.sha256) {
            match code.load(engine).map_err(|e| refused(&e, limits)) {
                Err(LoadError::NotAComponent(why)) => tracing::debug!("a component is compiled again: {why}"),
                loaded => return loaded,
            }
        }
        if effort == Effort::Cached {
            return Err(LoadError::Later);
        }
        functions::check(&candidate.bytes, limits).map_err(LoadError::Beyond)?;
        let code = self.compile(candidate, effort)?;
        let component = code.load(engine).map_err(|e| refused(&e, limits))?;
        self.cache.put(engine, self.strategy, &candidate.sha256, &code);
        Ok(component)
    }

    fn compile(&self, candidate: &Candidate, effort: Effort) -> Result<Code, LoadError> {
        let limits = &self.limits;
        let full = Bounds { seconds: limits.compile_seconds, memory_bytes: limits.compile_memory_bytes };
        let (seconds, memory_bytes) = (full.seconds.min(SHORT.seconds), full.memory_bytes.min(SHORT.memory_bytes));
        let bounds = if effort == Effort::Short { Bounds { seconds, memory_bytes } } else { full };
        let engine = [u8::from(self.strategy == Strategy::Winch), u8::from(self.memories == Memories::Pooled)];
        let request = [&engine, &*candidate.bytes].concat();
        let answer = guild_confine::run_blocking(&COMPILE, bounds, request);
        let mut answer = answer.map_err(|e| match e {
            Ended::TooLong if bounds.seconds < full.seconds => LoadError::Later,
            Ended::TooMuchMemory if bounds.memory_bytes < full.memory_bytes => LoadError::Later,
            Ended::TooLong => LoadError::CompileTimeout(limits.compile_seconds),
            Ended::TooMuchMemory => LoadError::CompileMemory(limits.compile_memory_bytes),
            Ended::Failed(why) => LoadError::Refused(format!("compiling it failed: {why}")),
        })?;
        match answer.pop() {
            Some(0) => Ok(Code::compiled(answer)),
            _ => Err(invalid(&String::from_utf8_lossy(&answer))),
        }
    }
}

/// [`COMPILE`], in the child.
fn compiled(request: &[u8]) -> Vec<u8> {
    let (mut answer, ended) = match code(request) {
        Ok(code) => (code, 0),
        Err(e) => (e.root_cause().to_string().into_bytes(), 1),
    };
    answer.push(ended);
    answer
}

fn code(request: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let Some(([winch, pooled], component)) = request.split_first_chunk() else {
        return Err(wasmtime::Error::msg("there is no component"));
    };
    let strategy = if *winch == 1 { Strategy::Winch } else { Strategy::Cranelift };
    let memories = if *pooled == 1 { Memories::Pooled } else { Memories::Mapped };
    Engine::new(&config(strategy, memories))?.precompile_component(component)
}

/// The reason that the engine refuses a component.
fn refused(error: &wasmtime::Error, limits: &Limits) -> LoadError {
    let why = error.root_cause().to_string();
    match reason::beginning(error, limits) {
        Some(limit) => LoadError::Limit(limit),
        None if why.starts_with("instance allocation for this") => LoadError::Refused(format!(
            "an instance of it would take more than {INSTANCE_BYTES} bytes of the host, for its globals, its functions in \
             tables and its imports"
        )),
        None => invalid(&why),
    }
}

fn invalid(why: &str) -> LoadError {
    // The compiler's words for all of `component-model-async`; `tests/author_errors.rs` reaches them.
    if why.contains("component model") && why.contains("async") {
        return LoadError::NotAComponent(format!(
            "the component was built for async functions (component-model-async), which this host does not run: {why}; \
             build it with synchronous ones: `--sync` for componentize-qjs, and no `async` in the options of wit-bindgen"
        ));
    }
    LoadError::NotAComponent(format!("the file is no valid component: {why}"))
}
