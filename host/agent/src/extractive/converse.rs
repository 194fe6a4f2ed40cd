//! A turn of a conversation: the message is looked up in the sources. Nothing of what was said before matters to it.

use std::{collections::HashSet, sync::Arc};

use guild_contract::Usage;
use guild_session::{meter::Ending, session::Session, transcript::Entry};
use tokio_util::sync::CancellationToken;

use super::{
    Extractive,
    question::inquiry,
    report::Report,
    search::{answer, follow_up},
    session::warn,
};

/// Findings of an answer, for each of the questions in a message.
const FINDINGS: usize = 4;

/// What the first answer begins with.
const NO_MODEL: &str = "I am the built-in search and no model, so I do not converse: I look up each message by itself in \
                        the sources that were granted, and quote what they say.\n\n";
const NO_SOURCES: &str = "No sources are granted to this session, so there is nothing that I could look up. The operator \
                          grants some with [[roots]] in guild.toml, or with the option --sources DIR.";
const NO_QUESTION: &str = "This asks nothing that could be looked up: state it as a question.";

/// Answers what the user said.
pub(super) async fn converse(
    runtime: &Extractive,
    session: &Session,
    cancel: &CancellationToken,
) -> Result<String, Ending> {
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
    let found = look_up(runtime, session, cancel).await?;
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

async fn look_up(runtime: &Extractive, session: &Session, cancel: &CancellationToken) -> Result<String, Ending> {
    let message = session.message().unwrap_or_default().to_owned();
    let Some(files) = session.files.as_ref().filter(|files| !files.roots().is_empty()) else {
        return Ok(NO_SOURCES.to_owned());
    };
    let cpu = runtime.cache.cpu(files);
    let inquiry = cpu.run(cancel, move || inquiry(&message)).await?;
    if inquiry.questions.is_empty() {
        return Ok(NO_QUESTION.to_owned());
    }
    let corpus = runtime.cache.corpus(files, cancel).await?;
    let roots = files.roots();
    warn(session, &corpus, &roots);
    let searched: Arc<HashSet<u32>> = Arc::new(corpus.within(&inquiry.sources));
    let (looked_in, stop) = (files.clone(), cancel.clone());
    let written = cpu.run(cancel, move || {
        let look_up = |question| {
            let mut found = answer(&corpus, &searched, question, FINDINGS);
            follow_up(&corpus, &searched, &mut found, FINDINGS);
            found.verify(&*looked_in, &stop);
            found
        };
        let answers: Vec<_> = inquiry.questions.into_iter().map(look_up).collect();
        let mut report = Report::new(&corpus, &answers, &[], searched.len(), &roots);
        report.absent = looked_in.absent();
        report.markdown(None)
    });
    Ok(written.await?)
}
