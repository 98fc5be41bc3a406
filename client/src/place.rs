//! Which partition and which of its rows, said by column names.

use bytes::Bytes;
use trefoil::model::{Column, Order, PartitionKey, Value};
use trefoil_proto::convert::value;
use trefoil_proto::v1::{self, ClusteringRange, InvalidDetail};

use crate::error::{Error, Result};
use crate::schema::TableView;

/// A key column and the value that is given for it.
pub(crate) type Equal<'a> = (&'a str, &'a Option<Value>);

/// A clustering column and a limit of its values.
pub(crate) type Limit = (String, Comparison, Option<Value>);

/// How the first clustering column that is not fixed is limited, in the order of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    AtLeast,
    MoreThan,
    AtMost,
    LessThan,
}

/// A place in a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located {
    /// The partition, with its key as values.
    pub(crate) partition: Option<(PartitionKey, Vec<v1::Value>)>,
    /// Values of the first clustering columns.
    pub(crate) prefix: Vec<v1::Value>,
    /// The rows with this prefix, within the limits; `None` if there are neither.
    pub(crate) range: Option<ClusteringRange>,
}

/// The place that these conditions on key columns of a table mean.
pub(crate) fn locate(view: &TableView, equal: &[Equal<'_>], limits: &[Limit]) -> Result<Located> {
    Conditions { equal, limits }.locate(view)
}

struct Conditions<'a> {
    equal: &'a [Equal<'a>],
    limits: &'a [Limit],
}

impl Conditions<'_> {
    fn locate(&self, view: &TableView) -> Result<Located> {
        let table = &view.table;
        let partition_columns: Vec<&Column> = table.partition_key().collect();
        let clustering: Vec<(&Column, Order)> = table.clustering().collect();
        self.check_names(view, &partition_columns, &clustering)?;
        let partition = self.partition(view, &partition_columns)?;
        let mut prefix = Vec::new();
        for (column, _) in &clustering {
            match self.equal_to(&column.name) {
                Some(value) => prefix.push(value::raw(key_bytes(view, column, value)?)),
                None => break,
            }
        }
        if let Some((late, _)) =
            clustering.iter().skip(prefix.len()).find(|(column, _)| self.equal_to(&column.name).is_some())
        {
            let before = &clustering[prefix.len()].0.name;
            return Err(fault(view, &late.name, format!("cannot be given without {before}, which comes before it")));
        }
        let range = self.range(view, &prefix, clustering.get(prefix.len()))?;
        Ok(Located { partition, prefix, range })
    }

    fn check_names(&self, view: &TableView, partition: &[&Column], clustering: &[(&Column, Order)]) -> Result<()> {
        let names = self.equal.iter().map(|(name, _)| *name).chain(self.limits.iter().map(|(name, ..)| name.as_str()));
        for name in names {
            let is = |column: &Column| column.name == name;
            if !partition.iter().any(|column| is(column)) && !clustering.iter().any(|(column, _)| is(column)) {
                view.column(name)?;
                return Err(fault(view, name, "is not part of the key".to_owned()));
            }
        }
        let twice =
            self.equal.iter().enumerate().find(|(at, (name, _))| self.equal[..*at].iter().any(|(n, _)| n == name));
        match twice {
            Some((_, (name, _))) => Err(fault(view, name, "is given twice".to_owned())),
            None => Ok(()),
        }
    }

    fn equal_to(&self, name: &str) -> Option<&Option<Value>> {
        self.equal.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    fn partition(&self, view: &TableView, columns: &[&Column]) -> Result<Option<(PartitionKey, Vec<v1::Value>)>> {
        let mut components: Vec<Bytes> = Vec::with_capacity(columns.len());
        let mut missing = None;
        for column in columns {
            match self.equal_to(&column.name) {
                Some(value) => components.push(key_bytes(view, column, value)?),
                None => missing = missing.or(Some(&column.name)),
            }
        }
        match missing {
            Some(_) if components.is_empty() && self.equal.is_empty() && self.limits.is_empty() => Ok(None),
            Some(name) => Err(fault(view, name, "is part of the partition key and is not given".to_owned())),
            None => {
                let key = PartitionKey::encode(&components, &view.table.partition_types())
                    .map_err(|error| view.place(InvalidDetail::from_core(&error)))?;
                Ok(Some((key, components.into_iter().map(value::raw).collect())))
            }
        }
    }

    fn range(
        &self,
        view: &TableView,
        prefix: &[v1::Value],
        next: Option<&(&Column, Order)>,
    ) -> Result<Option<ClusteringRange>> {
        if prefix.is_empty() && self.limits.is_empty() {
            return Ok(None);
        }
        let mut range = ClusteringRange { from: prefix.to_vec(), to: prefix.to_vec(), ..ClusteringRange::default() };
        for (name, comparison, value) in self.limits {
            let Some((column, order)) = next.filter(|(column, _)| column.name == *name) else {
                let reason = "only the first clustering column without a value can be limited".to_owned();
                return Err(fault(view, name, reason));
            };
            let bound = value::raw(key_bytes(view, column, value)?);
            let is_lower = matches!(comparison, Comparison::AtLeast | Comparison::MoreThan);
            let exclusive = matches!(comparison, Comparison::MoreThan | Comparison::LessThan);
            // Large values of a descending column are stored first.
            let (side, flag) = if is_lower == (*order == Order::Ascending) {
                (&mut range.from, &mut range.from_exclusive)
            } else {
                (&mut range.to, &mut range.to_exclusive)
            };
            if side.len() > prefix.len() {
                return Err(fault(view, name, "is limited twice on the same side".to_owned()));
            }
            side.push(bound);
            *flag = exclusive;
        }
        Ok(Some(range))
    }
}

fn key_bytes(view: &TableView, column: &Column, value: &Option<Value>) -> Result<Bytes> {
    match value {
        Some(value) => encode(view, column, value),
        None => Err(fault(view, &column.name, "null in a key".to_owned())),
    }
}

/// The stored bytes of a value of a column.
pub(crate) fn encode(view: &TableView, column: &Column, value: &Value) -> Result<Bytes> {
    value.encode(&column.ty).map_err(|error| fault(view, &column.name, error.to_string()))
}

fn fault(view: &TableView, column: &str, reason: String) -> Error {
    view.place(InvalidDetail::new(reason).column(column))
}
