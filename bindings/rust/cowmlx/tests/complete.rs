//! Everything of the C API has its safe form.

#![allow(missing_docs, unused_macros)]

use std::path::Path;

macro_rules! ignored {
    ($($any:tt)*) => {};
}
macro_rules! functions {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];
    };
}
macro_rules! structs {
    ($(struct $name:ident { $($member:ident: $type:ty,)* })*) => {
        const STRUCTS: &[(&str, &[&str])] = &[$((stringify!($name), &[$(stringify!($member)),*])),*];
    };
}
macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        const CONSTANTS: &[&str] = &[$(stringify!($name)),*];
    };
}
macro_rules! aliases { ($($any:tt)*) => { ignored!($($any)*); }; }
macro_rules! statuses { ($($any:tt)*) => { ignored!($($any)*); }; }
macro_rules! callbacks { ($($any:tt)*) => { ignored!($($any)*); }; }

include!("../../cowmlx-sys/src/declarations.rs");

/// The crate's source, split into words.
fn words() -> Vec<String> {
    let mut words = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut words);
    words
}

fn collect(folder: &Path, words: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            // What builds programs as text calls nothing.
            if !path.ends_with("graph") && !path.ends_with("operations") {
                collect(&path, words);
            }
            continue;
        }
        let text = std::fs::read_to_string(path).expect("text");
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let split = |line: &str| {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        words.extend(code.flat_map(split));
    }
}

#[test]
fn every_function_is_called() {
    let words = words();
    for name in FUNCTIONS {
        assert!(words.iter().any(|word| word == name), "{name} has no safe form");
    }
    assert!(FUNCTIONS.len() > 40);
}

#[test]
fn every_member_of_a_struct_is_used() {
    let words = words();
    for (name, members) in STRUCTS {
        for member in *members {
            assert!(words.iter().any(|word| word == member), "{name}.{member} has no safe form");
        }
    }
}

#[test]
fn every_constant_is_used() {
    // Text comes with its length, and GenerationParams has no grammar as the default.
    let unneeded = ["COW_MLX_NUL", "COW_MLX_VERSION"];
    let words = words();
    for name in CONSTANTS.iter().filter(|name| !unneeded.contains(name)) {
        assert!(words.iter().any(|word| word == name), "{name} has no safe form");
    }
}
