//! Members in a registry: packed, pushed, pulled, installed and upgraded, against Debian's `docker-registry`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{
    approval::{key, rebuild, sign},
    support::host::{Home, free_port, wait_for},
};

/// The user `ann`, with the password `secret`.
const ANN: &str = "ann:$2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW\n";
/// The same for docker's configuration.
const ANN_AUTH: &str = "YW5uOnNlY3JldA==";

/// A registry that runs.
struct Registry {
    child: Child,
    port: u16,
    home: TempDir,
}

impl Registry {
    fn start() -> Self {
        Self::start_with("")
    }

    /// A registry that only Ann may ask.
    fn for_ann() -> Self {
        Self::start_with("auth: {htpasswd: {realm: test, path: USERS}}\n")
    }

    fn start_with(auth: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("users"), ANN).unwrap();
        let port = free_port();
        let config = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n{}",
            path("data"),
            auth.replace("USERS", &path("users"))
        );
        fs::write(path("config.yml"), config).unwrap();
        let child = Command::new("docker-registry")
            .args(["serve", &path("config.yml")])
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("docker-registry: {e}; install it, or leave out test(/^registry::/)"));
        wait_for("the registry", || TcpStream::connect(("127.0.0.1", port)).ok());
        Self { child, port, home }
    }

    fn named(&self, name: &str) -> String {
        format!("127.0.0.1:{}/{name}", self.port)
    }

    /// The file of a blob in its storage.
    fn blob(&self, digest: &str) -> PathBuf {
        let hash = digest.strip_prefix("sha256:").unwrap();
        self.home.path().join(format!("data/docker/registry/v2/blobs/sha256/{}/{hash}/data", &hash[..2]))
    }

    /// The manifest of an artifact.
    fn manifest(&self, digest: &str) -> Value {
        serde_json::from_slice(&fs::read(self.blob(digest)).unwrap()).unwrap()
    }

    /// Pushes a manifest with one blob, as another program would.
    fn push_other(&self, name: &str, tag: &str, blob: &'static [u8], manifest: impl FnOnce(Value) -> Value) {
        let base = format!("http://127.0.0.1:{}/v2/{name}", self.port);
        let digest = digest(blob);
        let manifest = manifest(json!({"digest": digest, "size": blob.len()}));
        let media_type = manifest["mediaType"].as_str().unwrap().to_owned();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = reqwest::Client::new();
            let begun = client.post(format!("{base}/blobs/uploads/")).send().await.unwrap();
            let mut at: url::Url = begun.headers()["location"].to_str().unwrap().parse().unwrap();
            at.query_pairs_mut().append_pair("digest", &digest);
            let put =
                client.put(at).header("content-type", "application/octet-stream").body(blob).send().await.unwrap();
            assert_eq!(put.status(), 201, "{}", put.text().await.unwrap());
            let put = client.put(format!("{base}/manifests/{tag}")).header("content-type", media_type);
            let put = put.body(manifest.to_string()).send().await.unwrap();
            assert_eq!(put.status(), 201, "{}", put.text().await.unwrap());
        });
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&Sha256::digest(bytes)))
}

/// Runs `guild`: what it printed to stdout where it succeeded, else to stderr.
fn guild(home: &Home, arguments: &[&str]) -> Result<String, String> {
    let output = home.run(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout).trim_end().to_owned()) } else { Err(text(output.stderr)) }
}

