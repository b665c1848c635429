//! Lets the program find the library when it is not started by cargo.

fn main() {
    if let Ok(folder) = std::env::var("DEP_COWMLX_RUST_LIB_DIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
