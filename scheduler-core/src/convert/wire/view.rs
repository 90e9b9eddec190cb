//! The shapes seen in typed API objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1;

use super::value::{Keys, Map, Present, Text, Time};
use crate::model::Timestamp;

/// A shape seen in an API object of type `A`.
pub(in crate::convert) trait View<'a, A: ?Sized> {
    /// Borrows what is read of `object`.
    fn view(object: &'a A) -> Self;
}

impl<'a, A, T: View<'a, A>> View<'a, Option<A>> for Option<T> {
    fn view(object: &'a Option<A>) -> Self {
        object.as_ref().map(T::view)
    }
}

impl<'a, A, T: View<'a, A>> View<'a, Vec<A>> for Vec<T> {
    fn view(object: &'a Vec<A>) -> Self {
        object.iter().map(T::view).collect()
    }
}

/// A required list.
impl<'a, A, T: View<'a, A>> View<'a, Vec<A>> for Option<Vec<T>> {
    fn view(object: &'a Vec<A>) -> Self {
        Some(View::view(object))
    }
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl View<'_, $type> for $type {
            fn view(object: &$type) -> Self {
                *object
            }
        }

        /// A required number or flag.
        impl View<'_, $type> for Option<$type> {
            fn view(object: &$type) -> Self {
                Some(*object)
            }
        }
    )*};
}
plain!(bool, i32, i64);

impl<'a> View<'a, String> for Text<'a> {
    fn view(object: &'a String) -> Self {
        Self::from(object.as_str())
    }
}

impl<'a> View<'a, BTreeMap<String, String>> for Map<'a> {
    fn view(object: &'a BTreeMap<String, String>) -> Self {
        Self(object.iter().map(|(key, value)| (View::view(key), View::view(value))).collect())
    }
}

impl<'a> View<'a, BTreeMap<String, Quantity>> for Map<'a> {
    fn view(object: &'a BTreeMap<String, Quantity>) -> Self {
        Self(object.iter().map(|(key, value)| (View::view(key), View::view(&value.0))).collect())
    }
}

impl<'a, V> View<'a, BTreeMap<String, V>> for Keys<'a> {
    fn view(object: &'a BTreeMap<String, V>) -> Self {
        Self(object.keys().map(View::view).collect())
    }
}

impl<'a> View<'a, Quantity> for Text<'a> {
    fn view(object: &'a Quantity) -> Self {
        View::view(&object.0)
    }
}

impl View<'_, v1::Time> for Time {
    fn view(object: &v1::Time) -> Self {
        Self(Timestamp::from_micros(object.0.as_microsecond()))
    }
}

impl<A> View<'_, A> for Present {
    fn view(_: &A) -> Self {
        Self
    }
}
