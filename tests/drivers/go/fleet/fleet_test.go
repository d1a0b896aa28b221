// Package fleet takes locks and carries out transactions through a fleet of proxies with gocql, unmodified. SHUNT_FLEET has the proxies' addresses; the first is
// the only contact point that the driver is given. SHUNT_FLEET_VICTIM is the first one's process, and only the test that kills it
// is run then.
package fleet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const (
	acquire = "INSERT INTO shunt.locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL ?"
	release = "DELETE FROM shunt.locks WHERE name = ? IF owner = ?"
	// As long as tests/drivers/fleet.py allows for locks in memory: no lock ends while a test counts on it.
	ttl = 300
	// What waits for something gives up after this time.
	patience = 180 * time.Second
	pause    = 50 * time.Millisecond
)

var proxies = strings.Split(os.Getenv("SHUNT_FLEET"), ",")

func TestMain(m *testing.M) {
	if os.Getenv("SHUNT_FLEET") == "" {
		fmt.Println("skipped: these tests need a fleet of proxies in SHUNT_FLEET; tests/drivers/fleet.py starts one")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// victim is the process of the first proxy, 0 while nothing is to be killed. A test of the other sort is skipped.
func victim(t *testing.T, wanted bool) int {
	process, _ := strconv.Atoi(os.Getenv("SHUNT_FLEET_VICTIM"))
	if (process != 0) != wanted {
		t.Skip("with SHUNT_FLEET_VICTIM only a proxy is killed, without it none")
	}
	return process
}

func contact() (string, int) {
	host, portText, err := net.SplitHostPort(proxies[0])
	if err != nil {
		panic(fmt.Sprintf("SHUNT_FLEET %q: %v", proxies[0], err))
	}
	port, _ := strconv.Atoi(portText)
	return host, port
}

// open connects to the first proxy. But for time-outs, and the protocol version that is asked for, all is the driver's default.
func open(t *testing.T, version int) *gocql.Session {
	t.Helper()
	host, port := contact()
	config := gocql.NewCluster(host)
	config.Port, config.ProtoVersion = port, version
	config.Timeout, config.ConnectTimeout = patience, patience
	session, err := config.CreateSession()
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(session.Close)
	return session
}

// client is what a test has: a session, and a name that no other test has.
type client struct {
	*testing.T
	*gocql.Session
	name string
}

// inEveryVersion runs a test in each protocol version that the driver has.
func inEveryVersion(t *testing.T, run func(c *client)) {
	victim(t, false)
	for _, version := range []int{3, 4, 5} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			run(&client{t, open(t, version), fmt.Sprint(t.Name(), "-", time.Now().UnixNano())})
		})
	}
}

// answer is the row of a conditional statement.
type answer struct {
	applied bool
	owner   string
	fence   int64
	ttl     int32
	waiters int32
}

// notServed is the code of requests that were certainly not executed.
func notServed(err error) bool {
	var code gocql.RequestError
	return errors.As(err, &code) && code.Code() == gocql.ErrCodeBootstrapping
}

// try runs a conditional statement.
func try(query *gocql.Query) (answer, error) {
	row := map[string]any{}
	applied, err := query.MapScanCAS(row)
	if err != nil {
		return answer{}, err
	}
	found := answer{applied: applied}
	found.owner, _ = row["owner"].(string)
	fence, _ := row["fence"].(int64)
	ttl, _ := row["ttl_ms"].(int)
	waiters, _ := row["waiters"].(int)
	found.fence, found.ttl, found.waiters = fence, int32(ttl), int32(waiters)
	return found, nil
}

// ask is try, again and again while the answer is that the lock is not served yet.
func (c *client) ask(statement string, values ...any) answer {
	c.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		found, err := try(c.Query(statement, values...))
		if err == nil {
			return found
		}
		if !notServed(err) || time.Now().After(deadline) {
			c.Fatalf("%s %v: %v", statement, values, err)
		}
	}
}

func equal[V comparable](t testing.TB, got, want V, what string) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
