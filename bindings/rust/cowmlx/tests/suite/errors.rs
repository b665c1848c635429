use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;

use cowmlx::{GenerationParams, Grammar, Model, Status, sys};

use crate::support::{context, model, runtime, story};

#[test]
fn every_status_of_the_header_has_a_name_of_its_own() {
    for &(code, name) in sys::STATUSES.iter().filter(|status| status.0 < 0) {
        let status = Status::from_code(code);
        assert!(!matches!(status, Status::Other(_)), "{name} is not known");
        assert_eq!((status.code(), status.name()), (code, name));
        // SAFETY: a constant of the library.
        let in_c = unsafe { std::ffi::CStr::from_ptr(sys::cow_mlx_status_name(code)) };
        assert_eq!(in_c.to_str().unwrap(), name);
    }
}

#[test]
fn an_unknown_status_is_named_by_the_library() {
    assert_eq!(Status::from_code(-99), Status::Other(-99));
    assert_eq!(Status::Other(-99).to_string(), "UNKNOWN");
}

#[test]
fn an_error_names_operation_and_value() {
    let error = Model::load(runtime(), "/no/such/folder").unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert!(error.message().starts_with("Model::load: "), "{error}");
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    assert_eq!(error.reason(), "file_not_found");
    assert_eq!(error.details(), r#"{"file": "/no/such/folder"}"#);
}

#[test]
fn each_thread_gets_the_message_of_its_own_failure() {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for turn in 0..20 {
                    let path = format!("/no/folder/{thread}/{turn}");
                    let error = Model::load(runtime(), &path).unwrap_err();
                    assert!(error.message().contains(&path), "{error}");
                }
            });
        }
    });
}

#[test]
fn a_path_that_c_cannot_have_is_refused() {
    let error = Model::load(runtime(), "a\0b").unwrap_err();
    assert_eq!(error.message(), "Model::load: path has a NUL byte at 1");
    let bytes = Path::new(OsStr::from_bytes(b"\xff"));
    let error = context().save(bytes).unwrap_err();
    assert!(error.message().starts_with("Context::save: path is not UTF-8"), "{error}");
    assert_eq!(error.status(), Status::InvalidArgument);
}

#[test]
fn a_text_that_c_cannot_have_is_refused() {
    for params in [
        GenerationParams::new().stop(["fine", "a\0b"]),
        GenerationParams::new().grammar(Grammar::Regex("a\0b".into())),
    ] {
        let error = context().begin(&story(), &params).map(drop).unwrap_err();
        assert!(error.message().ends_with("has a NUL byte at 1"), "{error}");
    }
}

#[test]
fn an_unknown_token_is_refused() {
    let error = model().detokenize(&[1_000_000], cowmlx::Special::NONE).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    assert!(error.message().contains("1000000"), "{error}");
}

#[test]
fn errors_are_errors() {
    fn is_error<T: std::error::Error + Send + Sync + Clone + 'static>() {}
    is_error::<cowmlx::Error>();
}
