//! Lets tests and examples of this package find the library where it lies, and gives its folder to
//! the build scripts of programs, as `DEP_COWMLX_RUST_LIB_DIR`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_COWMLX_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo:lib_dir={folder}");
    }
}
