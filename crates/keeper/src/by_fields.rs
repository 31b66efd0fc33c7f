//! `Clone` and `Debug` by named fields: `derive` would ask for both of each type parameter, and
//! show fields that hold keys.
//!
//! A macro takes the type parameters with their bounds, the type, and its fields:
//!
//! ```text
//! clone_fields!([K: Clone, A] KeyLimit<'_, K, A> { limiter, key });
//! ```

/// Implements `Clone` by cloning each field: all of the type.
macro_rules! clone_fields {
    ([$($parameter:tt)*] $name:ident<$($argument:tt),+> { $($field:ident),+ }) => {
        impl<$($parameter)*> Clone for $name<$($argument),+> {
            fn clone(&self) -> Self {
                Self { $($field: Clone::clone(&self.$field)),+ }
            }
        }
    };
}

/// Implements `Debug` by showing some of the fields.
macro_rules! debug_fields {
    ([$($parameter:tt)*] $name:ident$(<$($argument:tt),+>)? { $($field:ident),* }) => {
        impl<$($parameter)*> std::fmt::Debug for $name$(<$($argument),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &self.$field))*
                    .finish_non_exhaustive()
            }
        }
    };
}
