//! A state of `shunt top` on the screen or as text.
//!
//! Texts of clients and nodes pass `table`, which escapes what a terminal acts upon.

use ratatui_core::layout::{Constraint, Layout, Rect};
use ratatui_core::style::{Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Text};
use serde_json::{Value, json};

use super::super::table::{self, Form};
use super::super::views;
use super::state::{Mode, SUMMARY, State, TABLES, WITHOUT};

const HELP: &str = "\
1 to 5, Tab   clients, queries, nodes, hot keys, alerts
up, down      select a row; also k, j, PageUp, PageDown, Home, End
o, O          next order, former order
/             filter by a text in any column; Enter keeps the filter, Esc removes it
x             close the clients of the selected row; asks first
p             pause, go on
q             quit

Any key goes back to the table.";

/// Draws a state.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let rows = [Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(Text::raw(summary(state)), top);
    if *state.mode() == Mode::Help {
        frame.render_widget(Text::raw(HELP), middle);
    } else {
        frame.render_widget(table_in(state, middle), middle);
    }
    let style = match state.mode() {
        Mode::Confirm(_) | Mode::Filter => Style::new().add_modifier(Modifier::REVERSED),
        Mode::Table | Mode::Help => Style::new().add_modifier(Modifier::DIM),
    };
    frame.render_widget(Line::styled(last_line(state), style), bottom);
}

/// The summary and the whole table as text.
pub(super) fn text(state: &State, width: Option<usize>) -> String {
    format!("{}\n\n{}", summary(state), table_text(state, width))
}

/// The lines of the table that fit an area, with the selected row among them.
fn table_in(state: &State, area: Rect) -> Text<'static> {
    let lines = table_text(state, Some(usize::from(area.width)));
    let mut lines = lines.lines().map(str::to_owned);
    let heading = lines.next().unwrap_or_default();
    let height = usize::from(area.height.saturating_sub(1));
    let first = (state.selected() + 1).saturating_sub(height);
    let rows = lines.enumerate().skip(first).take(height).map(|(index, line)| {
        let is_selected = index == state.selected();
        let style = if is_selected { Modifier::REVERSED } else { Modifier::empty() };
        Line::styled(line, Style::new().add_modifier(style))
    });
    let heading = Line::styled(heading, Style::new().add_modifier(Modifier::BOLD));
    [heading].into_iter().chain(rows).collect()
}

fn table_text(state: &State, width: Option<usize>) -> String {
    let (view, rows) = (state.table().view, state.rows());
    if !rows.is_empty() {
        return table::text(view.columns, &rows, width);
    }
    let page = state.page(view.page);
    match (view.absence)(page) {
        Some(reason) => format!("{reason}\n"),
        None if state.filter().is_empty() => format!("the proxy shows no {}\n", view.subject),
        None => "no row matches the filter\n".to_owned(),
    }
}

/// The figures above the tables.
pub(super) fn summary_object(state: &State) -> Value {
    let status = state.page(SUMMARY);
    let nodes = views::rows(status, "/ring/nodes");
    let up = nodes.iter().filter(|node| node["up"] == true).count();
    let total = &status["client_groups"]["total"];
    json!({
        "ready": status["ready"],
        "reason": status["reason"],
        "version": status["version"],
        "uptime_seconds": status["uptime_seconds"],
        "nodes": nodes.len(),
        "nodes_up": up,
        "clients": status["clients"],
        "paused": total["paused"],
        "in_flight": status["in_flight"],
        "queries_per_second": total["queries_per_second"],
        "p50_us": total["p50_us"],
        "p99_us": total["p99_us"],
        "cores_missing": status["client_groups"]["cores_missing"],
        "alerts": status["alerts"].as_array().map(|alerts| alerts.iter().filter(is_fault).count()),
    })
}

/// True for an alert that is no note of something done on purpose.
fn is_fault(alert: &&Value) -> bool {
    alert["severity"] != "note"
}

