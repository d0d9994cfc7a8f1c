//! How ids and bytes look in JSON: small ids as numbers, 128-bit ones as 32 hexadecimal digits, bytes as two digits
//! each.

mod ids {
    use types::{
        ClusterId, Epoch, FamilyId, GroupId, Incarnation, KeyId, LayerId, NodeId, Seq, StoreId, VolumeEpoch, VolumeId,
    };

    pub(crate) trait NumberId: Sized + Copy {
        fn to_number(self) -> u64;
        fn from_number(number: u64) -> Option<Self>;
    }
    pub(crate) trait HexId: Sized + Copy {
        fn to_wide(self) -> u128;
        fn from_wide(wide: u128) -> Self;
    }
    macro_rules! number_ids {
        ($($id:ident),*) => {
            $(impl NumberId for $id {
                fn to_number(self) -> u64 {
                    u64::from(self.0)
                }
                fn from_number(number: u64) -> Option<Self> {
                    number.try_into().ok().map($id)
                }
            })*
        };
    }
    macro_rules! hex_ids {
        ($($id:ident),*) => {
            $(impl HexId for $id {
                fn to_wide(self) -> u128 {
                    self.0
                }
                fn from_wide(wide: u128) -> Self {
                    $id(wide)
                }
            })*
        };
    }
    number_ids!(Epoch, FamilyId, GroupId, Incarnation, KeyId, LayerId, NodeId, Seq, VolumeEpoch, VolumeId);
    hex_ids!(ClusterId, StoreId);
}

pub(crate) mod number {
    use super::ids::NumberId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: NumberId, S: Serializer>(id: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(id.to_number())
    }
    pub(crate) fn deserialize<'de, T: NumberId, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let number = u64::deserialize(deserializer)?;
        T::from_number(number).ok_or_else(|| D::Error::custom(format!("the id {number} is too large")))
    }
}

pub(super) mod optional_number {
    use super::ids::NumberId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: NumberId, S: Serializer>(id: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.serialize_u64(id.to_number()),
            None => serializer.serialize_none(),
        }
    }
    pub(crate) fn deserialize<'de, T: NumberId, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        let Some(number) = Option::<u64>::deserialize(deserializer)? else { return Ok(None) };
        let id = T::from_number(number).ok_or_else(|| D::Error::custom(format!("the id {number} is too large")))?;
        Ok(Some(id))
    }
}

pub(super) mod number_list {
    use super::ids::NumberId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: NumberId, S: Serializer>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|id| id.to_number()))
    }
    pub(crate) fn deserialize<'de, T: NumberId, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        let numbers = Vec::<u64>::deserialize(deserializer)?;
        let ids = numbers.into_iter().map(T::from_number).collect::<Option<_>>();
        ids.ok_or_else(|| D::Error::custom("an id is too large"))
    }
}

pub(crate) mod hex {
    use super::ids::HexId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: HexId, S: Serializer>(id: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", id.to_wide()))
    }
    pub(crate) fn deserialize<'de, T: HexId, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map(T::from_wide).map_err(D::Error::custom)
    }
}

pub(super) mod optional_hex {
    use super::ids::HexId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: HexId, S: Serializer>(id: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match id {
            Some(id) => serializer.collect_str(&format_args!("{:032x}", id.to_wide())),
            None => serializer.serialize_none(),
        }
    }
    pub(crate) fn deserialize<'de, T: HexId, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        u128::from_str_radix(&text, 16).map(|wide| Some(T::from_wide(wide))).map_err(D::Error::custom)
    }
}

pub(super) mod hex_list {
    use super::ids::HexId;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<T: HexId, S: Serializer>(list: &[T], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|id| format!("{:032x}", id.to_wide())))
    }
    pub(crate) fn deserialize<'de, T: HexId, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let parse = |text: &String| u128::from_str_radix(text, 16).map(T::from_wide).map_err(D::Error::custom);
        texts.iter().map(parse).collect()
    }
}

pub(super) mod bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let pair = |pair: &[u8]| {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)
        };
        let bytes = text.as_bytes().chunks(2).map(pair).collect::<Option<_>>();
        bytes.ok_or_else(|| D::Error::custom("these are no hexadecimal digits of bytes"))
    }
}
