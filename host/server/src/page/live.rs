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
use guild_contract::{JobStatus, hall::CommissionPhase};
use guild_page::{hall, job, now};
use guild_roster::host::Host;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{hall_views, request::PageRequest, views};
use crate::{
    connections::Activity,
    events::{KEEP_ALIVE, event_stream, no_place},
    layers::Admitted,
};

/// The shortest time between two renderings.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two renderings while a job runs: its usage grows without an event.
const RENEWED: Duration = Duration::from_secs(3);

/// The event that ends a stream whose content changes no more.
pub(super) const DONE: &str = "event: done\n\n";

/// How soon the content of a view changes again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Something runs in it.
    Running,
    /// It changes with an event of a job.
    Waiting,
    /// It does not change any more.
    Over,
}

impl Pace {
    fn of(runs: bool) -> Self {
        if runs { Self::Running } else { Self::Waiting }
    }
}

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
    /// A project's page.
    Project(String),
    /// A commission's page.
    Commission {
        /// The project's name.
        project: String,
        /// The commission's id.
        commission: String,
    },
}

impl View {
    /// Renders the changing part. None if the viewer can no longer see it.
    async fn render(&self, page: &PageRequest) -> Option<(String, Pace)> {
        match self {
            Self::Now => {
                let members = views::members(page).await;
                let runs = |member: &now::MemberNow| member.jobs.as_ref().is_ok_and(|jobs| jobs.counts.running > 0);
                Some((now::live(&members).into_string(), Pace::of(members.iter().any(runs))))
            }
            Self::Job { member, job } => {
                let shown = views::job(page, member, job).await.ok()?;
                let pace = if shown.status.status == JobStatus::Running { Pace::Running } else { Pace::Over };
                Some((job::live(&shown).into_string(), pace))
            }
            Self::Project(project) => {
                let shown = hall_views::project(page, project).await.ok()?;
                let runs =
                    |column: &hall::project::Column| column.status.is_active() && !column.list.commissions.is_empty();
                Some((hall::project::live(&shown).into_string(), Pace::of(shown.columns.iter().any(runs))))
            }
            Self::Commission { project, commission } => {
                let shown = hall_views::commission(page, project, commission, true).await.ok()?;
                let pace = match shown.detail.commission.status.phase() {
                    CommissionPhase::Waiting => Pace::Waiting,
                    CommissionPhase::Active => Pace::Running,
                    CommissionPhase::Ended | CommissionPhase::Over => Pace::Over,
                };
                Some((hall::commission::live(&page.viewer(), &shown).into_string(), pace))
            }
        }
    }
}

/// The viewer of a stream. A stream lives long, and must keep neither its caller's place among requests nor an old
/// reading of `guild.toml`.
pub(super) struct StreamViewer {
    host: Arc<Host>,
    browser: Browser,
    activity: Arc<Activity>,
    subscription: Subscription,
    _place: Permit,
}

impl StreamViewer {
    /// The viewer of a request, with a place among the listeners.
    ///
    /// # Errors
    ///
    /// Returns the response that says that there is no place.
    pub(super) fn of(page: PageRequest) -> Result<Self, Response> {
        let PageRequest { host, admitted: Admitted { caller, activity }, browser, .. } = page;
        let Some(place) = host.events().place(caller.identity()) else { return Err(no_place(host.events()).text()) };
        Ok(Self { host, browser, activity, subscription: caller.into_subscription(), _place: place })
    }

    /// Whether the viewer may still look.
    pub(super) fn is_good(&self) -> bool {
        self.subscription.is_good()
    }

    /// A request of the viewer at this moment.
    pub(super) fn request(&self) -> PageRequest {
        let admitted = Admitted { caller: self.subscription.caller(), activity: self.activity.clone() };
        let (host, reading) = (self.host.clone(), self.host.roster().now());
        PageRequest { host, reading, admitted, browser: self.browser.clone() }
    }
}

/// The stream of a view.
struct Live {
    view: View,
    viewer: StreamViewer,
    newest: watch::Receiver<u64>,
    /// The hash of the content that was sent last.
    sent: Option<u64>,
    pace: Pace,
}

/// Streams a view to its viewer.
pub(super) fn live(page: PageRequest, view: View) -> Response {
    let newest = page.host.events().newest();
    match StreamViewer::of(page) {
        Ok(viewer) => {
            let live = Live { view, viewer, newest, sent: None, pace: Pace::Running };
            event_stream(Body::from_stream(stream::unfold(live, Live::next)))
        }
        Err(refused) => refused,
    }
}

impl Live {
    /// Returns the next content that differs from the last, or a keep-alive; `None` once the viewer may no longer look,
    /// or the content changes no more.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let quiet = Instant::now() + KEEP_ALIVE;
        loop {
            if !self.viewer.is_good() || self.pace == Pace::Over {
                return None;
            }
            if self.sent.is_none() || self.changed().await {
                let (content, pace) = self.view.render(&self.viewer.request()).await?;
                self.pace = pace;
                let mut hasher = DefaultHasher::new();
                content.hash(&mut hasher);
                let hash = Some(hasher.finish());
                let mut next = if hash == self.sent { String::new() } else { frame(&content) };
                self.sent = hash;
                if pace == Pace::Over {
                    next.push_str(DONE);
                }
                if !next.is_empty() {
                    return Some((Ok(next.into()), self));
                }
            }
            if Instant::now() >= quiet {
                return Some((Ok(Bytes::from_static(b":\n\n")), self));
            }
        }
    }

    /// Waits for an event, or until the content is to be rendered again; false if it is not.
    async fn changed(&mut self) -> bool {
        sleep(PAUSE).await;
        let is_running = self.pace == Pace::Running;
        let patience = if is_running { RENEWED } else { KEEP_ALIVE };
        matches!(timeout(patience, self.newest.changed()).await, Ok(Ok(()))) || is_running
    }
}

/// A message of server-sent events.
pub(super) fn frame(content: &str) -> String {
    let mut frame = String::with_capacity(content.len() + 64);
    for line in content.lines() {
        frame.push_str("data: ");
        frame.push_str(line);
        frame.push('\n');
    }
    frame.push('\n');
    frame
}
