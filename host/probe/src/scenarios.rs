//! Lists the runs of a probe, and what they are compared with.

use guild_contract::{
    Manifest,
    capability::{MANAGER, MEMORY_WRITE},
};
use jiff::{Timestamp, civil, tz::TimeZone};

use crate::inputs::VARIANTS;

/// The seed of random numbers, and the other one.
const SEEDS: [u64; 2] = [7, 1_000_003];
/// Jobs of the longest run.
pub(crate) const JOBS: usize = 10;
/// Items of a task.
const SIZES: [usize; 3] = [3, 5, 50];
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
}

/// A step of a caller.
pub(crate) enum Step {
    /// Dispatches a task that lists so many things.
    Dispatch { items: usize },
    /// Calls each tool, in these variants of inputs.
    Tools { variants: Vec<usize> },
    /// Commissions the member on the project.
    Commission,
    /// Commissions the worker beside it, which is given what the member left on the project.
    Neighbour,
}

impl Setting {
    fn new(name: impl Into<String>, kind: Kind, time: Timestamp, steps: Vec<Step>) -> Self {
        let [seed, _] = SEEDS;
        Self { name: name.into(), kind, time, seed, is_manager: false, is_obedient: false, steps }
    }

    /// Whether the run has a hall with a project.
    pub(crate) fn has_project(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Commission))
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
    let steps = |jobs: &[usize], variants: &[usize]| {
        let mut steps = Vec::new();
        if is_worker {
            steps.extend(jobs.iter().map(|items| Step::Dispatch { items: *items }));
        }
        if has_tools {
            steps.push(Step::Tools { variants: variants.to_vec() });
        }
        steps
    };
    let days = days();
    let today = days.first().copied().unwrap_or_default();
    let mut all = vec![Setting::new(shown(today), Kind::Day, today, steps(&[1], &FEW))];
    all.push(Setting::new(
        "many jobs and calls",
        Kind::Many,
        today,
        // The last ones are calls again, in variants that came before.
        steps(&[1; JOBS], &(0..VARIANTS).chain(FEW).chain(FEW).chain(FEW).collect::<Vec<_>>()),
    ));
    if is_worker {
        let mut project =
            Setting::new("with a project", Kind::Project, today, vec![Step::Commission, Step::Commission]);
        project.is_manager = is_manager;
        if is_manager {
            "as manager of a project".clone_into(&mut project.name);
        }
        all.push(project);
        // The state of the other commissions of a manager depends on the time that they take.
        if let Some(day) = days.get(OTHER).filter(|_| !is_manager) {
            let name = format!("with a project, {}", shown(*day));
            all.push(Setting::new(name, Kind::Project, *day, vec![Step::Commission, Step::Commission]));
        }
        // Only a worker that keeps notes can tell one job from another, and only a project has notes for others.
        if !is_manager && spec.is_some_and(|spec| spec.asks(&MEMORY_WRITE)) {
            let mut steps = steps(&[1; JOBS - 1], &[]);
            steps.push(Step::Commission);
            all.push(Setting::new("a project after many jobs", Kind::Later, today, steps));
        }
        all.push(Setting::new("tasks of 3, 5 and 50 things", Kind::Sizes, today, steps(&SIZES, &[])));
    }
    let [_, other] = SEEDS;
    all.push(Setting { seed: other, ..Setting::new("other random numbers", Kind::Random, today, steps(&[1], &FEW)) });
    all.extend(days.iter().skip(1).map(|day| Setting::new(shown(*day), Kind::Day, *day, steps(&[1], &FEW))));
    if is_obedient {
        let mut obedient = Setting::new("an obedient model", Kind::Obedient, today, steps(&[1, 1], &[]));
        obedient.is_obedient = true;
        if is_worker {
            obedient.is_manager = is_manager;
            obedient.steps.extend([Step::Commission, Step::Neighbour]);
        }
        all.push(obedient);
    }
    all
}

/// A moment as people write it.
pub(crate) fn shown(moment: Timestamp) -> String {
    moment.strftime("%A, %-d %B %Y, %H:%M").to_string()
}
