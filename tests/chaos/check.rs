//! Checks the promises of a cluster on a history, as a pure function.
//!
//! Each check has a number, with which its findings begin.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::history::{Entry, Millis, Span};

/// How long after a fault a host may lag behind: it reads its view of the jobs, and connects again.
const RECOVERY: Millis = 20_000;
/// How long after its pause a host may send a request that was under way before.
const AWAKE: Millis = 200;
/// The tool whose effects are counted outside of the hosts.
const EFFECT: &str = "box__do";

/// The contradictions between a history and the promises, in sentences.
pub(super) fn findings(entries: &[Entry]) -> Vec<String> {
    let checks = [outcomes, agreement, finality, effects, turns, notes, events, logs, leftovers];
    checks.into_iter().flat_map(|check| check(entries)).collect()
}

/// The answered dispatches: the key of each job, and when its dispatch was asked for.
fn dispatched(entries: &[Entry]) -> BTreeMap<&str, (u32, Millis)> {
    let mut jobs = BTreeMap::new();
    for entry in entries {
        if let Entry::Dispatched { span, key, job } = entry {
            jobs.entry(job.as_str()).or_insert((*key, span.began));
        }
    }
    jobs
}

/// The jobs whose deletion was asked for, with the time at which it was, and at which it was answered.
fn deletions(entries: &[Entry]) -> BTreeMap<&str, (Millis, Option<Millis>)> {
    let mut deletions = BTreeMap::<&str, (Millis, Option<Millis>)>::new();
    for entry in entries {
        let Entry::Deleted { span, job, is_answered } = entry else { continue };
        let known = deletions.entry(job).or_insert((span.began, None));
        let answered = is_answered.then_some(span.ended);
        *known = (known.0.min(span.began), known.1.into_iter().chain(answered).min());
    }
    deletions
}

/// The statuses that each job has at the end, by host and round.
fn finals(entries: &[Entry]) -> BTreeMap<&str, Vec<(&str, Option<&Value>)>> {
    let mut finals = BTreeMap::<_, Vec<_>>::new();
    for entry in entries {
        if let Entry::Final { job, host, status, .. } = entry {
            finals.entry(job.as_str()).or_default().push((host.as_str(), status.as_ref()));
        }
    }
    finals
}

/// When the end of each job was first seen.
fn seen_ends(entries: &[Entry]) -> BTreeMap<&str, Millis> {
    let mut ends = BTreeMap::<&str, Millis>::new();
    for entry in entries {
        if let Entry::Seen { span, job, status: Some(status) } = entry
            && status != "running"
        {
            let known = ends.entry(job).or_insert(span.ended);
            *known = (*known).min(span.ended);
        }
    }
    ends
}

fn status_of(status: Option<&Value>) -> Option<&str> {
    status.and_then(|status| status["status"].as_str())
}

/// (1) Each answered dispatch is there, with an end, at each host; each key has one job.
fn outcomes(entries: &[Entry]) -> Vec<String> {
    let (finals, deletions, mut found) = (finals(entries), deletions(entries), Vec::new());
    let mut keys = BTreeMap::new();
    for (job, (key, _)) in dispatched(entries) {
        if let Some(other) = keys.insert(key, job) {
            found.push(format!("(1) the key {key} has two jobs, {other} and {job}"));
        }
        let Some(statuses) = finals.get(job) else {
            found.push(format!("(1) the job {job} was dispatched, and nobody asked for it at the end"));
            continue;
        };
        for (host, status) in statuses {
            match status_of(*status) {
                None if deletions.contains_key(job) => {}
                None => found.push(format!("(1) the job {job} was dispatched, and {host} does not know it")),
                Some("running") => found.push(format!("(1) the job {job} has no end at {host}")),
                Some(_) => {}
            }
        }
    }
    found
}

/// (2) The status, the result and the artifacts are the same at each host, and do not change.
fn agreement(entries: &[Entry]) -> Vec<String> {
    let (mut answers, mut found) = (BTreeMap::new(), Vec::new());
    for entry in entries {
        let Entry::Final { host, round, job, status, result, artifacts } = entry else { continue };
        let answer = (status, result, artifacts);
        let (first, at) = answers.entry(job).or_insert((answer, format!("{host} in round {round}")));
        if *first != answer {
            found.push(format!("(2) {host} answers for {job} in round {round} {answer:?}, and {at} {first:?}"));
        }
    }
    found
}

