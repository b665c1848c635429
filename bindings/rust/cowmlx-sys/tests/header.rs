//! A C compiler compares every declaration of this crate with the header.
//!
//! Each Rust type gives its declaration in C, which is compiled behind the header.

#![allow(missing_docs, non_camel_case_types)]

use std::collections::BTreeSet;
use std::ffi::{c_char, c_void};
use std::io::Write;
use std::mem::{align_of, offset_of, size_of};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cowmlx_sys::*;

/// A type of C: declares a thing of the type, of whose declarator the inner part is given.
trait CType {
    fn declare(inner: &str) -> String;

    fn declare_const(inner: &str) -> String {
        format!("const {}", Self::declare(inner))
    }
}

macro_rules! c_types {
    ($($rust:ty => $c:literal,)*) => {
        $(impl CType for $rust {
            fn declare(inner: &str) -> String {
                format!("{} {inner}", $c)
            }
        })*
    };
}

c_types! {
    c_char => "char",
    c_void => "void",
    () => "void",
    bool => "bool",
    f32 => "float",
    f64 => "double",
    i32 => "int32_t",
    i64 => "int64_t",
    u32 => "uint32_t",
    u64 => "uint64_t",
    usize => "size_t",
    DLManagedTensorVersioned => "struct DLManagedTensorVersioned",
}

impl<T: CType> CType for *mut T {
    fn declare(inner: &str) -> String {
        T::declare(&format!("*{inner}"))
    }

    fn declare_const(inner: &str) -> String {
        T::declare(&format!("*const {inner}"))
    }
}

impl<T: CType> CType for *const T {
    fn declare(inner: &str) -> String {
        T::declare_const(&format!("*{inner}"))
    }

    fn declare_const(inner: &str) -> String {
        T::declare_const(&format!("*const {inner}"))
    }
}

macro_rules! function_types {
    ($(($($arg:ident)*))*) => {
        $(impl<R: CType, $($arg: CType),*> CType for Option<unsafe extern "C" fn($($arg),*) -> R> {
            fn declare(inner: &str) -> String {
                let params: &[String] = &[$($arg::declare("")),*];
                let params = if params.is_empty() { "void".into() } else { params.join(", ") };
                R::declare(&format!("(*{inner})({params})"))
            }
        })*
    };
}

function_types! { () (A) (A B) (A B C) (A B C D) (A B C D E) }

/// The C type of a member, which is only named.
fn declare_member<S, T: CType>(_: fn(&S) -> &T, inner: &str) -> String {
    T::declare(inner)
}

fn void() -> String {
    "void".into()
}

/// What the declarations are in C, and the names of all of them.
#[derive(Default)]
struct Checks {
    source: String,
    names: BTreeSet<String>,
}

impl Checks {
    fn add(&mut self, name: &str, line: String) {
        self.names.insert(name.into());
        self.source += &line;
        self.source.push('\n');
    }

    fn has_type(&mut self, name: &str, value: &str, declared: &str) {
        self.add(
            name,
            format!(r#"_Static_assert(_Generic({value}, {declared}: 1, default: 0), "{name}");"#),
        );
    }

    fn equals(&mut self, name: &str, expression: &str, value: impl std::fmt::Display) {
        self.add(name, format!(r#"_Static_assert({expression} == {value}, "{expression}");"#));
    }
}

macro_rules! aliases {
    ($($name:ident = $type:ty;)*) => {
        fn check_aliases(to: &mut Checks) {
            $(to.has_type(
                stringify!($name),
                concat!("(", stringify!($name), "*)0"),
                &<$name as CType>::declare("*"),
            );)*
        }
    };
}

macro_rules! statuses {
    ($($name:ident $text:literal = $value:literal;)*) => {
        fn check_statuses(to: &mut Checks) {
            $(
                to.equals(stringify!($name), stringify!($name), $name);
                assert_eq!(stringify!($name), concat!("COW_MLX_", $text));
                assert!(STATUSES.contains(&($name, $text)));
            )*
        }
    };
}

macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        fn check_constants(to: &mut Checks) {
            $(match stringify!($type) {
                "&str" => to.add(
                    stringify!($name),
                    format!("const char {}_[] = {} \"\";", stringify!($name), stringify!($name)),
                ),
                "usize" => to.equals(stringify!($name), stringify!($name), format!("{}u", $name)),
                _ => to.equals(stringify!($name), stringify!($name), $name),
            })*
        }
    };
}

macro_rules! callbacks {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        fn check_callbacks(to: &mut Checks) {
            $(to.has_type(
                stringify!($name),
                concat!("(", stringify!($name), ")0"),
                &<$name as CType>::declare(""),
            );)*
        }
    };
}

