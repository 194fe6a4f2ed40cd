//! Lists the runs of a probe, and what they are compared with.

use guild_contract::{
    Manifest,
    capability::{MANAGER, MEMORY_WRITE},
};
use jiff::{Timestamp, civil, tz::TimeZone};

use crate::{
    asks::{Ask, USUAL},
    inputs::VARIANTS,
};

/// The seed of random numbers, and the other one.
const SEEDS: [u64; 2] = [7, 1_000_003];
/// Jobs of the longest run.
pub(crate) const JOBS: usize = 10;
/// Items of a task.
const SIZES: [usize; 4] = [3, 5, 50, 200];
/// Jobs on successive days.
const SUCCESSIVE: usize = 8;
/// The position of the other day on which a project is played.
const OTHER: usize = 8;
/// Variants of inputs by which days are compared.
const FEW: [usize; 4] = [0, 1, 2, 3];

/// One run, with its surroundings.
pub(crate) struct Setting {
    /// The name of the run for people.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) time: Timestamp,
    pub(crate) seed: u64,
    pub(crate) is_manager: bool,
    pub(crate) is_obedient: bool,
    /// Whether each step is a day later than the one before.
    pub(crate) is_daily: bool,
    /// Whether notes have the words of the member's component, and the model stores notes under keys of its own and
    /// keys that texts name.
    pub(crate) has_words: bool,
    pub(crate) steps: Vec<Step>,
}

/// The respect in which a run differs from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A day. Runs of this kind differ in nothing else.
    Day,
    /// The random numbers, against the first day.
    Random,
    /// Many jobs and calls one after the other.
    Many,
    /// Inputs of several sizes.
    Sizes,
    /// A project.
    Project,
    /// A project after many jobs without one.
    Later,
    /// The obedient model.
    Obedient,
    /// Tasks, notes and inputs of the usual kinds, and with the words of the member's component.
    Words,
    /// A board with commissions in several states.
    Board,
}

/// A step of a caller.
pub(crate) enum Step {
    /// Dispatches a task.
    Dispatch(Ask),
    /// Calls each tool, with these inputs.
    Tools(Vec<Input>),
    /// Commissions the member on the project with a task.
    Commission(Ask),
    /// Puts commissions in several states on the board: completed, failed, and not dispatched.
    Board,
    /// Commissions the worker beside it, which is given what the member left on the project.
    Neighbour,
}

/// The input of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A variant.
    Variant(usize),
    /// A variant whose texts are a task.
    Text(Ask),
}

impl Setting {
    fn new(name: impl Into<String>, kind: Kind, time: Timestamp, steps: Vec<Step>) -> Self {
        let [seed, _] = SEEDS;
        Self {
            name: name.into(),
            kind,
            time,
            seed,
            is_manager: false,
            is_obedient: false,
            is_daily: false,
            has_words: false,
            steps,
        }
    }

    /// Whether the run has a hall with a project.
    pub(crate) fn has_project(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Commission(_)))
    }
}

/// The days: the first is the day of all other runs. Each other one differs in day, month and weekday; some in year, and
/// in the hour.
fn days() -> Vec<Timestamp> {
    let days = [
        (2026, 3, 10, 9),
        (2026, 11, 13, 23),
        (2027, 1, 1, 0),
        (2026, 4, 1, 12),
        (2026, 5, 31, 4),
        (2026, 6, 15, 15),
        (2026, 7, 4, 18),
        (2026, 8, 22, 2),
        (2026, 9, 30, 7),
        (2026, 10, 28, 20),
        (2026, 12, 24, 11),
        (2028, 2, 29, 14),
    ];
    let moment = |(year, month, day, hour): (i16, i8, i8, i8)| {
        let date = civil::date(year, month, day).at(hour, 20, 0, 0);
        date.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp()).unwrap_or_default()
    };
    days.into_iter().map(moment).collect()
}

