package drivers

import (
	"fmt"
	"sync"
	"testing"
)

// atOnce runs n calls at the same time and waits for all.
func atOnce(n int, call func(i int)) {
	var all sync.WaitGroup
	for i := 0; i < n; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			call(i)
		}()
	}
	all.Wait()
}

func TestThousandWritesAndThenThousandReadsAtOnce(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		atOnce(1000, func(i int) {
			insert := s.session.Query("INSERT INTO items (key, number) VALUES (?, ?)", fmt.Sprint(s.key, i), i)
			if err := insert.Exec(); err != nil {
				s.Error(err)
			}
		})
		atOnce(1000, func(i int) {
			var key string
			var number int
			query := s.session.Query("SELECT key, number FROM items WHERE key = ?", fmt.Sprint(s.key, i))
			if err := query.Scan(&key, &number); err != nil || number != i || key != fmt.Sprint(s.key, i) {
				s.Errorf("row %d: got %s %d: %v", i, key, number, err)
			}
		})
	})
}

func TestThousandTextQueriesAtOnce(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		atOnce(1000, func(i int) {
			var number int
			query := fmt.Sprintf("SELECT (int) %d AS n FROM system.local", i)
			if err := s.session.Query(query).Scan(&number); err != nil || number != i {
				s.Errorf("%s: got %d: %v", query, number, err)
			}
		})
	})
}

func TestFailuresAmongSuccessesGoToTheirOwnQueries(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		tables := []string{"items", "missing"}
		atOnce(200, func(i int) {
			err := s.session.Query("SELECT key FROM " + tables[i%2] + " WHERE key = 'nobody'").Exec()
			if failed := err != nil; failed != (i%2 == 1) {
				s.Errorf("query %d on %s: %v", i, tables[i%2], err)
			}
		})
	})
}
