// Package moved reads answers of 1 to 16 MiB over one connection of gocql, unmodified, while a proxy hands that connection over to agents for each of
// them, a thousand small queries are in flight on it, 5 MiB are inserted, and tables come and go. Every answer is compared with what was written.
// SHUNT_MOVED is the proxy's address, SHUNT_MOVED_NODE a node's, SHUNT_MOVED_ADMIN that of the proxy's metrics, SHUNT_MOVED_TIMES how often the
// connection is to be moved; tests/dispatch/test_cql_drivers.py makes the hosts. The programs of the other drivers do the same.
package moved

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
)

const (
	mib      = 1 << 20
	keyspace = "moved_go"
	// Rows of 104 bytes, and how many queries for them are in flight.
	firstSmall, smallSize, smallRows = 1_000, 104, 1_000
	// One partition of 16 MiB in table lines.
	lineSize, lines = mib / 4, 64
	firstWritten    = 10_000
	writes          = 3
	readers         = 8
	readsMax        = 1_000
	// What waits for something gives up after this time.
	patience = 90 * time.Second
)

var (
	blobSizes = []int{mib, mib, 2 * mib, mib, 4 * mib, mib, mib, 2 * mib, 8 * mib, mib, 15 * mib}
	pageSizes = []int{4, 16, 64}
	blobs     [][]byte
	lineRows  [][]byte
)

type setup struct {
	name       string
	version    int
	compressor gocql.Compressor
}

var setups = []setup{{"v4", 4, nil}, {"v4_lz4", 4, lz4.LZ4Compressor{}}, {"v5", 5, nil}, {"v5_lz4", 5, lz4.LZ4Compressor{}}}

// content is what the row with that key has: 64 bytes by chance and 64 that are easy to compress, in turn.
func content(key, size int) []byte {
	made := make([]byte, size)
	word := (uint64(key)+1)*0x9E3779B97F4A7C15 ^ uint64(size)
	for at := 0; at < size; at += 8 {
		if at/64%2 == 0 {
			word ^= word << 13
			word ^= word >> 7
			word ^= word << 17
		}
		binary.LittleEndian.PutUint64(made[at:], word)
	}
	return made
}

// open connects by one connection for queries, and the driver's own for events.
func open(t *testing.T, address string, setup setup) *gocql.Session {
	t.Helper()
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatalf("%q: %v", address, err)
	}
	config := gocql.NewCluster(host)
	config.Port, _ = strconv.Atoi(portText)
	config.ProtoVersion, config.Compressor, config.NumConns = setup.version, setup.compressor, 1
	config.Timeout, config.ConnectTimeout, config.WriteTimeout = patience, patience, patience
	session, err := config.CreateSession()
	if err != nil {
		t.Fatalf("%s: connect: %v", address, err)
	}
	t.Cleanup(session.Close)
	return session
}

// fill writes, past the proxy, what is read again and again.
func fill(t *testing.T, node *gocql.Session) {
	replicas := os.Getenv("SHUNT_RF")
	if replicas == "" {
		replicas = "1"
	}
	exec := func(statement string, values ...any) {
		if err := node.Query(statement, values...).Exec(); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': " + replicas + "}")
	exec("CREATE TABLE " + keyspace + ".blobs (k int PRIMARY KEY, v blob)")
	exec("CREATE TABLE " + keyspace + ".lines (k int, n int, v blob, PRIMARY KEY (k, n))")
	for key, size := range blobSizes {
		blobs = append(blobs, content(key, size))
		exec("INSERT INTO "+keyspace+".blobs (k, v) VALUES (?, ?)", key, blobs[key])
	}
	for line := range lines {
		lineRows = append(lineRows, content(line, lineSize))
		exec("INSERT INTO "+keyspace+".lines (k, n, v) VALUES (0, ?, ?)", line, lineRows[line])
	}
	for key := firstSmall; key < firstSmall+smallRows; key++ {
		exec("INSERT INTO "+keyspace+".blobs (k, v) VALUES (?, ?)", key, content(key, smallSize))
	}
}

// moves is how often connections of clients have gone to agents and answers with them.
func moves() (int, error) {
	page, err := http.Get("http://" + os.Getenv("SHUNT_MOVED_ADMIN") + "/metrics")
	if err != nil {
		return 0, err
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if number, found := strings.CutPrefix(line, `shunt_handover_answers_total{way="handed_over"} `); found {
			return strconv.Atoi(strings.TrimSpace(number))
		}
	}
	return 0, errors.New("no shunt_handover_answers_total in the metrics")
}

// work goes on, all at once, on one connection.
type work struct {
	setup
	session     *gocql.Session
	number      int
	before      int
	times       int
	reads       atomic.Int64
	small       atomic.Int64
	moved, over atomic.Bool
}

func read(session *gocql.Session, key int, expected []byte) error {
	var found []byte
	if err := session.Query("SELECT v FROM "+keyspace+".blobs WHERE k = ?", key).Scan(&found); err != nil {
		return fmt.Errorf("row %d: %w", key, err)
	}
	if !bytes.Equal(found, expected) {
		return fmt.Errorf("row %d: %d bytes that are not the %d that were written", key, len(found), len(expected))
	}
	return nil
}

func (w *work) readPages(size int) error {
	rows := w.session.Query("SELECT n, v FROM "+keyspace+".lines WHERE k = ?", 0).PageSize(size).Iter()
	var line, expected int
	var found []byte
	for rows.Scan(&line, &found) {
		if line != expected || !bytes.Equal(found, lineRows[expected]) {
			return fmt.Errorf("pages of %d: line %d of %d bytes where line %d was to come", size, line, len(found), expected)
		}
		expected++
	}
	if err := rows.Close(); err != nil {
		return fmt.Errorf("pages of %d: %w", size, err)
	}
	if expected != lines {
		return fmt.Errorf("pages of %d: %d lines", size, expected)
	}
	return nil
}

// readLarge reads blobs and pages until the connection has been moved so often.
func (w *work) readLarge() error {
	for !w.moved.Load() {
		number := int(w.reads.Add(1)) - 1
		if number >= readsMax {
			return fmt.Errorf("the connection was not moved %d times by %d reads", w.times, readsMax)
		}
		which := number % (len(blobs) + len(pageSizes))
		var err error
		if which < len(blobs) {
			err = read(w.session, which, blobs[which])
		} else {
			err = w.readPages(pageSizes[which-len(blobs)])
		}
		if err != nil {
			return err
		}
		now, err := moves()
		if err != nil {
			return err
		}
		if now-w.before >= w.times {
			w.moved.Store(true)
		}
	}
	return nil
}

func (w *work) readSmall(first int) error {
	for key := first; !w.over.Load(); key = (key + 1) % smallRows {
		if err := read(w.session, firstSmall+key, content(firstSmall+key, smallSize)); err != nil {
			return err
		}
		w.small.Add(1)
	}
	return nil
}

// written is the key of a row that is inserted, and what it has.
func (w *work) written(write int) (int, []byte) {
	key := firstWritten + w.number*writes + write
	return key, content(key, 5*mib)
}

func (w *work) write() error {
	for write := range writes {
		key, value := w.written(write)
		if err := w.session.Query("INSERT INTO "+keyspace+".blobs (k, v) VALUES (?, ?)", key, value).Exec(); err != nil {
			return fmt.Errorf("insert %d: %w", key, err)
		}
		if err := read(w.session, key, value); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) sees(what string, holds func(*gocql.KeyspaceMetadata) bool) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		metadata, err := w.session.KeyspaceMetadata(keyspace)
		if err == nil && holds(metadata) {
			return nil
		}
	}
	return fmt.Errorf("never seen: %s", what)
}

