package fleet

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// A client that knows one proxy, which is killed, goes on with the others; what it held it holds, and it is granted more.
func TestAKilledProxysClientsGoOnWithTheOthers(t *testing.T) {
	process := victim(t, true)
	c := &client{t, open(t, 0), fmt.Sprint(t.Name(), "-", time.Now().UnixNano())}
	// A proxy that was not run for as long as a lease is none of the fleet for a moment.
	for deadline := time.Now().Add(patience); len(c.GetHosts()) != len(proxies); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("hosts: %v", c.GetHosts())
		}
	}
	const count = 24 // so each proxy owns some
	held := map[string]int64{}
	for i := range count {
		name := fmt.Sprint(c.name, "-held-", i)
		held[name] = c.ask(acquire, name, "ann", 600).fence
	}
	if err := syscall.Kill(process, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// Locks in memory that the killed one may have granted are nobody's for longer than its lease, so some are refused now.
	var refused int
	for deadline := time.Now().Add(patience); refused == 0; {
		for i := range count {
			_, err := try(c.Query(of("fast_locks", acquire), fmt.Sprint(c.name, "-fast-", i), "ann", ttl))
			if notServed(err) {
				refused++
			} else if err != nil {
				c.mayFail(err)
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("no lock in memory was refused by IS_BOOTSTRAPPING")
		}
	}
	for name, fence := range held {
		found := c.goesOn(acquire, name, "bob", ttl)
		equal(c, !found.applied && found.owner == "ann" && found.fence == fence, true, fmt.Sprint(name, found, fence))
		// The answer to a first release may have been lost.
		found = c.goesOn(release+" AND fence = ?", name, "ann", fence)
		equal(c, found.applied || found.owner == "", true, "release of "+name)
	}
	for i := range count {
		name := fmt.Sprint(c.name, "-new-", i)
		found := c.goesOn(acquire, name, "ann", ttl)
		equal(c, found.owner == "ann" && found.fence > 0, true, fmt.Sprint(name, found))
	}
}

// goesOn asks until there is an answer that says what is.
func (c *client) goesOn(statement string, values ...any) answer {
	c.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		found, err := try(c.Query(statement, values...))
		if err == nil {
			return found
		}
		c.mayFail(err)
		if time.Now().After(deadline) {
			c.Fatalf("%s %v: %v", statement, values, err)
		}
	}
}

// mayFail: what a client may be told in such a moment. Anything else of a server is a failure.
func (c *client) mayFail(err error) {
	c.Helper()
	var said gocql.RequestError
	if errors.As(err, &said) && said.Code() != gocql.ErrCodeBootstrapping && said.Code() != gocql.ErrCodeWriteTimeout {
		c.Fatalf("%T %v", err, err)
	}
}
