//! Golden keys, the limits, and the laws: byte order is value order, keys turn back, garbage is an error.
#![allow(clippy::unwrap_used, reason = "tests")]

use num_bigint::BigInt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::model::arbitrary::{Users, any_type, any_value};

const ASC: Order = Order::Ascending;
const DESC: Order = Order::Descending;

fn raw(bytes: &'static [u8]) -> Bytes {
    Bytes::from_static(bytes)
}

fn int(value: i32) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}

fn key(components: &[Bytes], types: &[(Type, Order)]) -> ClusteringKey {
    ClusteringKey::encode(components, types).unwrap()
}

fn reason(result: Result<impl std::fmt::Debug>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn clustering_keys_have_their_golden_bytes() {
    let cases: [(Bytes, Type, Order, &[u8]); 6] = [
        (raw(b"a\0b"), Type::Blob, ASC, &[0x40, 0x61, 0x00, 0xff, 0x62, 0x00, 0x38]),
        (raw(b"a"), Type::Blob, DESC, &[0x40, 0x9e, 0xff, 0x38]),
        (int(-1), Type::Int, ASC, &[0x40, 0x7f, 0xff, 0xff, 0xff, 0x38]),
        (int(1), Type::Int, DESC, &[0x40, 0x7f, 0xff, 0xff, 0xfe, 0x38]),
        (
            Bytes::copy_from_slice(&(-0.0f64).to_be_bytes()),
            Type::Double,
            ASC,
            &[0x40, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x38],
        ),
        (raw(&[0xff, 0x00]), Type::VarInt, ASC, &[0x40, 0x7f, 0x00, 0x38]),
    ];
    for (component, ty, order, expected) in cases {
        assert_eq!(key(&[component], &[(ty, order)]).bytes(), expected);
    }
    assert_eq!(key(&[], &[]).bytes(), &[0x38][..]);
}

#[test]
fn partition_keys_are_one_component_as_it_is_or_all_of_them_framed() {
    let text = raw(b"key1");
    let one = PartitionKey::encode(std::slice::from_ref(&text), &[Type::Text]).unwrap();
    assert_eq!(one.bytes(), &text);
    let two = PartitionKey::encode(&[raw(b""), raw(b"x")], &[Type::Int, Type::Text]).unwrap();
    assert_eq!(two.bytes(), &[0, 0, 0, 0, 1, b'x', 0][..]);
    assert_eq!(two.decode(&[Type::Int, Type::Text]).unwrap(), [raw(b""), raw(b"x")]);
}

#[test]
fn partition_keys_are_ordered_by_token_then_bytes() {
    let of = |token, bytes| PartitionKey { token: Token(token), bytes: raw(bytes) };
    assert!(of(-5, b"z") < of(3, b"a"));
    assert!(of(3, b"a") < of(3, b"b"));
}

#[test]
fn keys_beyond_the_limits_are_refused_and_say_why() {
    let zeros = |len: usize| Bytes::from(vec![0; len]);
    let clustering = [(Type::Blob, ASC), (Type::Blob, DESC)];
    let partition = [Type::Blob, Type::Blob];

    let longest = zeros(KEY_MAX_BYTES);
    assert!(PartitionKey::encode(std::slice::from_ref(&longest), &partition[..1]).is_ok());
    let ordered = key(&[longest, raw(b"")], &clustering);
    assert_eq!(ordered.decode(&clustering).unwrap()[0].len(), KEY_MAX_BYTES);

    let refused = [
        reason(PartitionKey::encode(&[zeros(65_536)], &partition[..1])),
        reason(PartitionKey::encode(&[zeros(65_529), zeros(1)], &partition)),
        reason(PartitionKey::encode(&[zeros(65_530), zeros(0)], &partition)),
        reason(ClusteringKey::encode(&[zeros(65_536)], &clustering[..1])),
        reason(ClusteringKey::encode(&[zeros(65_535), zeros(1)], &clustering)),
        reason(Bound::before(&[zeros(65_536)], &clustering)),
    ];
    assert_eq!(PartitionKey::encode(&[zeros(65_529), zeros(0)], &partition).unwrap().bytes().len(), KEY_MAX_BYTES);
    assert_eq!(refused[0], "partition key component 1: Key length 65536 exceeds the limit of 65535 bytes");
    assert_eq!(refused[1], "partition key: Key length 65536 exceeds the limit of 65535 bytes");
    for (at, text) in refused.iter().enumerate() {
        assert!(text.contains("Key length 65536 exceeds"), "case {at}: {text}");
    }
}

#[test]
fn components_that_are_no_keys_are_refused_and_say_why() {
    let cases = [
        (reason(PartitionKey::encode(&[raw(b"")], &[Type::Text])), "partition key: Key may not be empty"),
        (reason(PartitionKey::encode(&[raw(b"")], &[Type::Int])), "partition key: Key may not be empty"),
        (reason(PartitionKey::encode(&[], &[Type::Int])), "partition key: 0 components given; the table has 1"),
        (
            reason(PartitionKey::encode(&[int(1), raw(b"abc")], &[Type::Int, Type::Int])),
            "partition key component 2: int:",
        ),
        (
            reason(PartitionKey::encode(&[raw(b"\0\0\0\0\x01")], &[Type::Decimal])),
            "partition key component 1: decimals",
        ),
        (reason(ClusteringKey::encode(&[], &[(Type::Int, ASC)])), "clustering key: 0 components given"),
        (
            reason(ClusteringKey::encode(&[raw(&[1, 2, 3])], &[(Type::Duration, ASC)])),
            "clustering key component 1: dur",
        ),
        (reason(ClusteringKey::encode(&[raw(b"\xff")], &[(Type::Text, ASC)])), "clustering key component 1: text:"),
        (reason(Bound::after(&[int(1)], &[])), "clustering prefix: 1 components given; the table has 0"),
    ];
    for (text, beginning) in cases {
        assert!(text.starts_with(beginning), "{text:?} should begin with {beginning:?}");
    }
}

#[test]
fn bytes_that_do_not_begin_and_end_like_a_key_or_a_bound_are_corrupt() {
    for bytes in [&[0x38][..], &[0x40, 0x01, 0x38], &[0x3e, 0x38], &[0x41, 0x38]] {
        assert!(ClusteringKey::from_bytes(raw(bytes)).is_ok(), "{bytes:02x?}");
        let bound = [&bytes[..bytes.len() - 1], &[0x60]].concat();
        assert!(Bound::from_bytes(bound.clone().into()).is_ok(), "{bound:02x?}");
    }
    for bytes in [&[][..], &[0x40], &[0x20], &[0x39, 0x38], &[0x38, 0x38], &[0x3f, 0x38], &[0x40, 0x01, 0x60]] {
        assert!(matches!(ClusteringKey::from_bytes(raw(bytes)), Err(Error::Corrupt(_))), "{bytes:02x?}");
    }
    for bytes in [&[][..], &[0x40], &[0x38], &[0x60, 0x60], &[0x40, 0x01, 0x38]] {
        assert!(matches!(Bound::from_bytes(raw(bytes)), Err(Error::Corrupt(_))), "{bytes:02x?}");
    }
}

/// B034 (CASSANDRA-14910, CASSANDRA-14899): with mixed clustering orders, reading backwards skipped whole files, because
/// the direction of a column was applied again while comparing. Here bytes are all there is to compare.
#[test]
fn b034_mixed_clustering_order_is_plain_byte_order() {
    let types = [(Type::Int, DESC), (Type::Int, ASC)];
    let row = |b, c| key(&[int(b), int(c)], &types);
    let mut rows = [row(1, 1), row(2, 2), row(3, 3), row(2, 1)];
    rows.sort();
    assert_eq!(rows, [row(3, 3), row(2, 1), row(2, 2), row(1, 1)]);
    let slice = Slice::between(&[int(2), int(2)], Edge::Inclusive, &[], Edge::Inclusive, &types).unwrap();
    let inside: Vec<_> = rows.iter().filter(|row| contains(&slice, row)).cloned().collect();
    assert_eq!(inside, [row(2, 2), row(1, 1)]);
}

/// B103 (scylladb/scylladb #12462): where two ranges touch, a comparison that knew only keys could not tell the end of
/// one from the start of the other. Here every place between rows is one bound.
#[test]
fn b103_ranges_that_touch_share_one_bound() {
    let types = [(Type::Int, ASC)];
    let between = |from, from_edge, to, to_edge| Slice::between(&[int(from)], from_edge, &[int(to)], to_edge, &types);
    let left = between(1, Edge::Inclusive, 5, Edge::Exclusive).unwrap();
    let right = between(5, Edge::Inclusive, 9, Edge::Inclusive).unwrap();
    assert_eq!(left.end, right.start);
    let five = key(&[int(5)], &types);
    assert!(!contains(&left, &five) && contains(&right, &five));
    assert_eq!(between(5, Edge::Inclusive, 5, Edge::Inclusive).unwrap(), Slice::one(&five));
}

/// B104 (CASSANDRA-13305): deleting an empty range stored a tombstone that nothing could read. Such a slice says so.
#[test]
fn b104_empty_slices_are_recognised() {
    let types = [(Type::Int, ASC)];
    let is_empty = |from, from_edge, to, to_edge| {
        Slice::between(&[int(from)], from_edge, &[int(to)], to_edge, &types).unwrap().is_empty()
    };
    assert!(is_empty(1, Edge::Inclusive, 1, Edge::Exclusive));
    assert!(is_empty(1, Edge::Exclusive, 1, Edge::Inclusive));
    assert!(is_empty(1, Edge::Exclusive, 1, Edge::Exclusive));
    assert!(is_empty(2, Edge::Inclusive, 1, Edge::Inclusive));
    assert!(!is_empty(1, Edge::Inclusive, 1, Edge::Inclusive));
}

#[test]
fn an_empty_prefix_leaves_its_side_open_whatever_the_edge() {
    let types = [(Type::Int, ASC)];
    for edge in [Edge::Inclusive, Edge::Exclusive] {
        assert_eq!(Slice::between(&[], edge, &[], edge, &types).unwrap(), Slice::all());
    }
}

fn contains(slice: &Slice, key: &ClusteringKey) -> bool {
    slice.start.bytes() < key.bytes() && key.bytes() < slice.end.bytes()
}

/// How two CQL values compare, computed from their meaning.
fn compare(ty: &Type, left: &[u8], right: &[u8]) -> Ordering {
    if left.is_empty() || right.is_empty() {
        return left.len().min(1).cmp(&right.len().min(1));
    }
    match ty {
        Type::TinyInt | Type::SmallInt | Type::Int | Type::BigInt | Type::Timestamp | Type::VarInt => {
            BigInt::from_signed_bytes_be(left).cmp(&BigInt::from_signed_bytes_be(right))
        }
        Type::Float => float(left).total_cmp(&float(right)),
        Type::Double => double(left).total_cmp(&double(right)),
        Type::Uuid => uuid_order(left).cmp(&uuid_order(right)),
        Type::TimeUuid => timeuuid_order(left).cmp(&timeuuid_order(right)),
        scalar if scalar.is_scalar() => left.cmp(right),
        composite => compare_parts(composite, left, right),
    }
}

/// Element by element or field by field, null first; then the shorter one first.
fn compare_parts(ty: &Type, left: &[u8], right: &[u8]) -> Ordering {
    let parts = |bytes: &[u8]| value::parts(ty, &Bytes::copy_from_slice(bytes)).unwrap();
    let (left, right) = (parts(left), parts(right));
    let pairs = left.iter().zip(&right).enumerate();
    let by_part = pairs.map(|(at, pair)| match pair {
        (Some(left), Some(right)) => compare(ty.part(at).unwrap(), left, right),
        (left, right) => left.is_some().cmp(&right.is_some()),
    });
    by_part.fold(Ordering::Equal, Ordering::then).then(left.len().cmp(&right.len()))
}

fn float(bytes: &[u8]) -> f32 {
    let float = f32::from_be_bytes(bytes.try_into().unwrap());
    if float.is_nan() { f32::NAN.abs() } else { float }
}

fn double(bytes: &[u8]) -> f64 {
    let double = f64::from_be_bytes(bytes.try_into().unwrap());
    if double.is_nan() { f64::NAN.abs() } else { double }
}

fn ticks(bytes: &[u8]) -> u64 {
    let uuid = uuid::Uuid::from_slice(bytes).unwrap();
    let (low, mid, high, _) = uuid.as_fields();
    u64::from(high & 0x0fff) << 48 | u64::from(mid) << 32 | u64::from(low)
}

fn uuid_order(bytes: &[u8]) -> (u8, u64, Vec<u8>) {
    let version = bytes[6] >> 4;
    (version, if version == 1 { ticks(bytes) } else { 0 }, bytes.to_vec())
}

fn timeuuid_order(bytes: &[u8]) -> (u64, Vec<i8>) {
    (ticks(bytes), bytes[8..].iter().map(|&byte| byte as i8).collect())
}

fn key_type() -> impl Strategy<Value = Type> {
    let types: Vec<_> = Type::SCALARS.into_iter().filter(|ty| ty.refused_in_key().is_none()).collect();
    let composite = any_type(Users::Whole).prop_filter("not in keys", |ty| ty.refused_in_key().is_none());
    prop_oneof![2 => select(types), 1 => composite]
}

fn number(width: usize) -> BoxedStrategy<Vec<u8>> {
    let edges = [i64::MIN, i64::MIN + 1, -256, -1, 0, 1, 127, 128, i64::MAX];
    let number = prop_oneof![any::<i64>(), select(edges.to_vec())];
    number.prop_map(move |number| number.to_be_bytes()[8 - width..].to_vec()).boxed()
}

/// Few different bytes, so that keys share beginnings and the bytes that mean something to the encoding are frequent.
fn short_bytes(alphabet: &'static [u8]) -> BoxedStrategy<Vec<u8>> {
    vec(select(alphabet), 0..5).boxed()
}

fn floating(width: usize) -> BoxedStrategy<Vec<u8>> {
    let edges = [0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, 5e-324];
    let edge = select(edges.to_vec()).prop_map(move |edge| match width {
        4 => (edge as f32).to_be_bytes().to_vec(),
        _ => edge.to_be_bytes().to_vec(),
    });
    prop_oneof![edge, vec(any::<u8>(), width)].boxed()
}

fn uuid_bytes(versions: &'static [u8]) -> BoxedStrategy<Vec<u8>> {
    let alphabet: &[u8] = &[0x00, 0x7f, 0x80, 0xff];
    let time = prop_oneof![select(vec![vec![0x00; 8], vec![0xff; 8]]), vec(any::<u8>(), 8)];
    let low = vec(select(alphabet), 8);
    (time, low, select(versions))
        .prop_map(|(mut bytes, low, version)| {
            bytes.extend(low);
            bytes[6] = bytes[6] & 0x0f | version << 4;
            bytes
        })
        .boxed()
}

/// CQL bytes of a type, the empty ones too.
fn component(ty: &Type) -> BoxedStrategy<Bytes> {
    let value = match ty {
        Type::Ascii | Type::Text => short_bytes(b"\0\x01ab\x7f"),
        Type::Blob => short_bytes(&[0x00, 0x01, 0x20, 0x38, 0x40, 0x60, 0xfe, 0xff]),
        Type::Boolean => select(vec![vec![0], vec![1]]).boxed(),
        Type::TinyInt => number(1),
        Type::SmallInt => number(2),
        Type::Int | Type::Date => number(4),
        Type::BigInt | Type::Timestamp => number(8),
        Type::Time => (0..86_400_000_000_000i64).prop_map(|nanos| nanos.to_be_bytes().to_vec()).boxed(),
        Type::VarInt => prop_oneof![number(8), vec(any::<u8>(), 1..140)]
            .prop_map(|bytes| BigInt::from_signed_bytes_be(&bytes).to_signed_bytes_be())
            .boxed(),
        Type::Float => floating(4),
        Type::Double => floating(8),
        Type::Uuid => uuid_bytes(&[0, 1, 4, 7]),
        Type::TimeUuid => uuid_bytes(&[1]),
        Type::Inet => prop_oneof![number(4), vec(any::<u8>(), 16)].boxed(),
        composite => {
            let ty = composite.clone();
            return any_value(composite).prop_map(move |value| value.encode(&ty).unwrap()).boxed();
        }
    };
    prop_oneof![1 => Just(Vec::new()), 9 => value].prop_map(Bytes::from).boxed()
}

type Types = Vec<(Type, Order)>;

fn types() -> impl Strategy<Value = Types> {
    vec((key_type(), select(vec![ASC, DESC])), 1..=3)
}

fn components(types: &Types) -> impl Strategy<Value = Vec<Bytes>> + use<> {
    types.iter().map(|(ty, _)| component(ty)).collect::<Vec<_>>()
}

/// Two rows of one table; the second one often begins like the first.
fn two_rows() -> impl Strategy<Value = (Types, Vec<Bytes>, Vec<Bytes>)> {
    types().prop_flat_map(|types| {
        (components(&types), components(&types), 0..=types.len(), Just(types)).prop_map(
            |(left, mut right, shared, types)| {
                right[..shared].clone_from_slice(&left[..shared]);
                (types, left, right)
            },
        )
    })
}

fn compare_prefixes(types: &Types, left: &[Bytes], right: &[Bytes]) -> Ordering {
    let by_component = types.iter().zip(left.iter().zip(right)).map(|((ty, order), (left, right))| match order {
        Order::Ascending => compare(ty, left, right),
        Order::Descending => compare(ty, right, left),
    });
    by_component.fold(Ordering::Equal, Ordering::then)
}

fn canonical(ty: &Type, bytes: &Bytes) -> Bytes {
    match ty {
        Type::Float if bytes.len() == 4 => Bytes::copy_from_slice(&float(bytes).to_be_bytes()),
        Type::Double if bytes.len() == 8 => Bytes::copy_from_slice(&double(bytes).to_be_bytes()),
        _ => bytes.clone(),
    }
}

/// Whether bytes are refused, or are the one encoding of what they decode to.
fn is_refused_or_itself(bytes: &[u8], types: &Types) -> bool {
    match ClusteringKey(Bytes::copy_from_slice(bytes)).decode(types) {
        Err(error) => matches!(error, Error::Corrupt(_)),
        // Decoding does not look into values; one that could not have been written has no encoding to compare with.
        Ok(components) => ClusteringKey::encode(&components, types).map_or(true, |again| again.bytes() == bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn byte_order_is_value_order((types, left, right) in two_rows()) {
        let expected = compare_prefixes(&types, &left, &right);
        prop_assert_eq!(key(&left, &types).cmp(&key(&right, &types)), expected);
    }

    #[test]
    fn bounds_lie_around_exactly_the_rows_with_their_prefix((types, row, prefix) in two_rows(), len in 0..=3usize) {
        let prefix = &prefix[..len.min(types.len())];
        let before = Bound::before(prefix, &types).unwrap();
        let after = Bound::after(prefix, &types).unwrap();
        let place = (key(&row, &types).bytes().cmp(before.bytes()), key(&row, &types).bytes().cmp(after.bytes()));
        let expected = match compare_prefixes(&types, &row, prefix) {
            Ordering::Less => (Ordering::Less, Ordering::Less),
            Ordering::Equal => (Ordering::Greater, Ordering::Less),
            Ordering::Greater => (Ordering::Greater, Ordering::Greater),
        };
        prop_assert_eq!(place, expected);
    }

    #[test]
    fn bounds_of_bounds_nest((types, left, right) in two_rows(), len in 0..=3usize) {
        let (long, short) = (&left[..], &right[..len.min(types.len())]);
        let expected = compare_prefixes(&types, long, short);
        let long = (Bound::before(long, &types).unwrap(), Bound::after(long, &types).unwrap());
        let short_is_whole = short.len() == types.len();
        let short = (Bound::before(short, &types).unwrap(), Bound::after(short, &types).unwrap());
        match expected {
            Ordering::Less => prop_assert!(long.1 < short.0),
            Ordering::Greater => prop_assert!(short.1 < long.0),
            Ordering::Equal if short_is_whole => prop_assert_eq!(long, short),
            Ordering::Equal => prop_assert!(short.0 < long.0 && long.1 < short.1),
        }
    }

    #[test]
    fn places_behind_rows_compare_as_bounds_do((types, left, right) in two_rows(), len in 0..=3usize) {
        let row = key(&left, &types);
        for prefix in [&right[..len.min(types.len())], &left[..len.min(types.len())]] {
            for bound in [Bound::before(prefix, &types).unwrap(), Bound::after(prefix, &types).unwrap()] {
                prop_assert_eq!(row.is_after_before(&bound), row.after() < bound);
            }
        }
    }

    #[test]
    fn a_slice_is_of_one_row_if_it_surrounds_a_whole_key((types, row, _) in two_rows(), len in 0..=3usize) {
        let prefix = &row[..len.min(types.len())];
        let start = Bound::before(prefix, &types).unwrap();
        let slice = Slice { start: start.clone(), end: Bound::after(prefix, &types).unwrap() };
        let bytes = start.bytes();
        let expected = (prefix.len() == types.len()).then_some(&bytes[..bytes.len() - 1]);
        prop_assert_eq!(slice.only_row(&types), expected);
        let wider = Slice { end: Bound::top(), ..slice };
        prop_assert_eq!(wider.only_row(&types).is_some(), types.is_empty());
    }

    #[test]
    fn clustering_keys_turn_back((types, row, _) in two_rows()) {
        let encoded = key(&row, &types);
        let expected: Vec<_> = types.iter().zip(&row).map(|((ty, _), bytes)| canonical(ty, bytes)).collect();
        prop_assert_eq!(encoded.decode(&types).unwrap(), expected);
        prop_assert_eq!(ClusteringKey::from_bytes(encoded.bytes().clone()).unwrap(), encoded.clone());
        prop_assert_eq!(encoded.before(), Bound::before(&row, &types).unwrap());
        prop_assert_eq!(encoded.after(), Bound::after(&row, &types).unwrap());
    }

    #[test]
    fn partition_keys_turn_back((types, row, _) in two_rows()) {
        let types: Vec<_> = types.iter().map(|(ty, _)| ty.clone()).collect();
        prop_assume!(row.len() > 1 || !row[0].is_empty());
        let encoded = PartitionKey::encode(&row, &types).unwrap();
        prop_assert_eq!(encoded.decode(&types).unwrap(), row);
        prop_assert_eq!(PartitionKey::from_bytes(encoded.bytes().clone()), encoded);
    }

    #[test]
    fn random_bytes_never_panic(types in types(), mut bytes in vec(any::<u8>(), 0..40)) {
        let partition: Vec<_> = types.iter().map(|(ty, _)| ty.clone()).collect();
        let _ = PartitionKey::from_bytes(bytes.clone().into()).decode(&partition);
        if let Some(first) = bytes.first_mut() {
            *first = 0x40;
        }
        bytes.push(0x38);
        prop_assert!(is_refused_or_itself(&bytes, &types));
    }

    #[test]
    fn damaged_keys_are_refused_or_other_keys((types, row, _) in two_rows(), at: Index, damage: u8) {
        let whole = key(&row, &types).bytes().to_vec();
        let at = at.index(whole.len());
        let mut damaged = whole.clone();
        damaged[at] ^= damage;
        prop_assert!(is_refused_or_itself(&damaged, &types));
        prop_assert!(is_refused_or_itself(&[&whole[..at], &[0x38]].concat(), &types));
        prop_assert!(is_refused_or_itself(&[&whole[..at], &whole[at + 1..]].concat(), &types));
    }

    #[test]
    fn keys_made_longer_or_shorter_are_corrupt((types, row, _) in two_rows()) {
        let whole = key(&row, &types).bytes().to_vec();
        for other in [[&whole[..], &[0x38]].concat(), whole[..whole.len() - 1].to_vec()] {
            prop_assert!(matches!(ClusteringKey(other.into()).decode(&types), Err(Error::Corrupt(_))));
        }
        let partition: Vec<_> = types.iter().map(|(ty, _)| ty.clone()).collect();
        if partition.len() == 1 {
            return Ok(()); // A single component is the key as it stands: any bytes are one.
        }
        let whole = PartitionKey::encode(&row, &partition).unwrap();
        let bytes = whole.bytes();
        let unended = [&bytes[..bytes.len() - 1], &[1]].concat();
        for other in [bytes[..bytes.len() - 1].to_vec(), [bytes, &[0][..]].concat(), unended] {
            prop_assert!(matches!(PartitionKey::from_bytes(other.into()).decode(&partition), Err(Error::Corrupt(_))));
        }
    }
}
