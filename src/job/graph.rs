//! The graph of the jobs that follow others: its circles, and the times that its jobs have in
//! common. Pure.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use cron_zone::Schedule;

/// A job, the jobs that it follows, and its hooks.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) schedule: Option<String>,
    pub(crate) time_zone: String,
    pub(crate) after: Vec<String>,
    pub(crate) hooks: Vec<String>,
}

/// What `apply` prints about the graph.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Graph {
    pub(crate) mistakes: Vec<String>,
    /// Each job that follows others, with these others. A job comes after those that it follows.
    pub(crate) edges: Vec<(String, Vec<String>)>,
}

/// The schedules that give a job its scheduled times: their expression and time zone, and for
/// `@every` also the job's name, because it counts from this job's fires. `None` stands for runs
/// without a scheduled time.
type Times<'a> = BTreeSet<Option<(&'a str, &'a str, Option<&'a str>)>>;

/// A search through the graph, from each job to the jobs whose ends enqueue it.
struct PathSearch<'a> {
    now: DateTime<Utc>,
    jobs: BTreeMap<&'a str, &'a Job>,
    /// For each hook, the jobs that enqueue it.
    enqueuers: BTreeMap<&'a str, Vec<&'a str>>,
    /// The jobs that are being visited. The end of each enqueues the one before it.
    path: Vec<&'a str>,
    /// The times of the jobs that were visited.
    times: BTreeMap<&'a str, Times<'a>>,
    /// For schedules that were compared, whether they have a common time.
    common_times: BTreeMap<Times<'a>, bool>,
    graph: Graph,
}

/// How many times of schedules are compared: about those of an hourly job within a year.
const MOST_TIMES: usize = 10_000;
/// How far in the future times are compared: all calendars repeat within a century.
const CENTURY: TimeDelta = TimeDelta::days(36_525);

/// Reads the graph of these jobs.
pub(crate) fn read(jobs: &[Job], now: DateTime<Utc>) -> Graph {
    let mut enqueuers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for job in jobs {
        for hook in &job.hooks {
            enqueuers.entry(hook).or_default().push(&job.name);
        }
    }
    let mut search = PathSearch {
        now,
        jobs: jobs.iter().map(|job| (&*job.name, job)).collect(),
        enqueuers,
        path: Vec::new(),
        times: BTreeMap::new(),
        common_times: BTreeMap::new(),
        graph: Graph::default(),
    };
    // Jobs that follow no others are visited from those that follow them.
    for job in jobs.iter().filter(|job| !job.after.is_empty()) {
        search.visit(&job.name);
    }
    search.graph
}

impl<'a> PathSearch<'a> {
    /// Visits the jobs whose ends enqueue this one, and then this one. A job that is visited within
    /// its own visit is a mistake: its end would enqueue it again.
    fn visit(&mut self, name: &'a str) {
        if let Some(start) = self.path.iter().position(|other| *other == name) {
            let circle = self.path[start..].iter().rev();
            let circle: Vec<_> = [&name].into_iter().chain(circle).copied().collect();
            let why =
                format!("job `{name}`: its end would enqueue it again: {}", circle.join(" -> "));
            self.graph.mistakes.push(why);
            return;
        }
        let is_visited = self.times.contains_key(name);
        let Some(job) = self.jobs.get(name).copied().filter(|_| !is_visited) else { return };
        self.path.push(name);
        for followed in &job.after {
            self.visit(followed);
        }
        // Each job is visited once, so its entry is not read again.
        for enqueuer in self.enqueuers.remove(name).unwrap_or_default() {
            self.visit(enqueuer);
        }
        self.path.pop();
        let times = if job.after.is_empty() {
            Times::from([schedule_of(job)])
        } else {
            self.times_of_follower(job)
        };
        self.times.insert(name, times);
    }

