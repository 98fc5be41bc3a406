//! The order of the values of a type: that in which sets and maps ascend, and rows by a clustering column of the type.
//!
//! Lists, sets, vectors and maps compare element by element, the shorter one first; tuples and user types field by field,
//! null first. An empty value lies before all others. What CQL compares as equal and has different bytes (1.0 and 1.00)
//! is ordered by these.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};

use super::composite::split;
use super::{array, signed};
use crate::model::{Type, ordered};

/// How two values compare. Both are valid CQL bytes of `ty`, which is not or does not hold a duration.
pub fn compare(ty: &Type, left: &[u8], right: &[u8]) -> Ordering {
    if left.is_empty() || right.is_empty() {
        return left.len().min(1).cmp(&right.len().min(1));
    }
    match ty {
        Type::TinyInt | Type::SmallInt | Type::Int | Type::BigInt | Type::Timestamp | Type::Counter => {
            signed(left).cmp(&signed(right))
        }
        Type::VarInt => BigInt::from_signed_bytes_be(left).cmp(&BigInt::from_signed_bytes_be(right)),
        Type::Decimal => compare_decimals(left, right).then_with(|| left.cmp(right)),
        Type::Float | Type::Double | Type::Uuid | Type::TimeUuid => ordered::compare_fixed(left, right, ty),
        Type::List { .. }
        | Type::Set { .. }
        | Type::Map { .. }
        | Type::Tuple(_)
        | Type::User { .. }
        | Type::Vector { .. } => compare_parts(ty, left, right),
        _ => left.cmp(right),
    }
}

fn compare_parts(ty: &Type, left: &[u8], right: &[u8]) -> Ordering {
    let (Ok(left), Ok(right)) = (split(ty, left), split(ty, right)) else { return left.cmp(right) };
    for (at, (left, right)) in left.iter().zip(&right).enumerate() {
        let by_part = match (left, right, ty.part(at)) {
            (Some(left), Some(right), Some(inner)) => compare(inner, left, right),
            (left, right, _) => left.is_some().cmp(&right.is_some()),
        };
        if by_part != Ordering::Equal {
            return by_part;
        }
    }
    // The fields that a user type lacks at its end are null; that of the longer one at this place is not the last.
    left.len().cmp(&right.len())
}

/// By the numbers alone. Those of very different size are told apart without making their digits as long as their
/// exponents say.
fn compare_decimals(left: &[u8], right: &[u8]) -> Ordering {
    let parse = |bytes: &[u8]| {
        let scale = i64::from(i32::from_be_bytes(array(bytes)));
        (scale, BigInt::from_signed_bytes_be(&bytes[4..]))
    };
    let ((left_scale, left), (right_scale, right)) = (parse(left), parse(right));
    let by_sign = left.sign().cmp(&right.sign());
    if by_sign != Ordering::Equal || left.sign() == Sign::NoSign {
        return by_sign;
    }
    // The number of digits before the point, to within one.
    let size = |scale: i64, digits: &BigInt| digits.bits() as f64 * std::f64::consts::LOG10_2 - scale as f64;
    let (left_size, right_size) = (size(left_scale, &left), size(right_scale, &right));
    if (left_size - right_size).abs() > 2.0 {
        let by_size = left_size.total_cmp(&right_size);
        return if left.sign() == Sign::Minus { by_size.reverse() } else { by_size };
    }
    // So close in size, the scales differ by no more than the digits do.
    let raised = |digits: BigInt, by: i64| digits * BigInt::from(10).pow(u32::try_from(by).unwrap_or(0));
    let most = left_scale.max(right_scale);
    raised(left, most - left_scale).cmp(&raised(right, most - right_scale))
}
