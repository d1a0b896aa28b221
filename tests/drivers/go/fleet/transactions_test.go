package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// On the tables of tests/drivers/fleet.py.
const transfer = `BEGIN TRANSACTION
  LET payer = (SELECT balance, owner FROM driver_transactions.accounts WHERE id = ?);
  SELECT payer.balance, payer.owner;
  IF payer.balance >= ? THEN
    UPDATE driver_transactions.accounts SET balance -= ? WHERE id = ?;
    UPDATE driver_transactions.accounts SET balance = balance + ? WHERE id = ?;
    INSERT INTO driver_transactions.moves (account, number, amount) VALUES (?, ?, ?);
  END IF
COMMIT TRANSACTION
APPLY BATCH`

// transaction puts statements into one. gocql prepares what begins with BEGIN only if its last word is BATCH, and sends no values otherwise.
func transaction(body string) string {
	return "BEGIN TRANSACTION " + body + " COMMIT TRANSACTION APPLY BATCH"
}

const (
	openAccount = "INSERT INTO driver_transactions.accounts (id, balance, owner) VALUES (?, 10, 'ann');"
	ofAccount   = "SELECT balance FROM driver_transactions.accounts WHERE id = ?"
	ofMoves     = "SELECT number, amount FROM driver_transactions.moves WHERE account = ?"
)

var typeNames = map[gocql.Type]string{gocql.TypeVarchar: "varchar", gocql.TypeInt: "int", gocql.TypeBigInt: "bigint"}

// transfers are the values of two transfers from one account to another: the second is of more than is left.
func transfers(payer, payee string) [2][]any {
	of := func(number int64, amount int) []any {
		return []any{payer, amount, amount, payer, amount, payee, payer, number, amount}
	}
	return [2][]any{of(1, 3), of(2, 8)}
}

// inText puts values into a text, which has no markers then. One that is a transaction gocql sends as it is.
func inText(text string, values ...any) string {
	text = strings.TrimSpace(strings.TrimSuffix(text, "APPLY BATCH"))
	for _, value := range values {
		if name, isText := value.(string); isText {
			value = "'" + name + "'"
		}
		text = strings.Replace(text, "?", fmt.Sprint(value), 1)
	}
	return text
}

// answered is what a query has answered: its columns with their types, its rows, and what its payload says.
type answered struct {
	columns []string
	rows    []map[string]any
	applied []byte
}

func (c *client) answer(query *gocql.Query) answered {
	c.Helper()
	iter := query.Iter()
	found := answered{applied: iter.GetCustomPayload()["shunt-applied"]}
	for _, column := range iter.Columns() {
		found.columns = append(found.columns, fmt.Sprint(column.Name, " ", typeNames[column.TypeInfo.Type()]))
	}
	rows, err := iter.SliceMap()
	if err != nil {
		c.Fatalf("%s: %v", query.Statement(), err)
	}
	found.rows = rows
	return found
}

// wrote is answer, and looks at whether it says that something was written: from version 4 of the protocol on it does.
func (c *client) wrote(query *gocql.Query, applied bool) answered {
	c.Helper()
	found := c.answer(query)
	want := ""
	if !strings.HasSuffix(c.Name(), "/v3") {
		want = map[bool]string{false: "\x00", true: "\x01"}[applied]
	}
	equal(c, string(found.applied), want, "shunt-applied")
	return found
}

func (c *client) balance(id string) int {
	c.Helper()
	rows := c.answer(c.Query(ofAccount, id)).rows
	equal(c, len(rows), 1, "rows of "+id)
	return rows[0]["balance"].(int)
}

func TestATransactionIsCarriedOutAndOneWhoseConditionDoesNotHoldIsNot(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		for _, how := range []struct {
			name string
			of   func(text string, values ...any) *gocql.Query
		}{
			{"prepared", func(text string, values ...any) *gocql.Query { return c.Query(text, values...) }},
			{"text", func(text string, values ...any) *gocql.Query { return c.Query(inText(text, values...)) }},
		} {
			payer, payee := c.name+how.name, c.name+how.name+"-payee"
			for _, id := range []string{payer, payee} {
				equal(c, len(c.wrote(how.of(transaction(openAccount), id), true).rows), 0, "rows of what only writes")
			}
			for number, values := range transfers(payer, payee) {
				found := c.wrote(how.of(transfer, values...), number == 0)
				equal(c, strings.Join(found.columns, ", "), "payer.balance int, payer.owner varchar", how.name)
				equal(c, len(found.rows), 1, "rows")
				equal(c, found.rows[0]["payer.balance"], any([2]int{10, 7}[number]), how.name)
				equal(c, found.rows[0]["payer.owner"], any("ann"), how.name)
			}
			equal(c, c.balance(payer), 7, "balance of the payer")
			equal(c, c.balance(payee), 13, "balance of the payee")
			for _, text := range []string{ofMoves, transaction(ofMoves + ";")} {
				found := c.answer(how.of(text, payer))
				equal(c, strings.Join(found.columns, ", "), "number bigint, amount int", how.name)
				equal(c, fmt.Sprint(found.rows), "[map[amount:3 number:1]]", "moves")
			}
		}
	})
}

