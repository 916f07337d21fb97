//! Edits of the protobuf form of an object: one field is replaced, all others keep their bytes, known or not.
//!
//! The numbers of fields are those of the `.proto` files that Kubernetes publishes for its API.

use k8s_openapi::api::resource::v1::ResourceClaimConsumerReference;

/// What an object in protobuf begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Field of the envelope that holds the object.
const RAW: u32 = 2;
/// Fields of a claim.
const METADATA: u32 = 1;
const STATUS: u32 = 3;
/// Fields of metadata.
const UID: u32 = 5;
const RESOURCE_VERSION: u32 = 6;
const ANNOTATIONS: u32 = 12;
const FINALIZERS: u32 = 14;
/// Field of a claim's status.
const RESERVED_FOR: u32 = 2;

/// A claim as received from the server.
pub(crate) struct Claim {
    /// The envelope, whose object is replaced when it is written.
    envelope: Vec<u8>,
    claim: Vec<u8>,
}

impl Claim {
    /// Reads an answer; `None` if it is not an object in protobuf.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let envelope = body.strip_prefix(MAGIC)?.to_vec();
        let claim = bytes_of(&envelope, RAW)?.to_vec();
        // Everything that is edited or read later must be parseable.
        fields(&claim)?;
        for part in [METADATA, STATUS] {
            fields(bytes_of(&claim, part).unwrap_or_default())?;
        }
        Some(Self { envelope, claim })
    }

    /// The body of a request that writes the claim.
    pub(crate) fn write(&self) -> Option<Vec<u8>> {
        let envelope = replace(&self.envelope, RAW, std::slice::from_ref(&self.claim))?;
        Some([MAGIC, &envelope].concat())
    }

    pub(crate) fn uid(&self) -> &[u8] {
        self.metadata(UID)
    }

    pub(crate) fn resource_version(&self) -> &[u8] {
        self.metadata(RESOURCE_VERSION)
    }

    fn metadata(&self, field: u32) -> &[u8] {
        let metadata = bytes_of(&self.claim, METADATA).unwrap_or_default();
        bytes_of(metadata, field).unwrap_or_default()
    }

    /// Replaces the finalizers.
    pub(crate) fn set_finalizers(&mut self, finalizers: &[String]) -> Option<()> {
        let all: Vec<Vec<u8>> = finalizers.iter().map(|f| f.clone().into()).collect();
        self.edit(METADATA, |metadata| replace(metadata, FINALIZERS, &all))
    }

    /// Sets or removes an annotation.
    pub(crate) fn set_annotation(&mut self, key: &str, value: Option<&str>) -> Option<()> {
        self.edit(METADATA, |metadata| {
            let entries = fields(metadata)?.into_iter();
            let entries = entries.filter(|f| f.number == ANNOTATIONS);
            let mut all: Vec<Vec<u8>> = entries
                .map(|f| f.value.to_vec())
                .filter(|entry| bytes_of(entry, 1).unwrap_or_default() != key.as_bytes())
                .collect();
            all.extend(value.map(|value| strings(&[(1, key), (2, value)])));
            replace(metadata, ANNOTATIONS, &all)
        })
    }

    /// Replaces `status.reservedFor`.
    pub(crate) fn set_reserved_for(
        &mut self,
        consumers: &[ResourceClaimConsumerReference],
    ) -> Option<()> {
        let all: Vec<Vec<u8>> = consumers.iter().map(consumer).collect();
        self.edit(STATUS, |status| replace(status, RESERVED_FOR, &all))
    }

    fn edit(&mut self, part: u32, edit: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<()> {
        let edited = edit(bytes_of(&self.claim, part).unwrap_or_default())?;
        self.claim = replace(&self.claim, part, &[edited])?;
        Some(())
    }
}

fn consumer(of: &ResourceClaimConsumerReference) -> Vec<u8> {
    let group = of.api_group.as_deref().unwrap_or_default();
    strings(&[(1, group), (3, &of.resource), (4, &of.name), (5, &of.uid)])
}

/// A field of a message.
struct Field<'a> {
    number: u32,
    /// With its tag and its length.
    whole: &'a [u8],
    /// Its content, if it is length-delimited.
    value: &'a [u8],
}

/// The fields of a message; `None` if it is none.
fn fields(message: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut all = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let (tag, after) = varint(rest)?;
        let (skip, len) = match tag & 7 {
            0 => (0, after.len() - varint(after)?.1.len()),
            1 => (0, 8),
            2 => {
                let (len, value) = varint(after)?;
                (after.len() - value.len(), usize::try_from(len).ok()?)
            }
            5 => (0, 4),
            _ => return None,
        };
        let value = after.get(skip..)?.get(..len)?;
        let end = rest.len() - after.len() + skip + len;
        all.push(Field {
            number: u32::try_from(tag >> 3).ok()?,
            whole: &rest[..end],
            value: if tag & 7 == 2 { value } else { &[] },
        });
        rest = &rest[end..];
    }
    Some(all)
}

