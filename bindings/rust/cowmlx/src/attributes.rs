//! Attributes of operations.

use crate::element::Dtype;
use crate::element::Number;

/// What an attribute can be.
pub(crate) trait ToJson {
    /// It as JSON.
    fn to_json(&self) -> String;
}

/// A list as JSON.
pub(crate) fn list<T>(values: &[T], json: impl Fn(&T) -> String) -> String {
    let all: Vec<String> = values.iter().map(json).collect();
    format!("[{}]", all.join(", "))
}

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut json = String::from('"');
    for each in text.chars() {
        match each {
            '"' | '\\' | '\0'..'\x20' => json += &format!("\\u{:04x}", u32::from(each)),
            _ => json.push(each),
        }
    }
    json.push('"');
    json
}

/// A dimension: a number, or a name that has one value in a run; expressions such as `"2*n+1"` too.
#[derive(Clone, Debug)]
pub struct Dim(String);

impl From<&str> for Dim {
    fn from(name: &str) -> Self {
        Self(quoted(name))
    }
}

impl From<String> for Dim {
    fn from(name: String) -> Self {
        Self::from(name.as_str())
    }
}

/// A shape of a program: the outermost dimension first.
///
/// It is made of an array or a slice, such as `[2, 3]`, or of a tuple, such as `("rows", 3)`.
#[derive(Clone, Debug, Default)]
pub struct Dims(Vec<Dim>);

impl ToJson for Dims {
    fn to_json(&self) -> String {
        list(&self.0, |dim| dim.0.clone())
    }
}

impl<T: Into<Dim>, const N: usize> From<[T; N]> for Dims {
    fn from(dims: [T; N]) -> Self {
        Self(dims.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Dim> + Clone> From<&[T]> for Dims {
    fn from(dims: &[T]) -> Self {
        Self(dims.iter().cloned().map(Into::into).collect())
    }
}

impl<T: Into<Dim>> From<Vec<T>> for Dims {
    fn from(dims: Vec<T>) -> Self {
        Self(dims.into_iter().map(Into::into).collect())
    }
}

impl From<()> for Dims {
    fn from((): ()) -> Self {
        Self::default()
    }
}

macro_rules! tuples {
    ($($($each:ident)*;)*) => {$(
        impl<$($each: Into<Dim>),*> From<($($each,)*)> for Dims {
            #[allow(non_snake_case)]
            fn from(($($each,)*): ($($each,)*)) -> Self {
                Self(vec![$($each.into()),*])
            }
        }
    )*};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

/// Integers, such as axes.
#[derive(Clone, Debug, Default)]
pub struct IntList(Vec<i64>);

impl ToJson for IntList {
    fn to_json(&self) -> String {
        list(&self.0, i64::to_string)
    }
}

/// An integer or integers: an axis or axes, one size or one for each dimension.
#[derive(Clone, Debug)]
pub enum Ints {
    /// An integer.
    One(i64),
    /// A list of them.
    List(Vec<i64>),
}

impl Ints {
    /// How many parts a split makes: so many, or those between places.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Self::One(count) => usize::try_from(*count).unwrap_or(0),
            Self::List(places) => places.len() + 1,
        }
    }
}

impl ToJson for Ints {
    fn to_json(&self) -> String {
        match self {
            Self::One(value) => value.to_string(),
            Self::List(values) => list(values, i64::to_string),
        }
    }
}

/// What is before and after each dimension, or one number for both sides of all.
#[derive(Clone, Debug)]
pub enum Pairs {
    /// On both sides of all dimensions.
    All(i64),
    /// Before and after each.
    Each(Vec<(i64, i64)>),
}

impl ToJson for Pairs {
    fn to_json(&self) -> String {
        match self {
            Self::All(value) => value.to_string(),
            Self::Each(pairs) => list(pairs, |(before, after)| format!("[{before}, {after}]")),
        }
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl From<$type> for Dim {
            fn from(size: $type) -> Self {
                Self(size.to_string())
            }
        }
        impl<const N: usize> From<[$type; N]> for IntList {
            fn from(values: [$type; N]) -> Self {
                Self(values.into_iter().map(i64::from).collect())
            }
        }
        impl From<&[$type]> for IntList {
            fn from(values: &[$type]) -> Self {
                Self(values.iter().copied().map(i64::from).collect())
            }
        }
        impl From<$type> for Ints {
            fn from(value: $type) -> Self {
                Self::One(value.into())
            }
        }
        impl<const N: usize> From<[$type; N]> for Ints {
            fn from(values: [$type; N]) -> Self {
                Self::List(values.into_iter().map(i64::from).collect())
            }
        }
        impl From<&[$type]> for Ints {
            fn from(values: &[$type]) -> Self {
                Self::List(values.iter().copied().map(i64::from).collect())
            }
        }
        impl From<$type> for Pairs {
            fn from(value: $type) -> Self {
                Self::All(value.into())
            }
        }
        impl<const N: usize> From<[($type, $type); N]> for Pairs {
            fn from(pairs: [($type, $type); N]) -> Self {
                let wide = |(before, after): ($type, $type)| (before.into(), after.into());
                Self::Each(pairs.into_iter().map(wide).collect())
            }
        }
    )*};
}

integers! { i32 i64 }

impl ToJson for i64 {
    fn to_json(&self) -> String {
        self.to_string()
    }
}

impl ToJson for usize {
    fn to_json(&self) -> String {
        self.to_string()
    }
}

impl ToJson for f64 {
    fn to_json(&self) -> String {
        Number::from(*self).json().to_owned()
    }
}

impl ToJson for bool {
    fn to_json(&self) -> String {
        self.to_string()
    }
}

impl ToJson for String {
    fn to_json(&self) -> String {
        quoted(self)
    }
}

impl ToJson for Dtype {
    fn to_json(&self) -> String {
        quoted(self.name())
    }
}

impl ToJson for Number {
    fn to_json(&self) -> String {
        self.json().to_owned()
    }
}

/// `None` is null.
impl<T: ToJson> ToJson for Option<T> {
    fn to_json(&self) -> String {
        self.as_ref().map_or("null".into(), ToJson::to_json)
    }
}

/// Attributes of one operation, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes(Vec<(&'static str, String)>);

impl Attributes {
    /// Set an attribute; what has no name is none.
    pub(crate) fn set(&mut self, name: &'static str, value: &impl ToJson) {
        if name.is_empty() {
            return;
        }
        self.0.retain(|(each, _)| *each != name);
        self.0.push((name, value.to_json()));
    }

    /// Whether an attribute is given, and not as this.
    pub(crate) fn is_other(&self, name: &str, text: &str) -> bool {
        self.0.iter().any(|each| each.0 == name && each.1.trim_matches('"') != text)
    }

    pub(crate) fn json(&self) -> String {
        let all: Vec<_> =
            self.0.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
        format!("{{{}}}", all.join(", "))
    }
}
