//! Finds content that left in whatever encoding: a run is played again with other tokens and with nothing else changed,
//! so that a text that changed carries content of what has the tokens.
//!
//! A line that differs between two runs with the same tokens, too, has an id or a time of the host and proves nothing.
//! Then one group of sources after the other has the other tokens, which says whose content the text carries.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use jiff::{SignedDuration, Timestamp};

use super::crossings::{IN_ADDRESS, add, crossed};
use crate::{
    ProbeError,
    canaries::{CALLERS, Canaries, Source},
    known::addresses,
    record::{Event, Place},
    report::Crossing,
    run::{Played, Subject, play},
    scenarios::{Kind, Setting},
    web::{BY_COMPONENT, REFUSED},
};

/// The encoding of content that no known encoding shows.
const UNNAMED: &str = "an encoding that has no name here";
/// Why a request counts that no two runs share, whatever the tokens are.
const RESTLESS: &str = "it is another one in each run, so that any content can be in it";
/// Why a text counts of which no source is known.
const UNTRACED: &str = "it changes with what the member is given";
/// The beginning of the names of texts that a session is given.
const OF_SESSION: &str = "session";
/// Bytes of the shortest part of a token by which a word of a request is explained.
const PART: usize = 4;

/// The position of a text in a run: its step, place and name; of requests, the number among those of the same, too.
type Position = (u32, Place, String, usize);
/// The texts that differ in another run.
type Changed = BTreeMap<Position, Change>;
/// The lines of an event that are compared.
type Compared = fn(&Event) -> Vec<String>;

/// The lines of a text that only one of two runs has.
#[derive(Debug, Default)]
struct Change {
    first: Vec<String>,
    other: Vec<String>,
}

impl Change {
    /// Whether a line of the first run is in both.
    fn shares(&self, other: &Self) -> bool {
        self.first.is_empty() || self.first.iter().any(|line| other.first.contains(line))
    }

    /// The lines that are shown: those of the first run, where it has some.
    fn shown(&self) -> String {
        let lines = if self.first.is_empty() { &self.other } else { &self.first };
        lines.join("\n")
    }
}

/// Whether a run is played again with other tokens. The others of its kind differ in little from it.
pub(crate) fn is_played(setting: &Setting, settings: &[Setting]) -> bool {
    let is_first = settings.iter().find(|other| other.kind == setting.kind).is_some_and(|one| one.name == setting.name);
    is_first && matches!(setting.kind, Kind::Many | Kind::Project | Kind::Sizes)
}

/// A setting that was played with the first tokens.
pub(crate) struct Twins<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) setting: &'a Setting,
    pub(crate) first: &'a Played,
    pub(crate) deadline: Instant,
}

