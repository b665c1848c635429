//! Generates some text and prints it, with nothing but the standard library.

use std::ffi::{c_char, c_void, CStr, CString};
use std::io::Write;
use std::ptr::{null, null_mut};

#[link(name = "cowmlx")]
extern "C" {
    fn cow_mlx_error_message() -> *const c_char;
    fn cow_mlx_runtime_start(params: *const c_void) -> i32;
    fn cow_mlx_runtime_stop() -> i32;
    fn cow_mlx_model_load(path: *const c_char, params: *const c_void, out: *mut i32) -> i32;
    fn cow_mlx_model_tokenize(
        model: i32,
        text: *const c_char,
        length: usize,
        flags: u32,
        tokens: *mut i32,
        capacity: usize,
        count: *mut usize,
    ) -> i32;
    fn cow_mlx_context_create(model: i32, params: *const c_void, out: *mut i32) -> i32;
    fn cow_mlx_context_begin(
        context: i32,
        tokens: *const i32,
        count: usize,
        params: *const c_void,
    ) -> i32;
    fn cow_mlx_context_next(
        context: i32,
        text: *mut u8,
        capacity: usize,
        length: *mut usize,
        piece: *mut c_void,
    ) -> i32;
}

fn check(status: i32) {
    if status != 0 {
        let message = unsafe { CStr::from_ptr(cow_mlx_error_message()) };
        panic!("status {status}: {}", message.to_string_lossy());
    }
}

fn main() {
    let path = CString::new(std::env::args().nth(1).expect("a model")).expect("a path");
    let prompt = "Once upon a time";
    let (mut model, mut context) = (0, 0);
    let (mut tokens, mut count) = ([0; 64], 0);
    unsafe {
        check(cow_mlx_runtime_start(null()));
        check(cow_mlx_model_load(path.as_ptr(), null(), &mut model));
        check(cow_mlx_context_create(model, null(), &mut context));
        check(cow_mlx_model_tokenize(
            model,
            prompt.as_ptr().cast(),
            prompt.len(),
            1,
            tokens.as_mut_ptr(),
            tokens.len(),
            &mut count,
        ));
        check(cow_mlx_context_begin(context, tokens.as_ptr(), count, null()));
    }
    let (mut text, mut length) = ([0u8; 256], 0);
    for _ in 0..16 {
        let status = unsafe {
            let buffer = text.as_mut_ptr();
            cow_mlx_context_next(context, buffer, text.len(), &mut length, null_mut())
        };
        if status == 1 {
            break;
        }
        check(status);
        std::io::stdout().write_all(&text[..length]).expect("stdout");
    }
    unsafe { check(cow_mlx_runtime_stop()) };
}
