//! A client of a plugin host: it dispatches work to a member, follows it, and fetches its result.
//!
//! ```no_run
//! # async fn example() -> Result<(), guild_client::Error> {
//! use guild_client::{DispatchParams, WorkerHandle};
//!
//! let researcher = WorkerHandle::new("http://127.0.0.1:7433", Some(&"researcher".parse().unwrap()))?;
//! let task = "What can an operator set?".to_owned();
//! let params = DispatchParams { description: "settings".to_owned(), task, ..DispatchParams::default() };
//! let job = researcher.dispatch(&params).await?.value.job_id;
//! let ended = researcher.wait_for(job.as_str()).await?;
//! if let Some(error) = ended.error {
//!     eprintln!("it failed: {error}");
//! } else {
//!     println!("{}", researcher.result(job.as_str()).await?.value.output);
//! }
//! # Ok(())
//! # }
//! ```

mod connect;
mod endpoint;
mod error;
mod events;
mod hall_client;
mod handle;
mod members;
mod relay;
mod tools;
mod turn;

pub use connect::{Authorities, Options, Reply, refusal};
pub use error::Error;
pub use events::{Events, Filter, ReceivedEvent};
pub use guild_contract::{
    Event, EventDetail, JobId, JobStatus, Manifest, MemberKey, MemberReport, MemberService, hall,
    job::event::Kind,
    member::guidance::{self, Naming},
    operation::{self, Operation},
    rpc::{
        CancelView, Deleted, Detail, DispatchParams, Dispatched, JobList, JobParams, ListParams, Listed, ListedDetails,
        LogPosition, LogView, ResultView, Resumed, StatusView,
    },
    secret::Secret,
};
pub use hall_client::{HallClient, HallEvents};
pub use handle::WorkerHandle;
pub use members::{Served, health, members, served};
pub use relay::{Head, Relay, RelayResponse};
pub use reqwest::Url;
pub use tools::{CallResult, Content, Tool};
pub use turn::TurnEvents;