    /// Returns the times of a job that follows others: those of all these jobs. Notes the mistakes
    /// in its `after`.
    fn times_of_follower(&mut self, job: &'a Job) -> Times<'a> {
        let Job { name, after, .. } = job;
        self.graph.edges.push((name.clone(), after.clone()));
        let of_job = |name: &str| self.times.get(name).into_iter().flatten();
        // The follower gets a run for each time at which all others have one, so they must have
        // scheduled times either all or not at all.
        let timed = after.iter().find(|name| of_job(name).any(Option::is_some));
        let untimed = after.iter().find(|name| of_job(name).any(Option::is_none));
        if let Some((with, without)) = timed.zip(untimed) {
            self.graph.mistakes.push(format!(
                "job `{name}`: `after`: `{with}` has scheduled times and `{without}` has none; \
                 name jobs of one kind"
            ));
            return Times::new();
        }
        let times: Times<'_> = after.iter().flat_map(|name| of_job(name)).copied().collect();
        if after.len() > 1 && times.len() > 1 {
            let now = self.now;
            let has_common_time = *self
                .common_times
                .entry(times.clone())
                .or_insert_with(|| have_common_time(&times, now));
            if !has_common_time {
                self.graph.mistakes.push(format!(
                    "job `{name}`: `after`: the schedules of {} have no time in common; give \
                     them one schedule",
                    after.join(", ")
                ));
            }
        }
        times
    }
}

/// Returns the schedule of a job that follows no others.
fn schedule_of(job: &Job) -> Option<(&str, &str, Option<&str>)> {
    let expression = job.schedule.as_deref()?;
    let counts_from_own_fires = expression.starts_with("@every");
    let name = if counts_from_own_fires { Some(job.name.as_str()) } else { None };
    Some((expression, &job.time_zone, name))
}

/// Returns whether the schedules have a time in common, within the limits of the search.
fn have_common_time(times: &Times<'_>, now: DateTime<Utc>) -> bool {
    let read =
        times.iter().flatten().map(|(expression, zone, _)| Schedule::parse(expression, zone));
    // Any program may insert a schedule that can't be read. It is not a mistake of the graph.
    let Ok(schedules) = read.collect::<Result<Vec<_>, _>>() else { return true };
    // Ask each schedule for its first time from `at` on, and go on at the latest of these, until
    // all have the same.
    let mut at = now;
    for _ in 0..MOST_TIMES {
        let before = at - TimeDelta::nanoseconds(1);
        let next: Option<Vec<_>> =
            schedules.iter().map(|schedule| schedule.after(before)).collect();
        match next.and_then(|next| next.into_iter().max()) {
            Some(latest) if latest == at => return true,
            Some(latest) if latest < now + CENTURY => at = latest,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(name: &str, schedule: &str, after: &[&str], hooks: &[&str]) -> Job {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Job {
            name: name.to_owned(),
            schedule: Some(schedule.to_owned()).filter(|it| !it.is_empty()),
            time_zone: "UTC".to_owned(),
            after: list(after),
            hooks: list(hooks),
        }
    }

    fn graph(jobs: &[Job]) -> Graph {
        read(jobs, DateTime::UNIX_EPOCH + TimeDelta::days(20_000))
    }

    #[test]
    fn only_the_jobs_of_a_circle_are_named() {
        let jobs = [
            job("a", "", &["c", "free"], &[]),
            job("b", "", &["a"], &[]),
            job("c", "", &["b"], &[]),
            job("free", "", &[], &[]),
            job("last", "", &["a"], &[]),
        ];
        let why = "job `a`: its end would enqueue it again: a -> b -> c -> a";
        assert_eq!(graph(&jobs).mistakes, [why]);
        let jobs = [job("a", "", &["b"], &["b"]), job("b", "", &[], &[])];
        let why = "job `a`: its end would enqueue it again: a -> b -> a";
        assert_eq!(graph(&jobs).mistakes, [why]);
        let why = "job `a`: its end would enqueue it again: a -> a";
        assert_eq!(graph(&[job("a", "", &["a"], &[])]).mistakes, [why]);
    }

    #[test]
    fn jobs_stand_before_those_that_follow_them() {
        let jobs = [
            job("a", "", &["b", "c"], &[]),
            job("b", "", &["d"], &[]),
            job("c", "", &["d"], &[]),
            job("d", "@daily", &[], &[]),
        ];
        let Graph { mistakes, edges } = graph(&jobs);
        assert_eq!(mistakes.len(), 0);
        assert_eq!(edges.iter().map(|(job, _)| &**job).collect::<Vec<_>>(), ["b", "c", "a"]);
    }

    #[test]
    fn schedules_that_never_meet_are_a_mistake() {
        let mistakes = |first: &str, second: &str| {
            let jobs = [
                job("a", first, &[], &[]),
                job("b", second, &[], &[]),
                job("c", "", &["a"], &[]),
                job("d", "", &["b", "c"], &[]),
                job("e", "", &["d"], &[]),
            ];
            let why = "job `d`: `after`: the schedules of b, c have no time in common; give them \
                       one schedule";
            let Graph { mistakes, .. } = graph(&jobs);
            assert!(mistakes.iter().all(|it| it == why), "{mistakes:?}");
            mistakes.len()
        };
        for (first, second, is_wrong) in [
            ("0 2 * * *", "0 2 * * *", false),
            ("0 2 * * *", "0 * * * *", false),
            ("0 2 * * *", "0 2 1 1 *", false),
            ("0 2 * * *", "1 2 * * *", true),
            ("*/2 * * * *", "1-59/2 * * * *", true),
            ("0 2 * * mon", "0 2 * * tue", true),
            ("0 2 29 2 *", "0 2 * * mon", false),
            ("0 2 29 2 *", "0 3 * * *", true),
            ("@every 7m", "0 2 * * *", true),
            ("@every 7m", "@every 7m", true),
            ("*/30 * * * *", "30 * * * *", false),
        ] {
            assert_eq!(mistakes(first, second) > 0, is_wrong, "{first}, {second}");
        }
    }

    #[test]
    fn a_job_can_t_follow_jobs_with_and_without_times() {
        let jobs = [
            job("a", "@daily", &[], &[]),
            job("b", "", &["a"], &[]),
            job("c", "", &[], &[]),
            job("d", "", &["c", "b"], &[]),
        ];
        let why =
            "job `d`: `after`: `b` has scheduled times and `c` has none; name jobs of one kind";
        assert_eq!(graph(&jobs).mistakes, [why]);
    }
}
