//! With the feature `dlopen`: finding the library at run time, which happens once per process. So
//! each test runs its scene in a separate process.

#![cfg(feature = "dlopen")]
#![allow(missing_docs)]

use std::env;
use std::path::PathBuf;
use std::process::Command;

use cowmlx::{Runtime, Status, load_library, version};

const SCENE: &str = "COWMLX_TEST_SCENE";

/// Run this test again in a separate process, where `scene` is true.
fn alone(name: &str, folder: &str) {
    let done = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env("COWMLX_LIB_DIR", folder)
        .env(SCENE, library())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

/// The library's path, in a scene.
fn scene() -> Option<PathBuf> {
    env::var_os(SCENE).map(PathBuf::from)
}

fn library() -> PathBuf {
    let name = if cfg!(target_os = "macos") { "libcowmlx.1.dylib" } else { "libcowmlx.so.1" };
    match env::var_os("COWMLX_LIB_DIR") {
        Some(folder) => PathBuf::from(folder).join(name),
        None => PathBuf::from(name),
    }
}

#[test]
fn without_a_library_there_is_an_error() {
    if scene().is_none() {
        return alone("without_a_library_there_is_an_error", "/no/such/folder");
    }
    let error = Runtime::start().unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert!(error.message().contains("/no/such/folder/libcowmlx"), "{error}");
    assert_eq!(version().unwrap_err().status(), Status::NotFound);
    assert_eq!((error.status().name(), Status::Other(-99).name()), ("ENOENT", "UNKNOWN"));
}

#[test]
fn a_path_comes_before_the_search() {
    let Some(library) = scene() else {
        return alone("a_path_comes_before_the_search", "/no/such/folder");
    };
    // SAFETY: it is the library.
    unsafe { load_library(&library) }.unwrap();
    assert!(Runtime::start().unwrap().info().unwrap().contains("\"mlx\""));
    // SAFETY: it is the library.
    let error = unsafe { load_library(&library) }.unwrap_err();
    assert_eq!(error.status(), Status::InvalidState);
}

#[test]
fn another_library_is_refused() {
    if scene().is_none() {
        return alone("another_library_is_refused", "/no/such/folder");
    }
    let other = if cfg!(target_os = "macos") { "libSystem.B.dylib" } else { "libm.so.6" };
    // SAFETY: it is loaded already.
    let error = unsafe { load_library(other) }.unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    assert!(error.message().contains("cow_mlx_abi_version"), "{error}");
}
