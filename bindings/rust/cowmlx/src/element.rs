//! The types of elements, and numbers beside arrays with their form in JSON.

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

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Bool,
    Integer,
    Float,
}

/// A number beside arrays: it takes the dtype of the array that it meets, if it fits that.
///
/// A `bool` is one; an integer is of the other dtype, or `int32` beside bools; other numbers are of
/// the other dtype if that is one of floats, or else `float32`.
#[derive(Clone, Debug)]
pub struct Number {
    json: String,
    kind: Kind,
}

impl Number {
    /// It as JSON.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// The dtype that it takes.
    pub(crate) fn beside(&self, other: Dtype) -> Dtype {
        match self.kind {
            Kind::Bool => Dtype::Bool,
            Kind::Integer if other == Dtype::Bool => Dtype::Int32,
            Kind::Float if !is_float(other) => Dtype::Float32,
            _ => other,
        }
    }
}

fn is_float(dtype: Dtype) -> bool {
    use Dtype::{Bfloat16, Complex64, Float16, Float32, Float64};
    matches!(dtype, Float16 | Bfloat16 | Float32 | Float64 | Complex64)
}

macro_rules! numbers {
    ($($kind:ident: $($type:ty)*;)*) => {$($(
        impl From<$type> for Number {
            fn from(value: $type) -> Self {
                Self { json: value.json(), kind: Kind::$kind }
            }
        }
    )*)*};
}

numbers! {
    Bool: bool;
    Integer: u8 u16 u32 u64 i8 i16 i32 i64;
    Float: f32 f64;
}

/// Call a macro with the types of numbers that operators take beside arrays and values.
macro_rules! for_numbers {
    ($macro:ident) => {
        $macro! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }
    };
}
pub(crate) use for_numbers;

/// A float as JSON; what is not finite is a text.
pub(crate) fn float_json(value: f64, text: String) -> String {
    if value.is_nan() {
        return "\"nan\"".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "\"inf\"" } else { "\"-inf\"" }.into();
    }
    text
}

/// A 16-bit float as a number that has its value.
pub(crate) fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}
