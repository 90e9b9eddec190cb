//! The resources of the group `batch`.

mod cron_job;
mod job;

use super::resource::Resource;

/// Every resource of the group.
pub(super) fn resources() -> Vec<Resource> {
    vec![cron_job::resource(), job::resource()]
}
