package drivers

import (
	"errors"
	"slices"
	"sync"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func TestInsertIfNotExistsAppliesOnceAndThenShowsTheExistingRow(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		insert := "INSERT INTO items (key, number, note) VALUES (?, ?, ?) IF NOT EXISTS"
		applied, err := s.session.Query(insert, s.key, 1, "first").MapScanCAS(map[string]any{})
		if err != nil || !applied {
			s.Fatal(applied, err)
		}
		existing := map[string]any{}
		applied, err = s.session.Query(insert, s.key, 2, "second").MapScanCAS(existing)
		if err != nil || applied {
			s.Fatal(applied, err)
		}
		s.equal(existing["number"], 1, "number")
		s.equal(existing["note"], "first", "note")
	})
}

func TestUpdateIfComparesTheCurrentValue(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.exec("INSERT INTO items (key, number) VALUES (?, 1) IF NOT EXISTS", s.key)
		update := "UPDATE items SET number = ? WHERE key = ? IF number = ?"
		var current int
		applied, err := s.session.Query(update, 2, s.key, 1).ScanCAS(&current)
		if err != nil || !applied {
			s.Fatal(applied, err)
		}
		applied, err = s.session.Query(update, 3, s.key, 1).ScanCAS(&current)
		if err != nil || applied {
			s.Fatal(applied, err)
		}
		s.equal(current, 2, "current value")
	})
}

func TestSerialReadSeesTheLastTransaction(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.exec("INSERT INTO items (key, number) VALUES (?, 11) IF NOT EXISTS", s.key)
		var number int
		err := s.session.Query("SELECT number FROM items WHERE key = ?", s.key).Consistency(gocql.Serial).Scan(&number)
		if err != nil {
			s.Fatal(err)
		}
		s.equal(number, 11, "number")
	})
}

func TestOneOfManyRacersWins(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		var lock sync.Mutex
		var winners, unknown []int
		atOnce(10, func(i int) {
			insert := s.session.Query("INSERT INTO items (key, number) VALUES (?, ?) IF NOT EXISTS", s.key, i)
			applied, err := insert.MapScanCAS(map[string]any{})
			lock.Lock()
			defer lock.Unlock()
			var timeout *gocql.RequestErrWriteTimeout
			switch {
			case errors.As(err, &timeout):
				// Under contention the store may give up and say so; the proposal may have been accepted.
				unknown = append(unknown, i)
			case err != nil:
				s.Error(err)
			case applied:
				winners = append(winners, i)
			}
		})
		var stored int
		err := s.session.Query("SELECT number FROM items WHERE key = ?", s.key).Consistency(gocql.Serial).Scan(&stored)
		if err != nil {
			s.Fatal(err)
		}
		if len(winners) == 0 {
			winners = unknown
		} else {
			s.equal(len(winners), 1, "number of winners")
		}
		if !slices.Contains(winners, stored) {
			s.Fatalf("%d is stored, the winner is one of %v", stored, winners)
		}
	})
}
