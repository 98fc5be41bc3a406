//! The section `[backup]`: where backups go, how often, how fast. No credentials: those come by the usual chain of environment,
//! profile, web identity and instance role, and are never a setting.

use std::num::NonZeroU64;
use std::time::Duration;

use toml::Value;
use trefoil_s3::{Limits, Location};

use super::Problem;
use super::section::Section;
use super::settings::{Number, number};
use super::write::{line, quoted};
use crate::backup::{BackupSettings, Bucket};

const LOG_EVERY_S: Number = number(
    "log_every_s",
    5,
    3_600,
    60,
    "seconds from one piece of the commit log in the bucket to the next; what a loss of the cluster can cost, beside \
     replication.closed_behind_s",
);
const EVERY_H: Number =
    number("every_h", 0, 8_760, 24, "hours from one backup of everything to the next; 0 is only when asked for");
const KEEP_DAYS: Number =
    number("keep_days", 1, 36_500, 30, "what `trefoil backup prune` keeps: backups that are younger, and");
const KEEP_COUNT: Number = number("keep_count", 1, 100_000, 7, "so many of the newest, however old");
const MIB_PER_S: Number = number("mib_per_s", 1, 1 << 20, 64, "moved to and from the bucket in a second, at most");
const REQUESTS_AT_ONCE: Number = number("requests_at_once", 1, 1_024, 16, "requests under way at once");
const ATTEMPT_S: Number = number(
    "attempt_s",
    1,
    600,
    30,
    "seconds that one attempt of a request may take, beside the time that its bytes need at 64 KiB/s",
);
const ABSENT_AFTER_S: Number = number(
    "absent_after_s",
    5,
    86_400,
    600,
    "seconds after which a backup goes on without a node that is down, if the others suffice",
);
const GIVE_UP_S: Number = number(
    "give_up_s",
    10,
    86_400,
    86_400,
    "seconds after which a backup that is not complete has failed; a prune waits longer than that before it deletes",
);

const REGION: &str = "a region of the store, as \"eu-west-1\"";
const BUCKET: &str = "the bucket, which must exist";
const PREFIX: &str = "what all keys begin with, as \"trefoil/production\"";
const ENDPOINT: &str = "http:// or https://, a host and perhaps a port; left out: AWS itself";

/// Where backups go, how often, how fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupConfig {
    /// The way to the store; none: AWS itself.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: String,
    /// The bucket.
    pub bucket: String,
    /// What all keys begin with; may be empty.
    pub prefix: String,
    /// Whether the bucket stands in the path, not in the host.
    pub path_style: bool,
    /// From one piece of the log to the next.
    pub log_every_s: u64,
    /// From one backup to the next; 0: only when asked for.
    pub every_h: u64,
    /// Younger backups are not pruned.
    pub keep_days: u64,
    /// So many are not pruned.
    pub keep_count: u64,
    /// Moved in a second.
    pub mib_per_s: u64,
    /// Requests at once.
    pub requests_at_once: u64,
    /// How long one attempt takes at most.
    pub attempt_s: u64,
    /// How long a backup waits for a node.
    pub absent_after_s: u64,
    /// How long a backup takes at most.
    pub give_up_s: u64,
}

impl BackupConfig {
    /// Backups to this place, otherwise with the defaults.
    pub fn to(location: Location) -> BackupConfig {
        let Location { endpoint, region, bucket, prefix, path_style } = location;
        BackupConfig {
            endpoint,
            region,
            bucket,
            prefix,
            path_style,
            log_every_s: LOG_EVERY_S.default,
            every_h: EVERY_H.default,
            keep_days: KEEP_DAYS.default,
            keep_count: KEEP_COUNT.default,
            mib_per_s: MIB_PER_S.default,
            requests_at_once: REQUESTS_AT_ONCE.default,
            attempt_s: ATTEMPT_S.default,
            absent_after_s: ABSENT_AFTER_S.default,
            give_up_s: GIVE_UP_S.default,
        }
    }

