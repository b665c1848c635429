//! Lets this package's own tests and examples find the library where it lies.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_COWMLX_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
