//! New content of files, which waits until their writers are done.

use std::time::SystemTime;

use crate::error::TlsError;
use crate::files::File;
use crate::small_file::SETTLED_AGE;

/// New content as it was read last, since when it is the same.
#[derive(Default)]
pub(crate) struct Candidate(Option<Seen>);

struct Seen {
    digests: Vec<[u8; 32]>,
    since: SystemTime,
}

impl Candidate {
    /// The file whose writer may not be done, if there is one. Files whose content stays the same
    /// are whole, even if some program touches them all the time.
    pub(crate) fn unsettled<'f>(
        &mut self,
        files: impl Iterator<Item = &'f File> + Clone,
        now: SystemTime,
    ) -> Option<TlsError> {
        let Some(file) = files.clone().find(|file| !file.is_settled(now)) else {
            self.0 = None;
            return None;
        };
        let digests: Vec<[u8; 32]> = files.map(|file| file.digest).collect();
        if let Some(seen) = self.0.take_if(|seen| seen.digests == digests) {
            // A clock that was set back begins anew.
            let since = seen.since.min(now);
            if now.duration_since(since).is_ok_and(|age| age >= SETTLED_AGE) {
                return None;
            }
            self.0 = Some(Seen { digests, since });
        } else {
            self.0 = Some(Seen { digests, since: now });
        }
        Some(file.error("the file changes again and again"))
    }
}
