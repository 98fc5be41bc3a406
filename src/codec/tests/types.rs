//! Types come back from their bytes, and nothing else is a type.

use bytes::Bytes;
use proptest::prelude::*;

use super::refuses_damage;
use crate::codec::types::{UserTypes, put_type, take_type};
use crate::codec::varint::Reader;
use crate::model::Type;
use crate::model::arbitrary::{Users, any_type};

fn encoded(ty: &Type, users: UserTypes) -> Vec<u8> {
    let mut out = Vec::new();
    put_type(&mut out, ty, users);
    out
}

fn decoded(bytes: Bytes, users: UserTypes) -> crate::Result<Type> {
    let mut reader = Reader::new("type", bytes);
    let ty = take_type(&mut reader, users)?;
    reader.end()?;
    Ok(ty)
}

proptest! {
    #[test]
    fn types_turn_back(whole in any_type(Users::Whole), named in any_type(Users::Named)) {
        for (ty, users) in [(whole, UserTypes::Whole), (named, UserTypes::Named)] {
            let bytes = encoded(&ty, users);
            prop_assert_eq!(decoded(bytes.clone().into(), users).unwrap(), ty);
            refuses_damage(&bytes, |bytes| Ok(encoded(&decoded(bytes, users)?, users)));
        }
    }

    #[test]
    fn no_bytes_make_the_reading_of_a_type_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..60), first in 32..=37u8) {
        let _ = decoded(bytes.clone().into(), UserTypes::Whole);
        bytes.insert(0, first);
        let _ = decoded(bytes.into(), UserTypes::Named);
    }
}

#[test]
fn scalars_are_one_byte_and_types_in_types_have_an_end() {
    assert_eq!(encoded(&Type::Int, UserTypes::Whole), [7]);
    assert_eq!(encoded(&Type::Counter, UserTypes::Whole), [20]);
    assert_eq!(encoded(&Type::Tuple([Type::Int, Type::Text].into()), UserTypes::Whole), [35, 2, 7, 2]);
    let endless = [35, 1].repeat(1_000_000);
    assert!(decoded(endless.into(), UserTypes::Whole).is_err());
    assert!(decoded(vec![35, 0].into(), UserTypes::Whole).is_err());
}
