//! The toolbox and the hybrid that come with the host, as their callers use them: `tools/list` and `tools/call` on the
//! components that `cargo xtask guests` installed.

use std::{fs, path::Path};

use jsonschema::validator_for;
use serde_json::{Value, json};

use crate::support::host::{Client, Home, Host};

/// A member as it is installed.
fn installed(home: &Home, name: &str) -> std::path::PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guild-members").join(name);
    for file in ["guild-member.json".to_owned(), "posture.md".to_owned(), format!("{name}.wasm")] {
        match fs::read(from.join(&file)) {
            Ok(content) => drop(home.write(&format!("members/{name}/{file}"), content)),
            Err(_) if file == "posture.md" => {}
            Err(error) => panic!("{file}: {error}; `cargo xtask guests` builds it"),
        }
    }
    home.path(&format!("members/{name}"))
}

/// The tools of a member, each held against what it is listed with.
struct Tools {
    client: Client,
    listed: Vec<Value>,
}

impl Tools {
    fn of(host: &Host) -> Self {
        let client = host.client();
        let listed = client.call("tools/list", json!({})).unwrap()["tools"].as_array().unwrap().clone();
        Self { client, listed }
    }

    fn names(&self) -> Vec<&str> {
        self.listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
    }

    /// What a tool answers; what it says where it did not work.
    fn call(&self, name: &str, input: Value) -> Result<Value, String> {
        let tool = self.listed.iter().find(|tool| tool["name"] == name).unwrap();
        let called = self.client.call("tools/call", json!({"name": name, "arguments": input})).unwrap();
        let text = called["content"][0]["text"].as_str().unwrap().to_owned();
        if called["isError"] == json!(true) {
            return Err(text);
        }
        let Some(schema) = tool.get("outputSchema") else { return Ok(text.into()) };
        let answer = called["structuredContent"].clone();
        let problems: Vec<String> =
            validator_for(schema).unwrap().iter_errors(&answer).map(|e| e.to_string()).collect();
        assert!(problems.is_empty(), "{name}: {problems:?} in {answer}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), answer);
        Ok(answer)
    }
}

#[test]
fn every_tool_of_the_textkit_answers_as_it_says() {
    let home = Home::new();
    let host = home.serve(&installed(&home, "textkit"), &[]);
    let tools = Tools::of(&host);
    let seven = ["text_stats", "find_replace", "extract", "diff", "sort_lines", "query_table", "convert_table"];
    assert_eq!(tools.names(), seven);
    for tool in &tools.listed {
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
        assert!(!tool.to_string().contains("$ref"), "{tool}");
    }

    let stats = tools.call("text_stats", json!({"text": "one two\n\nthree\n"})).unwrap();
    assert_eq!((&stats["words"], &stats["lines"], &stats["longest"][0]["line"]), (&json!(3), &json!(3), &json!(1)));
    let input = json!({"text": "a-b a-c", "find": r"a-(\w)", "replace": "$1", "regex": true});
    assert_eq!(tools.call("find_replace", input).unwrap(), json!({"replacements": 2, "text": "b c"}));
    let links = tools.call("extract", json!({"text": "see\nhttps://a.example/b.", "what": "links"})).unwrap();
    assert_eq!(links, json!({"count": 1, "matches": [{"line": 2, "text": "https://a.example/b"}]}));
    let difference = tools.call("diff", json!({"before": "a\nb\n", "after": "a\nc\n"})).unwrap();
    assert_eq!(difference["diff"], "@@ -1,2 +1,2 @@\n a\n-b\n+c\n");
    let sorted = tools.call("sort_lines", json!({"text": "b\na\nb\n", "unique": true})).unwrap();
    assert_eq!(sorted, json!({"lines": 2, "dropped": 1, "text": "a\nb\n"}));
    let sales = "region,sold\nnorth,2\nsouth,3\nnorth,5\n";
    let by_region = json!({"text": sales, "groupBy": ["region"], "aggregate": [{"function": "sum", "column": "sold"}]});
    let rows = json!([{"region": "north", "sum_sold": 7}, {"region": "south", "sum_sold": 3}]);
    assert_eq!(tools.call("query_table", by_region).unwrap()["rows"], rows);
    let markdown = tools.call("convert_table", json!({"text": sales, "to": "markdown"})).unwrap();
    assert!(markdown.as_str().unwrap().starts_with("| region | sold |\n| --- | ---: |\n| north | 2 |\n"));
}

#[test]
fn the_textkit_says_what_is_wrong_with_an_input() {
    let home = Home::new();
    let host = home.serve(&installed(&home, "textkit"), &[]);
    let tools = Tools::of(&host);
    let refused = |name, input| tools.call(name, input).unwrap_err();
    assert!(refused("text_stats", json!({"txt": "x"})).contains("txt"));
    assert!(
        refused("find_replace", json!({"text": "a", "find": "(", "replace": "", "regex": true})).contains("`find`")
    );
    let sort = json!({"text": "a,b\n1,2\n", "sort": [{"column": "c"}]});
    assert!(refused("query_table", sort).contains("the columns are a, b"));
    let dispatched = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(dispatched.code == -32601 && dispatched.message.contains("no capability `worker`"), "{dispatched:?}");
}

#[test]
fn what_takes_the_textkit_longest_ends_within_a_call() {
    let home = Home::new();
    let host = home.serve(&installed(&home, "textkit"), &[]);
    let tools = Tools::of(&host);
    let numbers = |of: usize| (0..45_000).map(|n| format!("{}\n", n * of % 977)).collect::<String>();
    let answered = tools.call("diff", json!({"before": numbers(7), "after": numbers(11), "context": 0}));
    // The difference is larger than an answer may be, and the error says so.
    assert!(answered.unwrap_err().contains("the fixed limit tool_result_bytes"));
    let text = "a".repeat(400_000);
    let search = json!({"text": text, "find": "(a+)+b", "replace": "", "regex": true});
    assert!(tools.call("find_replace", search).unwrap_err().contains("the fixed limit tool_result_bytes"));
    let rows = (0..40_000).map(|n| format!("{n},{}\n", n % 13)).collect::<String>();
    let sort = json!({"text": format!("n,k\n{rows}"), "sort": [{"column": "k"}, {"column": "n", "descending": true}]});
    assert_eq!(tools.call("query_table", sort).unwrap()["rows"][0], json!({"n": 39_999 - 39_999 % 13, "k": 0}));
}

#[test]
fn the_analyst_offers_its_figures_and_puts_them_into_its_sessions() {
    let home = Home::new();
    let rows = "who,n\nann,1\nbob,2\nbob,\n";
    let docs = home.write("data/a.csv", rows).parent().unwrap().to_str().unwrap().to_owned();
    home.write("data/wide.csv", format!("a\n{}\n", "x".repeat(3000)));
    let host = home.serve(&installed(&home, "analyst"), &["--sources", &docs]);
    let tools = Tools::of(&host);
    assert_eq!(tools.names(), ["profile_table"]);
    let of_text = tools.call("profile_table", json!({"text": rows})).unwrap();
    assert_eq!(of_text, tools.call("profile_table", json!({"path": "data/a.csv"})).unwrap());
    assert_eq!((&of_text["rows"], &of_text["columns"][1]["sum"]), (&json!(3), &json!(3.0)));
    assert!(tools.call("profile_table", json!({"path": "data/wide.csv"})).unwrap_err().contains("line 2 is too long"));
    assert!(tools.call("profile_table", json!({"path": "../secret"})).is_err());

    let client = host.client();
    let none = client.dispatch(json!({"description": "d", "task": "t", "config": {"tables": "*.xls"}})).unwrap_err();
    assert!(none.code == -32602 && none.message.contains("config.tables"), "{none:?}");
    let id = client.start("Who has the largest n?");
    assert_eq!(client.ended(&id)["status"], "completed");
    let plan = fs::read_to_string(home.path("members/analyst/jobs").join(&id).join("plan.json")).unwrap();
    assert!(plan.contains("| n | integer | 1 | 2 | 1 | 2 | 3 | 1.5 | 1.5 |"), "{plan}");
    assert!(plan.contains("no figures of this table: line 2 is too long"), "{plan}");
}

#[test]
fn the_analyst_without_a_directory_to_read_still_profiles_what_it_is_given() {
    let home = Home::new();
    let host = home.serve(&installed(&home, "analyst"), &[]);
    let tools = Tools::of(&host);
    assert_eq!(tools.call("profile_table", json!({"text": "a\n1\n"})).unwrap()["rows"], 1);
    assert!(tools.call("profile_table", json!({"path": "data/a.csv"})).unwrap_err().contains("not granted"));
    let refused = host.client().dispatch(json!({"description": "d", "task": "t"})).unwrap_err();
    assert!(refused.message.contains("there are no tables to read"), "{refused:?}");
}
