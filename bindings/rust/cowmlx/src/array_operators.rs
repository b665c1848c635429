//! Operators between arrays, and with numbers, whose errors are results.

use crate::array::Array;
use crate::attributes::{Attributes, Dims};
use crate::element::{Number, for_numbers};
use crate::error::Result;

/// What an operator takes beside an array: another, or a number, which takes the array's dtype if it
/// fits.
#[derive(Clone, Debug)]
pub enum ArrayOperand<'a> {
    /// An array.
    Array(&'a Array<'a>),
    /// A number.
    Number(Number),
}

impl<'a> From<&'a Array<'_>> for ArrayOperand<'a> {
    fn from(array: &'a Array<'_>) -> Self {
        Self::Array(array)
    }
}

macro_rules! number_operands {
    ($($type:ty)*) => {$(
        impl From<$type> for ArrayOperand<'_> {
            fn from(number: $type) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}

for_numbers!(number_operands);

/// Methods that apply an operation of the table, element by element: dtypes meet as the table of
/// promotion says, and shapes are broadcast. Values are computed when they are needed.
macro_rules! operators {
    ($($(#[$about:meta])* $name:ident)*) => {
        impl<'r> Array<'r> {$(
            $(#[$about])*
            ///
            /// # Errors
            /// As the manual says of `cow_mlx_array_apply`.
            pub fn $name<'a>(&self, other: impl Into<ArrayOperand<'a>>) -> Result<Array<'r>> {
                self.applied(stringify!($name), other.into())
            }
        )*}
    };
}

operators! {
    /// `self + other`.
    add
    /// `self - other`.
    subtract
    /// `self * other`.
    multiply
    /// `self / other`.
    divide
    /// Whether elements are less than others.
    less
    /// Whether elements are less than others, or equal.
    less_equal
    /// Whether elements are greater than others.
    greater
    /// Whether elements are greater than others, or equal.
    greater_equal
    /// Whether elements are equal.
    equal
    /// Whether elements are not equal.
    not_equal
}

impl<'r> Array<'r> {
    /// `-self`.
    ///
    /// # Errors
    /// As the manual says of `cow_mlx_array_apply`.
    pub fn negative(&self) -> Result<Array<'r>> {
        self.only("negative", &[Some(self)], None)
    }

    /// A number as an array of shape () beside this one.
    pub(crate) fn beside(&self, number: &Number) -> Result<Array<'r>> {
        let mut attributes = Attributes::default();
        attributes.set("shape", &Dims::default());
        attributes.set("vals", number);
        attributes.set("dtype", &number.beside(self.dtype()?));
        self.only("full", &[], Some(&attributes.json()))
    }

    fn applied(&self, operation: &str, other: ArrayOperand<'_>) -> Result<Array<'r>> {
        match other {
            ArrayOperand::Array(other) => self.only(operation, &[Some(self), Some(other)], None),
            ArrayOperand::Number(number) => {
                let other = self.beside(&number)?;
                self.only(operation, &[Some(self), Some(&other)], None)
            }
        }
    }

    fn only(
        &self,
        operation: &str,
        inputs: &[Option<&Array<'_>>],
        attributes: Option<&str>,
    ) -> Result<Array<'r>> {
        let mut results = Array::apply(self.runtime(), operation, inputs, attributes)?;
        Ok(results.remove(0))
    }
}
