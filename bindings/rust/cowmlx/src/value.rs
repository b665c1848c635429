//! Values of programs, and operators between them.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::attributes::Attributes;
use crate::builder::ProgramBuilder;
use crate::element::Dtype;
use crate::element::{Number, for_numbers};
use crate::error::{Error, Result, Status};
use crate::graph::Id;

/// A value of a program: an input, a constant or a result.
#[derive(Clone, Copy)]
pub struct Value<'b> {
    pub(crate) builder: &'b ProgramBuilder<'b>,
    pub(crate) id: Id,
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Value").field(&self.id).finish()
    }
}

/// What an operation takes: a value or, beside a value, a number, which takes that value's dtype if
/// it fits.
#[derive(Clone, Debug)]
pub struct Operand<'b>(pub(crate) Given<'b>);

#[derive(Clone, Debug)]
pub(crate) enum Given<'b> {
    Value(Value<'b>),
    Number(Number),
    Nothing,
}

impl<'b> From<Value<'b>> for Operand<'b> {
    fn from(value: Value<'b>) -> Self {
        Self(Given::Value(value))
    }
}

impl<'b> From<Option<Value<'b>>> for Operand<'b> {
    fn from(value: Option<Value<'b>>) -> Self {
        Self(value.map_or(Given::Nothing, Given::Value))
    }
}

/// Values, of any number.
#[derive(Clone, Debug)]
pub struct Values<'b>(pub(crate) Vec<Value<'b>>);

impl<'b> From<&[Value<'b>]> for Values<'b> {
    fn from(values: &[Value<'b>]) -> Self {
        Self(values.to_vec())
    }
}

impl<'b, const N: usize> From<[Value<'b>; N]> for Values<'b> {
    fn from(values: [Value<'b>; N]) -> Self {
        Self(values.to_vec())
    }
}

impl<'b, const N: usize> From<&[Value<'b>; N]> for Values<'b> {
    fn from(values: &[Value<'b>; N]) -> Self {
        Self(values.to_vec())
    }
}

impl<'b> From<Vec<Value<'b>>> for Values<'b> {
    fn from(values: Vec<Value<'b>>) -> Self {
        Self(values)
    }
}

impl<'b> From<&Vec<Value<'b>>> for Values<'b> {
    fn from(values: &Vec<Value<'b>>) -> Self {
        Self(values.clone())
    }
}

impl Value<'_> {
    /// The type of its elements; the library infers that of a result.
    ///
    /// # Errors
    /// An operation that it comes from cannot take its inputs.
    pub fn dtype(self) -> Result<Dtype> {
        let of = &self.builder.types(&[self.id])?[0];
        Dtype::from_name(&of.dtype).ok_or_else(|| {
            Error::new(
                Status::Unsupported,
                "unsupported",
                format!("this crate knows no dtype {}", of.dtype),
            )
        })
    }
}

impl<'b, R: Into<Operand<'b>>> Add<R> for Value<'b> {
    type Output = Value<'b>;

    fn add(self, other: R) -> Value<'b> {
        binary("add", self.into(), other.into(), self.builder)
    }
}

impl<'b, R: Into<Operand<'b>>> Sub<R> for Value<'b> {
    type Output = Value<'b>;

    fn sub(self, other: R) -> Value<'b> {
        binary("subtract", self.into(), other.into(), self.builder)
    }
}

impl<'b, R: Into<Operand<'b>>> Mul<R> for Value<'b> {
    type Output = Value<'b>;

    fn mul(self, other: R) -> Value<'b> {
        binary("multiply", self.into(), other.into(), self.builder)
    }
}

impl<'b, R: Into<Operand<'b>>> Div<R> for Value<'b> {
    type Output = Value<'b>;

    fn div(self, other: R) -> Value<'b> {
        binary("divide", self.into(), other.into(), self.builder)
    }
}

impl<'b> Neg for Value<'b> {
    type Output = Value<'b>;

    fn neg(self) -> Value<'b> {
        self.builder.emit("negative", &[self.into()], &Attributes::default(), 1)[0]
    }
}

fn binary<'b>(
    operation: &'static str,
    a: Operand<'b>,
    b: Operand<'b>,
    builder: &'b ProgramBuilder<'b>,
) -> Value<'b> {
    builder.emit(operation, &[a, b], &Attributes::default(), 1)[0]
}

macro_rules! numbers_first {
    ($($type:ty)*) => {$(
        impl From<$type> for Operand<'_> {
            fn from(number: $type) -> Self {
                Self(Given::Number(number.into()))
            }
        }
        impl<'b> Add<Value<'b>> for $type {
            type Output = Value<'b>;

            fn add(self, other: Value<'b>) -> Value<'b> {
                binary("add", self.into(), other.into(), other.builder)
            }
        }
        impl<'b> Sub<Value<'b>> for $type {
            type Output = Value<'b>;

            fn sub(self, other: Value<'b>) -> Value<'b> {
                binary("subtract", self.into(), other.into(), other.builder)
            }
        }
        impl<'b> Mul<Value<'b>> for $type {
            type Output = Value<'b>;

            fn mul(self, other: Value<'b>) -> Value<'b> {
                binary("multiply", self.into(), other.into(), other.builder)
            }
        }
        impl<'b> Div<Value<'b>> for $type {
            type Output = Value<'b>;

            fn div(self, other: Value<'b>) -> Value<'b> {
                binary("divide", self.into(), other.into(), other.builder)
            }
        }
    )*};
}

for_numbers!(numbers_first);

impl From<bool> for Operand<'_> {
    fn from(number: bool) -> Self {
        Self(Given::Number(number.into()))
    }
}
