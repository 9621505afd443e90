//! A login role, which may get the privileges that `jobctl grants` prints. Roles belong to the
//! whole server, so each has a name of its own and is dropped with this value.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use postgres::{Client, NoTls};

use super::{Invocation, TestDb, jobctl};

pub struct Role<'db> {
    db: &'db TestDb,
    name: String,
}

impl<'db> Role<'db> {
    /// Creates a role that may only log in.
    pub fn new(db: &'db TestDb) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("jobctl_role_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        db.execute(&format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'"));
        Self { db, name }
    }

    /// Creates an enqueuer, worker, operator or viewer.
    pub fn granted(db: &'db TestDb, part: &str) -> Self {
        let role = Self::new(db);
        role.grant(part);
        role
    }

    /// Executes the statements that `jobctl grants` prints for the role.
    pub fn grant(&self, part: &str) {
        let grants =
            jobctl(["grants", "--role", &self.name, "--as", part]).run().success().stderr("");
        self.db.execute(&grants.stdout);
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        self.db.url_as(&self.name)
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.url(), NoTls).expect("the role may log in")
    }

    /// Returns a command line of jobctl that connects as this role.
    pub fn jobctl<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Invocation<'db> {
        Invocation::new(arguments, Some(self.db)).env("JOBCTL_DATABASE_URL", &self.url())
    }

    /// Returns the same with an address without a password, as `init` needs it. A file has the
    /// password.
    pub fn jobctl_with_pass_file<'a>(
        &self,
        arguments: impl IntoIterator<Item = &'a str>,
        folder: &Path,
    ) -> Invocation<'db> {
        let pass_file = folder.join("pgpass");
        fs::write(&pass_file, format!("*:*:*:{0}:{0}\n", self.name)).unwrap();
        fs::set_permissions(&pass_file, Permissions::from_mode(0o600)).unwrap();
        let url = self.url().replacen(&format!(":{}@", self.name), "@", 1);
        let jobctl = self.jobctl(arguments).env("JOBCTL_DATABASE_URL", &url);
        jobctl.env("PGPASSFILE", pass_file.to_str().unwrap())
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        if let Ok(mut client) = Client::connect(&self.db.url(), NoTls) {
            let _ = client.batch_execute(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.name));
        }
    }
}
