//! Which bucket, and which cluster's backups in it.

use std::sync::Arc;

use clap::Args;
use trefoil::model::Stamp;
use trefoil_s3::repository::Repository;
use trefoil_s3::{Limits, Location, ObjectStore, S3};
use uuid::Uuid;

use super::super::Global;
use super::super::error::{Error, Result};

/// Where the backups are. Without --bucket the cluster is asked. Credentials come from the usual places (environment, profile,
/// instance role).
#[derive(Debug, Clone, Args)]
pub struct Bucket {
    /// The bucket
    #[arg(long, env = "TREFOIL_BACKUP_BUCKET", value_name = "NAME", requires = "cluster")]
    bucket: Option<String>,
    /// What all keys begin with
    #[arg(long, env = "TREFOIL_BACKUP_PREFIX", default_value = "", hide_default_value = true, value_name = "PREFIX")]
    prefix: String,
    /// The way to the store, if it is not AWS itself
    #[arg(long, env = "TREFOIL_BACKUP_ENDPOINT", value_name = "URL")]
    s3_endpoint: Option<String>,
    /// The region that its requests are signed for
    #[arg(long, env = "TREFOIL_BACKUP_REGION", default_value = "us-east-1", value_name = "NAME")]
    s3_region: String,
    /// The bucket stands in the path, not in the host
    #[arg(long, env = "TREFOIL_BACKUP_PATH_STYLE")]
    path_style: bool,
    /// The id of the cluster whose backups they are
    #[arg(long, env = "TREFOIL_BACKUP_CLUSTER", value_name = "ID")]
    cluster: Option<Uuid>,
}

impl Bucket {
    /// The backups there.
    pub async fn open(&self, global: &Global) -> Result<Repository> {
        let (location, cluster) = self.place(global).await?;
        Ok(Repository::new(connect(location).await?, cluster))
    }

    async fn place(&self, global: &Global) -> Result<(Location, Uuid)> {
        if let (Some(bucket), Some(cluster)) = (&self.bucket, self.cluster) {
            let location = Location {
                endpoint: self.s3_endpoint.clone(),
                region: self.s3_region.clone(),
                bucket: bucket.clone(),
                prefix: self.prefix.clone(),
                path_style: self.path_style,
            };
            return Ok((location, cluster));
        }
        let told = global.connect().await?.backup_location().await?;
        let cluster = self.cluster.or_else(|| Uuid::from_slice(&told.cluster_id).ok());
        let cluster = cluster.ok_or(Error::Usage("say whose backups they are: --cluster"))?;
        let place = told.place.unwrap_or_default();
        let location = Location {
            endpoint: Some(place.endpoint).filter(|endpoint| !endpoint.is_empty()),
            region: place.region,
            bucket: place.bucket,
            prefix: place.prefix,
            path_style: place.path_style,
        };
        Ok((location, cluster))
    }
}

/// A bucket.
pub async fn connect(location: Location) -> Result<Arc<dyn ObjectStore>> {
    Ok(Arc::new(S3::connect(location, Limits::default()).await?))
}

/// The time.
pub fn now() -> Stamp {
    Stamp(jiff::Timestamp::now().as_microsecond())
}
