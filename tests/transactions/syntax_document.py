"""Statements from Cassandra's documents of the syntax of transactions: the pages `transactions`,
`transactions-examples`, `transactions-migration` and `transactions-limitations` of its manual, and
the older `acid-transaction.cql`. A part of a statement in the manual is completed here."""

import uuid
from dataclasses import dataclass, field
from decimal import Decimal

# By keyspace: one name is another table on another page.
TABLES = {
    "syntax": {
        "users": "id uuid PRIMARY KEY, email text, balance decimal, status text, credit_limit decimal, tier text, last_login timestamp",
        "accounts": "user_id uuid PRIMARY KEY, account_type text, balance decimal",
        "orders": "id uuid PRIMARY KEY, user_id uuid, total decimal, shipping_fee decimal",
        "config": "setting_type text PRIMARY KEY, max_attempts int",
        "events": "id int PRIMARY KEY, v int",
        "history": "user_id uuid, at int, body text, PRIMARY KEY (user_id, at)",
        "page_views": "page_id uuid PRIMARY KEY, views bigint",
        "user_sessions": "user_id uuid, session_id uuid, status text, PRIMARY KEY (user_id, session_id)",
    },
    "common": {
        "accounts": "id uuid PRIMARY KEY, balance decimal",
        "limits": "type text PRIMARY KEY, max_balance decimal",
        "transactions": "id uuid PRIMARY KEY, from_account uuid, to_account uuid, amount decimal, timestamp timestamp",
        "users": "id uuid PRIMARY KEY, email text, created_at timestamp, status text, suspended_at timestamp, balance decimal",
        "email_index": "email text PRIMARY KEY, user_id uuid",
        "user_profiles": "user_id uuid PRIMARY KEY, display_name text",
        "user_history": "user_id uuid PRIMARY KEY, action text",
        "orders": "order_id uuid PRIMARY KEY, status text, status_code int",
        "audit_log": "id uuid PRIMARY KEY, user_id uuid, action text, timestamp timestamp",
    },
    "crossing": {
        "users": "id uuid PRIMARY KEY, balance decimal, status text",
        "orders": "id uuid PRIMARY KEY, user_id uuid, total decimal, status text, created_at timestamp, amount decimal",
        "inventory": "product_id uuid PRIMARY KEY, quantity int",
        "accounts": "user_id int PRIMARY KEY, balance decimal",
        "transaction_log": "id uuid PRIMARY KEY, user_id int, amount decimal, timestamp timestamp",
    },
    "patterns": {
        "users": "user_id uuid PRIMARY KEY, username text, email text, display_name text, created_at timestamp",
        "username_index": "username text PRIMARY KEY, user_id uuid",
        "email_index": "email text PRIMARY KEY, user_id uuid",
        "orders": "order_id uuid PRIMARY KEY, customer_id uuid, status_code int, status_name text, total_amount decimal, updated_at timestamp",
        "order_status_history": "order_id uuid, transition_time timestamp, from_status int, to_status int, actor_id uuid, "
                                "PRIMARY KEY (order_id, transition_time)",
        "posts": "post_id uuid PRIMARY KEY, author_id uuid, title text, content text, status text, created_at timestamp",
        "author_stats": "author_id uuid PRIMARY KEY, draft_count bigint, published_count bigint, archived_count bigint, last_post_at timestamp",
        "projects": "project_id uuid PRIMARY KEY, name text, owner_id uuid, status text, task_count bigint, created_at timestamp",
        "tasks": "task_id uuid PRIMARY KEY, project_id uuid, title text, status text, assignee_id uuid, created_at timestamp",
        "tasks_by_project": "project_id uuid, task_id uuid, title text, status text, PRIMARY KEY (project_id, task_id)",
    },
    "cycling": {
        "cyclist_accounts": "account_holder text PRIMARY KEY, account_balance int, account_type text",
        "cyclist_accounts_compound": "account_holder text, account_balance int, account_type text, PRIMARY KEY (account_holder, account_type)",
    },
}


def key(number):
    return uuid.UUID(int=number)