/// A member of an author, in `source/`.
fn source(home: &Home, version: &str) -> PathBuf {
    if !home.path("source").exists() {
        home.quick("quick");
        fs::rename(home.path("members/quick"), home.path("source")).unwrap();
        home.write("source/posture.md", "Be brief.");
        home.write("source/sbom.cdx.json", r#"{"bomFormat": "CycloneDX", "specVersion": "1.6"}"#);
    }
    edit(home, |manifest| manifest["version"] = json!(version));
    home.path("source")
}

fn edit(home: &Home, edit: impl FnOnce(&mut Value)) {
    let path = home.path("source/guild-member.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut manifest);
    fs::write(path, manifest.to_string()).unwrap();
}

/// Pushes the author's member in this version. Returns its reference with its digest.
fn push(home: &Home, registry: &Registry, version: &str) -> String {
    source(home, version);
    guild(home, &["push", "source", &registry.named("a/quick")]).unwrap()
}

fn install(home: &Home, reference: &str, options: &[&str]) -> Result<String, String> {
    guild(home, &[&["install", reference, "--members", "members"], options].concat())
}

/// What is in the directory of members, hidden names too.
fn names(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(home.path("members")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn pins(home: &Home) -> Vec<Value> {
    serde_json::from_str(&guild(home, &["approve", "--list", "--json"]).unwrap()).unwrap()
}

fn outdated(home: &Home) -> Value {
    let listed = guild(home, &["members", "--outdated", "--json", "--members", "members"]);
    serde_json::from_str(&listed.unwrap()).unwrap()
}

/// The files of the author's member and of an installed one.
fn assert_same(home: &Home, installed: &str) {
    for entry in fs::read_dir(home.path("source")).unwrap() {
        let name = entry.unwrap().file_name();
        let read = |at: &Path| fs::read(at.join(&name)).unwrap_or_else(|e| panic!("{name:?}: {e}"));
        assert_eq!(read(&home.path("source")), read(&home.path(installed)), "{name:?}");
    }
}

#[test]
fn the_same_member_is_packed_into_the_same_bytes_and_pushed_under_the_same_digest() {
    let home = Home::new();
    let member = source(&home, "1.0.0");
    key(&home, "ann");
    let signed = home.run(&["sign", "source/guest.wasm", "--key", "ann"]);
    assert!(signed.status.success(), "{signed:?}");
    home.write("source/target/notes.txt", "not a part of the member");
    let packed = guild(&home, &["pack", "source", "-o", "one.tar"]).unwrap();
    // Other times, and other permissions.
    for name in ["guest.wasm", "posture.md"] {
        let file = member.join(name);
        let bytes = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(guild(&home, &["pack", "source", "-o", "two.tar"]).unwrap(), packed);
    let bytes = fs::read(home.path("one.tar")).unwrap();
    assert_eq!(bytes, fs::read(home.path("two.tar")).unwrap());

    // It is an image layout, whose blobs have the digests that they are named by.
    let mut archive = tar::Archive::new(&*bytes);
    let mut files = std::collections::BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().mtime().unwrap(), 0);
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        files.insert(name, content);
    }
    let json = |name: &str| serde_json::from_slice::<Value>(&files[name]).unwrap();
    assert_eq!(json("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
    assert_eq!(json("index.json")["manifests"][0]["digest"], json!(packed));
    for (name, content) in files.iter().filter(|(name, _)| name.starts_with("blobs/")) {
        assert_eq!(format!("blobs/{}", digest(content).replace(':', "/")), *name);
    }

    let registry = Registry::start();
    let pushed = guild(&home, &["push", "source", &registry.named("a/quick")]).unwrap();
    assert_eq!(pushed, format!("{}:1.0.0@{packed}", registry.named("a/quick")));
    let manifest = registry.manifest(&packed);
    assert_eq!(manifest["artifactType"], "application/vnd.guild.member.v1");
    let layers: Vec<_> = manifest["layers"].as_array().unwrap().iter().map(|layer| &layer["mediaType"]).collect();
    assert_eq!(
        layers,
        [
            "application/wasm",
            "application/vnd.guild.member.manifest.v1+json",
            "application/vnd.guild.member.posture.v1+markdown",
            "application/vnd.guild.member.signature.v1+minisign",
            "application/vnd.cyclonedx+json"
        ]
    );
    // A push again changes nothing.
    assert_eq!(guild(&home, &["push", "source", &registry.named("a/quick")]).unwrap(), pushed);

    assert_eq!(guild(&home, &["pull", &registry.named("a/quick"), "-o", "pulled"]).unwrap(), pushed);
    fs::remove_dir_all(home.path("source/target")).unwrap();
    assert_same(&home, "pulled");
    let again = guild(&home, &["pull", &registry.named("a/quick"), "-o", "pulled"]).unwrap_err();
    assert!(again.contains("pulled is already there"), "{again}");
}

#[test]
fn a_member_is_installed_after_its_audit_and_a_yes_and_pinned_with_its_digest() {
    let (home, registry) = (Home::new(), Registry::start());
    let pushed = push(&home, &registry, "1.0.0");
    let (tagged, digest) = pushed.split_once('@').unwrap();
    // An earlier probe of the same files counts, wherever they were.
    assert!(home.run(&["probe", "source"]).status.success());

    // Without a terminal it is shown, and not installed.
    let output = home.run(&["install", tagged, "--members", "members"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    let hash = digest_of(&home.path("source/guest.wasm"));
    for fact in [
        tagged,
        digest,
        &hash,
        "+ identity world: autonomous-worker",
        "never; the whole member is new",
        "Z: nothing found",
    ] {
        assert!(shown.contains(fact), "{fact}: {shown}");
    }
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("was not installed") && said.contains("--yes"), "{said}");
    assert_eq!((names(&home), pins(&home)), (vec![], vec![]));

    install(&home, tagged, &["--yes"]).unwrap();
    assert_eq!(names(&home), ["quick"]);
    assert_same(&home, "members/quick");
    let pinned = pins(&home);
    assert_eq!((&pinned[0]["how"], &pinned[0]["sha256"]), (&json!("approved"), &json!(hash)));
    assert_eq!(pinned[0]["source"], json!({"reference": tagged, "digest": digest}));
    assert_eq!(guild(&home, &["run", "quick", "a task", "--members", "members"]).unwrap(), "date");
    // An approval of the same files keeps the source; one of others drops it.
    home.write("members/quick/posture.md", "Be very brief.");
    guild(&home, &["approve", "quick", "--yes", "--members", "members"]).unwrap();
    assert_eq!(pins(&home)[0]["source"]["digest"], json!(digest));
    rebuild(&home, "quick");
    guild(&home, &["approve", "quick", "--yes", "--members", "members"]).unwrap();
    assert_eq!(pins(&home)[0].get("source"), None);

    let again = install(&home, tagged, &["--yes"]).unwrap_err();
    assert!(again.contains("already there") && again.contains("guild upgrade quick"), "{again}");
    // By digest, and by the newest version.
    let untagged = format!("{}@{digest}", registry.named("a/quick"));
    install(&home, &untagged, &["--yes", "--name", "group/by-digest"]).unwrap();
    install(&home, &registry.named("a/quick"), &["--yes", "--name", "newest"]).unwrap();
    assert_eq!(names(&home), ["group", "newest", "quick"]);
    assert_same(&home, "members/group/by-digest");
}

fn digest_of(file: &Path) -> String {
    digest(&fs::read(file).unwrap()).strip_prefix("sha256:").unwrap().to_owned()
}

#[test]
fn a_host_serves_an_installed_member_at_once_and_asks_no_registry() {
    let (home, registry) = (Home::new(), Registry::start());
    push(&home, &registry, "1.0.0");
    home.write("config/guild/guild.toml", "require_approval = true\n");
    let host = home.serve_roster(&[]);
    assert_eq!(host.members(), Vec::<Value>::new());
    install(&home, &registry.named("a/quick"), &["--yes"]).unwrap();
    drop(registry);
    wait_for("the member", || host.members().first().filter(|member| member["state"] == "ready").cloned());
    let client = host.at("quick");
    let job = client.start("a task");
    assert_eq!(client.ended(&job)["status"], "completed");
}

#[test]
fn an_upgrade_shows_the_difference_and_keeps_jobs_and_memories() {
    let (home, registry) = (Home::new(), Registry::start());
    push(&home, &registry, "1.0.0");
    install(&home, &registry.named("a/quick"), &["--yes"]).unwrap();
    guild(&home, &["run", "quick", "a task", "--members", "members"]).unwrap();
    home.write("members/quick/memory/note.md", "kept");
    assert_eq!(outdated(&home), json!([]));

    // The new version has another component, one more grant, another bill of materials and no posture.
    let built = [fs::read(home.path("source/guest.wasm")).unwrap(), vec![0, 2, 1, b'v']].concat();
    home.write("source/guest.wasm", built);
    edit(&home, |manifest| manifest["component"]["grants"] = json!({"web": {"hosts": ["example.org"]}}));
    for gone in ["posture.md", "sbom.cdx.json"] {
        fs::remove_file(home.path("source").join(gone)).unwrap();
    }
    home.write("source/sbom.spdx.json", r#"{"spdxVersion": "SPDX-2.3"}"#);
    push(&home, &registry, "1.2.0-rc.1");
    assert_eq!(outdated(&home), json!([]), "a pre-release is not newer");
    let pushed = push(&home, &registry, "1.1.0");
    let (tagged, digest) = pushed.split_once('@').unwrap();
    let listed = outdated(&home);
    assert_eq!((&listed[0]["member"], &listed[0]["newer"]), (&json!("quick"), &json!(tagged)));

    let before = pins(&home);
    let output = home.run(&["upgrade", "quick", "--members", "members"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("+ capability web:example.org\n") && shown.contains("- identity sha256: "), "{shown}");
    assert!(!output.status.success());
    assert_eq!((pins(&home), names(&home)), (before, vec!["quick".to_owned()]));
    assert!(home.path("members/quick/posture.md").exists());

    guild(&home, &["upgrade", "--all", "--yes", "--members", "members"]).unwrap();
    assert_same(&home, "members/quick");
    assert!(!home.path("members/quick/posture.md").exists() && !home.path("members/quick/sbom.cdx.json").exists());
    assert_eq!(pins(&home)[0]["source"], json!({"reference": tagged, "digest": digest}));
    assert_eq!(fs::read_to_string(home.path("members/quick/memory/note.md")).unwrap(), "kept");
    assert_eq!(guild(&home, &["list", "--member", "quick", "--members", "members"]).unwrap().lines().count(), 1);
    assert_eq!(guild(&home, &["run", "quick", "a task", "--members", "members"]).unwrap(), "date");
    assert_eq!((names(&home), outdated(&home)), (vec!["quick".to_owned()], json!([])));
    let none = home.run(&["upgrade", "quick", "--members", "members"]);
    assert!(none.status.success() && String::from_utf8(none.stderr).unwrap().contains("no newer versions"));
}

#[test]
fn a_free_posture_and_a_moved_tag_are_kept_and_noticed() {
    let (home, registry) = (Home::new(), Registry::start());
    home.write("config/guild/guild.toml", "[member.quick]\nposture = \"free\"\n");
    source(&home, "1.0.0");
    let stable = registry.named("a/quick:stable");
    guild(&home, &["push", "source", &stable]).unwrap();
    install(&home, &stable, &["--yes"]).unwrap();
    home.write("members/quick/posture.md", "The operator's own words.");
    assert_eq!(outdated(&home), json!([]));
    source(&home, "1.0.1");
    guild(&home, &["push", "source", &stable]).unwrap();
    assert_eq!(outdated(&home)[0]["newer"], json!(stable));
    guild(&home, &["upgrade", "quick", "--yes", "--members", "members"]).unwrap();
    assert_eq!(fs::read_to_string(home.path("members/quick/posture.md")).unwrap(), "The operator's own words.");
    assert_eq!(outdated(&home), json!([]));
}

#[test]
fn signatures_are_held_to_the_operators_policy() {
    let (home, registry) = (Home::new(), Registry::start());
    home.write("config/guild/guild.toml", "require_signature = true\n");
    push(&home, &registry, "1.0.0");
    let why = install(&home, &registry.named("a/quick"), &["--yes"]).unwrap_err();
    assert!(why.contains("is not signed") && why.contains("require_signature"), "{why}");
    assert_eq!((names(&home), pins(&home)), (vec![], vec![]));

    home.quick("signed");
    key(&home, "ann");
    sign(&home, "signed", "ann");
    guild(&home, &["push", "members/signed", &registry.named("a/signed")]).unwrap();
    install(&home, &registry.named("a/signed"), &["--yes", "--name", "other"]).unwrap();
    // The signature is of the manifest too.
    home.edit_manifest("signed", |manifest| manifest["version"] = json!("2.0.0"));
    guild(&home, &["push", "members/signed", &registry.named("a/signed")]).unwrap();
    let why = guild(&home, &["upgrade", "other", "--yes", "--members", "members"]).unwrap_err();
    assert!(why.contains("another state of guild-member.json"), "{why}");
    assert_eq!(names(&home), ["other", "signed"]);
}

#[test]
fn credentials_come_from_dockers_configuration() {
    let (mut home, registry) = (Home::new(), Registry::for_ann());
    source(&home, "1.0.0");
    let (name, host) = (registry.named("a/quick"), format!("127.0.0.1:{}", registry.port));
    let push = |home: &Home| guild(home, &["push", "source", &name]);
    let why = push(&home).unwrap_err();
    assert!(why.contains("requires credentials") && why.contains(&format!("docker login {host}")), "{why}");

    let auths = |auth: &str| json!({"auths": {&*host: {"auth": auth}}}).to_string();
    home.write(".docker/config.json", auths("YW5uOndyb25n"));
    let why = push(&home).unwrap_err();
    assert!(why.contains("refuses the credentials"), "{why}");
    home.write(".docker/config.json", auths(ANN_AUTH));
    push(&home).unwrap();
    install(&home, &name, &["--yes"]).unwrap();
    home.write(".docker/config.json", "{");
    let why = install(&home, &name, &["--yes", "--name", "other"]).unwrap_err();
    assert!(why.contains("cannot be used") && why.contains("config.json is not valid"), "{why}");

    // A helper, named by a configuration in another directory.
    let helper = home.write(
        "bin/docker-credential-test",
        "#!/bin/sh\ncat >/dev/null\necho '{\"Username\":\"ann\",\"Secret\":\"secret\"}'\n",
    );
    fs::set_permissions(helper, fs::Permissions::from_mode(0o755)).unwrap();
    home.write("docker/config.json", json!({"credHelpers": {&*host: "test"}}).to_string());
    let docker = home.path("docker").to_str().unwrap().to_owned();
    home.set("DOCKER_CONFIG", &docker);
    let path = format!("{}:{}", home.path("bin").display(), std::env::var("PATH").unwrap());
    home.set("PATH", &path);
    install(&home, &name, &["--yes", "--name", "other"]).unwrap();
}

#[test]
fn what_is_no_member_or_not_what_it_was_is_refused_and_leaves_nothing() {
    let (home, registry) = (Home::new(), Registry::start());
    let refused = |reference: &str, parts: &[&str]| {
        let why = install(&home, reference, &["--yes"]).unwrap_err();
        assert!(parts.iter().all(|part| why.contains(part)), "{parts:?}: {why}");
        assert_eq!((names(&home), pins(&home)), (vec![], vec![]), "{why}");
    };
    refused("quick:1.0.0", &["no reference", "names no registry", "REGISTRY/NAME:VERSION"]);
    let away = format!("127.0.0.1:{}/a/quick:1.0.0", free_port());
    refused(&away, &["does not answer", "check its name"]);
    refused(&registry.named("a/none:1.0.0"), &["has no 127.0.0.1:", "a/none:1.0.0"]);

    let image = "application/vnd.oci.image.manifest.v1+json";
    let of = |descriptor: &Value, media_type: &str| {
        let mut descriptor = descriptor.clone();
        descriptor["mediaType"] = json!(media_type);
        descriptor
    };
    registry.push_other("b/image", "1.0.0", b"{}", |blob| {
        let config = of(&blob, "application/vnd.oci.image.config.v1+json");
        json!({"schemaVersion": 2, "mediaType": image, "config": config, "layers": []})
    });
    refused(&registry.named("b/image:1.0.0"), &["is no member", "vnd.oci.image.config", "guild push"]);
    refused(&registry.named("b/image:latest"), &["has no"]);
    registry.push_other(
        "b/index",
        "1.0.0",
        b"{}",
        |_| json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []}),
    );
    refused(&registry.named("b/index:1.0.0"), &["is no member", "an index"]);
    let member = |layers: fn(Value) -> Value| {
        move |blob: Value| {
            let config = json!({"mediaType": "application/vnd.guild.member.config.v1+json", "digest": blob["digest"], "size": blob["size"]});
            json!({
                "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
                "artifactType": "application/vnd.guild.member.v1", "layers": layers(blob)
            })
        }
    };
    registry.push_other("b/member", "1.0.0", b"{}", member(|_| json!([])));
    refused(&registry.named("b/member:1.0.0"), &["there is no guild-member.json"]);
    registry.push_other(
        "b/member",
        "1.1.0",
        b"{}",
        member(|blob| json!([{"mediaType": "application/x-sh", "digest": blob["digest"], "size": blob["size"]}])),
    );
    refused(&registry.named("b/member"), &["application/x-sh", "does not know"]);
    let escaping = br#"{"name": "x", "displayName": "x", "description": "", "version": "1", "transport": "http",
        "mcp": {"command": "guild", "args": []}, "component": {"file": "sub/../x.wasm", "world": "worker"}}"#;
    registry.push_other("b/member", "1.2.0", escaping, member(|blob| {
        json!([{"mediaType": "application/vnd.guild.member.manifest.v1+json", "digest": blob["digest"], "size": blob["size"]}])
    }));
    refused(&registry.named("b/member"), &["component.file"]);
    registry.push_other("b/member", "1.3.0", b"{}", member(|blob| {
        json!([{"mediaType": "application/vnd.guild.member.manifest.v1+json", "digest": blob["digest"], "size": 1_000_000}])
    }));
    refused(&registry.named("b/member"), &["1000000 bytes", "may have 262144"]);

    let pushed = push(&home, &registry, "1.0.0");
    let (tagged, digest) = pushed.split_once('@').unwrap();
    let other = format!("{}@sha256:{}", registry.named("a/quick"), "0".repeat(64));
    refused(&other, &["has no"]);
    // The registry sends another component of the same length, then another manifest.
    let layer = registry.manifest(digest)["layers"][0]["digest"].as_str().unwrap().to_owned();
    let file = registry.blob(&layer);
    let intact = fs::read(&file).unwrap();
    let mut changed = intact.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&file, changed).unwrap();
    refused(tagged, &["was refused", &layer, "nothing of it was kept"]);
    fs::write(&file, intact).unwrap();
    let file = registry.blob(digest);
    let changed = fs::read_to_string(&file).unwrap().replace("1.0.0", "1.0.1");
    fs::write(&file, changed).unwrap();
    refused(&pushed, &["was refused", digest]);

    // A component that no host would load.
    edit(&home, |manifest| manifest["component"]["world"] = json!("worker"));
    let unloadable = guild(&home, &["push", "source", &registry.named("a/unloadable")]).unwrap();
    refused(&unloadable, &["was not installed, since it does not load", "exports `run` too"]);
}

/// A registry whose manifests and lists of tags do not end. Returns its port.
fn endless() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let request = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
                // An error means that the client has gone.
                while !request.starts_with("GET /v2/ ") && (&stream).write_all(&[b' '; 65536]).is_ok() {}
            });
        }
    });
    port
}