impl Twins<'_> {
    /// Plays the setting again with other tokens, and adds to `found` what changed. Without enough time it is false.
    pub(crate) async fn look(&self, found: &mut Vec<Crossing>) -> Result<bool, ProbeError> {
        let canaries = self.subject.canaries;
        let twin = canaries.twin();
        let Some(mut changed) = self.changed(&twin, outward).await? else { return Ok(false) };
        changed.retain(|position, change| !is_request(position) || !is_explained(change, canaries));
        // A later caller is given nothing of the first one.
        let of_first = canaries.with(&twin, |source| *source == Source::Caller(1));
        let Some(mut given) = self.changed(&of_first, lines).await? else { return Ok(false) };
        given.retain(|(step, ..), _| *step > 1);
        if changed.is_empty() && given.is_empty() {
            return Ok(true);
        }
        let Some(restless) = self.changed(canaries, lines).await? else { return Ok(false) };
        self.restless(&changed, &restless, found);
        let mut changed = without(changed, &restless);
        self.tell(&without(given, &restless), &Source::Caller(1), found);
        for group in groups(canaries) {
            if changed.is_empty() {
                break;
            }
            let only = canaries.with(&twin, |source| group.contains(source));
            let Some(of_group) = self.changed(&only, outward).await? else { break };
            let (mine, others) = changed
                .into_iter()
                .partition(|(position, change)| of_group.get(position).is_some_and(|of_group| change.shares(of_group)));
            let source = group.first().cloned().unwrap_or(Source::Unknown);
            self.tell(&mine, &source, found);
            changed = others;
        }
        self.tell(&changed, &Source::Unknown, found);
        Ok(true)
    }

    /// The texts that change when the setting is played with these tokens; none if there was no time to play it whole.
    async fn changed(&self, canaries: &Canaries, compared: Compared) -> Result<Option<Changed>, ProbeError> {
        let Self { subject, setting, first, deadline } = self;
        if Instant::now() >= *deadline {
            return Ok(None);
        }
        let other = play(&Subject { canaries, ..*subject }, setting, *deadline).await?;
        let is_whole = first.is_whole && other.is_whole;
        Ok(is_whole.then(|| between((first, subject.canaries), (&other, canaries), compared)))
    }

    /// Adds the requests of the component that differ also between runs with the same tokens.
    fn restless(&self, changed: &Changed, restless: &Changed, found: &mut Vec<Crossing>) {
        for (position, change) in restless.iter().filter(|(position, _)| is_request(position)) {
            let is_own = [BY_COMPONENT, REFUSED].contains(&position.2.as_str());
            if is_own && changed.contains_key(position) {
                self.add(position, &Source::Unknown, RESTLESS, change, found);
            }
        }
    }

    /// Adds the texts that carry content of a source.
    fn tell(&self, changed: &Changed, source: &Source, found: &mut Vec<Crossing>) {
        for (position, change) in changed {
            let (step, place, ..) = position;
            // Of the callers, the one of the step comes first.
            let source = match source {
                Source::Caller(_) if is_request(position) => Source::Caller((*step).clamp(1, CALLERS)),
                other => other.clone(),
            };
            let why = match source {
                Source::Unknown => Some(UNTRACED),
                _ if is_outward(*place) || matches!(source, Source::Caller(_)) => {
                    crossed(&source, UNNAMED, &event(position, change))
                }
                _ => Some(IN_ADDRESS),
            };
            let is_known = |one: &Crossing| one.source == source && one.place == *place && one.encoding != UNNAMED;
            if let Some(why) = why.filter(|_| !found.iter().any(is_known)) {
                self.add(position, &source, why, change, found);
            }
        }
    }

    fn add(&self, position: &Position, source: &Source, why: &str, change: &Change, found: &mut Vec<Crossing>) {
        let event = event(position, change);
        add(found, &self.setting.name, &event, source, UNNAMED, why, &event.text);
    }
}

fn event((step, place, name, _): &Position, change: &Change) -> Event {
    Event { step: *step, place: *place, name: name.clone(), text: change.shown(), by_model: false }
}

fn is_request((_, place, ..): &Position) -> bool {
    *place == Place::Request
}

/// Whether others than the caller of a step read a place.
fn is_outward(place: Place) -> bool {
    matches!(
        place,
        Place::Request
            | Place::PullRequest
            | Place::Commit
            | Place::Commission
            | Place::GlobalMemory
            | Place::ProjectMemory
            | Place::ToolDefinition
    )
}

/// The lines that others than the caller of a step read, and addresses elsewhere.
fn outward(event: &Event) -> Vec<String> {
    match event.place {
        Place::Log | Place::Failure => Vec::new(),
        place if is_outward(place) => lines(event),
        _ => addresses(&event.text),
    }
}

/// All lines; of a request, the whole.
fn lines(event: &Event) -> Vec<String> {
    match event.place {
        Place::Request => vec![event.text.clone()],
        _ => event.text.lines().map(str::to_owned).collect(),
    }
}

/// The groups of sources that have other tokens in turn. What callers hand over comes last: a tool of the web sends it.
fn groups(canaries: &Canaries) -> Vec<Vec<Source>> {
    let (callers, others): (Vec<_>, Vec<_>) =
        canaries.all().iter().map(|canary| canary.source.clone()).partition(|one| matches!(one, Source::Caller(_)));
    others.into_iter().map(|source| vec![source]).chain([callers]).collect()
}

