//! Links WASI 0.2: clocks, random, stdio, and a file system of the preopened directories only.
//!
//! `wasi:sockets` and `wasi:http` are not here; see [`DROP`].

pub(crate) mod denied;

use guild_contract::capability::interfaces;
use wasmtime::{
    bail,
    component::{HasSelf, Linker, Resource, ResourceTable},
};
use wasmtime_wasi::{
    FsPerms, OpenMode, WasiView,
    cli::{WasiCli, WasiCliView},
    clocks::{WasiClocks, WasiClocksView},
    filesystem::{self, Descriptor, WasiFilesystemCtxView},
    p2::bindings::{cli, clocks, filesystem as fs, io, random},
    random::WasiRandom,
};

use crate::{filesystem::Files, state::State};

/// Links the interfaces that the table of [`interfaces`] marks as linked.
pub(crate) fn add_to_linker(l: &mut Linker<State>) -> wasmtime::Result<()> {
    interfaces::linked().try_for_each(|name| link(l, name))
}

/// Links one interface.
fn link(l: &mut Linker<State>, name: &str) -> wasmtime::Result<()> {
    match name {
        "wasi:io/error" => io::error::add_to_linker::<State, HasSelf<ResourceTable>>(l, |s| s.ctx().table),
        "wasi:io/poll" => io::poll::add_to_linker::<State, HasSelf<ResourceTable>>(l, |s| s.ctx().table),
        "wasi:io/streams" => io::streams::add_to_linker::<State, HasSelf<ResourceTable>>(l, |s| s.ctx().table),
        "wasi:clocks/wall-clock" => clocks::wall_clock::add_to_linker::<State, WasiClocks>(l, State::clocks),
        "wasi:clocks/monotonic-clock" => clocks::monotonic_clock::add_to_linker::<State, WasiClocks>(l, State::clocks),
        "wasi:random/random" => random::random::add_to_linker::<State, WasiRandom>(l, |s| s.wasi.random()),
        "wasi:random/insecure" => random::insecure::add_to_linker::<State, WasiRandom>(l, |s| s.wasi.random()),
        "wasi:random/insecure-seed" => {
            random::insecure_seed::add_to_linker::<State, WasiRandom>(l, |s| s.wasi.random())
        }
        "wasi:cli/exit" => cli::exit::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/environment" => cli::environment::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/stdin" => cli::stdin::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/stdout" => cli::stdout::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/stderr" => cli::stderr::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/terminal-input" => cli::terminal_input::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/terminal-output" => cli::terminal_output::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/terminal-stdin" => cli::terminal_stdin::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/terminal-stdout" => cli::terminal_stdout::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:cli/terminal-stderr" => cli::terminal_stderr::add_to_linker::<State, WasiCli>(l, State::cli),
        "wasi:filesystem/types" => fs::types::add_to_linker::<State, Files<'static>>(l, files),
        "wasi:filesystem/preopens" => fs::preopens::add_to_linker::<State, Files<'static>>(l, files),
        _ => bail!("no implementation of `{name}` is there to link"),
    }
}

fn files(state: &mut State) -> Files<'_> {
    Files {
        wasi: WasiFilesystemCtxView { ctx: state.wasi.filesystem(), table: &mut state.table },
        preopens: &state.preopens,
        usage: &state.usage,
        open: &mut state.open,
        artifacts: state.artifacts.as_ref(),
    }
}

/// Gives a component the directories that the host opened; no path is opened on a component's behalf.
impl fs::preopens::Host for Files<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let mut directories = Vec::with_capacity(self.preopens.len());
        for preopen in self.preopens {
            let (perms, mode) = if preopen.writable {
                (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE)
            } else {
                (FsPerms::ReadOnly, OpenMode::READ)
            };
            let file = preopen.dir.try_clone()?.into_std_file();
            let dir = filesystem::Dir::new(file, perms, mode, false);
            directories.push((self.preopen(dir)?, preopen.guest.to_owned()));
        }
        Ok(directories)
    }
}
