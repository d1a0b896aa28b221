package drivers

import (
	"fmt"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func (s *scenario) insertLines(kind gocql.BatchType) {
	batch := s.session.Batch(kind)
	for i := 0; i < 30; i++ {
		batch.Query("INSERT INTO lines (key, line, body) VALUES (?, ?, ?)", fmt.Sprint(s.key, i%3), i, fmt.Sprint("body ", i))
	}
	if err := batch.Exec(); err != nil {
		s.Fatal(err)
	}
	for partition := 0; partition < 3; partition++ {
		iter := s.session.Query("SELECT line, body FROM lines WHERE key = ?", fmt.Sprint(s.key, partition)).Iter()
		var line, rows int
		var body string
		for iter.Scan(&line, &body) {
			s.equal(body, fmt.Sprint("body ", line), "body")
			rows++
		}
		if err := iter.Close(); err != nil {
			s.Fatal(err)
		}
		s.equal(rows, 10, "rows")
	}
}

func TestLoggedBatchOverSeveralPartitions(t *testing.T) {
	inEverySetup(t, func(s *scenario) { s.insertLines(gocql.LoggedBatch) })
}

func TestUnloggedBatchOverSeveralPartitions(t *testing.T) {
	inEverySetup(t, func(s *scenario) { s.insertLines(gocql.UnloggedBatch) })
}

func TestBatchOfTextAndPreparedStatements(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		batch := s.session.Batch(gocql.LoggedBatch)
		batch.Query("INSERT INTO items (key, number) VALUES ('" + s.key + "', 5)")
		batch.Query("UPDATE items SET note = ? WHERE key = ?", "five", s.key)
		if err := batch.Exec(); err != nil {
			s.Fatal(err)
		}
		s.equal(s.number(s.key), 5, "number")
		var note string
		s.scan("SELECT note FROM items WHERE key = ?", []any{s.key}, &note)
		s.equal(note, "five", "note")
	})
}

func TestCounterBatch(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		for round := 0; round < 2; round++ {
			batch := s.session.Batch(gocql.CounterBatch)
			batch.Query("UPDATE counts SET hits = hits + ? WHERE key = ?", int64(2), s.key)
			batch.Query("UPDATE counts SET hits = hits + ? WHERE key = ?", int64(40), s.key)
			if err := batch.Exec(); err != nil {
				s.Fatal(err)
			}
		}
		var hits int64
		s.scan("SELECT hits FROM counts WHERE key = ?", []any{s.key}, &hits)
		s.equal(hits, int64(84), "hits")
	})
}

func TestBatchTimestampReachesTheStore(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		batch := s.session.Batch(gocql.UnloggedBatch).WithTimestamp(987_654)
		batch.Query("INSERT INTO items (key, number) VALUES (?, 1)", s.key)
		if err := batch.Exec(); err != nil {
			s.Fatal(err)
		}
		var written int64
		s.scan("SELECT writetime(number) FROM items WHERE key = ?", []any{s.key}, &written)
		s.equal(written, int64(987_654), "writetime")
	})
}

func TestConditionalBatchAppliesAsAWholeOrNotAtAll(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		insert := "INSERT INTO lines (key, line, body) VALUES (?, ?, ?) IF NOT EXISTS"
		for round, want := range []bool{true, false} {
			batch := s.session.Batch(gocql.UnloggedBatch)
			batch.Query(insert, s.key, 1+round, "one").Query(insert, s.key, 2+round, "two")
			applied, iter, err := batch.MapExecCAS(map[string]any{})
			if err != nil {
				s.Fatal(err)
			}
			iter.Close()
			s.equal(applied, want, "applied")
		}
		var rows int
		s.scan("SELECT count(*) FROM lines WHERE key = ?", []any{s.key}, &rows)
		s.equal(rows, 2, "rows")
	})
}
