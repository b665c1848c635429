//! Finds libcowmlx: `COWMLX_LIB_DIR`, then pkg-config, then `python -m cowmlx library`.
//!
//! Dependents get its folder as `DEP_COWMLX_LIB_DIR`.

use std::env;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_loaded_later = env::var_os("CARGO_FEATURE_DLOPEN").is_some();
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    let mut tried = Vec::new();
    let found = from_environment(&mut tried)
        .or_else(|| from_pkg_config(&mut tried))
        .or_else(|| from_python(&mut tried));
    let Some(library) = found else {
        assert!(is_loaded_later, "libcowmlx was not found:\n  {}\n", tried.join("\n  "));
        return;
    };
    let folder = library.parent().expect("a file has a folder");
    println!("cargo:rerun-if-changed={}", library.display());
    if is_loaded_later {
        println!("cargo:rustc-env=COWMLX_FOUND_LIB_DIR={}", folder.display());
        return;
    }
    println!("cargo:rustc-link-lib=dylib=cowmlx");
    println!("cargo:rustc-link-search=native={}", link_into_target(&library).display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    println!("cargo:lib_dir={}", folder.display());
}

/// The name that hosts ask the system's loader for.
fn soname() -> &'static str {
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => "libcowmlx.1.dylib",
        _ => "libcowmlx.so.1",
    }
}

/// Cargo lets `cargo run` and `cargo test` find libraries in its own folders only, so there are
/// links to the library in one. The library itself looks for its parts where it really lies.
fn link_into_target(library: &Path) -> PathBuf {
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let plain = if soname().ends_with("dylib") { "libcowmlx.dylib" } else { "libcowmlx.so" };
    for name in [soname(), plain] {
        let link = folder.join(name);
        let _ = std::fs::remove_file(&link);
        symlink(library, &link).unwrap_or_else(|error| panic!("{}: {error}", link.display()));
    }
    folder
}

/// The library in a folder, if it is there.
fn library_in(folder: &Path, source: &str, tried: &mut Vec<String>) -> Option<PathBuf> {
    let path = folder.join(soname());
    match path.canonicalize() {
        Ok(path) => Some(path),
        Err(error) => {
            tried.push(format!("{source}: {}: {error}", path.display()));
            None
        }
    }
}

fn from_environment(tried: &mut Vec<String>) -> Option<PathBuf> {
    println!("cargo:rerun-if-env-changed=COWMLX_LIB_DIR");
    let Some(folder) = env::var_os("COWMLX_LIB_DIR").filter(|folder| !folder.is_empty()) else {
        tried.push("COWMLX_LIB_DIR: not set; it names the folder of the library".into());
        return None;
    };
    let found = library_in(Path::new(&folder), "COWMLX_LIB_DIR", tried);
    if found.is_none() && env::var_os("CARGO_FEATURE_DLOPEN").is_some() {
        return None; // it names one at run time, too
    }
    // Who names a folder does not want the library of another one.
    Some(found.unwrap_or_else(|| panic!("no libcowmlx there: {}", tried.join("\n"))))
}

fn from_pkg_config(tried: &mut Vec<String>) -> Option<PathBuf> {
    for name in ["PATH", "PKG_CONFIG", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    let tool = program("PKG_CONFIG", "pkg-config");
    let options = output_of(&tool, &["--libs", "cowmlx"], tried)?;
    let unescaped = |text: String| text.trim().replace("\\ ", " ");
    let options = unescaped(options);
    // The library's path, as `python -m cowmlx pkgconfig` writes it; or what packagers write.
    let path = options.split_once(soname()).map(|(folder, _)| folder);
    let folders = options.split(' ').filter_map(|option| option.strip_prefix("-L"));
    let libdir = output_of(&tool, &["--variable=libdir", "cowmlx"], tried).map(unescaped);
    let folders = path.into_iter().chain(folders).chain(libdir.as_deref());
    folders.filter(|folder| !folder.is_empty()).find_map(|f| library_in(f.as_ref(), &tool, tried))
}

fn from_python(tried: &mut Vec<String>) -> Option<PathBuf> {
    println!("cargo:rerun-if-env-changed=PYTHON");
    let python = program("PYTHON", "python3");
    let path = PathBuf::from(output_of(&python, &["-m", "cowmlx", "library"], tried)?.trim());
    library_in(path.parent()?, &python, tried)
}

/// The program that a variable names, or else the usual one.
fn program(variable: &str, usual: &str) -> String {
    env::var(variable).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| usual.into())
}

/// What a program prints, if it succeeds.
fn output_of(program: &str, arguments: &[&str], tried: &mut Vec<String>) -> Option<String> {
    let reason = match Command::new(program).args(arguments).output() {
        Ok(done) if done.status.success() => return String::from_utf8(done.stdout).ok(),
        Ok(done) => String::from_utf8_lossy(&done.stderr).trim().replace('\n', "\n    "),
        Err(error) => error.to_string(),
    };
    tried.push(format!("{program} {}: {reason}", arguments.join(" ")));
    None
}
