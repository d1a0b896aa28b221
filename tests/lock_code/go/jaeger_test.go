// Jaeger's lock on Cassandra, as it is published: leases that are extended by their owner, end by themselves, and are held by one.
package lockcode

import (
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	casspkg "github.com/jaegertracing/jaeger/pkg/cassandra"
	casgocql "github.com/jaegertracing/jaeger/pkg/cassandra/gocql"
	"github.com/jaegertracing/jaeger/plugin/pkg/distributedlock/cassandra"
)

func open(t *testing.T) (*gocql.Session, casspkg.Session) {
	contact := strings.Split(os.Getenv("SHUNT_CONTACT"), ",")
	cluster := gocql.NewCluster()
	for _, one := range contact {
		host, port, _ := strings.Cut(one, ":")
		cluster.Hosts = append(cluster.Hosts, host)
		fmt.Sscan(port, &cluster.Port)
	}
	cluster.Keyspace = os.Getenv("SHUNT_KEYSPACE")
	cluster.Consistency = gocql.Quorum
	// A proxy that is killed closes its connections: only one that is slow hangs on these.
	cluster.Timeout = time.Minute
	cluster.ConnectTimeout = time.Minute
	cluster.ReconnectInterval = time.Second
	cluster.ProtoVersion = 4
	session, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session, casgocql.WrapCQLSession(session)
}

func TestALeaseIsHeldByOneAndExtendedByItsOwner(t *testing.T) {
	_, session := open(t)
	name := fmt.Sprintf("one-%d", rand.Int63())
	ann, bob := cassandra.NewLock(session, "ann"), cassandra.NewLock(session, "bob")
	for attempt := 0; attempt < 3; attempt++ {
		if got, err := ann.Acquire(name, time.Minute); !got || err != nil {
			t.Fatal(got, err)
		}
		if got, err := bob.Acquire(name, time.Minute); got || err != nil {
			t.Fatal(got, err)
		}
	}
	if got, err := bob.Forfeit(name); got || err == nil {
		t.Fatal("a lease of another was forfeited")
	}
	if got, err := ann.Forfeit(name); !got || err != nil {
		t.Fatal(got, err)
	}
	// Before it is asked for: it counts from then on at the earliest, and the answer may be late.
	begun := time.Now()
	if got, err := bob.Acquire(name, 2*time.Second); !got || err != nil {
		t.Fatal(got, err)
	}
	for {
		got, err := ann.Acquire(name, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if got {
			break
		}
		if time.Since(begun) > 3*time.Minute {
			t.Fatal("a lease of two seconds does not end")
		}
		time.Sleep(50 * time.Millisecond)
	}
	if time.Since(begun) < time.Second {
		t.Fatal("a lease of two seconds has ended early")
	}
}

// holder notes until when the owner of the lease may count on it.
type holder struct {
	guard sync.Mutex
	until time.Time
}

// begin is false if the lease may be over already, which is so if its owner stood still.
func (h *holder) begin(until time.Time) (bool, error) {
	h.guard.Lock()
	defer h.guard.Unlock()
	now := time.Now()
	if !now.Before(until) {
		return false, nil
	}
	if now.Before(h.until) {
		return false, errors.New("two hold the lease")
	}
	h.until = until
	return true, nil
}

// end is false if the lease was over before.
func (h *holder) end(until time.Time) bool {
	h.guard.Lock()
	defer h.guard.Unlock()
	if !time.Now().Before(until) {
		return false
	}
	h.until = time.Time{}
	return true
}

// Owners who add to a number that nothing but the lock keeps right. Proxies may be killed meanwhile.
func TestLeasesKeepIncrementsApart(t *testing.T) {
	session, wrapped := open(t)
	const owners, times, ttl = 6, 25, 20 * time.Second
	name := fmt.Sprintf("counter-%d", rand.Int63())
	var held holder
	var all sync.WaitGroup
	again := func(what func() error) {
		for begun := time.Now(); ; {
			err := what()
			if err == nil {
				return
			}
			if time.Since(begun) > time.Minute {
				t.Error(err)
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	again(func() error { return session.Query("INSERT INTO counter (id, n) VALUES (2, 0)").Exec() })
	for owner := 0; owner < owners; owner++ {
		all.Add(1)
		go func() {
			defer all.Done()
			lock := cassandra.NewLock(wrapped, fmt.Sprintf("owner-%d", owner))
			for done := 0; done < times && !t.Failed(); {
				// The lease lasts from when it is granted, which is later. Its time has whole seconds.
				until := time.Now().Add(ttl - time.Second)
				got, err := lock.Acquire(name, ttl)
				if err != nil || !got {
					time.Sleep(time.Duration(2+rand.Intn(10)) * time.Millisecond)
					continue
				}
				counts, err := held.begin(until)
				if err != nil {
					t.Error(err)
					return
				}
				if !counts {
					continue
				}
				var n int
				again(func() error { return session.Query("SELECT n FROM counter WHERE id = 2").Scan(&n) })
				again(func() error { return session.Query("UPDATE counter SET n = ? WHERE id = 2", n+1).Exec() })
				done++
				if !held.end(until) {
					t.Error("timed out: an owner stood still until its lease was over, and has written under it")
					return
				}
				// If nobody knows whether it was forfeited, its owner takes it again, or it ends by itself.
				_, _ = lock.Forfeit(name)
			}
		}()
	}
	all.Wait()
	if t.Failed() {
		return
	}
	var n int
	again(func() error { return session.Query("SELECT n FROM counter WHERE id = 2").Scan(&n) })
	if n != owners*times {
		t.Fatalf("%d increments of %d are there", n, owners*times)
	}
}
