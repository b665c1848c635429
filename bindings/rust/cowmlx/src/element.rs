//! The types of elements.

use crate::number::{float_json, half};
use crate::sys;

/// A 16-bit float as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of a 32-bit float, as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// A complex number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Complex64 {
    /// The real part.
    pub re: f32,
    /// The imaginary part.
    pub im: f32,
}

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum Dtype {
    /// True or false, a byte.
    Bool = sys::COW_MLX_BOOL,
    /// Unsigned, 8 bits.
    Uint8 = sys::COW_MLX_UINT8,
    /// Unsigned, 16 bits.
    Uint16 = sys::COW_MLX_UINT16,
    /// Unsigned, 32 bits.
    Uint32 = sys::COW_MLX_UINT32,
    /// Unsigned, 64 bits.
    Uint64 = sys::COW_MLX_UINT64,
    /// Signed, 8 bits.
    Int8 = sys::COW_MLX_INT8,
    /// Signed, 16 bits.
    Int16 = sys::COW_MLX_INT16,
    /// Signed, 32 bits.
    Int32 = sys::COW_MLX_INT32,
    /// Signed, 64 bits.
    Int64 = sys::COW_MLX_INT64,
    /// A float of 16 bits.
    Float16 = sys::COW_MLX_FLOAT16,
    /// The upper half of a 32-bit float.
    Bfloat16 = sys::COW_MLX_BFLOAT16,
    /// A float of 32 bits.
    Float32 = sys::COW_MLX_FLOAT32,
    /// A float of 64 bits; only on a CPU.
    Float64 = sys::COW_MLX_FLOAT64,
    /// Two 32-bit floats.
    Complex64 = sys::COW_MLX_COMPLEX64,
}

impl Dtype {
    /// The dtype of a code of [`sys`](crate::sys), if this crate knows it.
    pub fn from_code(code: i32) -> Option<Self> {
        ALL.into_iter().find(|dtype| dtype.code() == code)
    }

    /// Its name, such as `"float32"`.
    pub fn name(self) -> &'static str {
        NAMES[ALL.iter().position(|&each| each == self).unwrap_or(0)]
    }

    /// The dtype of a name, if this crate knows it.
    pub fn from_name(name: &str) -> Option<Self> {
        ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// Its code in [`sys`](crate::sys).
    pub fn code(self) -> i32 {
        self as i32
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type of Rust that an array can have elements of.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// Its dtype.
    const DTYPE: Dtype;

    /// It as JSON has it.
    #[doc(hidden)]
    fn json(self) -> String;
}

macro_rules! elements {
    ($($type:ty => $dtype:ident $name:literal by $json:expr,)*) => {
        /// The names of the dtypes, in the order of [`ALL`].
        const NAMES: [&str; ALL.len()] = [$($name),*];
        const ALL: [Dtype; [$(Dtype::$dtype),*].len()] = [$(Dtype::$dtype),*];
        $(
            impl sealed::Sealed for $type {}
            impl Element for $type {
                const DTYPE: Dtype = Dtype::$dtype;

                fn json(self) -> String {
                    let json: fn(Self) -> String = $json;
                    json(self)
                }
            }
        )*
    };
}

elements! {
    bool => Bool "bool" by |value| value.to_string(),
    u8 => Uint8 "uint8" by |value| value.to_string(),
    u16 => Uint16 "uint16" by |value| value.to_string(),
    u32 => Uint32 "uint32" by |value| value.to_string(),
    u64 => Uint64 "uint64" by |value| value.to_string(),
    i8 => Int8 "int8" by |value| value.to_string(),
    i16 => Int16 "int16" by |value| value.to_string(),
    i32 => Int32 "int32" by |value| value.to_string(),
    i64 => Int64 "int64" by |value| value.to_string(),
    F16 => Float16 "float16" by |value| half(value.0).json(),
    Bf16 => Bfloat16 "bfloat16" by |value| f32::from_bits(u32::from(value.0) << 16).json(),
    f32 => Float32 "float32" by |value| float_json(value.into(), format!("{value:e}")),
    f64 => Float64 "float64" by |value| float_json(value, format!("{value:e}")),
    Complex64 => Complex64 "complex64" by |value| format!("\"{:e}{:+e}j\"", value.re, value.im),
}
