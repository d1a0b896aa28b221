"""The books of the bank find what a fault must not do: each of these was made up."""

import uuid
from dataclasses import replace

import pytest

from .bank import ACCOUNTS, BALANCE, Transfer, check


class Books:
    """Two transfers, 7 from account 1 to 2 and then 5 from 2 to 3, of which clients were told, and one that was refused."""

    def __init__(self):
        first = Transfer(1, 2, 7, 1.0, 2.0, True, True, (BALANCE, 0, BALANCE, 0))
        second = Transfer(2, 3, 5, 3.0, 4.0, True, True, (BALANCE + 7, 1, BALANCE, 0))
        refused = Transfer(4, 5, 9, 3.0)
        self.transfers = [first, second, refused]
        self.accounts = {number: {"balance": BALANCE, "moves": 0} for number in range(ACCOUNTS)}
        self.rows = {}
        for one in (first, second):
            self.make(one)
        self.audits = [(2.5, 2.6, {1: (BALANCE - 7, 1), 2: (BALANCE + 7, 1), 3: (BALANCE, 0)})]

    def make(self, one: Transfer) -> None:
        payer, payee = self.accounts[one.payer], self.accounts[one.payee]
        self.rows[one.id] = {"id": one.id, "payer": one.payer, "payee": one.payee, "amount": one.amount,
                             "payer_balance": payer["balance"], "payer_moves": payer["moves"],
                             "payee_balance": payee["balance"], "payee_moves": payee["moves"]}
        for account, change in ((payer, -one.amount), (payee, one.amount)):
            account["balance"] += change
            account["moves"] += 1

    def check(self) -> None:
        check(self.accounts, self.rows, self.transfers, self.audits)


def test_books_that_are_right_pass():
    Books().check()


def test_a_transfer_in_doubt_may_be_there_or_not():
    for is_there in (True, False):
        books = Books()
        books.transfers.append(Transfer(7, 8, 3, 5.0, may_be_there=True))
        if is_there:
            books.make(books.transfers[-1])
        books.check()


def half_applied(books):
    books.accounts[3].update(balance=BALANCE, moves=0)


def applied_twice(books):
    again = replace(books.transfers[0], id=uuid.uuid4())
    books.make(again)
    del books.rows[again.id]


def lost(books):
    del books.rows[books.transfers[1].id]
    books.accounts[2].update(balance=BALANCE + 7, moves=1)
    books.accounts[3].update(balance=BALANCE, moves=0)


def made_although_refused(books):
    books.make(books.transfers[2])


def made_although_told_not_to_be(books):
    books.transfers[1].applied = False


def told_not_to_be_although_there_was_enough(books):
    books.transfers.append(Transfer(7, 8, 3, 5.0, 6.0, True, False, (BALANCE, 0, BALANCE, 0)))


def nobody_asked_for_it(books):
    books.make(Transfer(7, 8, 3, 5.0))


def a_row_lost_under_another(books):
    """Both have read the same: the account counts one, and its balance is the second's."""
    one = Transfer(1, 4, 2, 5.0, 6.0, True, True, (BALANCE, 0, BALANCE, 0))
    books.transfers.append(one)
    books.rows[one.id] = {"id": one.id, "payer": 1, "payee": 4, "amount": 2, "payer_balance": BALANCE, "payer_moves": 0,
                          "payee_balance": BALANCE, "payee_moves": 0}
    books.accounts[4].update(balance=BALANCE + 2, moves=1)
    books.accounts[1].update(balance=BALANCE - 9, moves=2)


def an_old_state_was_read(books):
    books.audits.append((5.0, 6.0, {2: (BALANCE + 7, 1)}))


def a_later_state_was_read(books):
    books.audits.append((0.1, 0.2, {2: (BALANCE + 2, 2)}))


def a_part_was_read(books):
    books.audits.append((3.0, 4.0, {2: (BALANCE + 1, 1)}))


@pytest.mark.parametrize("damage", [half_applied, applied_twice, lost, made_although_refused, made_although_told_not_to_be,
                                    told_not_to_be_although_there_was_enough, nobody_asked_for_it, a_row_lost_under_another, an_old_state_was_read,
                                    a_later_state_was_read, a_part_was_read])
def test_forbidden_states_are_found(damage):
    books = Books()
    damage(books)
    with pytest.raises(AssertionError):
        books.check()
