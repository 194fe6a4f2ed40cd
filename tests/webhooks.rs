//! Webhooks: an address of `[[webhook]]` is told of the ends and questions of jobs, signed, until it accepts them.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, StatusCode},
    routing::post,
};
use guild_fakes::{Received, Reply};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{
    sessions::{Fixture, submit},
    support::host::{Home, Host, wait_for},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A receiver, which keeps all messages, and answers them with these statuses, the last of them for ever.
struct Receiver {
    url: String,
    received: Arc<Mutex<Vec<(HeaderMap, Bytes)>>>,
    _runtime: Runtime,
}

impl Receiver {
    fn start(statuses: &'static [u16]) -> Self {
        let runtime = Runtime::new().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (kept, listener) = (received.clone(), runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap());
        let url = format!("http://{}/hook?token=private", listener.local_addr().unwrap());
        let receive = move |headers: HeaderMap, body: Bytes| async move {
            let mut kept = kept.lock().unwrap();
            kept.push((headers, body));
            StatusCode::from_u16(*statuses.get(kept.len() - 1).unwrap_or(statuses.last().unwrap())).unwrap()
        };
        runtime.spawn(async move { axum::serve(listener, Router::new().route("/hook", post(receive))).await });
        Self { url, received, _runtime: runtime }
    }

    /// The first so many messages.
    fn messages(&self, count: usize) -> Vec<(HeaderMap, Value)> {
        wait_for(&format!("{count} messages"), || {
            let received = self.received.lock().unwrap();
            let read = |(headers, body): &(HeaderMap, Bytes)| (headers.clone(), serde_json::from_slice(body).unwrap());
            (received.len() >= count).then(|| received.iter().map(read).collect())
        })
    }

    fn serve(&self, home: &mut Home, more: &str) -> Host {
        let config = format!("[[webhook]]\nurl = {:?}\nkey_env = \"HOOK_SECRET\"\n{more}\n", self.url);
        let file = home.write("guild.toml", config);
        home.set("GUILD_CONFIG", file.to_str().unwrap());
        home.set("HOOK_SECRET", SECRET);
        home.serve_roster(&[])
    }
}

/// The signature that a message has to have.
fn signature(headers: &HeaderMap, body: &[u8]) -> String {
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let key = data_encoding::BASE64.decode(SECRET.trim_start_matches("whsec_").as_bytes()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{}.{}.", text("webhook-id"), text("webhook-timestamp")).as_bytes());
    mac.update(body);
    format!("v1,{}", data_encoding::BASE64.encode(&mac.finalize().into_bytes()))
}

#[test]
fn ends_and_questions_are_sent_signed_and_nothing_else_is() {
    let mut home = Home::new();
    home.quick("quick");
    home.failing("failing");
    let receiver = Receiver::start(&[204]);
    let host = receiver.serve(&mut home, "");
    let mut expected = Vec::new();
    for (member, event) in [("quick", "job.completed"), ("failing", "job.failed")] {
        let client = host.at(member);
        let id = client.start("t");
        client.ended(&id);
        expected.push((event, member, id));
    }
    let messages = receiver.messages(2);
    for (event, member, id) in &expected {
        let of = |message: &&(HeaderMap, Value)| message.1["type"] == *event && message.1["data"]["jobId"] == **id;
        let (_, body) = messages.iter().find(of).unwrap_or_else(|| panic!("{event} of {member} in {messages:#?}"));
        assert_eq!(body["data"]["member"], *member, "{body}");
    }
    let received = receiver.received.lock().unwrap();
    for (headers, body) in received.iter() {
        assert_eq!(headers["webhook-signature"], signature(headers, body), "{headers:?}");
        assert_eq!(headers["content-type"], "application/json");
    }
}

#[test]
fn a_question_is_sent_while_its_job_goes_on() {
    let receiver = Receiver::start(&[204]);
    let webhook =
        format!("[[webhook]]\nurl = {:?}\nkey_env = \"HOOK_SECRET\"\nevents = [\"job.question\"]", receiver.url);
    let mut fixture = Fixture::with("sessions = 8\n", &webhook, |request: &Received| match request.turn() {
        0 => Reply::call("log_question", json!({"question": "Which moth?"})),
        1 => submit("The luna moth."),
        _ => Reply::text("Done."),
    });
    fixture.home.set("HOOK_SECRET", SECRET);
    let host = fixture.serve();
    host.client().ended(&host.client().start("How long does it live?"));
    let (_, body) = receiver.messages(1).remove(0);
    assert_eq!((&body["type"], &body["data"]["question"]), (&json!("job.question"), &json!("Which moth?")));
}

#[test]
fn a_message_is_sent_again_with_its_id_until_it_is_accepted() {
    let mut home = Home::new();
    home.quick("quick");
    home.quick("other");
    let receiver = Receiver::start(&[500, 204]);
    let host = receiver.serve(&mut home, "events = [\"job.completed\"]\nmembers = [\"quick\"]");
    for member in ["other", "quick"] {
        let client = host.at(member);
        client.ended(&client.start("t"));
    }
    let messages = receiver.messages(2);
    assert_eq!(messages[0].0["webhook-id"], messages[1].0["webhook-id"]);
    assert_eq!(messages[0].1, messages[1].1);
    assert_eq!(messages[1].1["data"]["member"], "quick");
    // The log names neither the path nor the query of the address.
    assert!(!host.output().contains("private"), "{}", host.output());
}

#[test]
fn what_is_wrong_in_the_file_is_named() {
    let mut home = Home::new();
    home.quick("quick");
    for (table, why) in [
        ("url = \"http://example.com/\"\nkey_env = \"K\"", "must begin with https://"),
        ("url = \"https://example.com/\"", "needs a secret: name it in `key_env` or `key_file`"),
        ("url = \"https://example.com/\"\nkey_env = \"K\"\nevents = [\"job.begun\"]", "the events are job.completed, "),
        ("url = \"here\"\nkey_env = \"K\"", "\"here\" is not a URL"),
    ] {
        let file = home.write("guild.toml", format!("[[webhook]]\n{table}\n"));
        home.set("GUILD_CONFIG", file.to_str().unwrap());
        let checked = home.run(&["members", "--members", home.path("members").to_str().unwrap()]);
        assert!(String::from_utf8_lossy(&checked.stderr).contains(why), "{table}: {checked:?}");
    }
}
