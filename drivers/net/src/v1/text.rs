//! Serialization of networks as JSON strings: `10.0.0.2/24`.

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serializer, de::Error};

fn parse<E: Error>(text: &str) -> Result<IpNet, E> {
    text.parse()
        .map_err(|_| E::custom(format!("invalid network {text:?}, expected ADDRESS/LENGTH")))
}

pub(super) fn serialize<S: Serializer>(network: &IpNet, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(network)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<IpNet, D::Error> {
    parse(&String::deserialize(from)?)
}

pub(super) mod list {
    use super::*;

    pub(in crate::v1) fn serialize<S: Serializer>(all: &[IpNet], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(ToString::to_string))
    }

    pub(in crate::v1) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<IpNet>, D::Error> {
        let texts = Vec::<String>::deserialize(from)?;
        texts.iter().map(|text| parse(text)).collect()
    }
}
