//! The steps of a survey, and their timer.

use shunt_reactor::Io;
use tokio::sync::mpsc;

use super::{CoreSurvey, Survey, rows};
use crate::core::Core;
use crate::ids::{LinkKey, PoolId};
use crate::limits;

/// Timer of the next step.
pub(crate) const TIMER: u64 = 12;

/// Begins a survey. It replaces an abandoned one, and uses that one's timer.
pub(crate) fn start(core: &mut Core, io: &mut Io, answer: mpsc::Sender<CoreSurvey>) {
    if core.reports.survey.replace(Survey::new(answer)).is_none() {
        go_on(core, io);
    }
}

/// Looks at the next places.
pub(crate) fn go_on(core: &mut Core, io: &mut Io) {
    let Some(mut survey) = core.reports.survey.take() else { return };
    if survey.answer.is_closed() {
        return;
    }
    if step(&mut survey, core, io) {
        core.reports.survey = Some(survey);
        io.set_timer(io.now_ns() + limits::CENSUS_PAUSE_NS, TIMER);
    } else {
        survey.finish(core.context.index);
    }
}

/// Looks at the next places; returns whether there are more.
fn step(survey: &mut Survey, core: &Core, io: &Io) -> bool {
    let clients = core.clients.capacity();
    let links = clients + core.links.capacity();
    let all = links + core.router.pools.capacity();
    let end = (survey.next + limits::SURVEY_STEP).min(all);
    for place in survey.next..end {
        if place < clients {
            if let Some(client) = core.clients.get(place as u32) {
                survey.clients.add(rows::client(&core.router, io, client));
            }
        } else if place < links {
            add_link(survey, core, io, LinkKey((place - clients) as u32));
        } else if survey.pools.len() < limits::POOLS_MAX {
            let id = PoolId((place - links) as u32);
            survey.pools.extend(core.router.pools.get(id).map(|pool| rows::pool(id, pool, io)));
        }
    }
    survey.next = end;
    end < all
}

fn add_link(survey: &mut Survey, core: &Core, io: &Io, key: LinkKey) {
    let Some(link) = core.links.get(key) else { return };
    if survey.links.len() < limits::SURVEY_LINKS_MAX {
        survey.links.push(rows::link(&core.router, io, key, link));
    } else {
        survey.links_left_out += 1;
    }
}
