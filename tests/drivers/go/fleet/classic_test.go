package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	classic "github.com/gocql/gocql"
)

// inEveryClassicVersion runs a test with the classic gocql, in each version that it has.
func inEveryClassicVersion(t *testing.T, run func(t *testing.T, session *classic.Session, version int)) {
	victim(t, false)
	for _, version := range []int{3, 4} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			host, port := contact()
			config := classic.NewCluster(host)
			config.Port, config.ProtoVersion = port, version
			config.Timeout, config.ConnectTimeout = patience, patience
			session, err := config.CreateSession()
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			run(t, session, version)
		})
	}
}

func TestLocksWithTheClassicDriver(t *testing.T) {
	inEveryClassicVersion(t, func(t *testing.T, session *classic.Session, _ int) {
		name := fmt.Sprint(t.Name(), "-", time.Now().UnixNano())
		var last int64
		for _, owner := range []string{"ann", "bob"} {
			row := map[string]any{}
			applied, err := session.Query(acquire, name, owner, ttl).MapScanCAS(row)
			equal(t, applied && err == nil && row["owner"] == owner, true, fmt.Sprint(applied, err, row))
			equal(t, row["fence"].(int64) > last, true, "a fence that rises")
			last = row["fence"].(int64)
			row = map[string]any{}
			applied, err = session.Query(acquire, name, "eve", ttl).MapScanCAS(row)
			equal(t, !applied && err == nil && row["owner"] == owner, true, fmt.Sprint(applied, err, row))
			applied, err = session.Query(release+" AND fence = ?", name, owner, last).MapScanCAS(map[string]any{})
			equal(t, applied && err == nil, true, fmt.Sprint(applied, err))
		}
	})
}

// This driver asks for no metadata with the answers to what it has prepared, and takes those that PREPARE was answered by.
func TestTransactionsWithTheClassicDriver(t *testing.T) {
	inEveryClassicVersion(t, func(t *testing.T, session *classic.Session, version int) {
		name := fmt.Sprint(t.Name(), "-", time.Now().UnixNano())
		answer := func(want string, applied string, query *classic.Query) {
			t.Helper()
			iter := query.Iter()
			said := string(iter.GetCustomPayload()["shunt-applied"])
			var columns []string
			for _, column := range iter.Columns() {
				columns = append(columns, fmt.Sprint(column.Name, " ", column.TypeInfo.Type()))
			}
			rows, err := iter.SliceMap()
			equal(t, fmt.Sprint(columns, rows, err), want, query.Statement())
			if version == 3 {
				applied = ""
			}
			equal(t, said, applied, "shunt-applied of "+query.Statement())
		}
		for _, prepared := range []bool{true, false} {
			of := func(text string, values ...any) *classic.Query {
				if prepared {
					return session.Query(text, values...)
				}
				return session.Query(inText(text, values...))
			}
			payer, payee := fmt.Sprint(name, prepared), fmt.Sprint(name, prepared, "-payee")
			for _, id := range []string{payer, payee} {
				answer("[] [] <nil>", "\x01", of(transaction(openAccount), id))
			}
			for number, values := range transfers(payer, payee) {
				row := fmt.Sprintf("map[payer.balance:%d payer.owner:ann]", [2]int{10, 7}[number])
				says := [2]string{"\x01", "\x00"}[number]
				answer("[payer.balance int payer.owner varchar] ["+row+"] <nil>", says, of(transfer, values...))
			}
			answer("[balance int] [map[balance:7]] <nil>", "", of(ofAccount, payer))
			answer("[balance int] [map[balance:13]] <nil>", "", of(ofAccount, payee))
			answer("[number bigint amount int] [map[amount:3 number:1]] <nil>", "\x00", of(transaction(ofMoves+";"), payer))
			counted := "driver_transactions.counted"
			answer("[] [] <nil>", "\x01", of("INSERT INTO "+counted+" (k, v) VALUES (?, ?)", payer, 5))
			answer("[] [] <nil>", "\x01", of(transaction("UPDATE "+counted+" SET v += ? WHERE k = ?;"), 1, payer))
			answer("[v int] [map[v:6]] <nil>", "\x00", of("SELECT v FROM "+counted+" WHERE k = ?", payer))
		}
		for body, code := range map[string]int{
			"INSERT INTO driver_transactions.plain (id, v) VALUES (?, 2);":                                   classic.ErrCodeInvalid,
			"LET a = (SELECT balance FROM driver_transactions.accounts WHERE id = ?); SELECT a.balance - 1;": classic.ErrCodeSyntax,
			"UPDATE driver_transactions.accounts SET balance = 1 WHERE id = ? IF EXISTS;":                    classic.ErrCodeInvalid,
			"INSERT INTO driver_transactions.accounts (id, balance) VALUES (?, a.balance);":                  classic.ErrCodeInvalid,
			"UPDATE driver_transactions.accounts SET balance = 1 WHERE id = ?":                               classic.ErrCodeSyntax,
		} {
			var said classic.RequestError
			err := session.Query(transaction(body), name).Exec()
			if !errors.As(err, &said) || said.Code() != code {
				t.Fatalf("%s: got %T %v", body, err, err)
			}
		}
	})
}