#[test]
fn an_answer_without_an_end_is_refused() {
    let (home, port) = (Home::new(), endless());
    for (reference, part) in [("a/quick:1.0.0", "its manifest"), ("a/quick", "its list of tags")] {
        let why = install(&home, &format!("127.0.0.1:{port}/{reference}"), &["--yes"]).unwrap_err();
        assert!(why.contains(&format!("{part} has more than 1048576 bytes")), "{why}");
        assert_eq!((names(&home), pins(&home)), (vec![], vec![]));
    }
}

#[test]
fn a_directory_that_is_no_member_is_not_packed() {
    let home = Home::new();
    source(&home, "1.0.0+build");
    let why = guild(&home, &["push", "source", "127.0.0.1:1/a/quick"]).unwrap_err();
    assert!(why.contains("1.0.0+build") && why.contains("a/quick:TAG"), "{why}");
    let pack = |home: &Home| guild(home, &["pack", "source", "-o", "x.tar"]).unwrap_err();
    fs::rename(home.path("source/guest.wasm"), home.path("guest.wasm")).unwrap();
    assert!(pack(&home).contains("guest.wasm, which `component.file` names, is missing"), "{}", pack(&home));
    edit(&home, |manifest| manifest["component"]["file"] = json!("target/guest.wasm"));
    assert!(pack(&home).contains("beside the manifest"), "{}", pack(&home));
    home.write("source/guild-member.json", "{");
    assert!(pack(&home).contains("guild-member.json"), "{}", pack(&home));
    fs::remove_file(home.path("source/guild-member.json")).unwrap();
    assert!(pack(&home).contains("there is no guild-member.json"), "{}", pack(&home));
    assert!(!home.path("x.tar").exists());
}