// What PREPARE says of the markers gocql shows to whoever binds them.
func TestMarkersOfATransactionHaveTheirNamesAndTypes(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		payer, payee := c.name, c.name+"-payee"
		c.wrote(c.Query(transaction(openAccount), payer), true)
		var markers, results []string
		bound := c.Bind(transfer, func(prepared *gocql.QueryInfo) ([]any, error) {
			markers, results = nil, nil
			for _, marker := range prepared.Args {
				markers = append(markers, fmt.Sprint(marker.Keyspace, " ", marker.Name, " ", typeNames[marker.TypeInfo.Type()]))
			}
			for _, column := range prepared.Rval {
				results = append(results, fmt.Sprint(column.Name, " ", typeNames[column.TypeInfo.Type()]))
			}
			return transfers(payer, payee)[0], nil
		})
		c.wrote(bound, true)
		want := []string{"id varchar", "balance int", "balance int", "id varchar", "balance int", "id varchar",
			"account varchar", "number bigint", "amount int"}
		for i := range want {
			want[i] = "driver_transactions " + want[i]
		}
		equal(c, strings.Join(markers, ", "), strings.Join(want, ", "), "markers")
		equal(c, strings.Join(results, ", "), "payer.balance int, payer.owner varchar", "columns")
		// The payee was not there: nothing comes of adding to nothing.
		equal(c, c.balance(payer), 7, "balance of the payer")
		equal(c, len(c.answer(c.Query(ofAccount, payee)).rows), 0, "rows of the payee")
	})
}

func TestAnUnsupportedTransactionIsADriverError(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		for body, code := range map[string]int{
			"INSERT INTO driver_transactions.accounts (id) VALUES (?) IF NOT EXISTS;":                                 gocql.ErrCodeInvalid,
			"INSERT INTO driver_transactions.accounts (id, nothing) VALUES (?, 2);":                                   gocql.ErrCodeInvalid,
			"INSERT INTO driver_transactions.plain (id, v) VALUES (?, 2);":                                            gocql.ErrCodeInvalid,
			"LET a = (SELECT balance FROM driver_transactions.accounts WHERE id = ?); SELECT a.balance - 1;":          gocql.ErrCodeSyntax,
			"LET a = (SELECT balance FROM driver_transactions.accounts WHERE id = ?); LET b = a.balance; SELECT a.b;": gocql.ErrCodeSyntax,
			"UPDATE driver_transactions.accounts SET balance = 1 WHERE id = ?":                                        gocql.ErrCodeSyntax,
		} {
			for _, query := range []*gocql.Query{c.Query(transaction(body), "x"), c.Query(inText(transaction(body), "x"))} {
				var said gocql.RequestError
				err := query.Exec()
				if !errors.As(err, &said) || said.Code() != code {
					c.Fatalf("%s: got %T %v", body, err, err)
				}
				var invalid *gocql.RequestErrInvalid
				equal(c, errors.As(err, &invalid), code == gocql.ErrCodeInvalid, "the driver's own type of "+body)
			}
		}
		var invalid *gocql.RequestErrInvalid
		err := c.Query("BEGIN TRANSACTION "+openAccount+" COMMIT TRANSACTION", c.name).Exec()
		equal(c, errors.As(err, &invalid) && strings.Contains(err.Error(), "APPLY BATCH"), true, fmt.Sprint(err))
	})
}

func TestStatementsAsTheyAreOnATableWhoseModeIsFull(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		insert := "INSERT INTO driver_transactions.counted (k, v) VALUES (?, ?)"
		c.wrote(c.Query(insert, c.name, 5), true)
		c.wrote(c.Query("UPDATE driver_transactions.counted SET v = ? WHERE k = ?", 7, c.name), true)
		// gocql prepares it wherever it stands, and a node does not know that it may be added to.
		add := "UPDATE driver_transactions.counted SET v = v + ? WHERE k = ?"
		var invalid *gocql.RequestErrInvalid
		equal(c, errors.As(c.Query(add, 1, c.name).Exec(), &invalid), true, add)
		c.wrote(c.Query(transaction(add+";"), 1, c.name), true)
		batch := c.Batch(gocql.LoggedBatch)
		for _, one := range []string{"-a", "-b"} {
			batch.Query(insert, c.name+one, 1)
		}
		if err := batch.Exec(); err != nil {
			c.Fatal(err)
		}
		look := "SELECT v FROM driver_transactions.counted WHERE k = ?"
		found := c.wrote(c.Query(look, c.name), false)
		equal(c, fmt.Sprint(found.columns, found.rows), "[v int] [map[v:8]]", "the row")
		equal(c, fmt.Sprint(c.answer(c.Query(look, c.name+"-b")).rows), "[map[v:1]]", "a row of the batch")
		err := c.Query("UPDATE driver_transactions.counted USING TIMESTAMP 5 SET v = ? WHERE k = ?", 1, c.name).Exec()
		equal(c, errors.As(err, &invalid), true, fmt.Sprint(err))
	})
}

func TestATablesModeIsChangedByTheDriver(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		table := "driver_transactions.made_" + strings.ToLower(strings.Map(func(letter rune) rune {
			if slices.Contains([]rune("/-"), letter) {
				return '_'
			}
			return letter
		}, c.name[len(c.name)-22:]))
		insert := transaction("INSERT INTO " + table + " (k, v) VALUES (?, ?);")
		for _, statement := range []string{"CREATE TABLE " + table + " (k int PRIMARY KEY, v int)", "", "ALTER TABLE " + table +
			" WITH transactional_mode = 'unsafe'"} {
			if statement == "" {
				var invalid *gocql.RequestErrInvalid
				equal(c, errors.As(c.Query(insert, 1, 2).Exec(), &invalid), true, "a table whose mode is off")
			} else if err := c.Query(statement).Exec(); err != nil {
				c.Fatalf("%s: %v", statement, err)
			}
		}
		c.wrote(c.Query(insert, 1, 2), true)
		equal(c, fmt.Sprint(c.answer(c.Query("SELECT v FROM "+table)).rows), "[map[v:2]]", "the row")
	})
}