func (w *work) changeSchema() error {
	for change := range 2 {
		name := fmt.Sprint("changed_", w.name, change)
		exec := func(statement string) error { return w.session.Query(statement).Exec() }
		err := exec("CREATE TABLE " + keyspace + "." + name + " (k int PRIMARY KEY)")
		if err == nil {
			err = w.sees("table", func(k *gocql.KeyspaceMetadata) bool { return k.Tables[name] != nil })
		}
		if err == nil {
			err = exec("ALTER TABLE " + keyspace + "." + name + " ADD v text")
		}
		if err == nil {
			err = w.sees("column", func(k *gocql.KeyspaceMetadata) bool {
				return k.Tables[name] != nil && k.Tables[name].Columns["v"] != nil
			})
		}
		if err == nil {
			err = exec("DROP TABLE " + keyspace + "." + name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// together runs so many calls at once and returns what went wrong.
func together(calls []func() error) error {
	var all sync.WaitGroup
	failures := make([]error, len(calls))
	for number, call := range calls {
		all.Add(1)
		go func() {
			defer all.Done()
			failures[number] = call()
		}()
	}
	all.Wait()
	return errors.Join(failures...)
}

func (w *work) all() error {
	var small []func() error
	for first := range smallRows {
		small = append(small, func() error { return w.readSmall(first) })
	}
	large := []func() error{w.write, w.changeSchema}
	for range readers {
		large = append(large, w.readLarge)
	}
	return together([]func() error{
		func() error { return together(small) },
		func() error {
			defer w.over.Store(true)
			return together(large)
		},
	})
}

func TestMain(m *testing.M) {
	if os.Getenv("SHUNT_MOVED") == "" {
		fmt.Println("skipped: this needs the hosts that tests/dispatch/test_cql_drivers.py makes")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLargeAnswersMoveTheConnection(t *testing.T) {
	times, err := strconv.Atoi(os.Getenv("SHUNT_MOVED_TIMES"))
	if err != nil {
		t.Fatalf("SHUNT_MOVED_TIMES: %v", err)
	}
	node := open(t, os.Getenv("SHUNT_MOVED_NODE"), setups[0])
	fill(t, node)
	for number, setup := range setups {
		t.Run(setup.name, func(t *testing.T) {
			before, err := moves()
			if err != nil {
				t.Fatal(err)
			}
			w := &work{setup: setup, session: open(t, os.Getenv("SHUNT_MOVED"), setup), number: number, before: before, times: times}
			if err := w.all(); err != nil {
				t.Fatal(err)
			}
			for write := range writes {
				key, value := w.written(write)
				if err := read(node, key, value); err != nil {
					t.Fatalf("at the node: %v", err)
				}
			}
			now, err := moves()
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("%s: moved %d times, %d small answers\n", setup.name, now-before, w.small.Load())
		})
	}
}
