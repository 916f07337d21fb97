//! Boxed slices of a known length.

/// Collects this many values with a single memory allocation.
pub(crate) fn exactly<T>(len: usize, values: impl Iterator<Item = T>) -> Box<[T]> {
    let mut list = Vec::with_capacity(len);
    list.extend(values);
    list.into()
}