/// The summary, in two lines.
fn summary(state: &State) -> String {
    let figures = summary_object(state);
    let figure =
        |key: &str, form| table::cell(&figures[key], form).unwrap_or_else(|| "-".to_owned());
    let word = |key| figure(key, Form::Word);
    let time = |key| figure(key, Form::Microseconds);
    let ready = match figures["ready"].as_bool() {
        Some(true) => "ready".to_owned(),
        _ => format!("not ready: {}", word("reason")),
    };
    let missing = views::rows(&figures, "/cores_missing");
    let missing = if missing.is_empty() { "" } else { "; some cores did not answer in time" };
    let alerts = match figures["alerts"].as_u64() {
        None | Some(0) => String::new(),
        Some(1) => "; 1 alert".to_owned(),
        Some(count) => format!("; {count} alerts"),
    };
    format!(
        "{ready}; version {}, up {} s; nodes up {} of {}{alerts}{missing}\n\
         clients {} ({} paused), in flight {}, queries/s {}, p50 {} ms, p99 {} ms",
        word("version"),
        word("uptime_seconds"),
        word("nodes_up"),
        word("nodes"),
        word("clients"),
        word("paused"),
        word("in_flight"),
        word("queries_per_second"),
        time("p50_us"),
        time("p99_us"),
    )
}

