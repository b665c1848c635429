//! What would be a use after free, or two calls at once, does not compile.
//!
//! The files in `compile_fail/` mark the lines that the compiler must refuse, `//~ E0505`. It has
//! to refuse these, with these errors, and nothing else; without them it has to accept the rest.

#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

const MARK: &str = "//~ ";

/// This crate as the compiler takes it, which cargo has built already or builds now.
fn built() -> PathBuf {
    let features: Vec<&str> = [
        cfg!(feature = "dlopen").then_some("dlopen"),
        cfg!(feature = "stream").then_some("stream"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let done = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--lib", "--offline", "--locked", "--message-format=json"])
        .args(["--features", &features.join(",")])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let messages = String::from_utf8(done.stdout).expect("text");
    let messages = messages.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let artifact = |message: &Value| {
        message["reason"] == "compiler-artifact" && message["target"]["name"] == "cowmlx"
    };
    let message = messages.into_iter().find(artifact).expect("the crate was built");
    let files = message["filenames"].as_array().expect("files");
    let files = files.iter().filter_map(Value::as_str).map(PathBuf::from);
    files.into_iter().find(|file| file.extension().is_some_and(|e| e == "rmeta")).expect("metadata")
}

/// The errors of a source: lines and codes.
fn errors(crate_file: &Path, name: &str, source: &str) -> Vec<(usize, String)> {
    let folder = env::temp_dir().join(format!("cowmlx-compile-fail-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join(name);
    fs::write(&file, source).expect("a file");
    let done = Command::new(env::var("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition=2024", "--emit=metadata", "--error-format=json", "--cap-lints=allow"])
        .arg("--extern")
        .arg(format!("cowmlx={}", crate_file.display()))
        .arg(format!("-Ldependency={}", crate_file.parent().expect("a folder").display()))
        .arg("--out-dir")
        .arg(&folder)
        .arg(&file)
        .output()
        .expect("rustc runs");
    fs::remove_dir_all(&folder).expect("the folder is removed");
    let said = String::from_utf8(done.stderr).expect("text");
    let mut errors = Vec::new();
    for message in said.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let spans = message["spans"].as_array().expect("spans");
        if message["level"] != "error" || spans.is_empty() {
            continue;
        }
        let primary = spans.iter().find(|span| span["is_primary"] == true).expect("a place");
        let line = primary["line_start"].as_u64().expect("a line");
        errors.push((line as usize, message["code"]["code"].as_str().unwrap_or("?").into()));
    }
    assert_eq!(done.status.success(), errors.is_empty(), "{said}");
    errors.sort();
    errors
}

fn refuses_what_is_marked(crate_file: &Path, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let source = fs::read_to_string(folder.join(name)).expect("the source");
    let marked = |(index, line): (usize, &str)| {
        line.split_once(MARK).map(|(_, code)| (index + 1, code.trim().to_owned()))
    };
    let expected: Vec<_> = source.lines().enumerate().filter_map(marked).collect();
    assert!(!expected.is_empty());
    assert_eq!(errors(crate_file, name, &source), expected, "{name}");

    let well: Vec<_> = source.lines().filter(|line| !line.contains(MARK)).collect();
    assert_eq!(errors(crate_file, name, &well.join("\n")), [], "{name} without its marked lines");
}

#[test]
fn what_is_borrowed_or_shared_wrongly_does_not_compile() {
    let crate_file = built();
    refuses_what_is_marked(&crate_file, "borrowing.rs");
    refuses_what_is_marked(&crate_file, "building.rs");
    refuses_what_is_marked(&crate_file, "sharing.rs");
    if cfg!(feature = "stream") {
        refuses_what_is_marked(&crate_file, "streaming.rs");
    }
}
