//! Jobs that wait until a test lets them go on, and that log their starts and ends.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::{TestDb, process, temp_dir, wait_until};

/// A folder with a log that jobs append to, and a gate that they wait at. Opens when it is dropped,
/// so that no job outlives its test.
pub struct Gate {
    folder: TempDir,
}

impl Gate {
    pub fn new() -> Self {
        let folder = temp_dir();
        fs::write(folder.path().join("log"), "").unwrap();
        Self { folder }
    }

    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns a script that appends `start RUN ATTEMPT PID`, waits at the gate, and then appends
    /// `end RUN ATTEMPT`.
    pub fn script(&self) -> String {
        let folder = self.folder.path().display();
        format!(
            "echo start $JOBCTL_RUN_ID $JOBCTL_ATTEMPT $$ >>{folder}/log\n\
             while [ -e {folder}/log ] && [ ! -e {folder}/open ]; do sleep 0.05; done\n\
             echo end $JOBCTL_RUN_ID $JOBCTL_ATTEMPT >>{folder}/log"
        )
    }

    /// Enqueues a run that waits at the gate.
    #[track_caller]
    pub fn enqueue(&self, db: &TestDb) -> i64 {
        db.enqueue_script(&self.script())
    }

    /// Lets all jobs go on.
    pub fn open(&self) {
        fs::write(self.folder.path().join("open"), "").unwrap();
    }

    /// Returns the lines of the log.
    pub fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.log()).unwrap().lines().map(str::to_owned).collect()
    }

    /// Returns the number of lines that begin with this word.
    pub fn count(&self, word: &str) -> usize {
        self.lines().iter().filter(|line| line.split(' ').next() == Some(word)).count()
    }

    /// Waits until this number of runs has started.
    #[track_caller]
    pub fn wait_for_starts(&self, starts: usize) {
        wait_until(&format!("{starts} starts"), || self.count("start") >= starts);
    }

    /// Returns whether any process of a job that waited at this gate is alive, children included.
    pub fn has_processes(&self) -> bool {
        let starts = self.lines();
        let mut pids = starts
            .iter()
            .filter_map(|line| line.strip_prefix("start ")?.split(' ').nth(2)?.parse().ok());
        pids.any(|pid| process::living_in_group(pid) > 0)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}
