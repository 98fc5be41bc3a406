//! Waiting for what is bound to happen.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Pause between two looks at a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a look may take.
const LOOK: Duration = Duration::from_secs(5);

/// For everything that a healthy cluster does, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until `look` finds what it looks for; after [`PATIENCE`] the test fails with what it said last.
pub async fn until<T, E: Display>(what: &str, look: impl AsyncFnMut() -> Result<T, E>) -> T {
    match until_or_last(what, look).await {
        Ok(found) => found,
        Err(last) => panic!("{last}"),
    }
}

/// The same, with what was said last as an error.
pub async fn until_or_last<T, E: Display>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let last = match timeout(LOOK, look()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("nothing within {LOOK:?}"),
        };
        if Instant::now() > deadline {
            return Err(format!("waited {PATIENCE:?} until {what}; last: {last}"));
        }
        sleep(PAUSE).await;
    }
}
