//! Keeps a ring of the newest events, numbered, rendered once, and bounded in number and bytes.

use std::collections::{BTreeMap, HashMap};

use bytes::{Bytes, BytesMut};
use guild_contract::{Event, EventDetail, JobId, MemberKey, job::event::Kind};
use guild_fs::clock::rfc3339;
use guild_telemetry::record;

/// The average bytes of an event, which bound the ring as a whole.
const BYTES_EACH: usize = 1024;
/// The numbers of one message of a cluster's log: half of them for its events, the others for events of this host alone
/// that happen before the next message.
const NUMBERS_EACH: u64 = 1024;
/// The approximate bytes that a subscriber is sent at a time.
const BATCH_BYTES: usize = 16 * 1024;

/// A kept event.
pub struct Record {
    /// The member of the event.
    pub member: Option<MemberKey>,
    /// The job of the event.
    pub job: Option<JobId>,
    /// The kind of the event.
    pub kind: Kind,
    /// Whether it happened at this host.
    is_own: bool,
    /// The event as it is sent to subscribers.
    frame: Bytes,
}

impl Record {
    /// The event as JSON.
    fn json(&self) -> Option<&str> {
        str::from_utf8(&self.frame).ok()?.lines().find_map(|line| line.strip_prefix("data: "))
    }
}

/// The newest events, by number: of this run of the host, from 1; in a cluster, of its log, by the sequences of messages.
///
/// A summary replaces the one before of the same job: a worker that changes its summary all the time occupies one
/// place, and displaces no other event.
#[derive(Default)]
pub struct Ring {
    run: String,
    /// Whether the numbers are those of a cluster's log, which its hosts have in common.
    is_shared: bool,
    most: usize,
    kept: BTreeMap<u64, Record>,
    /// The number of the summary of each job that has one among them.
    summaries: HashMap<(Option<MemberKey>, JobId), u64>,
    bytes: usize,
    newest: u64,
    /// The number up to which events may be gone; the kept ones are newer.
    gone: u64,
}

/// The event after which a subscriber begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// After the newest event.
    Now,
    /// With the oldest kept event.
    Oldest,
    /// After the event of that number.
    After(u64),
    /// After an event of another run of the host: the events in between are unknown.
    AnotherRun,
}

impl Ring {
    /// An empty ring, for so many events at most. `run` is the beginning of their ids.
    pub fn new(run: String, most: u32) -> Self {
        Self { run, most: most as usize, ..Self::default() }
    }

    /// An empty ring for the events of a cluster. `log` is the beginning of their ids, which is the same at each host.
    pub fn of_log(log: String, most: u32) -> Self {
        Self { is_shared: true, ..Self::new(log, most) }
    }

    /// Goes on after the message `sequence` of the log: events up to it may be gone.
    pub fn begin_after(&mut self, sequence: u64) {
        self.newest = self.newest.max(sequence.saturating_mul(NUMBERS_EACH).saturating_add(NUMBERS_EACH / 2 - 1));
        self.gone = self.gone.max(self.newest);
    }

