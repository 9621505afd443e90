//! A library that is loaded into a command before all others, and answers for some functions of the
//! system.

use std::process::Command;

use tempfile::TempDir;

use super::{Invocation, temp_dir};

pub struct Preload {
    folder: TempDir,
}

impl Preload {
    pub fn compile(source: &str) -> Self {
        let folder = temp_dir();
        let file = folder.path().join("preload.c");
        std::fs::write(&file, source).unwrap();
        // The linker of Rust programs is installed wherever the tests run.
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.path().join("preload.so")).arg(&file);
        assert!(compiler.status().unwrap().success());
        Self { folder }
    }

    pub fn before<'db>(&self, command: Invocation<'db>) -> Invocation<'db> {
        command.env("LD_PRELOAD", self.folder.path().join("preload.so").to_str().unwrap())
    }
}
