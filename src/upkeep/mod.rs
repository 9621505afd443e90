//! What every tick does for all runs of the database: it fires due schedules, records stored
//! results, recovers lost runs, cancels expired ones, releases blocked ones, and ends or puts off
//! those that can't be claimed. An item that the database rejects delays no other.

mod expire;
mod fire;
mod followers;
mod prune;
mod recover;
mod stored_results;
pub(crate) mod tick_id;
mod time_slice;
mod unclaimable;
mod wake;

use expire::expire;
pub(crate) use fire::fire;
pub(crate) use followers::release_followers;
pub(crate) use prune::{Pruning, Undeleted, prune, series};
use recover::recover;
use stored_results::record_stored_results;
pub(crate) use time_slice::{TimeSlice, UpkeepState};
pub(crate) use unclaimable::{FailedClaim, UnclaimableSearch};
pub(crate) use wake::{Upkeep, Wake, Woken};