/// The value of a field that occurs once.
fn bytes_of(message: &[u8], number: u32) -> Option<&[u8]> {
    let mut all = fields(message)?.into_iter();
    all.find(|f| f.number == number).map(|f| f.value)
}

/// The message with other values of a field; everything else stays unchanged.
fn replace(message: &[u8], number: u32, values: &[Vec<u8>]) -> Option<Vec<u8>> {
    let all = fields(message)?;
    // Before what has a higher number, as it is customary.
    let (before, after): (Vec<_>, Vec<_>) = all.iter().partition(|f| f.number < number);
    let mut out: Vec<u8> = before.iter().flat_map(|f| f.whole).copied().collect();
    for value in values {
        put(&mut out, number, value);
    }
    let after = after.iter().filter(|f| f.number != number);
    out.extend(after.flat_map(|f| f.whole));
    Some(out)
}

fn strings(of: &[(u32, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, text) in of {
        put(&mut out, *number, text.as_bytes());
    }
    out
}

fn put(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(out, u64::from(number << 3 | 2));
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(from: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (i, byte) in from.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some((value, &from[i + 1..]));
        }
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A claim of the given UID and version, with fields that this program does not know.
    pub(crate) fn claim(uid: &str, version: &str) -> Vec<u8> {
        let mut metadata = strings(&[(1, "c"), (UID, uid), (RESOURCE_VERSION, version)]);
        put(&mut metadata, ANNOTATIONS, &strings(&[(1, "a"), (2, "1")]));
        put(&mut metadata, FINALIZERS, b"f");
        put(&mut metadata, 99, b"later");
        let mut claim = Vec::new();
        put(&mut claim, METADATA, &metadata);
        put(&mut claim, 2, b"");
        put(&mut claim, STATUS, &strings(&[(4, "device")]));
        let mut envelope = strings(&[(1, "")]);
        put(&mut envelope, RAW, &claim);
        put(&mut envelope, 3, b"");
        [MAGIC, &envelope].concat()
    }

    fn all(claim: &Claim, part: u32, number: u32) -> Vec<&[u8]> {
        let part = bytes_of(&claim.claim, part).unwrap();
        let found = fields(part).unwrap().into_iter();
        found
            .filter(|f| f.number == number)
            .map(|f| f.value)
            .collect()
    }

    #[test]
    fn only_the_field_changes() {
        let body = claim("u", "7");
        let mut read = Claim::read(&body).unwrap();
        assert_eq!(
            (read.uid(), read.resource_version()),
            (&b"u"[..], &b"7"[..])
        );
        assert_eq!(read.write().unwrap(), body);
        read.set_finalizers(&["x".to_owned(), "y".to_owned()])
            .unwrap();
        read.set_annotation("b", Some("2")).unwrap();
        let reference = ResourceClaimConsumerReference {
            name: "p".to_owned(),
            resource: "pods".to_owned(),
            uid: "1".to_owned(),
            ..Default::default()
        };
        read.set_reserved_for(&[reference]).unwrap();
        assert_eq!(all(&read, METADATA, FINALIZERS), [b"x", b"y"]);
        assert_eq!(all(&read, METADATA, ANNOTATIONS).len(), 2);
        assert_eq!(all(&read, METADATA, 99), [b"later"]);
        assert_eq!(all(&read, STATUS, 4), [b"device"]);
        assert_eq!(
            all(&read, STATUS, RESERVED_FOR),
            [strings(&[(1, ""), (3, "pods"), (4, "p"), (5, "1")])]
        );
        // And back, to the byte.
        read.set_finalizers(&["f".to_owned()]).unwrap();
        read.set_annotation("b", None).unwrap();
        read.set_reserved_for(&[]).unwrap();
        assert_eq!(read.write().unwrap(), body);
    }

    #[test]
    fn a_claim_without_status_gets_one() {
        let mut read = Claim::read(&claim("u", "7")).unwrap();
        read.claim = replace(&read.claim, STATUS, &[]).unwrap();
        read.set_reserved_for(&[Default::default()]).unwrap();
        assert_eq!(all(&read, STATUS, RESERVED_FOR).len(), 1);
    }

    /// It was read, and could not be edited: only its parts were looked at.
    #[test]
    fn regression_a_claim_that_is_no_message_is_refused() {
        let whole = [MAGIC, &[18, 3, 10, 0, 6]].concat();
        assert!(Claim::read(&whole).is_none());
    }

    proptest! {
        #[test]
        fn no_answer_is_too_strange(bytes: Vec<u8>) {
            let whole = [MAGIC, &bytes].concat();
            if let Some(mut read) = Claim::read(&whole) {
                prop_assert!(read.set_finalizers(&["x".to_owned()]).is_some());
                prop_assert!(read.set_annotation("k", Some("v")).is_some());
                prop_assert!(read.set_reserved_for(&[Default::default()]).is_some());
                prop_assert!(read.write().is_some());
            }
        }
    }
}
