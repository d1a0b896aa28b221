package drivers

import (
	"fmt"
	"sync"
	"testing"
)

const (
	pagedRows      = 6_000 // more than drivers ask for at once by default
	pagedPartition = "paged"
)

var fillOnce sync.Once

// filled writes one partition of 6,000 lines, and 6,000 partitions of one row.
func (s *scenario) filled() {
	s.Helper()
	fillOnce.Do(func() {
		failures := make(chan error, pagedRows*2)
		slots := make(chan struct{}, 500)
		write := func(statement string, values ...any) {
			slots <- struct{}{}
			go func() {
				if err := s.session.Query(statement, values...).Exec(); err != nil {
					failures <- err
				}
				<-slots
			}()
		}
		for i := 0; i < pagedRows; i++ {
			write("INSERT INTO lines (key, line, body) VALUES (?, ?, ?)", pagedPartition, i, fmt.Sprint("body ", i))
			write("INSERT INTO scanned (key, number) VALUES (?, ?)", fmt.Sprint("row ", i), i)
		}
		for i := 0; i < cap(slots); i++ {
			slots <- struct{}{}
		}
		if len(failures) > 0 {
			s.Fatalf("%d writes failed, the first with: %v", len(failures), <-failures)
		}
	})
}

func (s *scenario) linesInOrder(pageSize int) {
	query := s.session.Query("SELECT line, body FROM lines WHERE key = ?", pagedPartition)
	if pageSize > 0 {
		query.PageSize(pageSize)
	}
	iter := query.Iter()
	if pageSize > 0 {
		s.equal(iter.NumRows(), pageSize, "rows of the first page")
	}
	var line, want int
	var body string
	for iter.Scan(&line, &body) {
		s.equal(line, want, "line")
		s.equal(body, fmt.Sprint("body ", want), "body")
		want++
	}
	if err := iter.Close(); err != nil {
		s.Fatal(err)
	}
	s.equal(want, pagedRows, "rows")
}

func TestPagingOnePartitionAtTheDefaultPageSize(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.filled()
		s.linesInOrder(0)
	})
}

func TestPagingOnePartitionInPagesOf701(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.filled()
		s.linesInOrder(701)
	})
}

func TestPagingAllPartitionsOfATable(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.filled()
		iter := s.session.Query("SELECT key, number FROM scanned").PageSize(1000).Iter()
		seen := map[int]bool{}
		var key string
		var number int
		for iter.Scan(&key, &number) {
			s.equal(key, fmt.Sprint("row ", number), "key")
			s.equal(seen[number], false, "seen before")
			seen[number] = true
		}
		if err := iter.Close(); err != nil {
			s.Fatal(err)
		}
		s.equal(len(seen), pagedRows, "rows")
	})
}

func TestPagingStateIsGoodInAnotherSession(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.filled()
		query := "SELECT line FROM lines WHERE key = ?"
		first := s.session.Query(query, pagedPartition).PageSize(100).Iter()
		state := first.PageState()
		if err := first.Close(); err != nil || len(state) == 0 {
			s.Fatalf("state %x: %v", state, err)
		}
		rest := s.open(s.T, keyspace).Query(query, pagedPartition).PageSize(100).PageState(state).Iter()
		var line int
		s.equal(rest.Scan(&line), true, "a second page")
		s.equal(line, 100, "line")
		if err := rest.Close(); err != nil {
			s.Fatal(err)
		}
	})
}