    /// Where objects are.
    pub fn location(&self) -> Location {
        Location {
            endpoint: self.endpoint.clone(),
            region: self.region.clone(),
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            path_style: self.path_style,
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            bytes_per_s: NonZeroU64::new(self.mib_per_s << 20),
            requests_at_once: self.requests_at_once as usize,
            attempt: Duration::from_secs(self.attempt_s),
            ..Limits::default()
        }
    }

    /// The settings of a node; `closed_behind` as those of replication have it.
    pub fn of_nodes(&self, closed_behind: Duration) -> BackupSettings {
        BackupSettings {
            bucket: Bucket::At(self.location(), self.limits()),
            log_every: Duration::from_secs(self.log_every_s),
            closed_behind,
            every: (self.every_h > 0).then(|| Duration::from_secs(self.every_h * 3_600)),
            keep_days: self.keep_days,
            keep_count: self.keep_count,
            absent_after: Duration::from_secs(self.absent_after_s),
            give_up: Duration::from_secs(self.give_up_s),
        }
    }
}

/// Reads the section.
pub(super) fn load(mut section: Section) -> Result<BackupConfig, Problem> {
    let config = BackupConfig {
        endpoint: section.text_or_none("endpoint", ENDPOINT, |text| !text.is_empty())?,
        region: section.text("region", REGION, |text| !text.is_empty())?,
        bucket: section.text("bucket", BUCKET, |text| !text.is_empty())?,
        prefix: section.text_or_none("prefix", PREFIX, |_| true)?.unwrap_or_default(),
        path_style: section.flag("path_style", false)?,
        log_every_s: section.number(&LOG_EVERY_S)?,
        every_h: section.number(&EVERY_H)?,
        keep_days: section.number(&KEEP_DAYS)?,
        keep_count: section.number(&KEEP_COUNT)?,
        mib_per_s: section.number(&MIB_PER_S)?,
        requests_at_once: section.number(&REQUESTS_AT_ONCE)?,
        attempt_s: section.number(&ATTEMPT_S)?,
        absent_after_s: section.number(&ABSENT_AFTER_S)?,
        give_up_s: section.number(&GIVE_UP_S)?,
    };
    if let Err(error) = config.location().check() {
        return Err(section.wrong("bucket", &Value::String(config.bucket), error.reason));
    }
    section.end()?;
    Ok(config)
}

/// The section as text.
pub(super) fn text(config: &BackupConfig) -> String {
    let endpoint = config.endpoint.as_ref().map(|endpoint| format!("endpoint = {}\n", quoted(endpoint)));
    format!(
        "[backup]\n\
         # Where backups go: any S3-compatible store. Credentials are no settings: they come from the environment, the profile\n\
         # or the role of the machine. endpoint: {ENDPOINT}.\n\
         {}region = {}\n\
         bucket = {}\n\
         prefix = {}\n\
         # Whether the bucket stands in the path, as most stores other than AWS want it; default false.\n\
         path_style = {}\n",
        endpoint.unwrap_or_default(),
        quoted(&config.region),
        quoted(&config.bucket),
        quoted(&config.prefix),
        config.path_style
    ) + &line(&LOG_EVERY_S, config.log_every_s)
        + &line(&EVERY_H, config.every_h)
        + &line(&KEEP_DAYS, config.keep_days)
        + &line(&KEEP_COUNT, config.keep_count)
        + &line(&MIB_PER_S, config.mib_per_s)
        + &line(&REQUESTS_AT_ONCE, config.requests_at_once)
        + &line(&ATTEMPT_S, config.attempt_s)
        + &line(&ABSENT_AFTER_S, config.absent_after_s)
        + &line(&GIVE_UP_S, config.give_up_s)
}

/// What stands in the place of the section where there are no backups: the section with an example, commented out.
pub(super) fn absent_text() -> String {
    let example = Location {
        endpoint: None,
        region: "eu-west-1".to_owned(),
        bucket: "example-backups".to_owned(),
        prefix: "trefoil".to_owned(),
        path_style: false,
    };
    let lines = text(&BackupConfig::to(example));
    let commented =
        lines.lines().map(|line| if line.starts_with('#') { format!("{line}\n") } else { format!("#{line}\n") });
    "# Without this section there are no backups.\n".to_owned() + &commented.collect::<String>()
}