@dataclass
class Example:
    """A transaction that runs: what is done before it, the values of its markers, what it answers, and what is there afterwards."""

    keyspace: str
    text: str
    values: tuple = ()
    before: tuple = ()
    answers: list = field(default_factory=list)
    after: dict = field(default_factory=dict)
    applied: bool = True


def whole(body):
    return f"BEGIN TRANSACTION {body} COMMIT TRANSACTION"


A, B, C, D, E, F, G = (key(number) for number in range(1, 8))
USER = f"INSERT INTO users (id, email, balance, status, credit_limit) VALUES ({A}, 'a@x', {{}}, 'active', 200)"
ACCOUNT = "INSERT INTO accounts (user_id, account_type, balance) VALUES ({}, 'premium', {})"
OF_USER = f"SELECT balance FROM users WHERE id = {A}"
BALANCES = f"SELECT balance FROM accounts WHERE user_id IN ({A}, {B})"
LESS = "UPDATE users SET balance = balance - 50 WHERE id = ?;"

OF_THE_SYNTAX = (
    Example("syntax", """BEGIN TRANSACTION
  LET user_data = (SELECT id, balance FROM users WHERE id = ?);
  LET account_data = (SELECT account_type FROM accounts WHERE user_id = ?);
  IF user_data.balance > 100 AND account_data.account_type = 'premium' THEN
    UPDATE users SET balance = balance - 50 WHERE id = ?;
  END IF
COMMIT TRANSACTION""", (A, A, A), (USER.format(101), ACCOUNT.format(A, 0)), after={OF_USER: [(51,)]}),
    Example("syntax", whole("LET user_data = (SELECT balance, status FROM users WHERE id = ?); SELECT user_data.status;"), (A,),
            (USER.format(1),), [("active",)], applied=False),
    Example("syntax", whole("LET order_info = (SELECT total, shipping_fee FROM orders WHERE id = ? LIMIT 1); SELECT order_info.total;"), (A,),
            (f"INSERT INTO orders (id, total) VALUES ({A}, 7)",), [(7,)], applied=False),
    Example("syntax", whole("LET static_config = (SELECT max_attempts FROM config WHERE setting_type = 'retry'); "
                            "SELECT static_config.max_attempts;"), (),
            ("INSERT INTO config (setting_type, max_attempts) VALUES ('retry', 3)",), [(3,)], applied=False),
    Example("syntax", """BEGIN TRANSACTION
  LET current_user = (SELECT balance, status FROM users WHERE id = ?);
  -- Values of the row
  SELECT current_user.balance, current_user.status;
COMMIT TRANSACTION""", (A,), (USER.format(4),), [(4, "active")], applied=False),
    Example("syntax", """BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  IF user_data.balance >= ? THEN  -- the total
    UPDATE users SET balance = balance - ? WHERE id = ?;  -- the total
  END IF
COMMIT TRANSACTION""", (A, Decimal("2.5"), Decimal("2.5"), A), (USER.format(10),), after={OF_USER: [(Decimal("7.5"),)]}),
    Example("syntax", f"""BEGIN TRANSACTION
  LET user_data = (SELECT balance, status FROM users WHERE id = ?);
  SELECT user_data.balance, user_data.status;
  {LESS}
COMMIT TRANSACTION""", (A, A), (USER.format(60),), [(60, "active")], {OF_USER: [(10,)]}),
    Example("syntax", f"""BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  SELECT balance, status, email FROM users WHERE id = ?;
  IF user_data.balance >= 50 THEN
    {LESS}
  END IF
COMMIT TRANSACTION""", (A, A, A), (USER.format(50),), [(50, "active", "a@x")], {OF_USER: [(0,)]}),
    *(Example("syntax", """BEGIN TRANSACTION
  LET sender = (SELECT balance FROM accounts WHERE user_id = ?);
  IF sender.balance >= 100 THEN
    UPDATE accounts SET balance = balance - 100 WHERE user_id = ?;
    UPDATE accounts SET balance = balance + 100 WHERE user_id = ?;
  END IF
COMMIT TRANSACTION""", (A, A, B), (ACCOUNT.format(A, had), ACCOUNT.format(B, 5)), after={BALANCES: have}, applied=applied)
      for had, have, applied in ((100, [(0,), (105,)], True), (99, [(99,), (5,)], False))),
    Example("syntax", """BEGIN TRANSACTION
  LET user1 = (SELECT balance FROM accounts WHERE user_id = ?);
  LET user2 = (SELECT balance FROM accounts WHERE user_id = ?);
  IF user1.balance >= 100 THEN
    UPDATE accounts SET balance = balance - 100 WHERE user_id = ?;
    UPDATE accounts SET balance = balance + 100 WHERE user_id = ?;
  END IF
COMMIT TRANSACTION""", (A, B, A, B), (ACCOUNT.format(A, 101), ACCOUNT.format(B, 1)), after={BALANCES: [(1,), (101,)]}),
    *(Example("syntax", whole(f"LET user_data = (SELECT * FROM users WHERE id = ?); IF {condition} THEN {LESS} END IF"), (A, A), (USER.format(100),),
              after={OF_USER: [(50 if applied else 100,)]}, applied=applied)
      for condition, applied in (
          ("user_data.balance >= 100 AND user_data.status = 'active'\n AND user_data.credit_limit > 150", True),
          ("user_data.balance >= 100 AND user_data.status = 'active'\n AND user_data.credit_limit > 250", False),
          ("user_data IS NOT NULL AND user_data.balance > 0", True),
          ("user_data.tier IS NULL", True), ("user_data IS NULL", False), ("user_data IS NOT NULL AND user_data.tier IS NULL", True),
          ("user_data.tier = null", False), ("user_data.balance = null", False), ("user_data.tier != null", False),
          ("user_data.balance != 100", False), ("user_data.balance < 101 AND user_data.balance <= 100", True))),
    Example("syntax", """BEGIN TRANSACTION
  -- The balance is read for this.
  UPDATE users SET balance = balance + ? WHERE id = ?;
COMMIT TRANSACTION""", (Decimal(3), A), (USER.format(4),), after={OF_USER: [(7,)]}),
    Example("syntax", whole(f"LET sender_data = (SELECT balance FROM accounts WHERE user_id = {A}); "
                            f"LET receiver_data = (SELECT balance FROM accounts WHERE user_id = {B}); "
                            "SELECT sender_data.balance, receiver_data.balance;"), (),
            (ACCOUNT.format(A, 1), ACCOUNT.format(B, 2)), [(1, 2)], applied=False),
    Example("syntax", whole("LET user_history = (SELECT * FROM history WHERE user_id = ? LIMIT 1); SELECT user_history.body;"), (A,),
            tuple(f"INSERT INTO history (user_id, at, body) VALUES ({A}, {at}, 'b{at}')" for at in (1, 2)), [("b1",)], applied=False),
    Example("syntax", whole("LET user_status = (SELECT status, last_login FROM users WHERE id = ?); SELECT user_status.last_login;"), (A,),
            (USER.format(1),), [(None,)], applied=False),
    Example("syntax", whole("UPDATE page_views SET views = views + 1 WHERE page_id = ?;"), (A,),
            (f"INSERT INTO page_views (page_id, views) VALUES ({A}, 41)",), after={f"SELECT views FROM page_views WHERE page_id = {A}": [(42,)]}),
    Example("syntax", whole("UPDATE user_sessions SET status = 'invalidated' WHERE user_id = ? AND session_id = ?; " * 3), (A, B, A, C, A, D), (),
            after={f"SELECT session_id, status FROM user_sessions WHERE user_id = {A}": [(one, "invalidated") for one in (B, C, D)]}),
)