/// An answer about a job, with its status; none where the job was unknown.
type Sight<'a> = (&'a Span, Option<&'a str>);

/// (3) Nothing but an end follows an end, and a job that was cancelled or deleted stays so.
fn finality(entries: &[Entry]) -> Vec<String> {
    let (deletions, mut sights, mut found) = (deletions(entries), BTreeMap::<&str, Vec<Sight<'_>>>::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Seen { span, job, status } => sights.entry(job).or_default().push((span, status.as_deref())),
            Entry::Cancelled { span, job, status: Some(status) } => {
                sights.entry(job).or_default().push((span, Some(status)));
            }
            _ => {}
        }
    }
    for (job, mut sights) in sights {
        sights.sort_by_key(|(span, _)| span.ended);
        let deletion = deletions.get(job);
        for (index, (later, status)) in sights.iter().enumerate() {
            let is_known_deleted = deletion.and_then(|(_, answered)| *answered);
            match status {
                None if deletion.is_none_or(|(asked, _)| later.ended < *asked) => {
                    found.push(format!("(3) {} does not know {job} at {}", later.host, later.ended));
                }
                Some(_) if is_known_deleted.is_some_and(|at| at < later.began && !may_lag(entries, later)) => {
                    found.push(format!("(3) {} knows {job} at {}, after its deletion", later.host, later.ended));
                }
                _ => {}
            }
            let Some(status) = status else { continue };
            // The last end that another answer told before this request began.
            let before = sights.get(..index).unwrap_or_default().iter().rev();
            let mut ends = before
                .filter(|(span, status)| span.ended < later.began && status.is_some_and(|status| status != "running"));
            let Some((span, Some(end))) = ends.next() else { continue };
            let is_allowed = match (*end, *status) {
                (end, status) if end == status => true,
                // A failed job can be cancelled.
                ("failed", "cancelled") => true,
                ("cancelled", "failed") | (_, "running") => may_lag(entries, later),
                _ => false,
            };
            if !is_allowed {
                let (host, at) = (&later.host, later.ended);
                found.push(format!(
                    "(3) {host} says {status} of {job} at {at}, and {} said {end} at {}",
                    span.host, span.ended
                ));
            }
        }
    }
    found
}

/// Whether a host may not have known at its answer what another one knew before: while a fault keeps it from NATS, it
/// answers as it knows.
fn may_lag(entries: &[Entry], answer: &Span) -> bool {
    entries.iter().any(|entry| match entry {
        Entry::Faulted { hosts, began, ended, .. } => {
            hosts.contains(&answer.host) && *began < answer.ended && answer.began < ended + RECOVERY
        }
        _ => false,
    })
}

/// (4) A call has one effect at most, and one if it was answered; decisions and questions are there once.
fn effects(entries: &[Entry]) -> Vec<String> {
    let (mut counts, mut found) = (BTreeMap::<(u32, usize), usize>::new(), Vec::new());
    for entry in entries {
        if let Entry::Effect { key, turn, .. } = entry {
            *counts.entry((*key, *turn)).or_default() += 1;
        }
    }
    for ((key, turn), count) in counts.iter().filter(|(_, count)| **count > 1) {
        found.push(format!("(4) the call in the turn {turn} of errand {key} had its effect {count} times"));
    }
    let done = done(entries);
    for (key, turn, tool) in done.iter().filter(|(.., tool)| *tool == EFFECT) {
        if !counts.contains_key(&(*key, *turn)) {
            found.push(format!(
                "(4) the call of {tool} in the turn {turn} of errand {key} was answered without its effect"
            ));
        }
    }
    let (keys, mut looked) = (dispatched(entries), BTreeSet::new());
    for entry in entries {
        let Entry::Final { job, status: Some(status), .. } = entry else { continue };
        let Some((key, _)) = keys.get(job.as_str()).filter(|_| looked.insert(job)) else { continue };
        for (field, tool) in [("decisions", "record_decision"), ("questions", "log_question")] {
            let count = status[field].as_array().map_or(0, Vec::len);
            let is_done = done.iter().any(|(of, _, name)| of == key && *name == tool);
            if count > 1 || (count == 0 && is_done) {
                found.push(format!(
                    "(4) the job {job} has {count} {field}, and its session was told of {}",
                    u8::from(is_done)
                ));
            }
        }
    }
    found
}

