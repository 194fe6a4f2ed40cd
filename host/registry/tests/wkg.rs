//! The published WIT package, read by the real `wkg` from Debian's `docker-registry`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a helper of a test fails its test")]

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use guild_registry::{Artifact, Reference, Registry};
use tempfile::TempDir;
use wit_parser::{PackageId, Resolve};

/// Names the program `wkg`.
const WKG: &str = "GUILD_WKG";
/// The directory of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The WIT of an author whose world includes a world of the package.
const AUTHOR: &str = "package author:plugin;\n\nworld plugin {\n    include guild:worker/worker@VERSION;\n}\n";

/// A registry that runs.
struct Server {
    child: Child,
    /// Its host and port.
    name: String,
    _data: TempDir,
}

impl Server {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let name = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let config = data.path().join("config.yml");
        let storage = data.path().join("data").display().to_string();
        let text = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: {storage}}}}}\nhttp: {{addr: '{name}'}}\n"
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(config).env("OTEL_TRACES_EXPORTER", "none");
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while TcpStream::connect(&name).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the registry does not listen");
            thread::yield_now();
        }
        Self { child, name, _data: data }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `wkg` in a directory, with the configuration and the cache there.
fn wkg(directory: &Path, arguments: &[&str]) {
    let wkg = std::env::var(WKG).unwrap_or_else(|_| panic!("{WKG} names the program `wkg`"));
    let mut command = Command::new(wkg);
    command.args(arguments).args(["--config", "config.toml", "--cache", "cache"]).current_dir(directory);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The configuration for `wkg` in the documentation, for this registry.
fn config(registry: &str) -> String {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/publishing.md")).unwrap();
    let config = page.split("```toml\n").find(|block| block.starts_with("[namespace_registries")).unwrap();
    let config = config.split("```").next().unwrap().replace("registry.example", registry);
    // A registry on this machine is asked by HTTP.
    format!("{config}\n[registry.\"{registry}\".oci]\nprotocol = \"http\"\n")
}

/// The text of a package, and its version.
fn text(resolve: &Resolve, package: PackageId) -> (String, String) {
    let mut printer = wit_component::WitPrinter::default();
    printer.print(resolve, package, &[]).unwrap();
    (printer.output.to_string(), resolve.packages[package].name.version.clone().unwrap().to_string())
}

#[test]
#[ignore = "needs wkg: cargo xtask test --all"]
fn wkg_reads_the_wit_package_as_it_is_in_the_repository() {
    let (registry, home) = (Server::start(), tempfile::tempdir().unwrap());
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(Path::new(ROOT).join("wit")).unwrap();
    let (ours, version) = text(&resolve, package);
    let encoded = wit_component::encode(&resolve, package).unwrap();
    let artifact = Artifact::of_wit(encoded.clone(), &version).unwrap();
    let reference: Reference = format!("{}/guild/worker:{version}", registry.name).parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Registry::of(&reference).unwrap().push(&reference, &artifact)).unwrap();
    fs::write(home.path().join("config.toml"), config(&registry.name)).unwrap();

    // With a version, and without: the newest one.
    for package in [format!("guild:worker@{version}"), "guild:worker".to_owned()] {
        wkg(home.path(), &["get", &package, "--format", "wasm", "--output", "./worker.wasm", "--overwrite"]);
        assert_eq!(fs::read(home.path().join("worker.wasm")).unwrap(), encoded, "{package}");
    }
    // As a dependency of an author's own WIT.
    fs::create_dir(home.path().join("wit")).unwrap();
    fs::write(home.path().join("wit/world.wit"), AUTHOR.replace("VERSION", &version)).unwrap();
    wkg(home.path(), &["fetch", "wit"]);
    let mut resolve = Resolve::default();
    resolve.push_dir(home.path().join("wit")).unwrap();
    let (package, _) = resolve.packages.iter().find(|(_, package)| package.name.namespace == "guild").unwrap();
    assert_eq!(text(&resolve, package).0, ours);
}