fn last_line(state: &State) -> String {
    match state.mode() {
        Mode::Filter => format!("filter: {}▏", table::printable(state.filter())),
        Mode::Confirm(conditions) => {
            let conditions: Vec<String> = conditions
                .iter()
                .map(|(key, value)| match key.strip_prefix(WITHOUT) {
                    Some(name) => format!("no {name}"),
                    None => format!("{key} {}", value.as_str().unwrap_or_default()),
                })
                .collect();
            let conditions = table::printable(&conditions.join(", "));
            format!("close all clients with {conditions}? y: yes, any other key: no")
        }
        Mode::Help => String::new(),
        Mode::Table if !state.message().is_empty() => table::printable(state.message()),
        Mode::Table => {
            let tables = TABLES.iter().enumerate().map(|(index, table)| {
                let is_open = table.name == state.table().name;
                let name = if is_open { format!("[{}]", table.name) } else { table.name.into() };
                format!("{} {name}", index + 1)
            });
            let tables = tables.collect::<Vec<_>>().join(" ");
            let filter = match state.filter() {
                "" => String::new(),
                filter => format!(" ({})", table::printable(filter)),
            };
            let pause = if state.is_paused() { "p go on" } else { "p pause" };
            let order = state.order().0;
            format!(
                "{tables} | o order ({order}) | / filter{filter} | x close | {pause} | ? help | q quit"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;
    use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    fn state(clients: usize) -> State {
        let mut state = State::new(0);
        let group = |number: usize| json!({ "role": format!("role{number:03}"), "address": "10.0.0.1", "clients": 1, "queries_per_second": 1000 - number });
        let groups: Vec<Value> = (0..clients).map(group).collect();
        let status = json!({
            "ready": true, "version": "1.2.3", "uptime_seconds": 61, "clients": clients, "in_flight": 3,
            "ring": { "nodes": [{ "up": true }, { "up": false }] },
            "client_groups": {
                "groups": groups, "cores_missing": [],
                "total": { "paused": 0, "queries_per_second": 7, "p50_us": 640, "p99_us": 3584 },
            },
        });
        state.set_pages(vec![(SUMMARY, status)]);
        state
    }

    /// The lines of a screen of this size.
    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| draw(frame, state)).expect("it is drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn press(state: &mut State, code: KeyCode) {
        state.press(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn a_screen_has_the_summary_the_table_and_the_keys() {
        let lines = screen(&state(2), 100, 8);
        assert_eq!(lines[0], "ready; version 1.2.3, up 61 s; nodes up 1 of 2");
        assert_eq!(
            lines[1],
            "clients 2 (0 paused), in flight 3, queries/s 7, p50 0.6 ms, p99 3.6 ms"
        );
        assert!(lines[2].starts_with("role") && lines[2].contains("rate"), "{lines:?}");
        assert!(lines[3].starts_with("role000") && lines[4].starts_with("role001"), "{lines:?}");
        let keys = "1 [clients] 2 queries 3 nodes 4 hot 5 alerts | o order (rate)";
        assert!(lines[7].starts_with(keys), "{lines:?}");
    }

    #[test]
    fn alerts_are_counted_above_and_have_a_table() {
        let alert = |severity: &str, text: &str| json!({ "severity": severity, "since_unix_ms": 0, "name": "Shunt", "text": text });
        let mut state = State::new(4);
        let alerts = [alert("page", "not ready"), alert("note", "new values wait")];
        let status = json!({ "ready": false, "reason": "draining", "alerts": alerts });
        state.set_pages(vec![(SUMMARY, status)]);
        let lines = screen(&state, 120, 8);
        assert!(lines[0].contains("; 1 alert"), "{lines:?}");
        assert!(lines[2].starts_with("severity") && lines[3].contains("not ready"), "{lines:?}");
        assert!(lines[4].contains("new values wait"), "{lines:?}");
    }

    #[test]
    fn the_selected_row_is_on_the_screen() {
        let mut state = state(50);
        press(&mut state, KeyCode::End);
        let lines = screen(&state, 100, 10);
        assert!(lines[2].starts_with("role ") && lines[8].starts_with("role049"), "{lines:?}");
        press(&mut state, KeyCode::Home);
        assert!(screen(&state, 100, 10)[3].starts_with("role000"));
    }

    #[test]
    fn any_size_can_be_drawn_in_any_mode() {
        for key in [KeyCode::Null, KeyCode::Char('/'), KeyCode::Char('?'), KeyCode::Char('x')] {
            let mut state = state(3);
            press(&mut state, key);
            for (width, height) in [(1, 1), (3, 2), (20, 3), (300, 100)] {
                screen(&state, width, height);
            }
        }
        screen(&State::new(3), 80, 24);
    }

    #[test]
    fn the_question_names_what_the_clients_lack() {
        let mut state = state(1);
        press(&mut state, KeyCode::Char('x'));
        let question = &screen(&state, 100, 8)[7];
        assert!(question.starts_with("close all clients with "), "{question}");
        for condition in ["role role000", "no application", "address 10.0.0.1"] {
            assert!(question.contains(condition), "{question}");
        }
    }

    #[test]
    fn nothing_that_a_terminal_acts_upon_is_on_the_screen() {
        let mut state = State::new(0);
        let hostile = "a\u{1b}[2Jb\r\nc\u{9b}m\u{202e}d";
        let group =
            json!({ "role": hostile, "application": hostile, "address": "10.0.0.1", "clients": 1 });
        let groups = json!({ "groups": [group], "cores_missing": [] });
        let page = json!({ "ready": false, "reason": hostile, "client_groups": groups });
        state.set_pages(vec![(SUMMARY, page)]);
        state.set_message(hostile.to_owned());
        let mut shown = screen(&state, 200, 6).concat() + &text(&state, None).replace('\n', "");
        press(&mut state, KeyCode::Char('x'));
        let question = screen(&state, 300, 6);
        assert!(question[5].contains("close all clients with"), "{question:?}");
        shown += &question.concat();
        assert!(!shown.contains(|char: char| char.is_control() || char == '\u{202e}'), "{shown:?}");
        assert!(shown.contains("\\u{1b}[2J"), "{shown:?}");
    }

    #[test]
    fn one_frame_as_text_has_all_rows() {
        let text = text(&state(50), None);
        assert_eq!(text.lines().count(), 2 + 1 + 1 + 50, "{text}");
    }
}
