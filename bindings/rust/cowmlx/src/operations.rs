//! The operations of the table: what they take besides arrays.
//!
//! An operation is a method of [`Value`] or [`ProgramBuilder`] with what it needs. One that takes
//! more has a second method, such as [`sum_with`](Value::sum_with), for a struct of options that is
//! called after it.

#[allow(unused_imports, reason = "not every family needs all of them")]
use crate::attributes::{Attributes, Dims, IntList, Ints, Pairs, ToJson};
use crate::builder::ProgramBuilder;
use crate::element::Dtype;
use crate::element::Number;
use crate::value::{Given, Operand, Value, Values};

/// What a method has of inputs: one or several.
pub(crate) trait Inputs<'b> {
    fn add_to(self, inputs: &mut Vec<Operand<'b>>);
}

impl<'b> Inputs<'b> for Operand<'b> {
    fn add_to(self, inputs: &mut Vec<Operand<'b>>) {
        inputs.push(self);
    }
}

impl<'b> Inputs<'b> for Value<'b> {
    fn add_to(self, inputs: &mut Vec<Operand<'b>>) {
        inputs.push(self.into());
    }
}

impl<'b> Inputs<'b> for Values<'b> {
    fn add_to(self, inputs: &mut Vec<Operand<'b>>) {
        inputs.extend(self.0.into_iter().map(Operand::from));
    }
}

/// What may be given to an operation besides what it needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options<'b> {
    inputs: Vec<Option<Value<'b>>>,
    attributes: Attributes,
}

impl<'b> Options<'b> {
    pub(crate) fn set(&mut self, name: &'static str, value: &impl ToJson) {
        self.attributes.set(name, value);
    }

    /// Give an input behind those that are needed.
    pub(crate) fn input(&mut self, at: usize, value: Value<'b>) {
        self.inputs.resize(self.inputs.len().max(at + 1), None);
        self.inputs[at] = Some(value);
    }

    /// Add what is given to what an operation has.
    pub(crate) fn add_to(self, inputs: &mut Vec<Operand<'b>>) -> Attributes {
        let given = |value: Option<Value<'b>>| Operand(value.map_or(Given::Nothing, Given::Value));
        inputs.extend(self.inputs.into_iter().map(given));
        self.attributes
    }
}

