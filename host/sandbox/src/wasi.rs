//! WASI 0.2, interface by interface: clocks, random, stdio, and a file system of the preopened directories only.
//!
//! `wasi:sockets` and `wasi:http` are not here; see [`crate::denied`].

use wasmtime::component::{HasData, Linker, Resource, ResourceTable};
use wasmtime_wasi::{
    FsPerms, OpenMode, WasiView,
    cli::{WasiCli, WasiCliView},
    clocks::{WasiClocks, WasiClocksView},
    filesystem::{self, Descriptor, WasiFilesystemCtxView},
    p2::bindings::{cli, clocks, filesystem as fs, io, random},
    random::{WasiRandom, WasiRandomCtx},
};

use crate::{
    filesystem::{Files, Preopen},
    state::State,
    usage::Reached,
};

pub(crate) fn add_to_linker(l: &mut Linker<State>) -> wasmtime::Result<()> {
    io::error::add_to_linker::<State, HasIo>(l, |s| s.ctx().table)?;
    io::poll::add_to_linker::<State, HasIo>(l, |s| s.ctx().table)?;
    io::streams::add_to_linker::<State, HasIo>(l, |s| s.ctx().table)?;
    clocks::wall_clock::add_to_linker::<State, WasiClocks>(l, State::clocks)?;
    clocks::monotonic_clock::add_to_linker::<State, WasiClocks>(l, State::clocks)?;
    random::random::add_to_linker::<State, Random<'static>>(l, random)?;
    random::insecure::add_to_linker::<State, Random<'static>>(l, random)?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(l, |s| s.wasi.random())?;
    cli::exit::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::environment::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stdin::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stdout::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::stderr::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_input::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_output::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stdin::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stdout::add_to_linker::<State, WasiCli>(l, State::cli)?;
    cli::terminal_stderr::add_to_linker::<State, WasiCli>(l, State::cli)?;
    fs::types::add_to_linker::<State, Files<'static>>(l, |s| files(s).1)?;
    fs::preopens::add_to_linker::<State, Preopens<'static>>(l, |s| {
        let (dirs, files) = files(s);
        Preopens { dirs, files }
    })?;
    Ok(())
}

fn files(state: &mut State) -> (&[Preopen], Files<'_>) {
    let wasi = WasiFilesystemCtxView { ctx: state.wasi.filesystem(), table: &mut state.table };
    let artifacts = state.artifacts.as_ref();
    (&state.preopens, Files { wasi, usage: &state.usage, open: &mut state.open, artifacts })
}

fn random(state: &mut State) -> Random<'_> {
    Random { inner: state.wasi.random(), max: state.limits.random_bytes }
}

struct HasIo;

impl HasData for HasIo {
    type Data<'a> = &'a mut ResourceTable;
}

/// Hands out the directories that the host opened; no path is opened on a component's behalf.
struct Preopens<'a> {
    dirs: &'a [Preopen],
    files: Files<'a>,
}

impl HasData for Preopens<'static> {
    type Data<'a> = Preopens<'a>;
}

impl fs::preopens::Host for Preopens<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let mut directories = Vec::with_capacity(self.dirs.len());
        for preopen in self.dirs {
            let (perms, mode) = if preopen.writable {
                (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE)
            } else {
                (FsPerms::ReadOnly, OpenMode::READ)
            };
            let file = preopen.dir.try_clone()?.into_std_file();
            let dir = filesystem::Dir::new(file, perms, mode, false);
            directories.push((self.files.preopen(dir)?, preopen.guest.to_owned()));
        }
        Ok(directories)
    }
}

/// Random numbers, at most so many bytes a call.
struct Random<'a> {
    inner: &'a mut WasiRandomCtx,
    max: u64,
}

impl HasData for Random<'static> {
    type Data<'a> = Random<'a>;
}

impl Random<'_> {
    fn check(&self, len: u64) -> wasmtime::Result<()> {
        if len > self.max {
            return Err(Reached { name: "random_bytes", max: self.max }.into());
        }
        Ok(())
    }
}

impl random::random::Host for Random<'_> {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.check(len)?;
        self.inner.get_random_bytes(len)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.inner.get_random_u64()
    }
}

impl random::insecure::Host for Random<'_> {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.check(len)?;
        self.inner.get_insecure_random_bytes(len)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.inner.get_insecure_random_u64()
    }
}
