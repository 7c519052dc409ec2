//! What a request asks for behind the question mark.
//! What is found is left to `read.rs`.

use actix_web::{HttpRequest, web};

use super::answer::Problem;
use crate::circuit::CircuitState;

/// How many breakers a page has, unless it is said otherwise.
const PAGE: usize = 100;

/// How many it has at most.
const LONGEST_PAGE: usize = 500;

/// The parameters of a request. Each is taken once; one that nobody took is unknown.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn new(request: &HttpRequest) -> Result<Self, Problem> {
        let query = web::Query::<Vec<(String, String)>>::from_query(request.query_string());
        match query {
            Ok(query) => Ok(Self(query.into_inner())),
            Err(error) => Err(Problem::field("query", error.to_string())),
        }
    }

    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        Some(self.0.remove(at).1)
    }

    pub(super) fn need(&mut self, name: &str) -> Result<String, Problem> {
        self.take(name)
            .ok_or_else(|| Problem::field(name, format!("`{name}` is missing")))
    }

    pub(super) fn number(
        &mut self,
        name: &str,
        default: usize,
        (least, most): (usize, usize),
    ) -> Result<usize, Problem> {
        let Some(text) = self.take(name) else {
            return Ok(default);
        };
        let number = text.parse().ok();
        number
            .filter(|number| (least..=most).contains(number))
            .ok_or_else(|| {
                let error = format!("`{name}` must be a whole number from {least} to {most}");
                Problem::field(name, error)
            })
    }

    /// Refuses what was not taken.
    pub(super) fn done(self) -> Result<(), Problem> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(100).collect();
                let error = format!("unknown or repeated parameter `{name}`");
                Err(Problem::field(name, error))
            }
        }
    }
}

/// A part of a long list: what matches, in the order of the names.
pub(super) struct Part {
    search: String,
    after: Option<String>,
    limit: usize,
}

impl Part {
    pub(super) fn new(query: &mut Query) -> Result<Self, Problem> {
        Ok(Self {
            search: query.take("q").unwrap_or_default().to_lowercase(),
            after: query.take("after"),
            limit: query.number("limit", PAGE, (1, LONGEST_PAGE))?,
        })
    }

    /// Takes what belongs to the part out of all that there is, which is sorted by name.
    pub(super) fn of<T>(
        &self,
        all: impl IntoIterator<Item = (String, T)>,
        filter: impl Fn(&T) -> bool,
    ) -> Taken<T> {
        let mut taken = Taken {
            found: Vec::new(),
            total: 0,
            matching: 0,
            next: None,
        };
        let mut last = None;
        for (name, item) in all {
            taken.total = taken.total.saturating_add(1);
            if !name.to_lowercase().contains(&self.search) || !filter(&item) {
                continue;
            }
            taken.matching = taken.matching.saturating_add(1);
            if self.after.as_ref().is_some_and(|after| name <= *after) {
                continue;
            }
            if taken.found.len() < self.limit {
                taken.found.push(item);
                last = Some(name);
            } else if taken.next.is_none() {
                taken.next = last.take();
            }
        }
        taken
    }
}

pub(super) struct Taken<T> {
    pub(super) found: Vec<T>,
    /// How many there are.
    pub(super) total: usize,
    /// How many of them match.
    pub(super) matching: usize,
    /// What the next part comes after, if there is one.
    pub(super) next: Option<String>,
}

/// The states that are asked for; none for all.
pub(super) struct States(Vec<CircuitState>);

impl States {
    pub(super) fn new(query: &mut Query) -> Result<Self, Problem> {
        let Some(text) = query.take("state") else {
            return Ok(Self(Vec::new()));
        };
        let read = |name: &str| serde_json::from_value(name.into()).ok();
        let states: Option<_> = text.split(',').map(read).collect();
        states.map(Self).ok_or_else(|| {
            let error = "`state` must be of `closed`, `open`, `half_open`, `forced_open` and \
                         `forced_closed`, several with commas between them";
            Problem::field("state", error)
        })
    }

    pub(super) fn contain(&self, state: CircuitState) -> bool {
        self.0.is_empty() || self.0.contains(&state)
    }
}