OF_PATTERNS = (
    Example("common", """BEGIN TRANSACTION
  LET sender_account = (SELECT balance FROM accounts WHERE id = ?);
  IF sender_account.balance >= ? THEN
    UPDATE accounts SET balance = balance - ? WHERE id = ?;
    UPDATE accounts SET balance = balance + ? WHERE id = ?;
    INSERT INTO transactions (id, from_account, to_account, amount, timestamp)
    VALUES (?, ?, ?, ?, toTimestamp(now()));
  END IF
COMMIT TRANSACTION""", (A, Decimal(2), Decimal(2), A, Decimal(2), B, C, A, B, Decimal(2)),
            tuple(f"INSERT INTO accounts (id, balance) VALUES ({one}, 10)" for one in (A, B)),
            after={f"SELECT balance FROM accounts WHERE id IN ({A}, {B})": [(8,), (12,)],
                   f"SELECT amount, timestamp FROM transactions WHERE id = {C}": [(2, "now")]}),
    *(Example("common", """BEGIN TRANSACTION
  LET existing_user = (SELECT user_id FROM email_index WHERE email = ? LIMIT 1);
  IF existing_user IS NULL THEN
    INSERT INTO users (id, email, created_at, status)
    VALUES (?, ?, toTimestamp(now()), 'active');
    INSERT INTO email_index (email, user_id) VALUES (?, ?);
    INSERT INTO user_profiles (user_id, display_name)
    VALUES (?, ?);
  END IF
COMMIT TRANSACTION""", ("e", one, "e", "e", one, one, "Ann"), ("DELETE FROM email_index WHERE email = 'e'",) * applied, applied=applied,
              after={"SELECT user_id FROM email_index WHERE email = 'e'": [(A,)],
                     f"SELECT created_at, status FROM users WHERE id = {A}": [("now", "active")],
                     f"SELECT display_name FROM user_profiles WHERE user_id = {one}": [("Ann",)] * applied})
      for one, applied in ((A, True), (B, False))),
    Example("common", """BEGIN TRANSACTION
  UPDATE users SET status = 'suspended', suspended_at = toTimestamp(now())
  WHERE id = ?;
  UPDATE orders SET status = 'cancelled'
  WHERE order_id = ?;
  INSERT INTO audit_log (id, user_id, action, timestamp)
  VALUES (?, ?, 'user_suspended', toTimestamp(now()));
COMMIT TRANSACTION""", (C, A, B, C), after={f"SELECT status, suspended_at FROM users WHERE id = {C}": [("suspended", "now")],
                                            f"SELECT status FROM orders WHERE order_id = {A}": [("cancelled",)],
                                            f"SELECT action, timestamp FROM audit_log WHERE id = {B}": [("user_suspended", "now")]}),
    Example("crossing", """BEGIN TRANSACTION
  LET user_data = (SELECT balance, status FROM users WHERE id = ?);
  IF user_data.status = 'active' AND user_data.balance >= ? THEN
    UPDATE users SET balance = balance - ? WHERE id = ?;
    INSERT INTO orders (id, user_id, total, status, created_at)
    VALUES (?, ?, ?, 'confirmed', toTimestamp(now()));
    UPDATE inventory SET quantity = quantity - ? WHERE product_id = ?;
  END IF
COMMIT TRANSACTION""", (A, Decimal(5), Decimal(5), A, B, A, Decimal(5), 2, C),
            (f"INSERT INTO users (id, balance, status) VALUES ({A}, 5, 'active')", f"INSERT INTO inventory (product_id, quantity) VALUES ({C}, 9)"),
            after={OF_USER: [(0,)], f"SELECT total, status, created_at FROM orders WHERE id = {B}": [(5, "confirmed", "now")],
                   f"SELECT quantity FROM inventory WHERE product_id = {C}": [(7,)]}),
    Example("patterns", """BEGIN TRANSACTION
  LET existing_username = (SELECT user_id FROM username_index WHERE username = ? LIMIT 1);
  LET existing_email = (SELECT user_id FROM email_index WHERE email = ? LIMIT 1);
  IF existing_username IS NULL AND existing_email IS NULL THEN
    INSERT INTO users (user_id, username, email, display_name, created_at)
    VALUES (?, ?, ?, ?, toTimestamp(now()));
    INSERT INTO username_index (username, user_id) VALUES (?, ?);
    INSERT INTO email_index (email, user_id) VALUES (?, ?);
  END IF
COMMIT TRANSACTION""", ("ann", "a@x", A, "ann", "a@x", "Ann", "ann", A, "a@x", A),
            after={f"SELECT username, created_at FROM users WHERE user_id = {A}": [("ann", "now")],
                   "SELECT user_id FROM username_index WHERE username = 'ann'": [(A,)]}),
    Example("patterns", """BEGIN TRANSACTION
  LET current_user = (SELECT username FROM users WHERE user_id = ?);
  LET new_name_owner = (SELECT user_id FROM username_index WHERE username = ? LIMIT 1);
  -- Is the new name free?
  IF current_user IS NOT NULL
     AND current_user.username = ?  -- old
     AND new_name_owner IS NULL THEN
    UPDATE users SET username = ? WHERE user_id = ?;  -- new
    DELETE FROM username_index WHERE username = ?;  -- old
    INSERT INTO username_index (username, user_id) VALUES (?, ?);  -- new
  END IF
COMMIT TRANSACTION""", (B, "bea", "bob", "bea", B, "bob", "bea", B),
            (f"INSERT INTO users (user_id, username) VALUES ({B}, 'bob')", f"INSERT INTO username_index (username, user_id) VALUES ('bob', {B})"),
            after={f"SELECT username FROM users WHERE user_id = {B}": [("bea",)], "SELECT user_id FROM username_index WHERE username = 'bob'": [],
                   "SELECT user_id FROM username_index WHERE username = 'bea'": [(B,)]}),
    Example("patterns", """BEGIN TRANSACTION
  LET current_order = (SELECT status_code FROM orders WHERE order_id = ?);
  IF current_order IS NOT NULL AND current_order.status_code = 20 THEN
    UPDATE orders
    SET status_code = 30, status_name = 'SHIPPED', updated_at = toTimestamp(now())
    WHERE order_id = ?;
    INSERT INTO order_status_history (order_id, transition_time, from_status, to_status, actor_id)
    VALUES (?, toTimestamp(now()), 20, 30, ?);
  END IF
COMMIT TRANSACTION""", (A, A, A, B), (f"INSERT INTO orders (order_id, status_code) VALUES ({A}, 20)",),
            after={f"SELECT status_name, updated_at FROM orders WHERE order_id = {A}": [("SHIPPED", "now")],
                   f"SELECT transition_time, from_status, to_status, actor_id FROM order_status_history WHERE order_id = {A}": [("now", 20, 30, B)]}),
    *(Example("patterns", """BEGIN TRANSACTION
  LET current_order = (SELECT status_code, customer_id, total_amount FROM orders WHERE order_id = ?);
  IF current_order IS NOT NULL
     AND current_order.status_code <= 20 THEN
    UPDATE orders
    SET status_code = 99, status_name = 'CANCELLED', updated_at = toTimestamp(now())
    WHERE order_id = ?;
    INSERT INTO order_status_history (order_id, transition_time, from_status, to_status, actor_id)
    VALUES (?, toTimestamp(now()), current_order.status_code, 99, ?);
  END IF
COMMIT TRANSACTION""", (one, one, one, B), (f"INSERT INTO orders (order_id, status_code) VALUES ({one}, {code})",), applied=applied,
              after={f"SELECT status_code FROM orders WHERE order_id = {one}": [(99 if applied else code,)],
                     f"SELECT from_status, to_status FROM order_status_history WHERE order_id = {one}": [(code, 99)] * applied})
      for one, code, applied in ((C, 10, True), (D, 30, False))),
    Example("patterns", """BEGIN TRANSACTION
  LET existing_post = (SELECT status FROM posts WHERE post_id = ?);
  IF existing_post IS NULL THEN
    INSERT INTO posts (post_id, author_id, title, content, status, created_at)
    VALUES (?, ?, ?, ?, 'published', toTimestamp(now()));
    UPDATE author_stats
    SET published_count = published_count + 1,
        last_post_at = toTimestamp(now())
    WHERE author_id = ?;
  END IF
COMMIT TRANSACTION""", (A, A, B, "t", "c", B), (f"INSERT INTO author_stats (author_id, published_count) VALUES ({B}, 1)",),
            after={f"SELECT status, created_at FROM posts WHERE post_id = {A}": [("published", "now")],
                   f"SELECT published_count, last_post_at FROM author_stats WHERE author_id = {B}": [(2, "now")]}),
    Example("patterns", """BEGIN TRANSACTION
  LET current_post = (SELECT status, author_id FROM posts WHERE post_id = ?);
  IF current_post IS NOT NULL AND current_post.status = 'published' THEN
    UPDATE posts SET status = 'archived' WHERE post_id = ?;
    UPDATE author_stats
    SET published_count = published_count - 1,
        archived_count = archived_count + 1
    WHERE author_id = ?;
  END IF
COMMIT TRANSACTION""", (C, C, D), (f"INSERT INTO posts (post_id, status) VALUES ({C}, 'published')",
                                   f"INSERT INTO author_stats (author_id, published_count, archived_count) VALUES ({D}, 3, 0)"),
            after={f"SELECT published_count, archived_count FROM author_stats WHERE author_id = {D}": [(2, 1)]}),
    Example("patterns", """BEGIN TRANSACTION
  LET current_post = (SELECT status FROM posts WHERE post_id = ?);
  IF current_post IS NOT NULL AND current_post.status = ? THEN
    DELETE FROM posts WHERE post_id = ?;
    UPDATE author_stats
    SET published_count = published_count - ?
    WHERE author_id = ?;
  END IF
COMMIT TRANSACTION""", (E, "published", E, 1, F), (f"INSERT INTO posts (post_id, status) VALUES ({E}, 'published')",
                                                   f"INSERT INTO author_stats (author_id, published_count) VALUES ({F}, 3)"),
            after={f"SELECT status FROM posts WHERE post_id = {E}": [], f"SELECT published_count FROM author_stats WHERE author_id = {F}": [(2,)]}),
    Example("patterns", """BEGIN TRANSACTION
  LET project = (SELECT status FROM projects WHERE project_id = ?);
  IF project IS NOT NULL AND project.status = 'active' THEN
    INSERT INTO tasks (task_id, project_id, title, status, assignee_id, created_at)
    VALUES (?, ?, ?, 'open', ?, toTimestamp(now()));
    INSERT INTO tasks_by_project (project_id, task_id, title, status)
    VALUES (?, ?, ?, 'open');
    UPDATE projects SET task_count = task_count + 1 WHERE project_id = ?;
  END IF
COMMIT TRANSACTION""", (A, B, A, "t", C, A, B, "t", A), (f"INSERT INTO projects (project_id, status, task_count) VALUES ({A}, 'active', 0)",),
            after={f"SELECT task_count FROM projects WHERE project_id = {A}": [(1,)],
                   f"SELECT created_at FROM tasks WHERE task_id = {B}": [("now",)],
                   f"SELECT task_id FROM tasks_by_project WHERE project_id = {A}": [(B,)]}),
    *(Example("patterns", """BEGIN TRANSACTION
  LET project = (SELECT status FROM projects WHERE project_id = ?);
  IF project IS NOT NULL AND project.status = 'active' THEN
    UPDATE projects
    SET status = 'deleted'
    WHERE project_id = ?;
  END IF
COMMIT TRANSACTION""", (D, D), (f"INSERT INTO projects (project_id, status) VALUES ({D}, 'active')",) * applied, applied=applied,
              after={f"SELECT status FROM projects WHERE project_id = {D}": [("deleted",)]}) for applied in (True, False)),
    Example("patterns", """BEGIN TRANSACTION
  LET task = (SELECT project_id, title, status FROM tasks WHERE task_id = ?);
  LET old_project = (SELECT status FROM projects WHERE project_id = ?);
  LET new_project = (SELECT status FROM projects WHERE project_id = ?);
  IF task IS NOT NULL
     AND task.project_id = ?
     AND old_project.status = 'active'
     AND new_project.status = 'active' THEN
    UPDATE tasks SET project_id = ? WHERE task_id = ?;
    DELETE FROM tasks_by_project WHERE project_id = ? AND task_id = ?;
    INSERT INTO tasks_by_project (project_id, task_id, title, status)
    VALUES (?, ?, ?, ?);
    UPDATE projects SET task_count = task_count - 1 WHERE project_id = ?;
    UPDATE projects SET task_count = task_count + 1 WHERE project_id = ?;
  END IF
COMMIT TRANSACTION""", (E, F, G, F, G, E, F, E, G, E, "t", "open", F, G),
            (*(f"INSERT INTO projects (project_id, status, task_count) VALUES ({one}, 'active', 1)" for one in (F, G)),
             f"INSERT INTO tasks (task_id, project_id) VALUES ({E}, {F})", f"INSERT INTO tasks_by_project (project_id, task_id) VALUES ({F}, {E})"),
            after={f"SELECT task_count FROM projects WHERE project_id IN ({F}, {G})": [(0,), (2,)],
                   f"SELECT task_id FROM tasks_by_project WHERE project_id IN ({F}, {G})": [(E,)]}),
)