/// The lines of one run, by their position, that the other run does not have there. Tokens as they stand, and the ids of
/// the host, count as the same.
fn between(one: (&Played, &Canaries), other: (&Played, &Canaries), compared: Compared) -> Changed {
    let [one, other] = [one, other].map(|(run, canaries)| texts(run, canaries, compared));
    let positions: BTreeSet<&Position> = one.keys().chain(other.keys()).collect();
    let none = Vec::new();
    let mut changed = Changed::new();
    for position in positions {
        let [mine, its] = [&one, &other].map(|texts| texts.get(position).unwrap_or(&none));
        let missing = |lines: &[Line], others: &[Line]| {
            let others: BTreeSet<&str> = others.iter().map(|line| line.plain.as_str()).collect();
            let missing = lines.iter().filter(|line| !others.contains(line.plain.as_str()));
            missing.map(|line| line.text.clone()).collect::<Vec<_>>()
        };
        let change = Change { first: missing(mine, its), other: missing(its, mine) };
        if !change.first.is_empty() || !change.other.is_empty() {
            changed.insert((*position).clone(), change);
        }
    }
    changed
}

/// A line as it stands, and without tokens and ids.
struct Line {
    text: String,
    plain: String,
}

fn texts(run: &Played, canaries: &Canaries, compared: Compared) -> BTreeMap<Position, Vec<Line>> {
    let mut numbers: BTreeMap<(u32, Place, String), usize> = BTreeMap::new();
    let mut texts: BTreeMap<Position, Vec<Line>> = BTreeMap::new();
    let now = Timestamp::now();
    for event in run.events.iter().filter(|event| !event.by_model) {
        // Sessions that run side by side have their numbers in any order.
        let name =
            if event.name.starts_with(OF_SESSION) { OF_SESSION.to_owned() } else { plain(&event.name, run, canaries) };
        let number = numbers.entry((event.step, event.place, name.clone())).or_default();
        let position = (event.step, event.place, name, *number);
        // The order of requests says something; that of files and commits depends on the host's clock.
        if event.place == Place::Request {
            *number += 1;
        }
        let line = |text: String| {
            let plain = plain(&text, run, canaries);
            // The dates of requests are the member's.
            Line { plain: if event.place == Place::Request { plain } else { undated(&plain, now) }, text }
        };
        texts.entry(position).or_default().extend(compared(event).into_iter().map(line));
    }
    texts
}

/// A line without the present time, which the host writes into records.
fn undated(line: &str, now: Timestamp) -> String {
    let is_now = |word: &&str| {
        let time = word.parse::<Timestamp>();
        word.ends_with('Z') && time.is_ok_and(|time| time.duration_since(now).abs() < SignedDuration::from_hours(1))
    };
    let is_quote = |c: char| matches!(c, '"' | '\'' | ',' | '(' | ')');
    let times = line.split_whitespace().map(|word| word.trim_matches(is_quote)).filter(is_now);
    times.fold(line.to_owned(), |line, time| line.replace(time, "<time>"))
}

/// A text without tokens and the host's ids as they stand, whole or their beginnings.
fn plain(text: &str, run: &Played, canaries: &Canaries) -> String {
    let mut text = text.to_owned();
    let tokens = canaries.all().iter().flat_map(|canary| &canary.forms).map(|form| (form.as_str(), "<token>"));
    for (part, name) in tokens.chain(run.ids.iter().map(|id| (id.as_str(), "<id>"))) {
        if text.contains(part) {
            text = text.replace(part, name);
        }
    }
    text
}