/// What an operation gives: `one`, `several` of a number that is always the same, or `any`.
macro_rules! results {
    (type one) => { Value<'b> };
    (type several $count:literal) => { [Value<'b>; $count] };
    (type any |$inputs:ident, $attributes:ident| $count:expr) => { Vec<Value<'b>> };
    (count $of:ident, $with:ident, one) => { 1 };
    (count $of:ident, $with:ident, several $count:literal) => { $count };
    (count $of:ident, $with:ident, any |$inputs:ident, $attributes:ident| $count:expr) => {{
        #[allow(unused_variables)]
        let ($inputs, $attributes) = (&$of, &$with);
        $count
    }};
    (of $values:expr, one) => { $values[0] };
    (of $values:expr, several $count:literal) => {{
        let values = $values;
        std::array::from_fn(|at| values[at])
    }};
    (of $values:expr, any |$inputs:ident, $attributes:ident| $count:expr) => { $values };
}

/// A method, and one more with options if there are any.
macro_rules! method {
    (
        $self:ident ($($receiver:tt)*) $builder:expr, [$($first:expr)?];
        $(#[$about:meta])*
        $op:literal $name:ident($($input:ident: $itype:ty),*; $($key:literal $needed:ident: $ntype:ty),*)
        -> ($($results:tt)*)
    ) => {
        $(#[$about])*
        pub fn $name(
            $($receiver)* $self,
            $($input: impl Into<$itype>,)*
            $($needed: impl Into<$ntype>,)*
        ) -> results!(type $($results)*) {
            #[allow(unused_mut)]
            let (mut inputs, mut attributes) = (Vec::<Operand<'b>>::new(), Attributes::default());
            $(inputs.push(Operand::from($first));)?
            $(<$itype as Inputs<'b>>::add_to($input.into(), &mut inputs);)*
            $(
                let $needed: $ntype = $needed.into();
                attributes.set($key, &$needed);
            )*
            let count = results!(count inputs, attributes, $($results)*);
            results!(of $builder.emit($op, &inputs, &attributes, count), $($results)*)
        }
    };
    (
        $self:ident ($($receiver:tt)*) $builder:expr, [$($first:expr)?];
        $(#[$about:meta])*
        $op:literal $name:ident($($input:ident: $itype:ty),*; $($key:literal $needed:ident: $ntype:ty),*)
        -> ($($results:tt)*)
        with $with:ident($Options:ident: $($more:tt)*)
    ) => {
        $(#[$about])*
        pub fn $name(
            $($receiver)* $self,
            $($input: impl Into<$itype>,)*
            $($needed: impl Into<$ntype>,)*
        ) -> results!(type $($results)*) {
            $self.$with($($input,)* $($needed,)* $Options::new())
        }

        #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") with options.")]
        pub fn $with(
            $($receiver)* $self,
            $($input: impl Into<$itype>,)*
            $($needed: impl Into<$ntype>,)*
            with: $Options<'b>,
        ) -> results!(type $($results)*) {
            #[allow(unused_mut)]
            let mut inputs = Vec::<Operand<'b>>::new();
            $(inputs.push(Operand::from($first));)?
            $(<$itype as Inputs<'b>>::add_to($input.into(), &mut inputs);)*
            #[allow(unused_mut)]
            let mut attributes = with.0.add_to(&mut inputs);
            $(
                let $needed: $ntype = $needed.into();
                attributes.set($key, &$needed);
            )*
            let count = results!(count inputs, attributes, $($results)*);
            results!(of $builder.emit($op, &inputs, &attributes, count), $($results)*)
        }
    };
}

/// A struct of options, if an operation has any: inputs by their place, attributes by their name.
macro_rules! options {
    ($name:ident) => {};
    (
        $name:ident $with:ident($Options:ident:
            $($(#[$of:meta])* $at:literal $input:ident),*;
            $($(#[$about:meta])* $key:literal $option:ident: $type:ty),*
        )
    ) => {
        #[doc = concat!("What `", stringify!($with), "` takes.")]
        #[derive(Clone, Debug, Default)]
        pub struct $Options<'b>(pub(super) crate::operations::Options<'b>);

        impl<'b> $Options<'b> {
            /// Nothing is given yet.
            pub fn new() -> Self {
                Self::default()
            }
            $(
                $(#[$of])*
                #[must_use]
                pub fn $input(mut self, $input: Value<'b>) -> Self {
                    self.0.input($at, $input);
                    self
                }
            )*
            $(
                $(#[$about])*
                #[must_use]
                pub fn $option(mut self, $option: impl Into<$type>) -> Self {
                    let value: $type = $option.into();
                    self.0.set($key, &value);
                    self
                }
            )*
        }
    };
}

/// Methods of values, and of the builder, as the table has them.
macro_rules! operations {
    (
        values { $(
            $(#[$about:meta])* $op:literal $name:ident($($takes:tt)*) -> ($($gives:tt)*)
            $(with $with:ident($($more:tt)*))?;
        )* }
        builder { $(
            $(#[$b_about:meta])* $b_op:literal $b_name:ident($($b_takes:tt)*) -> ($($b_gives:tt)*)
            $(with $b_with:ident($($b_more:tt)*))?;
        )* }
    ) => {
        #[allow(clippy::should_implement_trait, clippy::wrong_self_convention)]
        impl<'b> Value<'b> { $(
            method! {
                self () self.builder, [self];
                $(#[$about])* $op $name($($takes)*) -> ($($gives)*) $(with $with($($more)*))?
            }
        )* }

        impl<'b> ProgramBuilder<'b> { $(
            method! {
                self (&'b) self, [];
                $(#[$b_about])* $b_op $b_name($($b_takes)*) -> ($($b_gives)*)
                $(with $b_with($($b_more)*))?
            }
        )* }

        $(options! { $name $($with($($more)*))? })*
        $(options! { $b_name $($b_with($($b_more)*))? })*
    };
}

/// Types of texts that attributes take.
macro_rules! choices {
    ($($(#[$about:meta])* $name:ident { $($(#[$of:meta])* $each:ident = $text:literal),* })*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$of])* $each,)*
        }

        impl ToJson for $name {
            fn to_json(&self) -> String {
                match self {
                    $(Self::$each => concat!("\"", $text, "\"").into(),)*
                }
            }
        }
    )*};
}

mod generated;

pub use generated::*;
