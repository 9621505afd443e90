//! Checks that documentation names only existing tests.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

#[test]
fn every_test_that_the_security_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let code: Vec<_> = ["tests", "src"].iter().flat_map(|folder| sources(&root.join(folder))).collect();
    // In this page, every longer word in backticks without a blank is the name of a test.
    let is_test = |word: &&str| word.len() > 20 && word.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
    let named: Vec<_> = page.split('`').filter(is_test).collect();
    assert!(named.len() > 40, "{named:?}");
    for name in named {
        let (module, function) = name.rsplit_once("::").unwrap_or(("", name));
        let defines = |path: &PathBuf| {
            path.to_string_lossy().contains(module)
                && fs::read_to_string(path).is_ok_and(|text| text.contains(&format!("fn {function}()")))
        };
        assert!(code.iter().any(defines), "{name}");
    }
}
