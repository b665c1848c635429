//! Numbers as JSON has them, and the dtypes that they take.

use crate::element::{Dtype, Element};

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
