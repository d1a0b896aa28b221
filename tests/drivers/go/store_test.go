// Package drivers runs end-to-end scenarios with gocql, unmodified, against whatever speaks CQL at
// SHUNT_CONTACT. One scenario per test, each in every setup.
package drivers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
)

const (
	keyspace = "driver_go"
	// otherKeyspace has a table items too.
	otherKeyspace = keyspace + "_other"
	// fiveReplicas asks for five replicas, which no ring under test has; with a table items.
	fiveReplicas = keyspace + "_five"
)

// schema is made in stages. Nodes need a second to agree on each change, however many they agree on at once.
var schema = [][]string{{
	"CREATE TABLE items (key text PRIMARY KEY, number int, note text)",
	"CREATE TABLE lines (key text, line int, body text, PRIMARY KEY (key, line))",
	"CREATE TABLE scanned (key text PRIMARY KEY, number int)",
	"CREATE TABLE counts (key text PRIMARY KEY, hits counter)",
	"CREATE TABLE blobs (key text PRIMARY KEY, body blob)",
	"CREATE TABLE emptied (key text PRIMARY KEY)",
	"CREATE TABLE reborn (key text PRIMARY KEY, number int)",
	"CREATE TABLE grown (key text PRIMARY KEY, number int)",
	"CREATE TABLE " + otherKeyspace + ".items (key text PRIMARY KEY, number int)",
	"CREATE TABLE " + fiveReplicas + ".items (key text PRIMARY KEY)",
	"CREATE TYPE address (street text, number int, tags frozen<set<text>>)",
	"CREATE TABLE collected (key text PRIMARY KEY, l list<int>, s set<text>, m map<text, bigint>," +
		" t tuple<int, text, boolean>, n map<int, frozen<list<frozen<set<int>>>>>, v vector<float, 3>)",
	"CREATE TABLE scalars (key text PRIMARY KEY, a ascii, bi bigint, bl blob, bo boolean, d date," +
		" de decimal, dbl double, du duration, f float, ip inet, i int, si smallint, t time," +
		" ts timestamp, tu timeuuid, ti tinyint, u uuid, vc varchar, vi varint)",
}, {
	"CREATE TYPE person (name text, home frozen<address>, phones frozen<list<text>>)",
}, {
	"CREATE TABLE people (key text PRIMARY KEY, who frozen<person>, known list<frozen<person>>," +
		" homes map<text, frozen<address>>)",
}}

// setup is a way in which every scenario connects: what is set explicitly, all else being the driver's default.
type setup struct {
	name       string
	version    int // 0: the driver negotiates
	expected   int
	compressor gocql.Compressor
	session    *gocql.Session
	seen       *versions
}

var setups = []*setup{
	{name: "negotiated", expected: 5},
	{name: "v4_lz4", version: 4, expected: 4, compressor: lz4.LZ4Compressor{}},
	{name: "v5_lz4", version: 5, expected: 5, compressor: lz4.LZ4Compressor{}},
}

// versions notes the protocol version of the last frame that came in.
type versions struct{ last atomic.Int32 }

func (v *versions) ObserveFrameHeader(_ context.Context, frame gocql.ObservedFrameHeader) {
	v.last.Store(int32(frame.Version & 0x7f))
}

func contact() (host string, port int) {
	text := os.Getenv("SHUNT_CONTACT")
	if text == "" {
		text = "127.0.0.1:9042"
	}
	host, portText, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.Atoi(portText)
	}
	if err != nil {
		panic(fmt.Sprintf("SHUNT_CONTACT %q: %v", text, err))
	}
	return host, port
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func singleHostExpected() bool { return environment("SHUNT_EXPECT_SINGLE_HOST", "1") != "0" }

func replication() string {
	return "{'class': 'SimpleStrategy', 'replication_factor': " + environment("SHUNT_RF", "1") + "}"
}