#[test]
fn the_wit_package_is_one_layer_of_webassembly_that_decodes_to_it() {
    let (home, registry) = (Home::new(), Registry::start());
    let mut resolve = wit_parser::Resolve::default();
    let (package, _) = resolve.push_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit")).unwrap();
    let encoded = wit_component::encode(&resolve, package).unwrap();
    let artifact = guild_registry::Artifact::of_wit(encoded.clone(), "0.1.0").unwrap();
    let reference: guild_registry::Reference = registry.named("guild/worker:0.1.0").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(guild_registry::Registry::of(&reference).unwrap().push(&reference, &artifact)).unwrap();

    let manifest = registry.manifest(&artifact.digest);
    assert_eq!(manifest["config"]["mediaType"], "application/vnd.wasm.config.v0+json");
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!((layers.len(), &layers[0]["mediaType"]), (1, &json!("application/wasm")));
    let config = registry.manifest(manifest["config"]["digest"].as_str().unwrap());
    assert_eq!((&config["architecture"], &config["layerDigests"][0]), (&json!("wasm"), &layers[0]["digest"]));
    let layer = fs::read(registry.blob(layers[0]["digest"].as_str().unwrap())).unwrap();
    let wit_component::DecodedWasm::WitPackage(decoded, package) = wit_component::decode(&layer).unwrap() else {
        panic!("it is a component");
    };
    assert_eq!(decoded.packages[package].name.to_string(), "guild:worker@0.1.0");
    // It is no member.
    let why = install(&home, &reference.to_string(), &["--yes"]).unwrap_err();
    assert!(why.contains("is no member") && why.contains("vnd.wasm.config"), "{why}");
}
