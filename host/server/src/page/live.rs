//! Streams the changing part of a page, as server-sent events that htmx swaps in.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{future::BoxFuture, stream};
use guild_auth::{Subscription, budget::Permit};
use guild_contract::JobStatus;
use guild_page::{job, now};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{views, visit::Visit};
use crate::{
    events::{KEEP_ALIVE, event_stream, no_place},
    layers::Admitted,
};

/// The shortest time between two renderings.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two renderings while a job runs: its usage grows without an event.
const RENEWED: Duration = Duration::from_secs(3);

/// Renders the content for a visitor, and says whether a job runs in it; none if there is nothing to show any more.
type Render = Arc<dyn Fn(Visit) -> BoxFuture<'static, Option<(String, bool)>> + Send + Sync>;

/// The stream of the first page.
pub(super) async fn now(visit: Visit) -> Response {
    live(
        visit,
        Arc::new(|visit| {
            Box::pin(async move {
                let members = views::members(&visit).await;
                let is_running =
                    members.iter().any(|member| member.jobs.as_ref().is_ok_and(|jobs| jobs.counts.running > 0));
                Some((now::live(&members).into_string(), is_running))
            })
        }),
    )
}

/// The stream of a job's page.
pub(super) fn job(visit: Visit, job: String, member: String) -> Response {
    live(
        visit,
        Arc::new(move |visit| {
            let (job, member) = (job.clone(), member.clone());
            Box::pin(async move {
                let shown = views::job(&visit, &member, &job).await.ok()?;
                Some((job::live(&shown).into_string(), shown.status.status == JobStatus::Running))
            })
        }),
    )
}

/// The stream of one viewer.
struct Live {
    visit: Visit,
    subscription: Subscription,
    newest: watch::Receiver<u64>,
    render: Render,
    sent: String,
    is_running: bool,
    _place: Permit,
}

fn live(visit: Visit, render: Render) -> Response {
    let hub = visit.host.events().clone();
    let Some(place) = hub.place(visit.caller().identity()) else { return no_place(&hub).text().into_response() };
    // A stream lives long, and must not keep its caller's place among requests.
    let subscription = visit.caller().clone().into_subscription();
    let admitted = Admitted { caller: subscription.caller(), activity: visit.admitted.activity.clone() };
    let visit = Visit { admitted, ..visit };
    let live = Live {
        visit,
        subscription,
        newest: hub.newest(),
        render,
        sent: String::new(),
        is_running: true,
        _place: place,
    };
    event_stream(Body::from_stream(stream::unfold(live, Live::next)))
}

impl Live {
    /// The next content that differs from the last, or a keep-alive; none once the viewer may no longer look.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let quiet = Instant::now() + KEEP_ALIVE;
        loop {
            if !self.subscription.is_good() {
                return None;
            }
            if self.sent.is_empty() || self.changed().await {
                let admitted = Admitted { caller: self.subscription.caller(), ..self.visit.admitted.clone() };
                let reading = self.visit.host.roster().now();
                let visit = Visit { admitted, reading, ..self.visit.clone() };
                let (content, is_running) = (self.render)(visit).await?;
                self.is_running = is_running;
                if content != self.sent {
                    let event = frame(&content);
                    self.sent = content;
                    return Some((Ok(event.into()), self));
                }
            }
            if Instant::now() >= quiet {
                return Some((Ok(Bytes::from_static(b":\n\n")), self));
            }
        }
    }

    /// Waits for an event, or until the content is to be renewed; false if it is not.
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
