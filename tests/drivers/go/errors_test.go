package drivers

import (
	"errors"
	"strings"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// fails runs a statement that must fail with an error of type E.
func fails[E error](s *scenario, query *gocql.Query) E {
	s.Helper()
	var want E
	if err := query.Exec(); !errors.As(err, &want) {
		s.Fatalf("got %T %v, want %T", err, err, want)
	}
	return want
}

// refused are statements that the store answers with one kind of error and nothing to check but its code.
func refused(t *testing.T, code int, statement string, values ...any) {
	inEverySetup(t, func(s *scenario) {
		err := fails[gocql.RequestError](s, s.session.Query(statement, values...))
		s.equal(err.Code(), code, err.Error())
	})
}

func TestSyntaxError(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		err := fails[*gocql.RequestErrSyntax](s, s.session.Query("SELEKT * FROM items"))
		if !strings.Contains(err.Message(), "SELEKT") {
			s.Fatal(err)
		}
	})
}

func TestSyntaxErrorOnPrepare(t *testing.T) {
	refused(t, gocql.ErrCodeSyntax, "INSERT INTO items VALUES ?", 1)
}

func TestUnknownTable(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		err := fails[*gocql.RequestErrInvalid](s, s.session.Query("SELECT * FROM no_such_table"))
		if !strings.Contains(err.Message(), "no_such_table") {
			s.Fatal(err)
		}
	})
}

func TestUnknownColumnOnPrepare(t *testing.T) {
	refused(t, gocql.ErrCodeInvalid, "SELECT no_such_column FROM items WHERE key = ?", "a")
}

func TestMissingPartitionKey(t *testing.T) {
	refused(t, gocql.ErrCodeInvalid, "INSERT INTO items (number) VALUES (1)")
}

func TestValueOfTheWrongType(t *testing.T) {
	refused(t, gocql.ErrCodeInvalid, "INSERT INTO items (key, number) VALUES ('a', 'not a number')")
}

func TestImpossibleConfiguration(t *testing.T) {
	refused(t, gocql.ErrCodeConfig, "CREATE KEYSPACE driver_go_bad WITH replication = {'class': 'NoSuchStrategy'}")
}

func TestTableThatAlreadyExists(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		err := fails[*gocql.RequestErrAlreadyExists](s, s.session.Query("CREATE TABLE items (key text PRIMARY KEY)"))
		s.equal(err.Keyspace+"."+err.Table, keyspace+".items", "table")
	})
}

func TestKeyspaceThatAlreadyExists(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		create := "CREATE KEYSPACE " + keyspace + " WITH replication = " + replication()
		err := fails[*gocql.RequestErrAlreadyExists](s, s.session.Query(create))
		s.equal(err.Keyspace, keyspace, "keyspace")
	})
}

func TestBatchThatIsTooLarge(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		// More than batch_size_fail_threshold, whose default is 50 KiB.
		batch := s.session.Batch(gocql.LoggedBatch)
		for _, key := range []string{s.key, s.key + "b"} {
			batch.Query("INSERT INTO items (key, note) VALUES (?, ?)", key, strings.Repeat("x", 30_000))
		}
		var invalid *gocql.RequestErrInvalid
		if err := batch.Exec(); !errors.As(err, &invalid) {
			s.Fatalf("got %v", err)
		}
	})
}

func TestUnavailable(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		// Five replicas can be asked for on any ring; to have them all alive this one is too small.
		insert := s.session.Query("INSERT INTO "+fiveReplicas+".items (key) VALUES (?)", s.key).Consistency(gocql.All)
		err := fails[*gocql.RequestErrUnavailable](s, insert)
		s.equal(err.Consistency, gocql.All, "consistency")
		s.equal(err.Required, 5, "required")
		if err.Alive < 1 || err.Alive >= 5 {
			s.Fatal(err)
		}
	})
}

func TestSessionIsAsGoodAsNewAfterAnError(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		for i := 0; i < 20; i++ {
			fails[*gocql.RequestErrSyntax](s, s.session.Query("NOT CQL"))
			s.exec("INSERT INTO items (key, number) VALUES (?, ?)", s.key, i)
			s.equal(s.number(s.key), i, "number")
		}
	})
}
