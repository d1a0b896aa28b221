// Package classic runs a short list of scenarios with the classic gocql, which most programs in Go still
// use: protocol v4, without compression and with snappy (its lz4 is a separate module).
package classic

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
)

const keyspace = "driver_go_classic"

type setup struct {
	name       string
	compressor gocql.Compressor
}

var setups = []setup{{"default", nil}, {"snappy", gocql.SnappyCompressor{}}}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func cluster(s setup) *gocql.ClusterConfig {
	host, portText, err := net.SplitHostPort(environment("SHUNT_CONTACT", "127.0.0.1:9042"))
	if err != nil {
		panic(err)
	}
	config := gocql.NewCluster(host)
	config.Port, _ = strconv.Atoi(portText)
	config.Compressor = s.compressor
	config.Timeout = 120 * time.Second
	config.ConnectTimeout = 120 * time.Second
	config.MaxWaitSchemaAgreement = 180 * time.Second
	return config
}

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare() error {
	session, err := cluster(setups[0]).CreateSession()
	if err != nil {
		return err
	}
	defer session.Close()
	factor := environment("SHUNT_RF", "1")
	for _, statement := range []string{
		"DROP KEYSPACE IF EXISTS " + keyspace,
		"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': " + factor + "}",
		"CREATE TABLE " + keyspace + ".items (key text PRIMARY KEY, number int, body blob)",
		"CREATE TABLE " + keyspace + ".lines (key text, line int, PRIMARY KEY (key, line))",
		"CREATE TABLE " + keyspace + ".counts (key text PRIMARY KEY, hits counter)",
	} {
		if err := session.Query(statement).Exec(); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func inEverySetup(t *testing.T, run func(t *testing.T, session *gocql.Session, key string)) {
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			config := cluster(s)
			config.Keyspace = keyspace
			session, err := config.CreateSession()
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			run(t, session, gocql.MustRandomUUID().String())
		})
	}
}

func exec(t *testing.T, session *gocql.Session, statement string, values ...any) {
	t.Helper()
	if err := session.Query(statement, values...).Exec(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func TestTokenAwarePolicyStaysAtTheContactPoint(t *testing.T) {
	if environment("SHUNT_EXPECT_SINGLE_HOST", "1") == "0" {
		t.Skip("a bare ring")
	}
	for _, s := range setups {
		t.Run(s.name, func(t *testing.T) {
			config := cluster(s)
			config.Keyspace = keyspace
			config.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
			session, err := config.CreateSession()
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			for i := 0; i < 20; i++ {
				iter := session.Query("INSERT INTO items (key, number) VALUES (?, ?)", fmt.Sprint("token", i), i).Iter()
				if got := iter.Host().ConnectAddress().String(); got != config.Hosts[0] {
					t.Fatalf("coordinator %s, want %s", got, config.Hosts[0])
				}
				if err := iter.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestInsertAndSelect(t *testing.T) {
	inEverySetup(t, func(t *testing.T, session *gocql.Session, key string) {
		exec(t, session, "INSERT INTO items (key, number) VALUES (?, ?)", key, 7)
		var number int
		if err := session.Query("SELECT number FROM items WHERE key = ?", key).Scan(&number); err != nil || number != 7 {
			t.Fatal(number, err)
		}
	})
}

func TestBatchesOfEveryKind(t *testing.T) {
	inEverySetup(t, func(t *testing.T, session *gocql.Session, key string) {
		for _, kind := range []gocql.BatchType{gocql.LoggedBatch, gocql.UnloggedBatch} {
			batch := session.NewBatch(kind)
			for i := 0; i < 10; i++ {
				batch.Query("INSERT INTO lines (key, line) VALUES (?, ?)", key, int(kind)*10+i)
			}
			if err := session.ExecuteBatch(batch); err != nil {
				t.Fatal(err)
			}
		}
		if rows := session.Query("SELECT line FROM lines WHERE key = ?", key).Iter().NumRows(); rows != 20 {
			t.Fatal(rows)
		}
		batch := session.NewBatch(gocql.CounterBatch)
		batch.Query("UPDATE counts SET hits = hits + ? WHERE key = ?", int64(3), key)
		if err := session.ExecuteBatch(batch); err != nil {
			t.Fatal(err)
		}
	})
}

func TestPagingOverThousandsOfRows(t *testing.T) {
	inEverySetup(t, func(t *testing.T, session *gocql.Session, key string) {
		for start := 0; start < 6_000; start += 500 {
			batch := session.NewBatch(gocql.UnloggedBatch)
			for i := start; i < start+500; i++ {
				batch.Query("INSERT INTO lines (key, line) VALUES (?, ?)", key, i)
			}
			if err := session.ExecuteBatch(batch); err != nil {
				t.Fatal(err)
			}
		}
		iter := session.Query("SELECT line FROM lines WHERE key = ?", key).PageSize(999).Iter()
		want, line := 0, 0
		for iter.Scan(&line) {
			if line != want {
				t.Fatalf("line %d, want %d", line, want)
			}
			want++
		}
		if err := iter.Close(); err != nil || want != 6_000 {
			t.Fatal(want, err)
		}
	})
}

func TestLightweightTransaction(t *testing.T) {
	inEverySetup(t, func(t *testing.T, session *gocql.Session, key string) {
		for i, want := range []bool{true, false} {
			insert := session.Query("INSERT INTO items (key, number) VALUES (?, ?) IF NOT EXISTS", key, i)
			applied, err := insert.MapScanCAS(map[string]any{})
			if err != nil || applied != want {
				t.Fatal(i, applied, err)
			}
		}
	})
}

func TestFiveMegabytes(t *testing.T) {
	inEverySetup(t, func(t *testing.T, session *gocql.Session, key string) {
		body := make([]byte, 5<<20)
		rand.New(rand.NewSource(5)).Read(body)
		exec(t, session, "INSERT INTO items (key, body) VALUES (?, ?)", key, body)
		var got []byte
		if err := session.Query("SELECT body FROM items WHERE key = ?", key).Scan(&got); err != nil || !bytes.Equal(got, body) {
			t.Fatal(len(got), err)
		}
	})
}

func TestThousandQueriesAtOnce(t *testing.T) {
	inEverySetup(t, func(t *testing.T, session *gocql.Session, key string) {
		var all sync.WaitGroup
		for i := 0; i < 1000; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				own := fmt.Sprint(key, i)
				var number int
				err := session.Query("INSERT INTO items (key, number) VALUES (?, ?)", own, i).Exec()
				if err == nil {
					err = session.Query("SELECT number FROM items WHERE key = ?", own).Scan(&number)
				}
				if err != nil || number != i {
					t.Errorf("%d: got %d: %v", i, number, err)
				}
			}()
		}
		all.Wait()
	})
}

func TestErrorsArriveAsTheirOwnType(t *testing.T) {
	inEverySetup(t, func(t *testing.T, session *gocql.Session, key string) {
		var refused gocql.RequestError
		if err := session.Query("SELEKT").Exec(); !errors.As(err, &refused) || refused.Code() != gocql.ErrCodeSyntax {
			t.Fatalf("%T %v", err, err)
		}
		var exists *gocql.RequestErrAlreadyExists
		if err := session.Query("CREATE TABLE items (key text PRIMARY KEY)").Exec(); !errors.As(err, &exists) {
			t.Fatalf("%T %v", err, err)
		}
	})
}
