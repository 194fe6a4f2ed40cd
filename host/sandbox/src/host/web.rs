//! `web`: this host grants it to nobody yet, so every call is answered `not-granted`.

use guild_jobs::tools::ToolError;

use super::Answer;
use crate::{
    bindings::guild::worker::web::{Hit, Host},
    state::State,
};

fn not_granted<T>() -> Answer<T> {
    Ok(Err(ToolError::NotGranted("this version of the host has no web access to grant".to_owned()).into()))
}

impl Host for State {
    async fn search(&mut self, _query: String, _limit: u32) -> Answer<Vec<Hit>> {
        not_granted()
    }

    async fn fetch(&mut self, _url: String) -> Answer<String> {
        not_granted()
    }
}
