//! Local servers that speak the protocols of model providers, scripted by a test or a benchmark.
//!
//! They listen on a loopback address, answer every request as their [`Script`] says, in the words of the protocol, and
//! keep what they were sent:
//!
//! ```
//! # async fn example() {
//! use guild_fakes::{Anthropic, Reply};
//! let provider = Anthropic::start(vec![Reply::status(429).retry_after("0"), Reply::text("Done.")]).await;
//! // ... a client of `provider.url()` ...
//! assert_eq!(provider.received(2).await.len(), 2);
//! # }
//! ```

#![allow(clippy::indexing_slicing, reason = "of JSON, where what is not there is null")]

mod anthropic;
mod claude;
mod gemini;
mod git;
mod nats;
mod ollama;
mod openai;
mod ports;
mod proxy;
mod script;
mod server;

pub use anthropic::Anthropic;
pub use claude::fake_claude;
pub use gemini::Gemini;
pub use git::git;
pub use nats::{Nats, Stored, nats_server};
pub use ollama::Ollama;
pub use openai::OpenAi;
pub use ports::{free_node_ports, free_port};
pub use proxy::{Mode, Proxy};
pub use script::{Gate, Received, Reply, Script, Tokens};
pub use server::Provider;
