//! Sends progress notifications to the client of a call that waits.

use std::time::Duration;

use rmcp::{
    RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::Peer,
};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::timeout,
};

/// The maximum number of queued notes; further ones are dropped.
const AHEAD: usize = 16;
/// The time without a new note after which the last one is repeated.
const AGAIN: Duration = Duration::from_secs(15);

/// Sends notes to a client as they arrive. The task ends when the sender is dropped and all notes have been sent.
pub(super) fn notify(peer: Peer<RoleServer>, token: ProgressToken) -> (Sender<String>, JoinHandle<()>) {
    let (sender, coming) = mpsc::channel(AHEAD);
    let mut notes = Notes { token, coming, again: AGAIN, count: 0.0, last: None };
    let notifier = tokio::spawn(async move {
        while let Some(note) = notes.next().await {
            if peer.notify_progress(note).await.is_err() {
                return;
            }
        }
    });
    (sender, notifier)
}

struct Notes {
    token: ProgressToken,
    coming: Receiver<String>,
    again: Duration,
    count: f64,
    last: Option<String>,
}

impl Notes {
    /// Returns the next note; none once the sender is dropped. After a long silence it repeats the last one, since many
    /// clients abandon a silent call.
    async fn next(&mut self) -> Option<ProgressNotificationParam> {
        match timeout(self.again, self.coming.recv()).await {
            Ok(None) => return None,
            Ok(note) => self.last = note,
            Err(_) => {}
        }
        self.count += 1.0;
        let mut note = ProgressNotificationParam::new(self.token.clone(), self.count);
        note.message.clone_from(&self.last);
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;

    use super::*;

    #[tokio::test]
    async fn where_nothing_is_heard_for_long_the_last_note_is_sent_again() {
        let (sender, coming) = mpsc::channel(AHEAD);
        let token = ProgressToken(NumberOrString::Number(1));
        let mut notes = Notes { token, coming, again: Duration::from_millis(1), count: 0.0, last: None };
        let mut next = async || notes.next().await.map(|note| (note.progress, note.message));
        let note = |count, text: &str| Some((count, Some(text.to_owned())));
        assert_eq!(next().await, Some((1.0, None)));
        sender.try_send("half".to_owned()).unwrap();
        assert_eq!(next().await, note(2.0, "half"));
        assert_eq!(next().await, note(3.0, "half"));
        sender.try_send("nearly".to_owned()).unwrap();
        drop(sender);
        assert_eq!(next().await, note(4.0, "nearly"));
        assert_eq!(next().await, None);
    }
}
