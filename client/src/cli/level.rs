//! Consistency levels by the names that people know.

use trefoil_client::Consistency;

/// The level of a name, in any case.
pub fn parse(name: &str) -> Result<Consistency, String> {
    match Consistency::from_str_name(&format!("CONSISTENCY_{}", name.to_ascii_uppercase())) {
        Some(Consistency::Unspecified) | None => {
            Err("it is ONE, TWO, THREE, QUORUM, ALL, LOCAL_ONE, LOCAL_QUORUM or EACH_QUORUM".to_owned())
        }
        Some(level) => Ok(level),
    }
}
