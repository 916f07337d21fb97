//! Boxed slices of a known length.

/// Collects so many values without asking for memory more than once.
pub(crate) fn exactly<T>(len: usize, values: impl Iterator<Item = T>) -> Box<[T]> {
    let mut list = Vec::with_capacity(len);
    list.extend(values);
    list.into()
}
