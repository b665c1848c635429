//! `+`, `-`, `*` and `/` of arrays: sugar over [`Array::add`] and the like, which panics where these
//! return an error. Code that must continue takes the methods.
//!
//! Both sides may be arrays or borrowed arrays, and one a number: `&a * 2.0 + &b`.

use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::array::Array;
use crate::array_operators::ArrayOperand;
use crate::element::for_numbers;
use crate::error::Result;

fn must<'r>(result: Result<Array<'r>>) -> Array<'r> {
    result.unwrap_or_else(|error| panic!("{error}"))
}

macro_rules! operators {
    ($($trait:ident $function:ident by $method:ident;)*) => {$(
        impl<'r, 'a, R: Into<ArrayOperand<'a>>> $trait<R> for &Array<'r> {
            type Output = Array<'r>;

            /// # Panics
            /// The operation cannot take these.
            fn $function(self, other: R) -> Array<'r> {
                must(Array::$method(&self, other))
            }
        }

        impl<'r, 'a, R: Into<ArrayOperand<'a>>> $trait<R> for Array<'r> {
            type Output = Array<'r>;

            /// # Panics
            /// The operation cannot take these.
            fn $function(self, other: R) -> Array<'r> {
                must(Array::$method(&self, other))
            }
        }

        impl<'r> $trait<Array<'_>> for &Array<'r> {
            type Output = Array<'r>;

            /// # Panics
            /// The operation cannot take these.
            fn $function(self, other: Array<'_>) -> Array<'r> {
                must(Array::$method(&self, &other))
            }
        }

        impl<'r> $trait<Array<'_>> for Array<'r> {
            type Output = Array<'r>;

            /// # Panics
            /// The operation cannot take these.
            fn $function(self, other: Array<'_>) -> Array<'r> {
                must(Array::$method(&self, &other))
            }
        }
    )*};
}

operators! {
    Add add by add;
    Sub sub by subtract;
    Mul mul by multiply;
    Div div by divide;
}

impl<'r> Neg for &Array<'r> {
    type Output = Array<'r>;

    /// # Panics
    /// The operation cannot take it.
    fn neg(self) -> Array<'r> {
        must(self.negative())
    }
}

impl<'r> Neg for Array<'r> {
    type Output = Array<'r>;

    /// # Panics
    /// The operation cannot take it.
    fn neg(self) -> Array<'r> {
        must(self.negative())
    }
}

macro_rules! numbers_first {
    ($($type:ty)*) => {$(
        numbers_first! { $type: Add add by add; Sub sub by subtract; Mul mul by multiply; Div div by divide; }
    )*};
    ($type:ty: $($trait:ident $function:ident by $method:ident;)*) => {$(
        impl<'r> $trait<&Array<'r>> for $type {
            type Output = Array<'r>;

            /// # Panics
            /// The operation cannot take these.
            fn $function(self, other: &Array<'r>) -> Array<'r> {
                must(other.beside(&self.into()).and_then(|number| Array::$method(&number, other)))
            }
        }

        impl<'r> $trait<Array<'r>> for $type {
            type Output = Array<'r>;

            /// # Panics
            /// The operation cannot take these.
            fn $function(self, other: Array<'r>) -> Array<'r> {
                self.$function(&other)
            }
        }
    )*};
}

for_numbers!(numbers_first);
