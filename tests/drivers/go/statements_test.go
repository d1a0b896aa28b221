package drivers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func TestStatementWithLiterals(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.exec("INSERT INTO items (key, number, note) VALUES ('" + s.key + "', 7, 'it''s')")
		var note string
		s.scan("SELECT note FROM items WHERE key = '"+s.key+"'", nil, &note)
		s.equal(note, "it's", "note")
		s.equal(s.number(s.key), 7, "number")
	})
}

// gocql prepares every statement that has values.
func TestPreparedStatement(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		for i := 0; i < 100; i++ {
			s.exec("INSERT INTO items (key, number, note) VALUES (?, ?, ?)", fmt.Sprint(s.key, i), i, fmt.Sprint("n", i))
		}
		for i := 0; i < 100; i++ {
			var key, note string
			var number int
			s.scan("SELECT key, number, note FROM items WHERE key = ?", []any{fmt.Sprint(s.key, i)}, &key, &number, &note)
			s.equal(number, i, "number")
			s.equal(note, fmt.Sprint("n", i), "note")
		}
	})
}

func TestNamedMarkers(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.exec("INSERT INTO items (key, number) VALUES (:k, :n)", s.key, 9)
		s.equal(s.number(s.key), 9, "number")
	})
}

func TestStatementMetadataTellsThePartitionKey(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		metadata, err := s.session.StatementMetadata(s.Context(), "UPDATE lines SET body = ? WHERE line = ? AND key = ?", keyspace)
		if err != nil {
			s.Fatal(err)
		}
		s.equal(fmt.Sprint(metadata.PKBindColumnIndexes), "[2]", "partition key positions")
		s.equal(metadata.BindColumns[2].Name, "key", "column")
	})
}

func TestStatementPreparedByOneSessionIsAlsoPreparedByAnother(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		insert := "INSERT INTO items (key, number) VALUES (?, ?) USING TTL 1000"
		s.exec(insert, s.key, 1)
		if err := s.open(s.T, keyspace).Query(insert, s.key, 2).Exec(); err != nil {
			s.Fatal(err)
		}
		s.equal(s.number(s.key), 2, "number")
	})
}

func TestPreparedStatementSurvivesItsTableBeingDroppedAndCreatedAgain(t *testing.T) {
	inOneSetup(t, func(s *scenario) {
		insert := "INSERT INTO reborn (key, number) VALUES (?, ?)"
		s.exec(insert, s.key, 1)
		s.exec("DROP TABLE reborn")
		s.exec("CREATE TABLE reborn (key text PRIMARY KEY, number int)")
		s.exec(insert, s.key, 2)
		var number int
		s.scan("SELECT number FROM reborn WHERE key = ?", []any{s.key}, &number)
		s.equal(number, 2, "number")
	})
}

func TestPreparedSelectShowsAColumnAddedMeanwhile(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		// By the result-metadata id in v5. Before it, a driver decodes by the columns of the day of PREPARE until it is told to
		// prepare again, as the node that forgot the statement tells it.
		s.exec("INSERT INTO grown (key, number) VALUES (?, 1)", s.key)
		query := "SELECT * FROM grown WHERE key = ?"
		before, after := map[string]any{}, map[string]any{}
		if err := s.session.Query(query, s.key).MapScan(before); err != nil {
			s.Fatal(err)
		}
		added := "added_" + s.name
		s.exec("ALTER TABLE grown ADD " + added + " text")
		s.exec("UPDATE grown SET "+added+" = 'new' WHERE key = ?", s.key)
		if err := s.session.Query(query, s.key).MapScan(after); err != nil {
			s.Fatal(err)
		}
		s.equal(len(after), len(before)+1, "columns")
		s.equal(after[added], "new", "added")
		s.equal(after["number"], 1, "number")
	})
}

func TestUnsetValueLeavesTheColumnAloneAndNullDeletesIt(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		insert := "INSERT INTO items (key, number, note) VALUES (?, ?, ?)"
		s.exec(insert, s.key, 1, "kept")
		s.exec(insert, s.key, 2, gocql.UnsetValue)
		var note *string
		s.scan("SELECT note FROM items WHERE key = ?", []any{s.key}, &note)
		if note == nil || *note != "kept" {
			s.Fatalf("note: %v", note)
		}
		s.exec(insert, s.key, 3, nil)
		s.scan("SELECT note FROM items WHERE key = ?", []any{s.key}, &note)
		if note != nil {
			s.Fatalf("note: %v", *note)
		}
	})
}

func TestUpdateAndDelete(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.exec("INSERT INTO items (key, number) VALUES (?, 1)", s.key)
		s.exec("UPDATE items SET number = 2 WHERE key = ?", s.key)
		s.equal(s.number(s.key), 2, "number")
		s.exec("DELETE FROM items WHERE key = ?", s.key)
		s.missing(s.key)
	})
}