/// The calls whose result told that they were carried out: key, turn and tool.
fn done(entries: &[Entry]) -> BTreeSet<(u32, usize, &str)> {
    let requests = entries.iter().filter_map(|entry| match entry {
        Entry::Requested { key, answered, .. } => Some((*key, answered)),
        _ => None,
    });
    let calls = requests.flat_map(|(key, answered)| answered.iter().map(move |call| (key, call)));
    calls.filter(|(_, call)| call.is_done).map(|(key, call)| (key, call.turn, call.tool.as_str())).collect()
}

/// (5) A turn is asked for once by each owner of its job, and not after the effect of its call or of a later one, except by
/// a request that was under way when its host was stopped.
fn turns(entries: &[Entry]) -> Vec<String> {
    let (mut owners, mut found) = (BTreeMap::<&str, u64>::new(), Vec::new());
    for entry in entries {
        if let Entry::Logged { job, epoch, .. } = entry {
            let owned = owners.entry(job).or_default();
            *owned = (*owned).max(*epoch);
        }
    }
    let owners: BTreeMap<u32, u64> =
        dispatched(entries).iter().filter_map(|(job, (key, _))| Some((*key, *owners.get(job)?))).collect();
    let (mut acknowledged, mut asked) = (BTreeMap::<u32, (usize, Millis)>::new(), BTreeMap::<(u32, usize), u64>::new());
    let mut timed: Vec<_> = entries.iter().collect();
    timed.sort_by_key(|entry| match entry {
        Entry::Effect { at, .. } | Entry::Requested { at, .. } => *at,
        _ => 0,
    });
    for entry in timed {
        match entry {
            Entry::Effect { at, key, turn } => {
                let known = acknowledged.entry(*key).or_insert((*turn, *at));
                *known = (known.0.max(*turn), *at);
            }
            Entry::Requested { at, host, key, turn, .. } => {
                *asked.entry((*key, *turn)).or_default() += 1;
                let later = acknowledged.get(key).filter(|(last, _)| last >= turn);
                if let Some((last, stored)) = later.filter(|(_, stored)| !was_under_way(entries, host, *at, *stored)) {
                    let after = format!("after the call of the turn {last} at {stored}");
                    found.push(format!("(5) {host} asked at {at} for the turn {turn} of errand {key}, {after}"));
                }
            }
            _ => {}
        }
    }
    for ((key, turn), count) in asked {
        if let Some(owners) = owners.get(&key).filter(|owners| count > **owners) {
            found.push(format!("(5) the turn {turn} of errand {key} was asked for {count} times by {owners} owners"));
        }
    }
    found
}

/// Whether a request may have been under way when its host was stopped, before a call of its job had its effect elsewhere:
/// nothing calls it back when the host goes on, and the ledger refuses what comes of it.
fn was_under_way(entries: &[Entry], host: &String, at: Millis, effect: Millis) -> bool {
    entries.iter().any(|entry| match entry {
        Entry::Faulted { kind, hosts, began, ended } => {
            kind.starts_with("SIGSTOP host") && hosts.contains(host) && *began < effect && at.abs_diff(*ended) < AWAKE
        }
        _ => false,
    })
}

/// (6) The notes of a job whose end was seen are in the prompt of each job that is dispatched afterwards. A job that a caller
/// ended may have had one under way, at a host that had not heard of the end.
fn notes(entries: &[Entry]) -> Vec<String> {
    let (jobs, ended) = (dispatched(entries), seen_ends(entries));
    // A note is stored when the job's next turn tells the model so, at the latest.
    let mut stored = BTreeMap::<u32, Millis>::new();
    for entry in entries {
        if let Entry::Requested { at, key, answered, .. } = entry
            && answered.iter().any(|call| call.is_done && call.tool == "store_memory")
        {
            let first = stored.entry(*key).or_insert(*at);
            *first = (*first).min(*at);
        }
    }
    let known = jobs.iter().filter_map(|(job, (key, _))| Some((*key, *ended.get(job)?)));
    let known: Vec<_> = known.filter(|(key, ended)| stored.get(key).is_some_and(|stored| stored <= ended)).collect();
    let began: BTreeMap<u32, Millis> = jobs.values().copied().collect();
    let mut found = Vec::new();
    for entry in entries {
        let Entry::Requested { host, key, turn: 0, notes, .. } = entry else { continue };
        let Some(began) = began.get(key) else { continue };
        for (note, _) in known.iter().filter(|(note, ended)| ended < began && !notes.contains(note)) {
            found.push(format!("(6) errand {key} at {host} was begun without the note of {note}, whose end was known"));
        }
    }
    found
}

