//! `guild tls self-signed`, and a host that is served with what it makes; `guild health`.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::{
    auth::add,
    support::{
        host::{Home, Host, free_port},
        output::{stderr, stdout},
    },
};

#[test]
fn a_host_with_a_self_signed_certificate_is_reached_by_who_trusts_it() {
    let mut home = Home::new();
    home.quick("quick");
    let made = home.run(&["tls", "self-signed", "localhost", "127.0.0.1", "--directory", "tls"]);
    assert!(made.status.success(), "{}", stderr(&made));
    let mode = |file: &str| fs::metadata(home.path(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tls/guild-tls.key"), mode("tls/guild-tls.pem")), (0o600, 0o644));
    let before = fs::read(home.path("tls/guild-tls.key")).unwrap();
    let again = home.run(&["tls", "self-signed", "localhost", "--directory", "tls"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("guild-tls.key exists; replace it with --force"), "{}", stderr(&again));
    assert_eq!(fs::read(home.path("tls/guild-tls.key")).unwrap(), before);
    let wrong = home.run(&["tls", "self-signed", "not a name ü", "--directory", "other"]);
    assert_eq!(wrong.status.code(), Some(1), "{}", stderr(&wrong));

    // What the command prints is what guild.toml needs.
    let printed = stdout(&made);
    let file = home.write("guild.toml", format!("bind = \"0.0.0.0\"\n{printed}"));
    home.set("GUILD_CONFIG", file.to_str().unwrap());
    let token = add(&home, &["ann"]);
    let port = free_port();
    let mut command = home.guild();
    command.arg("serve").arg("--members").arg(home.path("members")).args(["--port", &port.to_string()]);
    let host = Host::start(command, port, "");
    host.prints("listening at https://");

    let (pem, token_file) = (home.path("tls/guild-tls.pem"), home.write("token", &token));
    let (pem, token_file) = (pem.to_str().unwrap(), token_file.to_str().unwrap());
    for name in ["localhost", "127.0.0.1"] {
        let url = format!("https://{name}:{port}");
        let listed = home.run(&["list", "--url", &url, "--ca", pem, "--token-file", token_file]);
        assert!(listed.status.success(), "{name}: {}", stderr(&listed));
        let health = home.run(&["health", "--url", &url, "--ca", pem]);
        assert!(health.status.success(), "{name}: {}", stderr(&health));
    }
    let url = format!("https://localhost:{port}");
    let untrusted = home.run(&["list", "--url", &url, "--token-file", token_file]);
    assert_eq!(untrusted.status.code(), Some(1));
    // Another certificate of the same name is another one.
    let forced = home.run(&["tls", "self-signed", "localhost", "--directory", "tls", "--force"]);
    assert!(forced.status.success(), "{}", stderr(&forced));
    assert_ne!(fs::read(home.path("tls/guild-tls.key")).unwrap(), before);
    host.stop();
    assert_eq!(home.run(&["health", "--url", &url, "--ca", pem]).status.code(), Some(1));
}