func TestQueryTimestampReachesTheStore(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		err := s.session.Query("INSERT INTO items (key, number) VALUES (?, 1)", s.key).WithTimestamp(123_456_789).Exec()
		if err != nil {
			s.Fatal(err)
		}
		var written int64
		s.scan("SELECT writetime(number) FROM items WHERE key = ?", []any{s.key}, &written)
		s.equal(written, int64(123_456_789), "writetime")
	})
}

func TestConsistencyLevelReachesTheStore(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		err := s.session.Query("INSERT INTO items (key, number) VALUES (?, 1)", s.key).Consistency(gocql.All).Exec()
		if err != nil {
			s.Fatal(err)
		}
		s.equal(s.number(s.key), 1, "number")
	})
}

// tracer keeps the id of the last traced query.
type tracer struct{ id []byte }

func (t *tracer) Trace(id []byte) { t.id = id }

func TestTracingIdComesBackWithATracedQuery(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		trace := &tracer{}
		if err := s.session.Query("SELECT key FROM system.local").Trace(trace).Exec(); err != nil {
			s.Fatal(err)
		}
		s.equal(len(trace.id), 16, "bytes of the tracing id")
	})
}

func TestTraceOfAQueryCanBeRead(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		trace := &tracer{}
		query := "SELECT number FROM items WHERE key = '" + s.key + "'"
		if err := s.session.Query(query).Trace(trace).Exec(); err != nil {
			s.Fatal(err)
		}
		id, err := gocql.UUIDFromBytes(trace.id)
		if err != nil {
			s.Fatal(err)
		}
		// It has a duration when all of it is there, which may be some time after the answer.
		var request string
		var parameters map[string]string
		duration := 0
		for deadline := time.Now().Add(180 * time.Second); duration == 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				s.Fatal("no trace came")
			}
			session := s.session.Query("SELECT request, parameters, duration FROM system_traces.sessions WHERE session_id = ?", id)
			if err := session.Scan(&request, &parameters, &duration); err != nil && err != gocql.ErrNotFound {
				s.Fatal(err)
			}
		}
		// The driver prepares whatever reads or writes.
		s.equal(request, "Execute CQL3 prepared query", "request")
		s.equal(parameters["query"], query, "query")
		events := s.session.Query("SELECT activity FROM system_traces.events WHERE session_id = ?", id).Iter()
		if count := events.NumRows(); count == 0 {
			s.Fatal("no events")
		}
		if err := events.Close(); err != nil {
			s.Fatal(err)
		}
	})
}

func TestCustomPayloadIsAccepted(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		payload := map[string][]byte{"unknown": {1, 2, 3}}
		if err := s.session.Query("SELECT key FROM system.local").CustomPayload(payload).Exec(); err != nil {
			s.Fatal(err)
		}
	})
}

func TestWarningsOfTheStoreComeBack(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		iter := s.session.Query("SELECT count(*) FROM counts").Iter()
		warnings := iter.Warnings()
		if err := iter.Close(); err != nil {
			s.Fatal(err)
		}
		if len(warnings) == 0 || !strings.Contains(warnings[0], "ggregation") {
			s.Fatalf("warnings: %q", warnings)
		}
	})
}

func TestKeyspaceOfTheSession(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		system := s.open(s.T, "system")
		for i := 0; i < 20; i++ {
			s.exec("SELECT key FROM items LIMIT 1")
			var key string
			if err := system.Query("SELECT key FROM local").Scan(&key); err != nil {
				s.Fatal(err)
			}
			if err := system.Query("SELECT key FROM items LIMIT 1").Exec(); err == nil {
				s.Fatal("items found in keyspace system")
			}
		}
	})
}

func TestSamePreparedTextInTwoKeyspacesReachesTwoTables(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		own := s.open(s.T, otherKeyspace)
		s.exec("INSERT INTO items (key, number) VALUES (?, ?)", s.key, 1)
		if err := own.Query("INSERT INTO items (key, number) VALUES (?, ?)", s.key, 2).Exec(); err != nil {
			s.Fatal(err)
		}
		var number int
		if err := own.Query("SELECT number FROM items WHERE key = ?", s.key).Scan(&number); err != nil {
			s.Fatal(err)
		}
		s.equal(number, 2, "number there")
		s.equal(s.number(s.key), 1, "number here")
	})
}

func TestKeyspaceOfASingleQuery(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		if s.expected < 5 {
			s.Skip("protocol v5 brought it")
		}
		own := s.open(s.T, "")
		insert := own.Query("INSERT INTO items (key, number) VALUES (?, 3)", s.key).SetKeyspace(keyspace)
		if err := insert.Exec(); err != nil {
			s.Fatal(err)
		}
		s.equal(s.number(s.key), 3, "number")
	})
}