macro_rules! structs {
    ($(struct $name:ident { $($member:ident: $type:ty,)* })*) => {
        $(impl CType for $name {
            fn declare(inner: &str) -> String {
                format!("{} {inner}", stringify!($name))
            }
        })*

        fn check_structs(to: &mut Checks) {
            $(
                let name = stringify!($name);
                to.equals(name, &format!("sizeof({name})"), size_of::<$name>());
                to.equals(name, &format!("_Alignof({name})"), align_of::<$name>());
                $(
                    let (member, place) = (stringify!($member), offset_of!($name, $member));
                    to.equals(name, &format!("offsetof({name}, {member})"), place);
                    let value = format!("&(({name}*)0)->{member}");
                    to.has_type(name, &value, &declare_member(|s: &$name| &s.$member, "*"));
                )*
            )*
        }
    };
}

macro_rules! functions {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        fn check_functions(to: &mut Checks) {
            $(
                // What is compared is what the crate has, linked or loaded. SAFETY: it is not called.
                let _: unsafe fn($($type),*) $(-> $result)? = |$($arg),*| unsafe { $name($($arg),*) };
                let params: &[String] = &[$(<$type>::declare(stringify!($arg))),*];
                let params = if params.is_empty() { void() } else { params.join(", ") };
                #[allow(unused_mut, unused_assignments)]
                let mut result: fn(&str) -> String = <() as CType>::declare;
                $(result = <$result as CType>::declare;)?
                let line = format!("{};", result(&format!("{}({params})", stringify!($name))));
                to.add(stringify!($name), line);
            )*
        }
    };
}

include!("../src/declarations.rs");

fn checks() -> Checks {
    let mut checks = Checks::default();
    check_aliases(&mut checks);
    check_statuses(&mut checks);
    check_constants(&mut checks);
    check_callbacks(&mut checks);
    check_structs(&mut checks);
    check_functions(&mut checks);
    checks
}

fn include_dir() -> PathBuf {
    match std::env::var_os("COWMLX_INCLUDE_DIR") {
        Some(folder) => folder.into(),
        None => concat!(env!("CARGO_MANIFEST_DIR"), "/../../../include").into(),
    }
}

/// What a C compiler says of a source behind the header; nothing if it is content.
fn compile(source: &str) -> String {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut child = Command::new(&compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-I"])
        .arg(include_dir())
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    let text = format!("#include \"cow_mlx.h\"\n{source}");
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("the compiler reads");
    let done = child.wait_with_output().expect("the compiler ends");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.success(), said.is_empty(), "{said}");
    said
}

#[test]
fn every_declaration_is_that_of_the_header() {
    assert_eq!(compile(&checks().source), "");
}

/// The header and the parts of it, a noun each.
fn whole_header() -> String {
    let parts = std::fs::read_dir(include_dir().join("cow_mlx")).into_iter().flatten();
    let parts = parts.map(|part| part.expect("a part").path());
    let files = std::iter::once(include_dir().join("cow_mlx.h")).chain(parts);
    let text: String = files.map(|path| std::fs::read_to_string(path).expect("a header")).collect();
    text.replace("cow_mlx_status\n", "cow_mlx_status ") // a declaration begins on one line
}

#[test]
fn every_declaration_of_the_header_is_there() {
    let header = whole_header();
    let known = checks().names;
    let mut seen = 0;
    for (index, line) in header.lines().enumerate() {
        let word = |text: &str| -> String {
            text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
        };
        let declared = if line.starts_with("COW_MLX_API ") {
            let name = &line[..line.find('(').expect("a function")];
            name.rsplit([' ', '*']).next().map(word)
        } else if let Some(rest) = line.strip_prefix("typedef ") {
            rest.strip_prefix("struct ").or(rest.strip_prefix("int32_t ")).map(word)
        } else if line.starts_with("  COW_MLX_") {
            line.contains(" = ").then(|| word(line.trim()))
        } else {
            // Reasons are texts, in small letters; statuses are constants.
            let name = line.strip_prefix("  X(").map(word);
            name.filter(|name| name.starts_with('E') || name.chars().all(|c| c.is_uppercase()))
                .map(|name| format!("COW_MLX_{name}"))
        };
        if let Some(name) = declared {
            assert!(known.contains(&name), "line {}: {name} is not declared", index + 1);
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} declarations were found in the header");
}

#[test]
fn a_wrong_declaration_is_noticed() {
    let source = checks().source;
    for (right, wrong) in [
        ("uint32_t cow_mlx_abi_version", "int32_t cow_mlx_abi_version"),
        ("const char *cow_mlx_version", "char *cow_mlx_version"),
        ("cow_mlx_piece, token) == 8", "cow_mlx_piece, token) == 12"),
        ("COW_MLX_EINVAL == -1", "COW_MLX_EINVAL == -2"),
        ("bool (*)(const char *, size_t", "bool (*)(char *, size_t"),
        ("piece*)0)->logprob, float", "piece*)0)->logprob, double"),
    ] {
        let changed = source.replace(right, wrong);
        assert!(changed != source, "{right} is not there");
        assert!(!compile(&changed).is_empty(), "{wrong} was accepted");
    }
}
