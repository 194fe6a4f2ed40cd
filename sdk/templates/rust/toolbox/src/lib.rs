//! A toolbox that counts words.

use guild_plugin_sdk::{
    export_toolbox,
    toolbox::{Tool, ToolError, Toolbox},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The text to count in.
    #[schemars(length(max = 100_000))]
    text: String,
    /// Count this word alone.
    #[serde(default)]
    word: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Count {
    /// How many there are.
    words: usize,
}

fn count(input: Input) -> Result<Count, ToolError> {
    let wanted = input.word.as_deref();
    if wanted == Some("") {
        return Err(ToolError::InvalidInput(
            "`word` is empty: leave it out to count all words".to_owned(),
        ));
    }
    let words = input
        .text
        .split_whitespace()
        .filter(|word| wanted.is_none_or(|wanted| wanted == *word));
    Ok(Count {
        words: words.count(),
    })
}

struct Words;

impl Toolbox for Words {
    fn tools() -> Vec<Tool> {
        vec![
            Tool::new(
                "count",
                "Counts the words of a text, or how often it has one word.",
                count,
            )
            .read_only(),
        ]
    }
}

export_toolbox!(Words);
