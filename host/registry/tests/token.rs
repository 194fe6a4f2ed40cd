//! Tokens of registries, from a server that records the requests.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails its test")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use guild_registry::{Reference, Registry, RegistryError};

/// The requests: the first line of each, and its authorization.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// Starts a registry whose requests need a token, which its token service answers with `token`, again and again if it is
/// `endless`. Returns its name, and the requests.
fn registry(token: &'static str, endless: bool) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let (requests, recorded) = (Requests::default(), name.clone());
    let record = requests.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (line, authorization) = request(&stream);
            record.lock().unwrap().push((line.clone(), authorization.clone()));
            let answer = |status: &str, headers: &str, body: &str| {
                let length = if endless { String::new() } else { format!("content-length: {}\r\n", body.len()) };
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{length}{headers}\r\n{body}");
                // An error means that the client has gone.
                let _ = (&stream).write_all(head.as_bytes());
            };
            if line.starts_with("GET /token?") {
                answer("200 OK", "", token);
                while endless && (&stream).write_all(&[b' '; 65536]).is_ok() {}
            } else if authorization == "Bearer abc" {
                answer("200 OK", "", r#"{"tags": ["1.2.0"]}"#);
            } else {
                let challenge = format!("Bearer realm=\"http://{recorded}/token\",service=\"test\"");
                answer("401 Unauthorized", &format!("www-authenticate: {challenge}\r\n"), "");
            }
        }
    });
    (name, requests)
}

/// The first line of a request, and its authorization.
fn request(stream: &TcpStream) -> (String, String) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let authorization = lines.find_map(|line| Some(line.split_once("uthorization: ")?.1.to_owned()));
    (first, authorization.unwrap_or_default())
}

/// The newest version of a repository.
fn resolve(registry: &str) -> Result<Reference, RegistryError> {
    let reference: Reference = format!("{registry}/a/b").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { Registry::of(&reference)?.resolve(reference).await })
}

#[test]
fn a_token_is_asked_for_the_repository_and_used() {
    for token in [r#"{"token": "abc", "expires_in": 60}"#, r#"{"access_token": "abc"}"#] {
        let (name, requests) = registry(token, false);
        assert_eq!(resolve(&name).unwrap().to_string(), format!("{name}/a/b:1.2.0"));
        let requests = requests.lock().unwrap();
        let asked = requests.iter().find(|(line, _)| line.starts_with("GET /token?")).unwrap();
        assert!(asked.0.contains("scope=repository%3Aa%2Fb%3Apull&service=test"), "{asked:?}");
        assert!(requests.iter().any(|(line, by)| line.starts_with("GET /v2/a/b/tags/list") && by == "Bearer abc"));
    }
}

#[test]
fn a_token_without_an_end_or_a_name_is_refused() {
    for (token, endless, why) in [
        (r#"{"token": ""#, true, "its token has more than 1048576 bytes"),
        ("<html>", false, "its token cannot be read: "),
        ("{}", false, "its token service answered without a token"),
    ] {
        let error = resolve(&registry(token, endless).0).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
