//! Each route of the hall's API: its response, and its error for an invalid request.
//!
//! The requests use the port, which has the same routes as the socket.

use std::fs;

use serde_json::{Value, json};

use crate::hall_port::{World, git};

const NOBODY: &str = "commission-Nobody-20260101-000000";

impl World {
    /// Sends a GET, or a POST if there is a body.
    async fn ask_route(&self, path: &str, body: &Value) -> (u16, Value) {
        let path = format!("/hall{path}");
        if body.is_null() { self.get(&path, "").await } else { self.post(&path, "", body.clone()).await }
    }

    /// The body of a successful response.
    async fn ok(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask_route(path, &body).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_told_what_would() {
    let world = World::new().await;
    let id = world.create().await;
    let create = "/commission/request/commission/create";
    let cases = [
        (create, json!({"title": "t", "workerName": "tester"}), 400, "projectName, title, workerName, prompt"),
        (create, json!({"projectName": "x", "title": "t", "workerName": "tester", "prompt": "p"}), 404, "not found"),
        (create, json!({"projectName": "demo", "title": "t", "workerName": "no", "prompt": "p"}), 404, "not found"),
        (
            create,
            json!({"projectName": "demo", "title": "t", "workerName": "tester", "prompt": "p", "dependencies": 1}),
            400,
            "dependencies",
        ),
        (
            create,
            json!({"projectName": "demo", "title": "t", "workerName": "tester", "prompt": "p",
                "resourceOverrides": {"maxTurns": "many"}}),
            400,
            "resourceOverrides",
        ),
        ("/commission/request/commission/update", json!({}), 400, "commissionId"),
        ("/commission/request/commission/update", json!({"commissionId": NOBODY, "prompt": "p"}), 404, "not found"),
        ("/commission/request/commission/note", json!({"commissionId": id}), 400, "content"),
        ("/commission/request/commission/read", Value::Null, 400, "commissionId"),
        ("/commission/run/dispatch", json!({}), 400, "commissionId"),
        ("/commission/run/dispatch", json!({"commissionId": NOBODY}), 404, "not found"),
        ("/commission/run/dispatch", json!({"commissionId": "../../x"}), 404, "not found"),
        ("/commission/run/redispatch", json!({"commissionId": id}), 409, "pending"),
        ("/commission/run/cancel", json!({"commissionId": NOBODY}), 404, "not found"),
        ("/commission/run/abandon", json!({"commissionId": id}), 400, "reason"),
        ("/commission/dependency/project/check", json!({}), 400, "projectName"),
        ("/commission/dependency/project/graph", Value::Null, 400, "projectName"),
        ("/commission/dependency/project/graph?projectName=x", Value::Null, 404, "not found"),
        ("/system/config/project/read", Value::Null, 400, "name"),
        ("/system/config/project/read?name=x", Value::Null, 404, "not found"),
        ("/system/config/project/register", json!({"name": "a b", "path": "/a"}), 409, "guild project add /a"),
        ("/system/config/project/deregister", json!({"name": "demo"}), 409, "guild project remove demo"),
        ("/system/config/project/group", json!({"name": "x", "group": "g"}), 404, "not found"),
        ("/workspace/artifact/document/list", Value::Null, 400, "projectName"),
        ("/workspace/artifact/document/list?projectName=x", Value::Null, 404, "not found"),
        ("/workspace/artifact/document/list?projectName=demo&recent=true&limit=0", Value::Null, 400, "limit"),
        ("/workspace/artifact/document/read?projectName=demo", Value::Null, 400, "path"),
        ("/workspace/artifact/document/read?projectName=demo&path=no.md", Value::Null, 404, "not found"),
        (
            "/workspace/artifact/document/read?projectName=demo&path=../../config.yaml",
            Value::Null,
            400,
            "out of .lore/",
        ),
        ("/workspace/artifact/document/write", json!({"projectName": "demo"}), 400, "artifactPath, content"),
        ("/workspace/git/lore/commit", json!({"projectName": "demo", "message": " "}), 400, "message"),
        ("/workspace/git/lore/commit", json!({"projectName": "x", "message": "m"}), 404, "not found"),
        ("/workspace/git/integration/sync", json!({"projectName": "x"}), 404, "not found"),
        ("/workspace/git/branch/rebase", json!({"projectName": "x"}), 404, "not found"),
        ("/workspace/git/pr/create", json!({"projectName": "demo"}), 400, "title"),
        ("/workspace/git/pr/create", json!({"projectName": "demo", "title": "t"}), 409, "`push = true`"),
        ("/meeting/request/meeting/list", Value::Null, 400, "projectName"),
        ("/meeting/request/meeting/list?projectName=x", Value::Null, 404, "not found"),
        ("/heartbeat/x/status", Value::Null, 404, "not found"),
        ("/heartbeat/x/tick", json!({}), 404, "not found"),
        ("/heartbeat/demo/tick", json!({}), 409, "no standing orders"),
        ("/workspace/issue/create", json!({"projectName": "demo"}), 400, "title"),
        ("/workspace/issue/create", json!({"projectName": "demo", "title": " "}), 400, "Title is required"),
        ("/workspace/issue/create", json!({"projectName": "demo", "title": "!@#$%"}), 400, "alphanumeric"),
        ("/workspace/issue/create", json!({"projectName": "demo", "title": "a\nstatus: closed"}), 400, "one line"),
        ("/workspace/issue/create", json!({"projectName": "demo", "title": "a".repeat(201)}), 400, "200 characters"),
        ("/workspace/issue/create", json!({"projectName": "x", "title": "t"}), 404, "not found"),
        ("/workspace/issue/list", Value::Null, 400, "projectName"),
        ("/workspace/issue/list?projectName=x", Value::Null, 404, "not found"),
        ("/workspace/issue/read?projectName=demo", Value::Null, 400, "slug"),
        ("/workspace/issue/read?projectName=x&slug=a", Value::Null, 404, "Project not found"),
        ("/workspace/issue/read?projectName=demo&slug=a", Value::Null, 404, "Issue not found: a"),
        ("/workspace/issue/read?projectName=demo&slug=../../plan", Value::Null, 404, "Issue not found"),
        ("/nowhere", Value::Null, 404, "not found"),
        ("/nowhere", json!({}), 404, "not found"),
        // The wrong method.
        ("/commission/run/cancel", Value::Null, 404, "not found"),
        ("/commission/request/commission/list", json!({}), 404, "not found"),
    ];
    for (path, body, status, said) in cases {
        let (found, answer) = world.ask_route(path, &body).await;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(found == status && error.contains(said), "{path} {body}: {found} {answer}");
    }
    for body in ["{", "[]", "7"] {
        let reply = world.raw("/hall/commission/run/cancel", body).await;
        assert_eq!((reply.status, reply.body.as_str()), (400, r#"{"error":"Invalid JSON body"}"#), "{body}");
    }
}

#[tokio::test]
async fn a_commission_is_changed_while_it_waits_and_put_away_for_good() {
    let world = World::new().await;
    let id = world.create().await;
    let bounds = json!({"maxTurns": 7});
    let update = json!({"commissionId": id, "prompt": "Which moths?", "dependencies": ["specs/a.md"],
        "resourceOverrides": bounds});
    let blockers = json!([{"dependency": "specs/a.md", "why": "there is no such document in .lore/ of claude/main"}]);
    assert_eq!(
        world.ok("/commission/request/commission/update", update).await,
        json!({"status": "ok", "blockedBy": blockers})
    );
    let read = world.read(&id, "").await;
    let now = &read["commission"];
    assert_eq!((&now["prompt"], &now["resource_overrides"]), (&json!("Which moths?"), &bounds));
    assert_eq!((&now["status"], &now["createdBy"]), (&json!("blocked"), &json!("user")));
    let graph = world.ok("/commission/dependency/project/graph?projectName=demo", Value::Null).await;
    assert_eq!(graph["nodes"][0]["id"], *id);

    // The commission that it waits for is also made through the API.
    let write = json!({"projectName": "demo", "artifactPath": "specs/a.md", "content": "---\ntitle: A\n---\nText.\n"});
    assert_eq!(world.ok("/workspace/artifact/document/write", write).await, json!({"success": true}));
    assert_eq!(world.read(&id, "").await["commission"]["status"], "pending");
    world.ok("/commission/run/cancel", json!({"commissionId": id, "reason": "Not now"})).await;
    assert_eq!(world.read(&id, "").await["commission"]["status"], "cancelled");
    let update = json!({"commissionId": id, "prompt": "Which butterflies?"});
    world.ok("/commission/request/commission/update", update.clone()).await;
    assert_eq!(world.read(&id, "").await["commission"]["prompt"], "Which butterflies?");
    world.ok("/commission/run/abandon", json!({"commissionId": id, "reason": "No use"})).await;
    let (status, refused) = world.ask_route("/commission/request/commission/update", &update).await;
    let why = refused["error"].as_str().unwrap();
    assert!(status == 409 && why.contains("abandoned") && why.contains("Make another"), "{status} {why}");
    let listed = world.ok("/commission/request/commission/list?projectName=demo&status=abandoned", Value::Null).await;
    assert_eq!(listed["commissions"].as_array().unwrap().len(), 1);
    let none = world.ok("/commission/request/commission/list?status=nothing-such", Value::Null).await;
    assert_eq!(none, json!({"commissions": []}));
}

#[tokio::test]
async fn standing_orders_are_counted_and_a_tick_without_a_manager_says_what_is_missing() {
    let world = World::new().await;
    let none = world.ok("/heartbeat/demo/status", Value::Null).await;
    let expected = json!({"hasContent": false, "standingOrderCount": 0, "lastTick": null,
        "commissionsCreatedLastTick": 0, "intervalMinutes": null});
    assert_eq!(none, expected);
    let order = "# Heartbeat\n- no order\n## Standing Orders\n- Tidy up\n- Review\n## Watch Items\n- Mail\n";
    let order = json!({"projectName": "demo", "artifactPath": "heartbeat.md", "content": order});
    world.ok("/workspace/artifact/document/write", order).await;
    for path in ["/heartbeat/demo/status", "/heartbeat/d%65mo/status"] {
        let status = world.ok(path, Value::Null).await;
        assert_eq!((&status["standingOrderCount"], &status["hasContent"]), (&json!(2), &json!(true)));
    }
    // The original's web UI sends no body.
    let reply = world.raw("/hall/heartbeat/demo/tick", "").await;
    assert!(reply.status == 409 && reply.body.contains("`manager` in [hall] of guild.toml"), "{reply:?}");
}

#[tokio::test]
async fn an_issue_is_a_document_that_is_created_listed_and_read() {
    let world = World::new().await;
    let create = async |title: &str, body: &str| {
        world.ok("/workspace/issue/create", json!({"projectName": "demo", "title": title, "body": body})).await
    };
    let text = "Steps:\n1. Do this\n";
    let made = create(" Fix the \"broken\" \\thing ", text).await;
    assert_eq!(made, json!({"path": ".lore/work/issues/fix-the-broken-thing.md", "slug": "fix-the-broken-thing"}));
    assert_eq!(create("Fix the broken thing!", "").await["slug"], "fix-the-broken-thing-2");
    let (code, lore) = (world.root.path().join("code"), world.root.path().join("hall/projects/demo/.lore"));
    let log = git(&code, &["log", "-2", "--format=%s", "claude/main"]);
    assert_eq!(log.trim(), "Add issue: fix-the-broken-thing-2\nAdd issue: fix-the-broken-thing");
    let file = fs::read_to_string(lore.join("work/issues/fix-the-broken-thing.md")).unwrap();
    assert!(file.starts_with("---\ntitle: \"Fix the \\\"broken\\\" \\\\thing\"\ndate: 20"), "{file}");
    assert!(file.ends_with(&format!("\nstatus: open\n---\n\n{text}")), "{file}");
    let file = fs::read_to_string(lore.join("work/issues/fix-the-broken-thing-2.md")).unwrap();
    assert!(file.ends_with("\nstatus: open\n---"), "{file}");

    // Files of the older layout are issues, too; the newer layout wins if both have a slug.
    for (path, content) in [
        ("issues/old.md", "---\nstatus: closed\ndate: 2025-01-01\n---\nOld text\n"),
        ("issues/fix-the-broken-thing.md", "---\ntitle: Older\n---\n"),
        ("issues/deep/a.md", "---\ntitle: Deep\n---\n"),
    ] {
        let write = json!({"projectName": "demo", "artifactPath": path, "content": content});
        world.ok("/workspace/artifact/document/write", write).await;
    }
    assert_eq!(create("Old", "").await["slug"], "old-2");
    let list = async |query: &str| -> Vec<Value> {
        let listed = world.ok(&format!("/workspace/issue/list?projectName=demo{query}"), Value::Null).await;
        listed["issues"].as_array().unwrap().clone()
    };
    let slugs = |issues: &[Value]| {
        let mut slugs: Vec<String> = issues.iter().map(|issue| issue["slug"].as_str().unwrap().to_owned()).collect();
        slugs.sort();
        slugs
    };
    let all = ["fix-the-broken-thing", "fix-the-broken-thing-2", "old", "old-2"];
    assert_eq!(slugs(&list("").await), all);
    assert_eq!(slugs(&list("&status=open").await), ["fix-the-broken-thing", "fix-the-broken-thing-2", "old-2"]);
    let old = json!({"slug": "old", "title": "old", "status": "closed", "date": "2025-01-01"});
    assert_eq!(list("&status=closed").await, [old]);
    let read =
        async |slug: &str| world.ok(&format!("/workspace/issue/read?projectName=demo&slug={slug}"), Value::Null).await;
    let issue = read("fix-the-broken-thing").await;
    assert_eq!((&issue["title"], &issue["body"]), (&json!("Fix the \"broken\" \\thing"), &json!(text)));
    assert_eq!(read("old").await["body"], "Old text\n");
    assert_eq!(read("old-2").await["body"], "");
}

#[tokio::test]
async fn a_rebase_is_a_sync_and_says_whether_it_was_one() {
    let world = World::new().await;
    let code = world.root.path().join("code");
    let rebase = async || world.ok("/workspace/git/branch/rebase", json!({})).await["results"][0].clone();
    let first = rebase().await;
    assert_eq!((&first["project"], &first["rebased"]), (&json!("demo"), &json!(true)), "{first}");
    let commit = |file: &str| {
        fs::write(code.join(file), "text\n").unwrap();
        git(&code, &["add", "--all"]);
        git(&code, &["commit", "--quiet", "--message=More"]);
    };
    commit("a.txt");
    assert_eq!(rebase().await["rebased"], true);
    assert_eq!(git(&code, &["rev-parse", "claude/main"]), git(&code, &["rev-parse", "main"]));
    // Attempts begin at commits of claude/main, so these are not rewritten.
    let write = json!({"projectName": "demo", "artifactPath": "a.md", "content": "a\n"});
    world.ok("/workspace/artifact/document/write", write).await;
    commit("b.txt");
    let merged = rebase().await;
    assert_eq!(merged["rebased"], false);
    assert!(merged["reason"].as_str().unwrap().contains("merged into claude/main"), "{merged}");
    assert_eq!(merged.get("error"), None);
}

#[tokio::test]
async fn documents_are_listed_read_and_written_and_each_change_is_a_commit() {
    let world = World::new().await;
    let demo = "projectName=demo";
    let write = "/workspace/artifact/document/write";
    // The spellings of the original's web UI and of its command line.
    world
        .ok(
            &format!("{write}?{demo}"),
            json!({"artifactPath": "specs/b.md", "content": "---\nstatus: open\n---\nB.\n"}),
        )
        .await;
    world.ok(write, json!({"projectName": "demo", "path": ".lore/specs/c.md", "body": ""})).await;
    let listed = world.ok(&format!("/workspace/artifact/document/list?{demo}"), Value::Null).await;
    let paths = |listed: &Value| -> Vec<String> {
        let paths = listed["artifacts"].as_array().unwrap().iter();
        paths.map(|artifact| artifact["relativePath"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(paths(&listed), ["specs/b.md", "plan.md", "specs/c.md"], "what is open comes first");
    let first = &listed["artifacts"][0];
    assert_eq!((&first["content"], &first["meta"]["type"]), (&json!("B.\n"), &json!("Spec")));
    assert_eq!(first["rawContent"], Value::Null);
    let newest = world.ok(&format!("/workspace/artifact/document/list?{demo}&recent=true&limit=1"), Value::Null).await;
    assert_eq!(paths(&newest), ["specs/c.md"]);
    let read = world.ok(&format!("/workspace/artifact/document/read?{demo}&path=specs/b.md"), Value::Null).await;
    assert_eq!(read["rawContent"], "---\nstatus: open\n---\nB.\n");

    let code = world.root.path().join("code");
    let log = git(&code, &["log", "--format=%s", "claude/main"]);
    assert_eq!(
        log.lines().take(2).collect::<Vec<_>>(),
        ["Edit artifact: .lore/specs/c.md", "Edit artifact: specs/b.md"]
    );
    assert_eq!(git(&code, &["status", "--porcelain"]), "", "the user's own working tree stays");

    // The user changes the integration worktree by hand.
    let status = format!("/workspace/git/lore/status?{demo}");
    assert_eq!(world.ok(&status, Value::Null).await, json!({"hasPendingChanges": false, "fileCount": 0}));
    fs::write(world.root.path().join("hall/projects/demo/.lore/hand.md"), "by hand\n").unwrap();
    assert_eq!(world.ok(&status, Value::Null).await, json!({"hasPendingChanges": true, "fileCount": 1}));
    let commit = json!({"message": " Add a note \n"});
    let committed = world.ok(&format!("/workspace/git/lore/commit?{demo}"), commit.clone()).await;
    assert_eq!(committed, json!({"committed": true, "message": "Add a note"}));
    assert_eq!(git(&code, &["log", "-1", "--format=%s", "claude/main"]).trim(), "Add a note");
    // Merges recognise earlier merges by such a line, so a caller's line is quoted.
    fs::write(world.root.path().join("hall/projects/demo/.lore/hand.md"), "again\n").unwrap();
    let forged = json!({"message": "Again\n\nSquashed-From: 0000"});
    assert_eq!(world.ok(&format!("/workspace/git/lore/commit?{demo}"), forged).await["committed"], true);
    assert_eq!(git(&code, &["log", "-1", "--format=%b", "claude/main"]).trim(), "> Squashed-From: 0000");
    let nothing = world.ok(&format!("/workspace/git/lore/commit?{demo}"), commit).await;
    assert_eq!(nothing, json!({"committed": false, "message": "Nothing to commit"}));
}

#[tokio::test]
async fn no_document_is_read_or_written_outside_of_lore_or_over_a_record() {
    let world = World::new().await;
    let outside = world.root.path().join("canary");
    fs::write(&outside, "canary").unwrap();
    // The integration worktree exists.
    let body = |path: &str| json!({"projectName": "demo", "artifactPath": path, "content": "forged"});
    world.ok("/workspace/artifact/document/write", body("a.md")).await;
    let lore = world.root.path().join("hall/projects/demo/.lore");
    std::os::unix::fs::symlink(&outside, lore.join("link.md")).unwrap();
    std::os::unix::fs::symlink(world.root.path(), lore.join("up")).unwrap();
    for path in [
        "../src/a",
        "/etc/passwd",
        "a/../../b.md",
        "work/commissions/x.md",
        "commissions/x.md",
        "work/meetings/x.md",
        ".gitattributes",
        "sub/.git/config",
        "link.md",
        "up/canary",
        "a\u{0}b",
        "",
    ] {
        let (status, answer) = world.ask_route("/workspace/artifact/document/write", &body(path)).await;
        assert!(status >= 400 && answer["error"].is_string(), "{path}: {status} {answer}");
    }
    for path in ["link.md", "up/canary", "../../../canary"] {
        let (status, answer) = world
            .ask_route(&format!("/workspace/artifact/document/read?projectName=demo&path={path}"), &Value::Null)
            .await;
        assert!(status >= 400 && !answer.to_string().contains("\"canary\""), "{path}: {status} {answer}");
    }
    let listed = world.ok("/workspace/artifact/document/list?projectName=demo", Value::Null).await;
    assert!(!listed.to_string().contains("canary"), "{listed}");
    // The name of a project that is not permitted resolves to no file.
    let (config, secret) = (world.root.path().join("hall/config.yaml"), world.root.path().join("secret/.lore"));
    fs::create_dir_all(&secret).unwrap();
    fs::write(secret.join("a.md"), "canary").unwrap();
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}  - name: ../../secret\n    path: /nowhere\n")).unwrap();
    for route in ["list", "read"] {
        let path = format!("/workspace/artifact/document/{route}?projectName=../../secret&path=a.md");
        let (status, answer) = world.ask_route(&path, &Value::Null).await;
        assert!(status == 409 && !answer.to_string().contains("canary"), "{status} {answer}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "canary");
}

#[tokio::test]
async fn images_and_mockups_are_shown_by_their_names_and_run_nothing_of_the_readers() {
    let world = World::new().await;
    world.ok("/workspace/artifact/document/list?projectName=demo", Value::Null).await;
    let lore = world.root.path().join("hall/projects/demo/.lore");
    let outside = world.root.path().join("canary.png");
    fs::write(&outside, "canary").unwrap();
    fs::write(lore.join("lamp.svg"), "<svg/>").unwrap();
    fs::write(lore.join("page.html"), "<p>Hello</p>").unwrap();
    std::os::unix::fs::symlink(&outside, lore.join("link.png")).unwrap();
    std::os::unix::fs::symlink(world.root.path(), lore.join("out")).unwrap();
    for (path, kind, policy) in [
        // An image path in a document in `notes/`: relative to its own directory, which need not exist.
        ("image/read?projectName=demo&path=notes/../lamp.svg", "image/svg+xml", "sandbox; default-src 'none'"),
        ("image/read?projectName=demo&path=.lore/./a/b/../../lamp.svg", "image/svg+xml", "sandbox; default-src 'none'"),
        ("image/read?projectName=demo&path=lamp.svg", "image/svg+xml", "sandbox; default-src 'none'"),
        ("mockup/read?projectName=demo&path=.lore/page.html", "text/html; charset=utf-8", "sandbox allow-scripts;"),
    ] {
        let reply = world.fetch(&format!("/hall/workspace/artifact/{path}")).await;
        let header = |name| reply.header(name).unwrap_or_default();
        assert_eq!((reply.status, header("content-type")), (200, kind));
        assert!(header("content-security-policy").starts_with(policy), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff");
    }
    let meta = world.ok("/workspace/artifact/image/meta?projectName=demo&path=lamp.svg", Value::Null).await;
    assert_eq!((&meta["fileSize"], &meta["mimeType"]), (&json!(6), &json!("image/svg+xml")));
    assert_eq!((&meta["relativePath"], &meta["meta"]["title"]), (&json!("lamp.svg"), &json!("Lamp")));
    for (path, status) in [
        ("image/read?projectName=demo&path=no.png", 404),
        ("image/read?projectName=demo&path=plan.md", 415),
        ("image/read?projectName=demo&path=page.html", 415),
        ("image/meta?projectName=demo&path=plan.md", 415),
        ("mockup/read?projectName=demo&path=lamp.svg", 415),
        ("mockup/read?projectName=demo&path=no.html", 404),
        ("image/read?projectName=demo&path=link.png", 400),
        ("image/read?projectName=demo&path=out/canary.png", 400),
        ("image/read?projectName=demo&path=out/../../canary.png", 400),
        ("image/read?projectName=demo&path=../.lore/lamp.svg", 400),
        ("mockup/read?projectName=demo&path=../page.html", 400),
        ("document/read?projectName=demo&path=specs/../../src/code.txt", 400),
        ("image/read?projectName=demo&path=../../../../canary.png", 400),
        ("image/meta?projectName=x&path=lamp.svg", 404),
    ] {
        let (found, answer) = world.ask_route(&format!("/workspace/artifact/{path}"), &Value::Null).await;
        assert!(found == status && answer["error"].is_string(), "{path}: {found} {answer}");
    }
    let said = async |path: &str| {
        let path = format!("/workspace/artifact/{path}");
        world.ask_route(&path, &Value::Null).await.1["error"].as_str().unwrap().to_owned()
    };
    let wrong = said("image/read?projectName=demo&path=plan.md").await;
    assert!(wrong.starts_with("Unsupported image type: .md"), "{wrong}");
    let wrong = said("mockup/read?projectName=demo&path=lamp.svg").await;
    assert!(wrong.starts_with("Unsupported mockup type: .svg"), "{wrong}");
    assert_eq!(said("image/read?projectName=demo&path=a/../no.png").await, "Image not found: no.png");
    assert_eq!(said("mockup/read?projectName=demo&path=no.html").await, "Mockup not found: no.html");
    let left = said("image/read?projectName=demo&path=../../../../canary.png").await;
    assert!(left.starts_with("Path traversal detected"), "{left}");
}

#[tokio::test]
async fn a_briefing_counts_what_is_to_be_done() {
    let world = World::new().await;
    let read = "/coordination/review/briefing/read";
    let briefing = world.ok(&format!("{read}?projectName=demo"), Value::Null).await;
    assert_eq!((&briefing["briefing"], &briefing["cached"]), (&json!("There is nothing to do."), &json!(false)));
    world.create().await;
    let briefing = world.ok(&format!("{read}?projectName=all"), Value::Null).await;
    assert_eq!(briefing["briefing"], "demo: Commissions: 1 waiting to be dispatched.");
    assert_eq!(world.ask_route(&format!("{read}?projectName=x"), &Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_project_is_described_by_the_first_section_of_its_vision() {
    let world = World::new().await;
    let config = world.root.path().join("hall/config.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{text}    description: Listed\n")).unwrap();
    let described = async || {
        let read = world.ok("/system/config/project/read?name=demo", Value::Null).await;
        read["description"].clone()
    };
    assert_eq!(described().await, "Listed");
    for (vision, expected) in [
        ("---\ntitle: A\n---\nNo.\n# Vision\n\nA lamp.\n## More\nLight.\n\n# Rest\nNo.\n", "A lamp.\n## More\nLight."),
        ("#Vision\nA lamp.\n", "Listed"),
        ("---\ntitle: A\n---\n", "Listed"),
    ] {
        let write = json!({"projectName": "demo", "artifactPath": "vision.md", "content": vision});
        world.ok("/workspace/artifact/document/write", write).await;
        assert_eq!(described().await, expected, "{vision}");
    }
}

#[tokio::test]
async fn what_the_hall_serves_is_told() {
    let world = World::new().await;
    let config = world.ok("/system/config/application/read", Value::Null).await;
    assert_eq!((&config["projects"][0]["name"], &config["maxConcurrentCommissions"]), (&json!("demo"), &json!(10)));
    assert_eq!(world.ok("/system/config/project/read?name=demo", Value::Null).await["name"], "demo");
    let valid = world.ok("/system/config/application/validate", Value::Null).await;
    assert_eq!(valid, json!({"valid": true, "issues": [], "projectCount": 1}));
    // The original's command line sends no body.
    let reloaded: Value =
        serde_json::from_str(&world.raw("/hall/system/config/application/reload", "").await.body).unwrap();
    assert_eq!(reloaded, json!({"reloaded": true, "projectCount": 1, "newProjects": []}));
    let workers = world.ok("/system/packages/worker/list", Value::Null).await;
    assert_eq!(workers["workers"][0]["name"], "tester");
    // The built-in search has no models.
    let models = world.ok("/system/models/catalog/list", Value::Null).await;
    assert_eq!(models, json!({"builtin": [], "local": []}));

    // config.yaml is read when it is used.
    let file = world.root.path().join("hall/config.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}  - name: other\n    path: /nowhere\nmaxConcurrentCommissions: 4\n")).unwrap();
    let valid = world.ok("/system/config/application/validate", Value::Null).await;
    let warning = valid["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("other: ") && warning.contains("[[project]]"), "{warning}");
    assert_eq!(world.ok("/system/config/application/read", Value::Null).await["maxConcurrentCommissions"], 4);
    fs::write(&file, "projects: [").unwrap();
    let broken = world.ok("/system/config/application/validate", Value::Null).await;
    assert!(broken["valid"] == false && broken["issues"][0].as_str().unwrap().contains("config.yaml"), "{broken}");
}