/// The runs for a member, in order of what they show.
pub(crate) fn all(manifest: &Manifest, is_obedient: bool) -> Vec<Setting> {
    let is_worker = manifest.is_worker();
    let spec = manifest.component.as_ref();
    let is_manager = spec.is_some_and(|spec| spec.asks(&MANAGER));
    let has_tools = spec.is_some_and(|spec| spec.world.exports_toolbox());
    let steps = |jobs: &[Ask], variants: &[usize]| {
        let mut steps = Vec::new();
        if is_worker {
            steps.extend(jobs.iter().map(|ask| Step::Dispatch(*ask)));
        }
        if has_tools && !variants.is_empty() {
            steps.push(Step::Tools(variants.iter().map(|variant| Input::Variant(*variant)).collect()));
        }
        steps
    };
    let (one, of_day) = (Ask::Items(1), [Ask::Items(1), Ask::Files]);
    let on_project = || vec![Step::Commission(Ask::Items(3)), Step::Commission(Ask::Items(3))];
    let days = days();
    let today = days.first().copied().unwrap_or_default();
    let mut all = vec![Setting::new(shown(today), Kind::Day, today, steps(&of_day, &FEW))];
    all.push(Setting::new(
        "many jobs and calls",
        Kind::Many,
        today,
        // The last ones are calls again, in variants that came before.
        steps(&[one; JOBS], &(0..VARIANTS).chain(FEW).chain(FEW).chain(FEW).collect::<Vec<_>>()),
    ));
    if is_worker {
        let mut project = Setting::new("with a project", Kind::Project, today, on_project());
        project.is_manager = is_manager;
        if is_manager {
            "as manager of a project".clone_into(&mut project.name);
        }
        all.push(project);
        // The state of the other commissions of a manager depends on the time that they take.
        if let Some(day) = days.get(OTHER).filter(|_| !is_manager) {
            let name = format!("with a project, {}", shown(*day));
            all.push(Setting::new(name, Kind::Project, *day, on_project()));
        }
        // Only a worker that keeps notes can tell one job from another, and only a project has notes for others.
        if !is_manager && spec.is_some_and(|spec| spec.asks(&MEMORY_WRITE)) {
            let mut steps = steps(&[one; JOBS - 1], &[]);
            steps.push(Step::Commission(Ask::Items(3)));
            all.push(Setting::new("a project after many jobs", Kind::Later, today, steps));
        }
        let sizes = SIZES.map(Ask::Items);
        all.push(Setting::new("tasks of 3, 5, 50 and 200 things", Kind::Sizes, today, steps(&sizes, &[])));
        let daily = Setting::new("jobs on successive days", Kind::Many, today, steps(&[one; SUCCESSIVE], &[]));
        all.push(Setting { is_daily: true, ..daily });
        if is_manager {
            let tasks = (0..2).map(|number| Step::Commission(Ask::Usual(number)));
            let steps = [Step::Board].into_iter().chain(tasks).collect();
            let board = Setting::new("as manager of a project with a full board", Kind::Board, today, steps);
            all.push(Setting { is_manager, ..board });
        }
    }
    let usual: Vec<Ask> = (0..USUAL.len()).map(Ask::Usual).chain([Ask::Words]).collect();
    let mut words = steps(&usual, &[]);
    if has_tools {
        words.push(Step::Tools(usual.into_iter().map(Input::Text).collect()));
    }
    let words = Setting::new("usual tasks, and its own words", Kind::Words, today, words);
    all.push(Setting { has_words: true, ..words });
    let [_, other] = SEEDS;
    let random = Setting::new("other random numbers", Kind::Random, today, steps(&of_day, &FEW));
    all.push(Setting { seed: other, ..random });
    all.extend(days.iter().skip(1).map(|day| Setting::new(shown(*day), Kind::Day, *day, steps(&of_day, &FEW))));
    if is_obedient {
        let mut obedient = Setting::new("an obedient model", Kind::Obedient, today, steps(&[one, one], &[]));
        obedient.is_obedient = true;
        if is_worker {
            obedient.is_manager = is_manager;
            obedient.steps.extend([Step::Commission(Ask::Items(3)), Step::Neighbour]);
        }
        all.push(obedient);
    }
    all
}

/// A moment as people write it.
pub(crate) fn shown(moment: Timestamp) -> String {
    moment.strftime("%A, %-d %B %Y, %H:%M").to_string()
}
