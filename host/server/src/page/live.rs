//! Streams the changing part of a page, as server-sent events that htmx swaps in.

use std::{
    convert::Infallible,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use guild_auth::{Browser, Subscription, budget::Permit};
use guild_contract::JobStatus;
use guild_page::{job, now};
use guild_roster::host::Host;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{request::PageRequest, views};
use crate::{
    connections::Activity,
    events::{KEEP_ALIVE, event_stream, no_place},
    layers::Admitted,
};

/// The shortest time between two renderings.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two renderings while a job runs: its usage grows without an event.
const RENEWED: Duration = Duration::from_secs(3);

/// A view that changes.
pub(super) enum View {
    /// The first page.
    Now,
    /// A job's page.
    Job {
        /// The member's key.
        member: String,
        /// The job's id.
        job: String,
    },
}

impl View {
    /// Renders the changing part, and says whether a job runs in it. None if the viewer can no longer see it.
    async fn render(&self, page: &PageRequest) -> Option<(String, bool)> {
        match self {
            Self::Now => {
                let members = views::members(page).await;
                let runs = |member: &now::MemberNow| member.jobs.as_ref().is_ok_and(|jobs| jobs.counts.running > 0);
                Some((now::live(&members).into_string(), members.iter().any(runs)))
            }
            Self::Job { member, job } => {
                let shown = views::job(page, member, job).await.ok()?;
                Some((job::live(&shown).into_string(), shown.status.status == JobStatus::Running))
            }
        }
    }
}

/// The stream of one viewer. It lives long, and must keep neither its caller's place among requests nor an old reading
/// of `guild.toml`.
struct Live {
    view: View,
    host: Arc<Host>,
    browser: Browser,
    activity: Arc<Activity>,
    subscription: Subscription,
    newest: watch::Receiver<u64>,
    /// The hash of the content that was sent last.
    sent: Option<u64>,
    is_running: bool,
    _place: Permit,
}

/// Streams a view to its viewer.
pub(super) fn live(page: PageRequest, view: View) -> Response {
    let PageRequest { host, admitted: Admitted { caller, activity }, browser, .. } = page;
    let hub = host.events().clone();
    let Some(place) = hub.place(caller.identity()) else { return no_place(&hub).text() };
    let (subscription, newest) = (caller.into_subscription(), hub.newest());
    let live =
        Live { view, host, browser, activity, subscription, newest, sent: None, is_running: true, _place: place };
    event_stream(Body::from_stream(stream::unfold(live, Live::next)))
}

impl Live {
    /// Returns the next content that differs from the last, or a keep-alive; `None` once the viewer may no longer look.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let quiet = Instant::now() + KEEP_ALIVE;
        loop {
            if !self.subscription.is_good() {
                return None;
            }
            if self.sent.is_none() || self.changed().await {
                let (content, is_running) = self.view.render(&self.request()).await?;
                self.is_running = is_running;
                let mut hasher = DefaultHasher::new();
                content.hash(&mut hasher);
                let hash = Some(hasher.finish());
                if hash != self.sent {
                    self.sent = hash;
                    return Some((Ok(frame(&content).into()), self));
                }
            }
            if Instant::now() >= quiet {
                return Some((Ok(Bytes::from_static(b":\n\n")), self));
            }
        }
    }

    /// A request of the viewer at this moment.
    fn request(&self) -> PageRequest {
        let admitted = Admitted { caller: self.subscription.caller(), activity: self.activity.clone() };
        let (host, reading) = (self.host.clone(), self.host.roster().now());
        PageRequest { host, reading, admitted, browser: self.browser.clone() }
    }

    /// Waits for an event, or until the content is to be rendered again; false if it is not.
    async fn changed(&mut self) -> bool {
        sleep(PAUSE).await;
        let patience = if self.is_running { RENEWED } else { KEEP_ALIVE };
        matches!(timeout(patience, self.newest.changed()).await, Ok(Ok(()))) || self.is_running
    }
}

/// A message of server-sent events.
fn frame(content: &str) -> String {
    let mut frame = String::with_capacity(content.len() + 64);
    for line in content.lines() {
        frame.push_str("data: ");
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
    frame
}
