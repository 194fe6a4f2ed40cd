//! Dispatches that a caller repeats, since it got no answer.

use std::thread;

use serde_json::{Value, json};

use crate::support::host::{Client, Home};

fn dispatch(task: &str, key: &str) -> Value {
    json!({"description": "d", "task": task, "key": key})
}

fn jobs(client: &Client) -> usize {
    client.call("worker/list", json!({})).unwrap()["jobs"].as_array().unwrap().len()
}

#[test]
fn a_repeated_dispatch_with_a_key_makes_no_second_job() {
    let home = Home::new();
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let client = host.at("endless");
    let first = client.dispatch(dispatch("t", "a")).unwrap();
    assert_eq!(client.dispatch(dispatch("t", "a")).unwrap(), first);
    assert_ne!(client.dispatch(dispatch("t", "b")).unwrap(), first, "another key");
    assert_ne!(client.start("t"), first, "no key");
    let refused = client.dispatch(dispatch("another", "a")).unwrap_err();
    assert_eq!(refused.code, -32602);
    assert!(refused.message.contains(&first), "{}", refused.message);
    for key in ["", " ", &"x".repeat(201)] {
        assert_eq!(client.dispatch(dispatch("t", key)).unwrap_err().code, -32602, "{key:?}");
    }
    assert_eq!(jobs(&client), 3);
    // The key is in the job's record, which a killed host leaves.
    host.kill();
    let host = home.serve_roster(&[]);
    assert_eq!(host.at("endless").dispatch(dispatch("t", "a")).unwrap(), first);
}

#[test]
fn of_many_dispatches_with_a_key_at_once_one_makes_the_job() {
    let home = Home::new();
    home.endless("endless");
    let host = home.serve_roster(&[]);
    let answers: Vec<_> = thread::scope(|scope| {
        let ask = || host.at("endless").dispatch(dispatch("t", "a"));
        let asking: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let client = host.at("endless");
    let id = client.dispatch(dispatch("t", "a")).unwrap();
    for answer in answers {
        match answer {
            Ok(answered) => assert_eq!(answered, id),
            Err(busy) => assert_eq!((busy.code, busy.message.contains("is under way")), (-32000, true)),
        }
    }
    assert_eq!(jobs(&client), 1);
}

#[test]
fn a_refused_dispatch_leaves_its_key_free() {
    let home = Home::new();
    home.researcher("researcher");
    home.write("sources/moths.md", "The luna moth lives for a week.\n");
    let host = home.serve_roster(&["--sources", home.path("sources").to_str().unwrap()]);
    let client = host.at("researcher");
    let refused = json!({"description": "d", "task": "t", "key": "a", "config": {"no such setting": true}});
    assert_eq!(client.dispatch(refused).unwrap_err().code, -32602);
    let id = client.dispatch(dispatch("t", "a")).unwrap();
    assert_eq!(client.dispatch(dispatch("t", "a")).unwrap(), id);
}
