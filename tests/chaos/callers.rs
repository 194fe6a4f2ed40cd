//! Callers that dispatch, cancel, delete and read at hosts of their choice, and a subscriber that goes from host to host.

use std::{
    collections::HashMap,
    io::{BufRead as _, BufReader, Write as _},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    cluster::{Cluster, MEMBER, Slot},
    history::{Entry, Recorder, Span},
    provider::task,
};

/// The most jobs that run at a time. More are dispatched when some have ended.
const RUNNING: usize = 40;
/// The time between two requests of a caller, at least and at most.
const PAUSE: (u64, u64) = (100, 700);
/// The time before a dispatch that was not answered is repeated.
const REPEAT: Duration = Duration::from_millis(500);
/// How often a dispatch is repeated until its caller gives it up.
const REPEATS: usize = 300;
/// After so many events, a subscriber goes to another host.
const EVENTS: u32 = 40;

/// The answer to a request.
pub(super) enum Answer {
    Result(Value),
    Refused(i64, String),
    /// The connection broke, or the time was over.
    None,
}

/// Asks a host.
pub(super) fn ask(slot: &Slot, method: &str, params: &Value) -> Answer {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let request = format!(
        "POST /members/{MEMBER}/mcp HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = slot.send(&request).and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok());
    match answer {
        Some(mut answer) if answer["error"].is_object() => {
            let error = answer["error"].take();
            Answer::Refused(error["code"].as_i64().unwrap_or(0), error["message"].to_string())
        }
        Some(mut answer) if answer["result"].is_object() => Answer::Result(answer["result"].take()),
        _ => Answer::None,
    }
}

/// Whether callers cancel the job at times, as they do with half of all jobs.
fn may_be_cancelled(job: &str) -> bool {
    job.bytes().last().is_some_and(|last| last % 2 == 0)
}

/// The message of the log that an event's id names: `LOG-N`, where each message has room for 1,024 events.
fn message_of(id: &str) -> u64 {
    id.rsplit_once('-').and_then(|(_, number)| number.parse::<u64>().ok()).map_or(0, |number| number / 1024)
}

/// The jobs that callers know.
#[derive(Default)]
struct Known {
    running: Vec<String>,
    ended: Vec<String>,
    /// The last status of each job in a list of each host.
    listed: HashMap<(&'static str, String), String>,
}

/// The callers of one run.
pub(super) struct Callers<'a> {
    cluster: &'a Cluster,
    recorder: &'a Recorder,
    known: Mutex<Known>,
    keys: AtomicU32,
    is_over: AtomicBool,
    /// Errors that no caller should see, by their texts.
    pub(super) errors: Mutex<Vec<String>>,
}

impl<'a> Callers<'a> {
    pub(super) fn new(cluster: &'a Cluster, recorder: &'a Recorder) -> Self {
        let (known, keys, is_over, errors) =
            (Mutex::default(), AtomicU32::new(0), AtomicBool::new(false), Mutex::default());
        Self { cluster, recorder, known, keys, is_over, errors }
    }

    /// Lets each caller finish its last request.
    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// One caller, until it is stopped.
    pub(super) fn call(&self, seed: u64) {
        let mut random = Rng::with_seed(seed);
        while !self.is_over() {
            let slot = random.choice(&self.cluster.slots).unwrap();
            let (running, some) = {
                let known = self.known.lock().unwrap();
                let job = random.choice(&known.running).cloned();
                (known.running.len(), job.or_else(|| random.choice(&known.ended).cloned()))
            };
            match (random.u32(..100), some) {
                (0..35, _) if running < RUNNING => self.dispatch(&mut random),
                (0..65, Some(job)) => self.status(slot, &job),
                (65..85, _) => self.list(slot),
                // The others end by themselves, unless nobody carries them out.
                (85..92, Some(job)) if may_be_cancelled(&job) => self.cancel(slot, &job),
                (92..96, _) => {
                    let ended = random.choice(&self.known.lock().unwrap().ended).cloned();
                    ended.into_iter().for_each(|job| self.delete(slot, &job));
                }
                (_, _) => {
                    let ended = random.choice(&self.known.lock().unwrap().ended).cloned();
                    ended.into_iter().for_each(|job| self.status(slot, &job));
                }
            }
            sleep(Duration::from_millis(random.u64(PAUSE.0..PAUSE.1)));
        }
    }

    /// Dispatches a job, and asks again at any host until it is answered.
    fn dispatch(&self, random: &mut Rng) {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let params = json!({"description": format!("errand {key}"), "task": task(key), "key": format!("errand-{key}")});
        let mut first = None;
        for _ in 0..REPEATS {
            let slot = random.choice(&self.cluster.slots).unwrap();
            let (mut span, answer) = self.recorder.span(slot.name, || ask(slot, "worker/dispatch", &params));
            // The first request may have made the job.
            span.began = *first.get_or_insert(span.began);
            match answer {
                Answer::Result(result) => {
                    let job = result["jobId"].as_str().unwrap().to_owned();
                    self.known.lock().unwrap().running.push(job.clone());
                    return self.recorder.add(Entry::Dispatched { span, key, job });
                }
                Answer::Refused(code, why) if code != -32000 => {
                    self.errors.lock().unwrap().push(format!("dispatch at {}: {code} {why}", slot.name));
                }
                Answer::Refused(..) | Answer::None => {}
            }
            sleep(REPEAT);
        }
        self.errors.lock().unwrap().push(format!("the dispatch of errand {key} was never answered"));
    }

    fn seen(&self, span: Span, job: String, status: Option<String>) {
        let is_ended = status.as_ref().is_none_or(|status| status != "running");
        let mut known = self.known.lock().unwrap();
        if is_ended && let Some(at) = known.running.iter().position(|known| *known == job) {
            let job = known.running.swap_remove(at);
            known.ended.push(job);
        }
        drop(known);
        self.recorder.add(Entry::Seen { span, job, status });
    }

    fn status(&self, slot: &Slot, job: &str) {
        let (span, answer) = self.recorder.span(slot.name, || ask(slot, "worker/status", &json!({"jobId": job})));
        match answer {
            Answer::Result(result) => self.seen(span, job.to_owned(), result["status"].as_str().map(str::to_owned)),
            Answer::Refused(_, why) if why.contains("Unknown job ID") => self.seen(span, job.to_owned(), None),
            Answer::Refused(code, why) if code != -32000 => {
                self.errors.lock().unwrap().push(format!("status at {}: {code} {why}", slot.name));
            }
            _ => {}
        }
    }

    fn list(&self, slot: &Slot) {
        let (span, answer) = self.recorder.span(slot.name, || ask(slot, "worker/list", &json!({})));
        let Answer::Result(result) = answer else { return };
        for job in result["jobs"].as_array().into_iter().flatten() {
            let [id, status] = ["jobId", "status"].map(|key| job[key].as_str().unwrap().to_owned());
            let last = self.known.lock().unwrap().listed.insert((slot.name, id.clone()), status.clone());
            // Thousands of jobs that have ended are in each list.
            if status == "running" || last.as_ref() != Some(&status) {
                self.seen(span.clone(), id, Some(status));
            }
        }
    }

    fn cancel(&self, slot: &Slot, job: &str) {
        let (span, answer) = self.recorder.span(slot.name, || ask(slot, "worker/cancel", &json!({"jobId": job})));
        let status = match answer {
            Answer::Result(result) => result["status"].as_str().map(str::to_owned),
            _ => None,
        };
        self.recorder.add(Entry::Cancelled { span, job: job.to_owned(), status });
    }

    fn delete(&self, slot: &Slot, job: &str) {
        let (span, answer) = self.recorder.span(slot.name, || ask(slot, "worker/delete", &json!({"jobId": job})));
        // A failed job has to be cancelled first.
        let is_answered = match answer {
            Answer::Result(_) => true,
            Answer::Refused(_, why) if why.contains("Cannot delete") => return,
            _ => false,
        };
        self.recorder.add(Entry::Deleted { span, job: job.to_owned(), is_answered });
    }

    /// Receives events, at one host after the other, with the id of the last event, until the callers are stopped and
    /// `is_done` says that all was told.
    pub(super) fn follow(&self, seed: u64, is_done: impl Fn() -> bool) {
        let (mut random, mut last) = (Rng::with_seed(seed), String::new());
        while !is_done() {
            let slot = random.choice(&self.cluster.slots).unwrap();
            let Some(mut stream) = slot.connect() else {
                sleep(REPEAT);
                continue;
            };
            let since = if last.is_empty() { "?since=kept" } else { "" };
            let from = if last.is_empty() { String::new() } else { format!("Last-Event-ID: {last}\r\n") };
            if write!(stream, "GET /events{since} HTTP/1.0\r\nHost: localhost\r\n{from}\r\n").is_err() {
                continue;
            }
            let (mut kind, mut count) = (String::new(), 0);
            // An id counts once the event that follows it was received as a whole.
            let mut next = last.clone();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if let Some(id) = line.strip_prefix("id: ") {
                    id.clone_into(&mut next);
                } else if let Some(name) = line.strip_prefix("event: ") {
                    name.clone_into(&mut kind);
                } else if let Some(data) = line.strip_prefix("data: ") {
                    let Ok(data) = serde_json::from_str::<Value>(data) else { continue };
                    self.event(slot.name, &last, &next, &kind, &data);
                    (last, count) = (next.clone(), count + 1);
                }
                if count >= EVENTS || is_done() {
                    break;
                }
            }
        }
    }

    /// Writes an event down. `last` is the id of the event before.
    fn event(&self, host: &str, last: &str, id: &str, kind: &str, data: &Value) {
        let (at, host) = (self.recorder.now(), host.to_owned());
        if kind == "gap" {
            self.recorder.add(Entry::Gap { after: message_of(last), upto: message_of(id), host });
        } else if let Some(job) = data["jobId"].as_str() {
            let (id, kind, job) = (id.to_owned(), kind.to_owned(), job.to_owned());
            self.recorder.add(Entry::Event { at, host, id, kind, job });
        }
    }
}