    /// The number of the newest event.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// The id of the event of a number.
    pub fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.run)
    }

    /// The start of a subscriber after the event of that id; `None` for an invalid id.
    pub fn after(&self, id: &str) -> Option<Start> {
        let (run, number) = id.split_once('-')?;
        let number = number.parse().ok()?;
        let is_run = !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_hexdigit());
        // Another host of the cluster may be ahead.
        let is_ours = run == self.run && (self.is_shared || number <= self.newest);
        is_run.then_some(if is_ours { Start::After(number) } else { Start::AnotherRun })
    }

    /// Adds an event of this host, and drops the oldest ones that no longer fit.
    pub fn push(&mut self, event: Event) {
        let own = NUMBERS_EACH / 2;
        let number = match self.newest % NUMBERS_EACH {
            _ if !self.is_shared => self.newest + 1,
            place if place < own => self.newest - place + own,
            // The last one is replaced where there are too many.
            place if place == NUMBERS_EACH - 1 => self.newest,
            _ => self.newest + 1,
        };
        self.put(number, event, true);
    }

    /// Adds the event `nth` of a message of the log, whose sequence is above those before, and which is this host's own or
    /// another's.
    pub fn hear(&mut self, sequence: u64, nth: u64, event: Event, is_own: bool) {
        self.put(sequence.saturating_mul(NUMBERS_EACH).saturating_add(nth.min(NUMBERS_EACH / 2 - 1)), event, is_own);
    }

    fn put(&mut self, number: u64, event: Event, is_own: bool) {
        self.newest = number;
        let frame = self.frame(number, &event);
        let (member, job, kind) = (event.member, event.job_id, event.news.kind());
        if let (Kind::JobSummary, Some(job)) = (kind, &job)
            && let Some(before) = self.summaries.insert((member.clone(), job.clone()), number)
            && let Some(before) = self.kept.remove(&before)
        {
            self.bytes -= before.frame.len();
        }
        self.bytes += frame.len();
        if let Some(replaced) = self.kept.insert(number, Record { member, job, kind, is_own, frame }) {
            self.bytes -= replaced.frame.len();
        }
        while self.kept.len() > self.most || (self.bytes > self.most.saturating_mul(BYTES_EACH) && self.kept.len() > 1)
        {
            let Some((number, oldest)) = self.kept.pop_first() else { return };
            (self.gone, self.bytes) = (self.gone.max(number), self.bytes - oldest.frame.len());
            if let (Kind::JobSummary, Some(job)) = (oldest.kind, oldest.job) {
                self.summaries.remove(&(oldest.member, job));
            }
        }
    }

    /// The first bytes for a subscriber with this start, and the number after which it continues.
    pub fn begin(&self, start: Start) -> (BytesMut, u64) {
        let at = match start {
            Start::Now => self.newest,
            Start::Oldest | Start::AnotherRun => self.gone,
            Start::After(number) => number,
        };
        // Without data it is no event, but known to a client that has to come back before there was one.
        let mut text = BytesMut::from(format!("retry: 1000\nid: {}\n\n", self.id(at)).as_bytes());
        if start == Start::AnotherRun {
            text.extend_from_slice(&self.gap(at, None));
        }
        (text, at)
    }

    /// A batch of the kept events after `number` that the subscriber `wants`, with a note if some are gone, and the
    /// number of the last event that was read.
    pub fn read(&self, number: u64, wants: impl Fn(&Record) -> bool) -> (BytesMut, u64) {
        let (mut batch, mut at) = (BytesMut::new(), number);
        if number < self.gone {
            at = self.gone;
            // The numbers of a log have gaps.
            let missed = (!self.is_shared).then(|| self.gone - number);
            record::events_dropped(missed.unwrap_or(1));
            batch.extend_from_slice(&self.gap(at, missed));
        }
        for (number, kept) in self.kept.range(at + 1..) {
            if batch.len() >= BATCH_BYTES {
                return (batch, at);
            }
            at = *number;
            if wants(kept) {
                batch.extend_from_slice(&kept.frame);
            }
        }
        (batch, self.newest.max(at))
    }

    /// The kept events of this host after `number` as JSON, each with its id, and the number of the newest event. In a
    /// cluster, each host tells of its own.
    pub fn own_jsons(&self, number: u64) -> (Vec<(String, String)>, u64) {
        let after = self.kept.range(number + 1..).filter(|(_, kept)| kept.is_own);
        let jsons = after.filter_map(|(number, kept)| Some((self.id(*number), kept.json()?.to_owned())));
        (jsons.collect(), self.newest)
    }

    /// The note that events up to that number are missing.
    fn gap(&self, number: u64, missed: Option<u64>) -> Bytes {
        let (time, detail) = (rfc3339(jiff::Timestamp::now()), EventDetail::Gap { missed });
        self.frame(number, &Event { time, member: None, job_id: None, news: detail, truncated: false })
    }

    fn frame(&self, number: u64, event: &Event) -> Bytes {
        // It is of texts and numbers, which all can be written. JSON as it is written here has no line breaks.
        let json = serde_json::to_string(event).unwrap_or_default();
        format!("id: {}\nevent: {}\ndata: {json}\n\n", self.id(number), event.news.kind()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(job: &str, detail: EventDetail) -> Event {
        let (member, job_id) = (Some("m".parse().unwrap()), Some(job.parse().unwrap()));
        Event { time: "2026-01-01T00:00:00Z".into(), member, job_id, news: detail, truncated: false }
    }

    fn question(text: &str) -> Event {
        event("j", EventDetail::JobQuestion { question: text.into() })
    }

    /// The events after a number, each as its own number and what it says.
    fn received(ring: &Ring, after: u64) -> Vec<String> {
        let text = String::from_utf8(ring.read(after, |_| true).0.to_vec()).unwrap();
        let value = |frame: &str, name: &str| {
            frame.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        let said = |frame: &str| {
            let data: serde_json::Value = serde_json::from_str(&value(frame, "data: ")).unwrap();
            let what = ["question", "summary", "missed"].iter().find_map(|key| data.get(key));
            format!("{} {}", value(frame, "id: "), what.unwrap_or_default())
        };
        text.split_terminator("\n\n").map(said).collect()
    }

    #[test]
    fn what_has_no_room_is_a_gap_for_those_who_were_not_told() {
        let mut ring = Ring::new("f".into(), 2);
        for text in ["a", "b", "c"] {
            ring.push(question(text));
        }
        assert_eq!(received(&ring, 0), ["f-1 1", r#"f-2 "b""#, r#"f-3 "c""#]);
        assert_eq!(received(&ring, 1), [r#"f-2 "b""#, r#"f-3 "c""#]);
        assert!(received(&ring, 3).is_empty());
    }

    #[test]
    fn large_events_take_the_place_of_several() {
        let mut ring = Ring::new("f".into(), 4);
        (0..4).for_each(|_| ring.push(question("a")));
        ring.push(question(&"x".repeat(15 * BYTES_EACH / 4)));
        assert_eq!((ring.kept.len(), ring.gone), (1, 4));
        ring.push(question(&"x".repeat(9 * BYTES_EACH)));
        assert_eq!((ring.kept.len(), ring.gone), (1, 5));
        assert_eq!(ring.bytes, ring.kept.values().map(|kept| kept.frame.len()).sum::<usize>());
    }

    #[test]
    fn a_job_has_one_summary_and_takes_no_place_from_others() {
        let summary = |job: &str, n: u32| event(job, EventDetail::JobSummary { summary: Some(n.to_string()) });
        let mut ring = Ring::new("f".into(), 3);
        ring.push(question("a"));
        for n in 0..100 {
            ring.push(summary("i", n));
            ring.push(summary("j", n));
        }
        assert_eq!(received(&ring, 0), [r#"f-1 "a""#, r#"f-200 "99""#, r#"f-201 "99""#]);
        ring.push(question("b"));
        ring.push(question("c"));
        ring.push(question("d"));
        assert!(ring.summaries.is_empty());
    }

    #[test]
    fn an_id_of_another_run_is_told_from_one_of_this_and_from_none() {
        let mut ring = Ring::new("f".into(), 3);
        ring.push(question("a"));
        assert_eq!(ring.after("f-1"), Some(Start::After(1)));
        for other in ["e-1", "f-2"] {
            assert_eq!(ring.after(other), Some(Start::AnotherRun));
        }
        for none in ["", "f", "f-", "-1", "f-x", "g-1", "f--1"] {
            assert_eq!(ring.after(none), None, "{none}");
        }
        let (first, at) = ring.begin(Start::AnotherRun);
        assert!(String::from_utf8_lossy(&first).contains(r#""kind":"gap","missed":null"#) && at == 0);
    }

    #[test]
    fn a_client_goes_on_at_another_host_of_a_cluster() {
        let mut rings = [(), ()].map(|()| Ring::of_log("f".into(), 9));
        // Events of one host alone move no other.
        rings[0].push(event("j", EventDetail::MemberAdded));
        for ring in &mut rings {
            ring.hear(1, 0, question("a"), true);
            ring.hear(1, 1, question("b"), true);
        }
        rings[0].push(event("j", EventDetail::MemberAdded));
        rings[0].hear(3, 0, question("c"), false);
        let Some(Start::After(at)) = rings[1].after(&rings[0].id(rings[0].newest())) else { panic!("a known log") };
        assert!(received(&rings[1], at).is_empty(), "the other host is behind");
        rings[1].hear(3, 0, question("c"), false);
        rings[1].hear(4, 0, question("d"), false);
        // Webhooks are told of an event by the host at which it happened.
        assert_eq!([rings[0].own_jsons(0).0.len(), rings[1].own_jsons(0).0.len()], [4, 2]);
        assert_eq!(received(&rings[1], at), [format!(r#"f-{} "d""#, 4 * NUMBERS_EACH)]);
        // A host that came later has not seen all.
        let mut later = Ring::of_log("f".into(), 9);
        later.begin_after(3);
        assert!(String::from_utf8_lossy(&later.read(1, |_| true).0).contains(r#""kind":"gap","missed":null"#));
        assert_eq!(later.after("e-1"), Some(Start::AnotherRun));
        // A host that was cut off has not seen all either, and tells its subscribers.
        rings[1].begin_after(6);
        rings[1].hear(7, 0, question("e"), false);
        let told = received(&rings[1], 4 * NUMBERS_EACH);
        assert!(told.len() == 2 && told[1].ends_with("\"e\""), "{told:?}");
    }

    #[test]
    fn many_events_of_one_host_take_no_number_of_the_log() {
        let mut ring = Ring::of_log("f".into(), 9);
        (0..3 * NUMBERS_EACH).for_each(|_| ring.push(question("a")));
        ring.hear(1, 0, question("b"), true);
        assert_eq!(ring.newest(), NUMBERS_EACH);
        assert_eq!(ring.bytes, ring.kept.values().map(|kept| kept.frame.len()).sum::<usize>());
    }

    #[test]
    fn a_batch_is_bounded_and_the_next_one_goes_on_where_it_ended() {
        let mut ring = Ring::new("f".into(), 1000);
        (0..100).for_each(|_| ring.push(question(&"x".repeat(1000))));
        let (mut at, mut batches, mut events) = (0, 0, 0);
        while at < ring.newest() {
            let (batch, next) = ring.read(at, |_| true);
            assert!(batch.len() < BATCH_BYTES + 2 * BYTES_EACH && next > at);
            events += String::from_utf8_lossy(&batch).matches("data: ").count();
            (at, batches) = (next, batches + 1);
        }
        assert!(events == 100 && batches > 5, "{events} in {batches}");
        assert_eq!(ring.read(0, |_| false), (BytesMut::new(), 100));
    }
}