/// (7) The events of a job come in their order, each once, and none is lost without a gap.
fn events(entries: &[Entry]) -> Vec<String> {
    let (mut ids, mut kinds, mut found) = (BTreeSet::new(), BTreeMap::<&str, Vec<&str>>::new(), Vec::new());
    for entry in entries {
        let Entry::Event { host, id, kind, job, .. } = entry else { continue };
        kinds.entry(job).or_default().push(kind);
        if !ids.insert(id) {
            found.push(format!("(7) {host} sent the event {id} once more"));
        }
    }
    let is_followed = entries.iter().any(|entry| matches!(entry, Entry::Event { .. }));
    for (job, kinds) in &kinds {
        let position = |kind| kinds.iter().position(|found| *found == kind);
        let is_later = |kind| position(kind).is_some_and(|at| at + 1 < kinds.len());
        let is_first = position("job-started").is_none_or(|at| at == 0);
        let after_end = kinds.iter().skip_while(|kind| **kind != "job-ended");
        let goes_on = after_end.clone().any(|kind| !["job-ended", "job-deleted"].contains(kind));
        // A failed job that is cancelled has two ends.
        if !is_first || goes_on || is_later("job-deleted") || after_end.filter(|kind| **kind == "job-ended").count() > 2
        {
            found.push(format!("(7) the events of {job} came as {kinds:?}"));
        }
    }
    let (finals, mut messages) = (finals(entries), BTreeMap::<&str, (u64, u64)>::new());
    for entry in entries {
        if let Entry::Logged { job, sequence, is_rollup, .. } = entry {
            // The messages before one that replaced the log are not known any more.
            let first = if *is_rollup { 0 } else { *sequence };
            let (_, last) = messages.entry(job).or_insert((first, *sequence));
            *last = *sequence;
        }
    }
    for job in dispatched(entries).into_keys().filter(|_| is_followed) {
        let told = kinds.get(job).map(Vec::as_slice).unwrap_or_default();
        // A subscriber that was told of a gap may miss the events of these messages, and of the one before the gap those
        // that it was not told.
        let (first, last) = messages.get(job).copied().unwrap_or_default();
        let is_gap =
            |entry: &Entry| matches!(entry, Entry::Gap { after, upto, .. } if *after <= last && first <= *upto);
        if entries.iter().any(is_gap) {
            continue;
        }
        let has_ended = finals.get(job).is_some_and(|statuses| statuses.iter().all(|(_, status)| status.is_some()));
        for kind in ["job-started", "job-ended"].iter().take(if has_ended { 2 } else { 1 }) {
            if !told.contains(kind) {
                found.push(format!("(7) the event {kind} of {job} is lost; its events: {told:?}"));
            }
        }
    }
    found
}

/// (1) Each message of a log has the one before it as its condition, and only the holder of a job appends to it.
fn logs(entries: &[Entry]) -> Vec<String> {
    let (mut last, mut found) = (BTreeMap::new(), Vec::new());
    for entry in entries {
        let Entry::Logged { job, sequence, expected, writer, holder, epoch, is_rollup } = entry else { continue };
        let before = last.insert(job, (*sequence, holder, *epoch));
        let tail = before.map_or(0, |(sequence, ..)| sequence);
        if *expected != tail && !is_rollup {
            found
                .push(format!("(1) the message {sequence} of {job} was appended after {expected}, and follows {tail}"));
        }
        if let Some((_, Some(owner), owned)) = before {
            // Others may end a job or take it, but not write for its owner.
            let is_foreign = owner != writer && holder.as_ref() == Some(owner);
            if is_foreign || *epoch < owned {
                found.push(format!("(1) {writer} appended {sequence} to {job}, which {owner} held in epoch {owned}"));
            }
        }
    }
    found
}

/// (8) Nothing is left over.
fn leftovers(entries: &[Entry]) -> Vec<String> {
    let left = |entry: &Entry| match entry {
        Entry::Left { what } => Some(format!("(8) {what} is left over")),
        _ => None,
    };
    entries.iter().filter_map(left).collect()
}