// cluster is the configuration of a setup. Only the time-outs differ from the driver's defaults, because
// the machines that run this are busy.
func (s *setup) cluster() *gocql.ClusterConfig {
	host, port := contact()
	config := gocql.NewCluster(host)
	config.Port = port
	config.ProtoVersion = s.version
	config.Compressor = s.compressor
	config.Timeout = 120 * time.Second
	config.ConnectTimeout = 120 * time.Second
	config.MaxWaitSchemaAgreement = 180 * time.Second
	s.seen = &versions{}
	config.FrameHeaderObserver = s.seen
	return config
}

// open makes a session of this scenario's own; with no keyspace if the name is empty.
func (s *setup) open(t *testing.T, keyspace string) *gocql.Session {
	t.Helper()
	config := s.cluster()
	config.Keyspace = keyspace
	session, err := config.CreateSession()
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(session.Close)
	return session
}

// TestMain creates the schema, and the session that the scenarios of one setup share.
func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
	code := m.Run()
	for _, s := range setups {
		s.session.Close()
	}
	os.Exit(code)
}

func prepare() error {
	session, err := setups[0].cluster().CreateSession()
	if err != nil {
		return err
	}
	keyspaces := map[string]string{
		keyspace:      replication(),
		otherKeyspace: replication(),
		fiveReplicas:  "{'class': 'SimpleStrategy', 'replication_factor': 5}",
	}
	var drops, creates []string
	for name, replication := range keyspaces {
		drops = append(drops, "DROP KEYSPACE IF EXISTS "+name)
		creates = append(creates, "CREATE KEYSPACE "+name+" WITH replication = "+replication)
	}
	if err := change(session, drops, creates); err != nil {
		return err
	}
	session.Close()
	for _, s := range setups {
		config := s.cluster()
		config.Keyspace = keyspace
		if s.session, err = config.CreateSession(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return change(setups[0].session, schema...)
}

// change makes changes of the schema, those of a stage at once.
func change(session *gocql.Session, stages ...[]string) error {
	for _, stage := range stages {
		failures := make([]error, len(stage))
		atOnce(len(stage), func(i int) {
			if err := session.Query(stage[i]).Exec(); err != nil {
				failures[i] = fmt.Errorf("%s: %w", stage[i], err)
			}
		})
		if err := errors.Join(failures...); err != nil {
			return err
		}
	}
	return nil
}

// scenario is what a test works with: the shared session of its setup and a partition key nobody else uses.
type scenario struct {
	*testing.T
	*setup
	key string
}

// inEverySetup runs a scenario once per setup.
func inEverySetup(t *testing.T, run func(s *scenario)) {
	for _, setup := range setups {
		t.Run(setup.name, func(t *testing.T) {
			run(&scenario{T: t, setup: setup, key: gocql.MustRandomUUID().String()})
		})
	}
}

// inOneSetup runs a scenario in the first setup alone: changes of the schema take nodes seconds, and what
// setups differ in, version and compression, is around what is said of them. SHUNT_EVERY_SETUP=1 runs all.
func inOneSetup(t *testing.T, run func(s *scenario)) {
	inEverySetup(t, func(s *scenario) {
		if s.setup != setups[0] && environment("SHUNT_EVERY_SETUP", "0") == "0" {
			s.Skip("for SHUNT_EVERY_SETUP=1")
		}
		run(s)
	})
}

// exec runs a statement that must succeed.
func (s *scenario) exec(statement string, values ...any) {
	s.Helper()
	if err := s.session.Query(statement, values...).Exec(); err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
}

// scan reads the one row of a query that must succeed.
func (s *scenario) scan(query string, values []any, into ...any) {
	s.Helper()
	if err := s.session.Query(query, values...).Scan(into...); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
}

// number reads the column that most scenarios use.
func (s *scenario) number(key string) int {
	s.Helper()
	var number int
	s.scan("SELECT number FROM items WHERE key = ?", []any{key}, &number)
	return number
}

func (s *scenario) equal(got, want any, what string) {
	s.Helper()
	if got != want {
		s.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (s *scenario) missing(key string) {
	s.Helper()
	var number *int
	err := s.session.Query("SELECT number FROM items WHERE key = ?", key).Scan(&number)
	if !errors.Is(err, gocql.ErrNotFound) {
		s.Fatalf("row %s: got %v, want not found", key, err)
	}
}