OF_MIGRATION = (
    *(Example("crossing", """BEGIN TRANSACTION
  LET account_data = (SELECT balance FROM accounts WHERE user_id = 12345);
  IF account_data IS NOT NULL THEN
    UPDATE accounts SET balance = balance - 100 WHERE user_id = 12345;
  END IF
COMMIT TRANSACTION""", (), before, after={"SELECT balance FROM accounts WHERE user_id = 12345": have}, applied=applied)
      for before, have, applied in ((("DELETE FROM accounts WHERE user_id = 12345",), [], False),
                                    (("INSERT INTO accounts (user_id, balance) VALUES (12345, 150)",), [(50,)], True))),
    *(Example("common", """BEGIN TRANSACTION
  LET existing_user = (SELECT id FROM users WHERE id = ? LIMIT 1);
  IF existing_user IS NULL THEN
    INSERT INTO users (id, email, status) VALUES (?, ?, 'active');
  END IF
COMMIT TRANSACTION""", (D, D, email), after={f"SELECT email FROM users WHERE id = {D}": [("first",)]}, applied=email == "first")
      for email in ("first", "second")),
    *(Example("common", """BEGIN TRANSACTION
  LET user_data = (SELECT email FROM users WHERE id = ?);
  -- IS NULL, and no comparison
  IF user_data IS NOT NULL AND user_data.email IS NULL THEN
    UPDATE users SET email = 'default@example.com' WHERE id = ?;
  END IF
COMMIT TRANSACTION""", (E, E), before, after={f"SELECT email FROM users WHERE id = {E}": have}, applied=applied)
      for before, have, applied in (((), [], False), ((f"INSERT INTO users (id) VALUES ({E})",), [("default@example.com",)], True),
                                    ((), [("default@example.com",)], False))),
    Example("common", """BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  IF user_data IS NOT NULL AND user_data.balance IS NULL THEN
    UPDATE users SET balance = 100 WHERE id = ?;
  END IF
COMMIT TRANSACTION""", (F, F), (f"INSERT INTO users (id) VALUES ({F})",), after={f"SELECT balance FROM users WHERE id = {F}": [(100,)]}),
    Example("crossing", """BEGIN TRANSACTION
  LET account = (SELECT balance FROM accounts WHERE user_id = 12345);
  IF account.balance >= 50 THEN
    UPDATE accounts SET balance = balance - 50 WHERE user_id = 12345;
    INSERT INTO transaction_log (id, user_id, amount, timestamp)
    VALUES (?, 12345, -50, toTimestamp(now()));
  END IF
COMMIT TRANSACTION""", (A,), ("INSERT INTO accounts (user_id, balance) VALUES (12345, 50)",),
            after={f"SELECT amount, timestamp FROM transaction_log WHERE id = {A}": [(-50, "now")]}),
    Example("crossing", """BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  IF user_data.balance >= 100 THEN
    UPDATE users SET balance = balance - 100 WHERE id = ?;
    INSERT INTO orders (id, user_id, amount) VALUES (?, ?, 100);
  END IF
COMMIT TRANSACTION""", (A, A, C, A), (f"INSERT INTO users (id, balance) VALUES ({A}, 100)",),
            after={OF_USER: [(0,)], f"SELECT user_id, amount FROM orders WHERE id = {C}": [(A, 100)]}),
    Example("common", """BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  IF user_data.balance >= 100 THEN
    UPDATE users SET balance = balance - 100 WHERE id = ?;
    INSERT INTO user_history (user_id, action) VALUES (?, 'debit');
  END IF
COMMIT TRANSACTION""", (G, G, G), (f"INSERT INTO users (id, balance) VALUES ({G}, 120)",),
            after={f"SELECT balance FROM users WHERE id = {G}": [(20,)], f"SELECT action FROM user_history WHERE user_id = {G}": [("debit",)]}),
)

