//! Reduces a scenario to its short form, or to some of its points and arms.

use super::file::{Arm, Scenario};

impl Scenario {
    /// Returns the short form: one short round at the points named for it.
    #[must_use]
    pub fn smoke(mut self) -> Self {
        let smoke = std::mem::take(&mut self.smoke);
        self.rounds = 1;
        self.duration = 0.2;
        self.warm_up = 0.05;
        self.warm_up_once = 0.0;
        if !smoke.points.is_empty() {
            self.keep_points(&smoke.points);
        }
        self.load.extend(smoke.load);
        // The figures of the short form show nothing.
        self.claims.iter_mut().for_each(|claim| claim.rounds = usize::MAX);
        self
    }

    /// Keeps only the named points and arms, if any are named, and drops what only the others need.
    ///
    /// # Errors
    /// The scenario has no such point or arm, or measures by a program, which cannot be divided.
    pub fn only(mut self, points: &[String], arms: &[String]) -> Result<Self, String> {
        if points.is_empty() && arms.is_empty() {
            return Ok(self);
        }
        if self.program.is_some() {
            return Err(format!("{}: its program measures all of its points and arms", self.name));
        }
        known(&self.name, "point", points, self.points.iter().map(|point| point.label.as_str()))?;
        known(&self.name, "arm", arms, self.arms.iter().map(|arm| arm.name.as_str()))?;
        if !points.is_empty() {
            self.keep_points(points);
        }
        if !arms.is_empty() {
            self.keep_arms(arms)?;
        }
        let labels: Vec<&String> = self.points.iter().map(|point| &point.label).collect();
        self.claims.retain(|claim| labels.contains(&&claim.point));
        Ok(self)
    }

    /// Keeps only the named points, and the points that their rates refer to.
    fn keep_points(&mut self, labels: &[String]) {
        let named: Vec<_> =
            self.points.iter().filter(|point| labels.contains(&point.label)).collect();
        let bases = named.iter().flat_map(|point| self.bases(point));
        let kept: Vec<String> =
            named.iter().copied().chain(bases).map(|point| point.label.clone()).collect();
        self.points.retain(|point| kept.contains(&point.label));
    }

    /// Keeps only the named arms; drops the servers that only the others need, and the claims about
    /// those.
    fn keep_arms(&mut self, names: &[String]) -> Result<(), String> {
        for arm in self.points.iter().filter_map(|point| point.rate.as_ref()?.arm.as_ref()) {
            if !names.contains(arm) {
                return Err(format!(
                    "{}: a point's rate is a share of that of the arm '{arm}', which is left out",
                    self.name
                ));
            }
        }
        self.arms.retain(|arm| names.contains(&arm.name));
        self.comparisons.retain(|comparison| names.contains(&comparison.base));
        for comparison in &mut self.comparisons {
            comparison.arms.retain(|arm| names.contains(arm));
        }
        self.claims
            .retain(|claim| claim.base.iter().chain([&claim.arm]).all(|arm| names.contains(arm)));
        let servers =
            |arm: &Arm| arm.measure.iter().chain([&arm.target]).cloned().collect::<Vec<_>>();
        let mut needed: Vec<String> = self.arms.iter().flat_map(servers).collect();
        // A server comes after the server that its `of` names.
        for server in self.servers.iter().rev() {
            if needed.contains(&server.name) {
                needed.extend(server.of.clone());
            }
        }
        self.servers.retain(|server| needed.contains(&server.name));
        Ok(())
    }
}

fn known<'n>(
    scenario: &str,
    what: &str,
    wanted: &[String],
    there: impl Iterator<Item = &'n str> + Clone,
) -> Result<(), String> {
    match wanted.iter().find(|name| !there.clone().any(|found| found == name.as_str())) {
        Some(name) => {
            let names: Vec<&str> = there.collect();
            Err(format!("{scenario}: there is no {what} '{name}'; there are {}", names.join(", ")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::file::Scenario;

    const PEERS: &str = include_str!("../../../../experiments/scenarios/peers.toml");

    fn only(points: &[&str], arms: &[&str]) -> Result<Scenario, String> {
        let owned =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Scenario::parse(PEERS).expect("valid").only(&owned(points), &owned(arms))
    }

    #[test]
    fn a_part_leaves_out_servers_of_other_parts() {
        let part = only(&["256x1", "8x128"], &["shunt"]).expect("there");
        let labels: Vec<&str> = part.points.iter().map(|point| point.label.as_str()).collect();
        let servers: Vec<&str> = part.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!((labels, servers), (vec!["256x1", "8x128"], vec!["nodes", "shunt"]));
        assert!(
            part.comparisons.is_empty() && part.claims.is_empty(),
            "all are against an arm that is left out"
        );
        let part = only(&["256x1"], &["shunt", "haproxy"]).expect("there");
        assert!(!part.claims.is_empty() && part.claims.iter().all(|claim| claim.point == "256x1"));
        assert!(part.comparisons.iter().all(|comparison| comparison.arms == ["shunt"]));
    }

    #[test]
    fn a_selection_without_names_is_the_whole() {
        let (part, whole) =
            (only(&[], &[]).expect("whole"), Scenario::parse(PEERS).expect("valid"));
        assert_eq!(
            (part.points.len(), part.claims.len()),
            (whole.points.len(), whole.claims.len())
        );
    }

    #[test]
    fn unknown_points_and_arms_are_named() {
        assert!(
            only(&["7x7"], &[]).expect_err("no point").contains("no point '7x7'; there are 64x1, ")
        );
        assert!(only(&[], &["x"]).expect_err("no arm").contains("no arm 'x'; there are floor, "));
        let problem = only(&["half load"], &["shunt"]).expect_err("its rate is another's");
        assert!(problem.contains("the arm 'haproxy', which is left out"), "{problem}");
    }
}
