//! The state of `shunt top`, and what each key does to it.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::{Map, Value};

use super::super::table;
use super::super::views::{self, Order, View};

/// The page of the summary above each table.
pub(super) const SUMMARY: &str = "/status";
/// Number of tables.
const TABLES_COUNT: usize = 5;
/// Prefix of the conditions that select clients without a role or an application.
pub(super) const WITHOUT: &str = "without_";
/// Longest filter, in characters.
const FILTER_MAX: usize = 128;

static NULL: Value = Value::Null;

/// A table: its name in options and on the screen, and its content.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) view: &'static View,
}

/// The tables. Key 1 shows the first.
pub(super) static TABLES: [Table; TABLES_COUNT] = [
    Table { name: "clients", view: &views::CLIENTS },
    Table { name: "queries", view: &views::QUERIES },
    Table { name: "nodes", view: &views::NODES },
    Table { name: "hot", view: &views::HOT },
    Table { name: "alerts", view: &views::ALERTS },
];

/// The mode of the keyboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keys choose tables, orders and rows.
    Table,
    /// Keys are letters of the filter.
    Filter,
    /// A key confirms or cancels that the clients under these conditions are closed.
    Confirm(Map<String, Value>),
    /// Any key goes back to the table.
    Help,
}

/// A task for the rest of the program after a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// None, except that the screen is drawn again.
    Draw,
    /// Ask for the pages now.
    Ask,
    /// Close the clients that meet these conditions.
    Kick(Value),
    /// End.
    Quit,
    /// End as after SIGINT.
    Interrupt,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct State {
    /// Index of the table.
    table: usize,
    /// Index of each table's order.
    orders: [usize; TABLES_COUNT],
    filter: String,
    mode: Mode,
    selected: usize,
    is_paused: bool,
    /// Outcome of the last request that has something to say.
    message: String,
    pages: Vec<(&'static str, Value)>,
}

impl State {
    pub(super) fn new(table: usize) -> Self {
        Self {
            table,
            orders: [0; TABLES_COUNT],
            filter: String::new(),
            mode: Mode::Table,
            selected: 0,
            is_paused: false,
            message: String::new(),
            pages: Vec::new(),
        }
    }

    pub(super) fn table(&self) -> &'static Table {
        &TABLES[self.table]
    }

    pub(super) fn order(&self) -> &'static Order {
        &self.table().view.orders[self.orders[self.table]]
    }

    pub(super) fn mode(&self) -> &Mode {
        &self.mode
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Index of the selected row, which may be gone by now.
    pub(super) fn selected(&self) -> usize {
        self.selected
    }

    /// Takes new pages in place of those of the same path.
    pub(super) fn set_pages(&mut self, pages: Vec<(&'static str, Value)>) {
        self.pages.retain(|(path, _)| pages.iter().all(|(new, _)| new != path));
        self.pages.extend(pages);
        self.clamp();
    }

    pub(super) fn set_message(&mut self, message: String) {
        self.message = message;
    }

    /// A page by its path; null before the first answer.
    pub(super) fn page(&self, path: &str) -> &Value {
        let page = self.pages.iter().find(|(known, _)| *known == path);
        page.map_or(&NULL, |(_, page)| page)
    }

    /// The rows of the table that pass the filter, in its order.
    pub(super) fn rows(&self) -> Vec<&Value> {
        let view = self.table().view;
        let mut rows = views::rows(self.page(view.page), view.rows);
        let needle = self.filter.to_lowercase();
        rows.retain(|row| needle.is_empty() || contains(view, row, &needle));
        views::sort(&mut rows, self.order());
        rows
    }

    /// Decides about a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Action::Interrupt } else { Action::Draw };
        }
        match std::mem::replace(&mut self.mode, Mode::Table) {
            Mode::Table => self.press_in_table(key.code),
            Mode::Filter => {
                self.press_in_filter(key.code);
                Action::Draw
            }
            Mode::Confirm(conditions) if key.code == KeyCode::Char('y') => {
                self.message = "closing".to_owned();
                Action::Kick(Value::Object(conditions))
            }
            Mode::Confirm(_) => {
                self.message = "nothing was closed".to_owned();
                Action::Draw
            }
            Mode::Help => Action::Draw,
        }
    }

    fn press_in_table(&mut self, key: KeyCode) -> Action {
        self.message.clear();
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Char(digit @ '1'..='5') => return self.open(digit as usize - '1' as usize),
            KeyCode::Tab => return self.open((self.table + 1) % TABLES.len()),
            KeyCode::BackTab => return self.open((self.table + TABLES.len() - 1) % TABLES.len()),
            KeyCode::Char('o') => self.turn_order(1),
            KeyCode::Char('O') => self.turn_order(self.table().view.orders.len() - 1),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('?') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('p') => {
                self.is_paused = !self.is_paused;
                return if self.is_paused { Action::Draw } else { Action::Ask };
            }
            KeyCode::Char('x') => self.ask_about_kick(),
            KeyCode::Down | KeyCode::Char('j') => self.selected += 1,
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected += 10,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = usize::MAX,
            _ => {}
        }
        self.clamp();
        Action::Draw
    }

    fn press_in_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                return;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(char) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(char);
            }
            _ => {}
        }
        self.selected = 0;
        self.mode = Mode::Filter;
    }

    fn open(&mut self, table: usize) -> Action {
        (self.table, self.selected) = (table, 0);
        self.filter.clear();
        Action::Ask
    }

    fn turn_order(&mut self, by: usize) {
        let order = &mut self.orders[self.table];
        *order = (*order + by) % TABLES[self.table].view.orders.len();
        self.selected = 0;
    }

    /// Asks whether the clients of the selected row are to be closed.
    fn ask_about_kick(&mut self) {
        let rows = self.rows();
        let row = rows.get(self.selected).filter(|_| self.table().name == TABLES[0].name);
        let Some(row) = row else {
            self.message = "select clients in table 1".to_owned();
            return;
        };
        self.mode = Mode::Confirm(conditions(row));
    }

    fn clamp(&mut self) {
        self.selected = self.selected.min(self.rows().len().saturating_sub(1));
    }
}