/// Whether each word of a request that changed is a part of a token that a caller, a session or a page of the web handed
/// over: a tool of the web sends what it is asked for, or the beginning of it.
fn is_explained(change: &Change, canaries: &Canaries) -> bool {
    let is_handed = |source: &Source| matches!(source, Source::Caller(_) | Source::Session | Source::Web);
    let tokens: Vec<&str> =
        canaries.all().iter().filter(|one| is_handed(&one.source)).map(|one| one.token.as_str()).collect();
    let [first, other] = [&change.first, &change.other].map(|lines| words(&lines.join("\n")));
    let is_part = |word: &&String| {
        tokens.iter().any(|token| token.starts_with(word.as_str()) || (word.len() >= PART && token.contains(*word)))
    };
    let mut changed = first.difference(&other).peekable();
    changed.peek().is_some() && changed.all(|word| is_part(&word))
}

/// The words of an address, in lower case.
fn words(text: &str) -> BTreeSet<String> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8_lossy().to_lowercase();
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The changes without lines that are restless: those that differ between two runs with the same tokens, too.
fn without(changed: Changed, restless: &Changed) -> Changed {
    let left = |(position, mut change): (Position, Change)| {
        if let Some(known) = restless.get(&position) {
            change.first.retain(|line| !known.first.contains(line));
            // The other lines of a restless text differ in any run.
            change.other.clear();
        }
        (!change.first.is_empty() || !change.other.is_empty()).then_some((position, change))
    };
    changed.into_iter().filter_map(left).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_side_by_side_begin_in_any_order() {
        let canaries = Canaries::new(1, &["docs".to_owned()], &[]);
        let run = |order: [u32; 2]| {
            let prompt = |(text, number)| Event {
                step: 1,
                place: Place::Prompt,
                name: format!("session {number}"),
                text: format!("summarise {text}"),
                by_model: false,
            };
            let events = ["a", "b"].into_iter().zip(order).map(prompt).collect();
            Played { events, is_whole: true, ..Played::default() }
        };
        let (one, other) = (run([1, 2]), run([2, 1]));
        assert!(between((&one, &canaries), (&other, &canaries), lines).is_empty());
    }

    fn played(events: Vec<(Place, String)>) -> Played {
        let event = |(place, text)| Event { step: 1, place, name: "n".to_owned(), text, by_model: false };
        Played { events: events.into_iter().map(event).collect(), is_whole: true, ..Played::default() }
    }

    #[test]
    fn what_changes_with_the_tokens_carries_content() {
        let canaries = Canaries::new(1, &["docs".to_owned()], &[]);
        let twin = canaries.twin();
        let root = Source::Root("docs".to_owned());
        let run = |canaries: &Canaries| {
            let (secret, caller) = (canaries.token(&root), canaries.token(&Source::Caller(1)));
            let sum: usize = secret.bytes().enumerate().map(|(at, byte)| at * usize::from(byte)).sum();
            played(vec![
                (Place::Request, format!("https://a.example/?q={caller}")),
                (Place::Request, format!("https://a.example/?q={}", caller.get(..9).unwrap())),
                (Place::Request, format!("https://a.example/{sum}")),
                (Place::Commit, format!("+{secret}\n+{}", sum % 7919)),
                (Place::ToolAnswer, format!("{sum}")),
            ])
        };
        let (one, other) = (run(&canaries), run(&twin));
        let mut changed = between((&one, &canaries), (&other, &twin), outward);
        changed.retain(|position, change| !is_request(position) || !is_explained(change, &canaries));
        let places: Vec<_> = changed.keys().map(|(_, place, _, number)| (*place, *number)).collect();
        assert_eq!(places, [(Place::Request, 2), (Place::Commit, 0)]);
        assert!(between((&one, &canaries), (&run(&canaries), &canaries), lines).is_empty());
        // A part of what a caller handed over explains nothing else in the same request.
        let both = |token: &str, sum: usize| vec![format!("https://a.example/?q={token}&n={sum}")];
        let [token, its] = [&canaries, &twin].map(|canaries| canaries.token(&Source::Web).get(..8).unwrap().to_owned());
        let change = |first, other| Change { first: both(&token, first), other: both(&its, other) };
        assert!(is_explained(&change(1234, 1234), &canaries) && !is_explained(&change(1234, 2345), &canaries));
    }
}