OF_LIMITATIONS = (
    Example("syntax", f"""BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  IF user_data.balance >= 50 THEN
    {LESS}
  END IF
COMMIT TRANSACTION""", (A, A), (USER.format(49),), after={OF_USER: [(49,)]}, applied=False),
    Example("syntax", """BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  IF user_data.balance >= 50 THEN
    UPDATE users SET balance = ? WHERE id = ?;  -- computed by the application
  END IF
COMMIT TRANSACTION""", (A, Decimal(1), A), (USER.format(51),), after={OF_USER: [(1,)]}),
    Example("common", """BEGIN TRANSACTION
  LET account = (SELECT balance FROM accounts WHERE id = ?);
  IF account.balance < ? THEN
    UPDATE accounts SET balance = balance + 10 WHERE id = ?;
  END IF
COMMIT TRANSACTION""", (D, Decimal(5), D), (f"INSERT INTO accounts (id, balance) VALUES ({D}, 4)",),
            after={f"SELECT balance FROM accounts WHERE id = {D}": [(14,)]}),
    Example("common", """BEGIN TRANSACTION
  LET order = (SELECT status_code FROM orders WHERE order_id = ?);
  -- 20 and less are two states
  IF order.status_code <= 20 THEN
    UPDATE orders SET status_code = 99 WHERE order_id = ?;
  END IF
COMMIT TRANSACTION""".replace("order =", "an_order =").replace("order.", "an_order."), (B, B),
            (f"INSERT INTO orders (order_id, status_code) VALUES ({B}, 20)",),
            after={f"SELECT status_code FROM orders WHERE order_id = {B}": [(99,)]}),
    Example("syntax", f"""BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  SELECT user_data.balance;
  {LESS}
COMMIT TRANSACTION""", (A, A), (USER.format(60),), [(60,)], {OF_USER: [(10,)]}),
    Example("syntax", whole(LESS), (A,), (USER.format(10),), after={OF_USER: [(-40,)]}),
    Example("syntax", """BEGIN TRANSACTION
  LET user_data = (SELECT balance FROM users WHERE id = ?);
  IF user_data.balance >= ? THEN
    UPDATE users SET balance = balance - ? WHERE id = ?;
  END IF
COMMIT TRANSACTION""", (A, Decimal(9), Decimal(9), A), (USER.format(10),), after={OF_USER: [(1,)]}),
    *(Example("cycling", f"""BEGIN TRANSACTION
  LET fromBalance = (SELECT account_balance FROM cycling.{table} WHERE account_holder = 'Alice MAYS'{rest});
  IF fromBalance.account_balance >= 20 THEN
    UPDATE cycling.{table} SET account_balance -= 20 WHERE account_holder = 'Alice MAYS'{rest};
    UPDATE cycling.{table} SET account_balance += 20 WHERE account_holder = 'Bob PICKLE'{rest};
  END IF
COMMIT TRANSACTION;""", (), tuple(f"INSERT INTO cycling.{table} (account_holder, account_balance, account_type) VALUES ('{name}', {balance}, "
                                  "'checking')" for name, balance in (("Alice MAYS", 100), ("Bob PICKLE", 0))),
              after={f"SELECT account_balance FROM cycling.{table}": [(20,), (80,)]})
      for table, rest in (("cyclist_accounts", ""), ("cyclist_accounts_compound", " AND account_type = 'checking'"))),
)