/// The conditions that the clients of a row meet. Without a condition on a name that is missing,
/// they would also select clients that have one.
fn conditions(row: &Value) -> Map<String, Value> {
    let names = ["role", "application"].map(|key| match row.get(key) {
        Some(name @ Value::String(_)) => (key.to_owned(), name.clone()),
        _ => (format!("{WITHOUT}{key}"), Value::Bool(true)),
    });
    let address = row.get("address").map(|address| ("address".to_owned(), address.clone()));
    names.into_iter().chain(address).collect()
}

/// True if a cell of the row contains the text, which is in lower case.
fn contains(view: &View, row: &Value, needle: &str) -> bool {
    let mut cells = view.columns.iter().filter_map(|column| {
        let value = row.pointer(column.1)?;
        table::cell(value, column.2)
    });
    cells.any(|cell| cell.to_lowercase().contains(needle))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn clients() -> State {
        let mut state = State::new(0);
        let groups = json!([
            { "role": "cron", "application": null, "address": "10.0.0.1", "queries_per_second": 1, "clients": 9 },
            { "role": "shop", "application": "checkout", "address": "10.0.0.2", "queries_per_second": 7, "clients": 2 },
        ]);
        let page = json!({ "client_groups": { "groups": groups } });
        state.set_pages(vec![(SUMMARY, page)]);
        state
    }

    fn press(state: &mut State, keys: &str) -> Action {
        let press = |char| {
            let code = match char {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                char => KeyCode::Char(char),
            };
            state.press(KeyEvent::new(code, KeyModifiers::NONE))
        };
        keys.chars().map(press).last().unwrap_or(Action::Draw)
    }

    fn roles(state: &State) -> Vec<&str> {
        state.rows().into_iter().filter_map(|row| row["role"].as_str()).collect()
    }

    #[test]
    fn keys_choose_the_order_and_the_filter() {
        let mut state = clients();
        assert_eq!((roles(&state), state.order().0), (vec!["shop", "cron"], "rate"));
        press(&mut state, "oo");
        assert_eq!((roles(&state), state.order().0), (vec!["cron", "shop"], "clients"));
        press(&mut state, "OO/CHECKx\u{8}");
        assert_eq!((roles(&state), state.filter()), (vec!["shop"], "CHECK"));
        assert_eq!(press(&mut state, "\n"), Action::Draw);
        assert_eq!(state.mode(), &Mode::Table, "the filter stays");
        assert_eq!(roles(&state), ["shop"]);
        press(&mut state, "/q\u{1b}");
        assert_eq!(roles(&state).len(), 2, "Esc takes the filter away, and a letter ends nothing");
        assert_eq!(press(&mut state, "3"), Action::Ask);
        assert_eq!(state.table().name, "nodes");
        assert_eq!(press(&mut state, "q"), Action::Quit);
    }

    #[test]
    fn clients_are_closed_after_a_second_key_alone() {
        let mut state = clients();
        press(&mut state, "x");
        let Mode::Confirm(conditions) = state.mode().clone() else { panic!("{state:?}") };
        let shop = json!({ "role": "shop", "application": "checkout", "address": "10.0.0.2" });
        assert_eq!(Value::Object(conditions), shop);
        assert_eq!(press(&mut state, "n"), Action::Draw);
        assert_eq!(state.message(), "nothing was closed");
        assert_eq!(
            press(&mut state, "jxy"),
            Action::Kick(
                json!({ "role": "cron", "without_application": true, "address": "10.0.0.1" })
            )
        );
        assert_eq!(press(&mut state, "2x"), Action::Draw);
        assert_eq!(state.mode(), &Mode::Table, "only the table of clients has clients");
    }

    /// Clients of other roles may have the same address.
    #[test]
    fn clients_without_a_name_are_closed_alone() {
        let mut state = State::new(0);
        let missing =
            json!({ "without_role": true, "without_application": true, "address": "::1" });
        for mut group in [json!({ "role": null, "application": null }), json!({})] {
            group["address"] = "::1".into();
            let page = json!({ "client_groups": { "groups": [group] } });
            state.set_pages(vec![(SUMMARY, page)]);
            assert_eq!(press(&mut state, "xy"), Action::Kick(missing.clone()));
        }
    }

    #[test]
    fn the_selection_stays_within_the_rows() {
        let mut state = clients();
        press(&mut state, "jjjjj");
        assert_eq!(state.selected(), 1);
        state.set_pages(vec![(SUMMARY, json!({}))]);
        assert_eq!(state.selected(), 0);
        assert_eq!(press(&mut state, "x"), Action::Draw);
        assert_eq!(state.mode(), &Mode::Table);
    }

    #[test]
    fn control_c_ends_in_any_mode() {
        let mut state = clients();
        for keys in ["", "/", "x", "?"] {
            press(&mut state, keys);
            let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
            assert_eq!(state.press(key), Action::Interrupt);
        }
    }
}
