//! Structs of parameters: builders here, filled by the library's `_init` function in C.

/// A struct as the library's `_init` function fills it. That of a newer library is larger, since
/// structs grow at their end, and writes its size into `struct_size`: there is room for it.
#[repr(C)]
pub(crate) struct Filled<T> {
    pub(crate) raw: T,
    growth: [u64; 64],
}

impl<T> Filled<T> {
    /// # Safety
    /// `T` is a struct of the header, and `init` its function.
    pub(crate) unsafe fn new(init: unsafe fn(*mut T, usize)) -> Self {
        // SAFETY: all zeros is a value of each of them.
        let mut filled: Self = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is that of the whole, growth included.
        unsafe { init((&raw mut filled).cast(), size_of::<T>()) };
        filled
    }

    /// For the call: the whole, growth included.
    pub(crate) fn as_ptr(&self) -> *const T {
        (&raw const *self).cast()
    }
}

/// Declares a builder: plain members, which are `None` while they have the library's default, and
/// members of its own kind, which come with their own setters. One that is `saved` is read and
/// written with the feature `serde`: its members, and its texts, which come with their own setters.
macro_rules! params {
    (
        $(#[$meta:meta])*
        $name:ident $(<$life:lifetime>)? for $raw:ident by $init:ident {
            $($(#[$member_meta:meta])* $member:ident: $type:ty,)*
        }
        also { $($own:ident: $own_type:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Default)]
        #[must_use]
        pub struct $name $(<$life>)? {
            $($member: Option<$type>,)*
            $($own: $own_type,)*
        }

        $crate::params::params! {
            @builder $name $(<$life>)? for $raw by $init {
                $($(#[$member_meta])* $member: $type,)*
            }
        }
    };
    (
        $(#[$meta:meta])*
        saved $name:ident $(<$life:lifetime>)? for $raw:ident by $init:ident {
            $($(#[$member_meta:meta])* $member:ident: $type:ty,)*
        }
        texts { $($text:ident: $text_type:ty,)* }
        also { $($own:ident: $own_type:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        #[must_use]
        pub struct $name $(<$life>)? {
            $(
                #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
                $member: Option<$type>,
            )*
            $(
                #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
                $text: Option<$text_type>,
            )*
            $(
                #[cfg_attr(feature = "serde", serde(skip))]
                $own: $own_type,
            )*
        }

        $crate::params::params! {
            @builder $name $(<$life>)? for $raw by $init {
                $($(#[$member_meta])* $member: $type,)*
            }
        }
    };
    (
        @builder $name:ident $(<$life:lifetime>)? for $raw:ident by $init:ident {
            $($(#[$member_meta:meta])* $member:ident: $type:ty,)*
        }
    ) => {
        impl $(<$life>)? $name $(<$life>)? {
            /// The library's defaults.
            pub fn new() -> Self {
                Self::default()
            }

            $(
                $(#[$member_meta])*
                pub fn $member(mut self, $member: $type) -> Self {
                    self.$member = Some($member);
                    self
                }
            )*

            /// The plain members, over the library's defaults.
            pub(crate) fn filled(&self) -> $crate::params::Filled<$crate::sys::$raw> {
                // SAFETY: these two belong together.
                let mut filled = unsafe {
                    $crate::params::Filled::<$crate::sys::$raw>::new(|raw, size| $crate::sys::$init(raw, size))
                };
                $(if let Some(value) = self.$member {
                    filled.raw.$member = value.into();
                })*
                filled
            }
        }

        impl $(<$life>)? std::fmt::Debug for $name $(<$life>)? {
            /// What was set, but for closures.
            fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut to = to.debug_struct(stringify!($name));
                $(if let Some(value) = &self.$member {
                    to.field(stringify!($member), value);
                })*
                to.finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use params;
