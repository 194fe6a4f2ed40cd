//! Answers a message of a conversation: it is looked up in the sources, without regard to earlier messages.

use guild_contract::Usage;
use guild_session::{meter::Ending, session::Session, transcript::Entry};
use tokio_util::sync::CancellationToken;

use crate::{
    cache::Cache,
    corpus::blocking,
    report::Report,
    session::{look_up, warn},
    task::inquiry,
};

/// The beginning of the first answer.
const NO_MODEL: &str = "I am the built-in search and no model, so I do not converse: I look up each message by itself in \
                        the sources that were granted, and quote what they say.\n\n";
const NO_SOURCES: &str = "No sources are granted to this session, so there is nothing that I could look up. The operator \
                          grants some with [[roots]] in guild.toml, or with the option --sources DIR.";

/// Answers the user's last message.
pub(crate) async fn converse(cache: &Cache, session: &Session, cancel: &CancellationToken) -> Result<String, Ending> {
    session.meter.take_turn()?;
    let (mut turn, mut is_first) = (1, true);
    for entry in &session.history {
        match entry {
            Entry::Turn { turn: last, .. } => (turn, is_first) = (last + 1, false),
            Entry::Text { .. } => is_first = false,
            _ => {}
        }
    }
    let beginning = if is_first { NO_MODEL } else { "" };
    session.piece(beginning);
    let found = answered(cache, session, cancel).await?;
    found.split_inclusive("\n\n").for_each(|paragraph| session.piece(paragraph));
    let text = format!("{beginning}{found}");
    session.journal.write(&Entry::Turn {
        session: session.number,
        turn,
        model: None,
        text: text.clone(),
        content: None,
        usage: Usage { turns: 1, ..Usage::default() },
    });
    Ok(text)
}

async fn answered(cache: &Cache, session: &Session, cancel: &CancellationToken) -> Result<String, Ending> {
    let message = session.message().unwrap_or_default().to_owned();
    let Some(files) = session.files.as_ref().filter(|files| !files.roots().is_empty()) else {
        return Ok(NO_SOURCES.to_owned());
    };
    let corpus = cache.corpus(files, cancel).await?;
    let (roots, absent) = (files.roots(), files.absent());
    warn(session, &corpus, &roots);
    blocking(move || {
        let inquiry = inquiry(&message);
        let answers = look_up(&corpus, &inquiry);
        Report::new(&corpus, &answers, &[], corpus.named(&inquiry.sources), &roots, absent).markdown(None)
    })
    .await
}
