//! The C API of libcowmlx, as it is. The safe crate is `cowmlx`.
//!
//! Names, types and meanings are those of `cow_mlx.h`, which is the manual; the declarations are
//! generated from it, and `tests/header.rs` lets a C compiler compare every one with it.
//!
//! The build script finds the library through the folder in `COWMLX_LIB_DIR`, then pkg-config,
//! then `python -m cowmlx` (`$PYTHON` or `python3`). With the feature `dlopen` nothing is linked;
//! a host calls `load` or `load_default` before all others.
#![allow(non_camel_case_types, missing_docs)]

use std::ffi::{c_char, c_void};

#[cfg(feature = "dlopen")]
mod dlopened;
#[cfg(feature = "dlopen")]
pub use dlopened::{LoadError, is_loaded, load, load_default};

macro_rules! aliases {
    ($($name:ident = $type:ty;)*) => { $(pub type $name = $type;)* };
}

macro_rules! statuses {
    ($($name:ident $text:literal = $value:literal;)*) => {
        $(pub const $name: cow_mlx_status = $value;)*
        /// Every status that this version of the header knows, and its name.
        pub const STATUSES: &[(cow_mlx_status, &str)] = &[$(($value, $text)),*];
    };
}

macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => { $(pub const $name: $type = $value;)* };
}

macro_rules! callbacks {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        $(pub type $name = Option<unsafe extern "C" fn($($arg: $type),*) $(-> $result)?>;)*
    };
}

macro_rules! structs {
    ($(struct $name:ident { $($member:ident: $type:ty,)* })*) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub struct $name { $(pub $member: $type,)* }
        )*
    };
}

#[cfg(not(feature = "dlopen"))]
macro_rules! functions {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        unsafe extern "C" {
            $($(#[$meta])* pub fn $name($($arg: $type),*) $(-> $result)?;)*
        }
    };
}

#[cfg(feature = "dlopen")]
macro_rules! functions {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// Where the library's functions are.
        struct Functions { $($name: unsafe extern "C" fn($($arg: $type),*) $(-> $result)?,)* }

        impl Functions {
            /// # Safety
            /// The library is libcowmlx.
            unsafe fn resolve(library: &dlopened::Library) -> Result<Self, LoadError> {
                // SAFETY: the types are those of the header.
                unsafe {
                    Ok(Self { $($name: dlopened::symbol(library, stringify!($name))?,)* })
                }
            }
        }

        $(
            $(#[$meta])*
            ///
            /// # Safety
            /// As the header says.
            ///
            /// # Panics
            /// Unless the library is loaded.
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: the caller's.
                unsafe { (dlopened::functions().$name)($($arg),*) }
            }
        )*
    };
}

/// A tensor of DLPack 1.x, which this crate does not look into.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    _opaque: [u8; 0],
}

include!("declarations.rs");
