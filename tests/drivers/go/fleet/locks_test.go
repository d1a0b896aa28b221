package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func of(table, statement string) string {
	return strings.Replace(statement, "shunt.locks", "shunt."+table, 1)
}

func TestALockIsHeldByOneAndItsFencesRise(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		for _, table := range []string{"locks", "fast_locks"} {
			acquire, release := of(table, acquire), of(table, release)
			var last int64
			for _, owner := range []string{"ann", "bob", "ann"} {
				first := c.ask(acquire, c.name, owner, ttl)
				equal(c, first.applied && first.owner == owner && first.fence > last, true, fmt.Sprint(first))
				equal(c, first.ttl > 0 && first.ttl <= ttl*1000, true, fmt.Sprint("ttl_ms ", first.ttl))
				for _, other := range []string{owner, "eve"} {
					found := c.ask(acquire, c.name, other, ttl)
					equal(c, found.applied, false, other)
					equal(c, found.owner, owner, other)
					equal(c, found.fence, first.fence, other)
				}
				equal(c, c.ask(release, c.name, owner).applied, true, "release")
				last = first.fence
			}
		}
	})
}

// gocql prepares a statement with values and sends one without as text.
func TestTextsDoWhatPreparedStatementsDo(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		text := func(format string) answer { return c.ask(strings.ReplaceAll(format, "?", "'"+c.name+"'")) }
		first := text("INSERT INTO shunt.locks (name, owner) VALUES (?, 'ann') IF NOT EXISTS USING TTL 300")
		equal(c, first.applied, true, "acquire")
		fence := fmt.Sprint(first.fence)
		equal(c, text("UPDATE shunt.locks USING TTL 900 SET owner = 'ann' WHERE name = ? IF owner = 'ann' AND fence = "+fence).applied, true, "renew")
		renewed := text("INSERT INTO shunt.locks (name, owner) VALUES (?, 'ann') IF NOT EXISTS USING TTL 300")
		equal(c, renewed.fence, first.fence, "fence")
		equal(c, renewed.ttl > ttl*1000, true, "the renewed time")
		equal(c, text("DELETE FROM shunt.locks WHERE name = ? IF owner = 'ann' AND fence = "+fence).applied, true, "release")
	})
}

func TestRenewLookAndReleaseByFence(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		renew := "UPDATE shunt.locks USING TTL ? SET owner = ? WHERE name = ? IF owner = ? AND fence = ?"
		drop := release + " AND fence = ?"
		fence := c.ask(acquire, c.name, "ann", ttl).fence
		equal(c, c.ask(renew, 10*ttl, "ann", c.name, "ann", fence-1).applied, false, "renewed by an old fence")
		equal(c, c.ask(renew, 10*ttl, "ann", c.name, "ann", fence).applied, true, "renew")
		var owner string
		var seen int64
		var left, waiters int
		look := "SELECT owner, fence, ttl_ms, waiters FROM shunt.locks WHERE name = ?"
		if err := c.Query(look, c.name).Scan(&owner, &seen, &left, &waiters); err != nil {
			c.Fatal(err)
		}
		equal(c, owner == "ann" && seen == fence && left > ttl*1000 && waiters == 0, true, fmt.Sprint(owner, seen, left, waiters))
		equal(c, c.ask(drop, c.name, "ann", fence+1).applied, false, "released by another fence")
		equal(c, c.ask(drop, c.name, "ann", fence).applied, true, "release")
		equal(c, c.Query(look, c.name).Scan(&owner, &seen, &left, &waiters), gocql.ErrNotFound, "what nobody holds")
	})
}

func TestAnotherOwnerChangesNothing(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		fence := c.ask(acquire, c.name, "ann", ttl).fence
		for _, refused := range []answer{
			c.ask(release, c.name, "eve"),
			c.ask("UPDATE shunt.locks USING TTL 300 SET owner = 'eve' WHERE name = ? IF owner = 'eve'", c.name),
		} {
			equal(c, refused.applied, false, "applied")
			equal(c, refused.owner, "ann", "holder")
			equal(c, refused.fence, fence, "fence")
		}
		equal(c, c.ask(release, c.name, "ann").applied, true, "release")
	})
}

func TestAWaitingClientGetsTheReleasedLock(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		second := open(c.T, 0)
		fence := c.ask(acquire, c.name, "first", 3600).fence
		waits := "INSERT INTO shunt.locks (name, owner, wait_ms) VALUES (?, ?, 200000) IF NOT EXISTS USING TTL 300"
		granted := make(chan answer, 1)
		failed := make(chan error, 1)
		go func() {
			found, err := try(second.Query(waits, c.name, "second"))
			failed <- err
			granted <- found
		}()
		for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			var waiters int
			if err := c.Query("SELECT waiters FROM shunt.locks WHERE name = ?", c.name).Scan(&waiters); err != nil {
				c.Fatal(err)
			}
			if waiters == 1 {
				break
			}
			if time.Now().After(deadline) {
				c.Fatal("nobody waits")
			}
		}
		equal(c, len(failed), 0, "answers while it is held")
		equal(c, c.ask(release, c.name, "first").applied, true, "release")
		if err := <-failed; err != nil {
			c.Fatal(err)
		}
		found := <-granted
		equal(c, found.applied && found.owner == "second" && found.fence > fence, true, fmt.Sprint(found))
		equal(c, c.ask(release, c.name, "second").applied, true, "release")
	})
}

func TestReadersShareAndAWriterDoesNot(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		for _, table := range []string{"rwlocks", "fast_rwlocks"} {
			take := of(table, "INSERT INTO shunt.locks (name, owner, mode) VALUES (?, ?, ?) IF NOT EXISTS USING TTL 300")
			leave := of(table, "DELETE FROM shunt.locks WHERE name = ? AND owner = ? IF EXISTS")
			renew := of(table, "UPDATE shunt.locks USING TTL 300 SET mode = 'S' WHERE name = ? AND owner = ? IF EXISTS")
			equal(c, c.ask(take, c.name, "r1", "S").applied, true, "first reader")
			equal(c, c.ask(take, c.name, "r2", "S").applied, true, "second reader")
			equal(c, c.ask(take, c.name, "w", "X").applied, false, "writer beside readers")
			equal(c, c.ask(renew, c.name, "r1").applied, true, "renewal")
			var owners []string
			iter := c.Query("SELECT owner FROM shunt.lock_queue WHERE name = ? AND fast = ?", c.name, table == "fast_rwlocks").Iter()
			for owner := ""; iter.Scan(&owner); {
				owners = append(owners, owner)
			}
			if err := iter.Close(); err != nil || !slices.Equal(owners, []string{"r1", "r2"}) {
				c.Fatal(owners, err)
			}
			// One owner in both modes is refused in words, not by [applied].
			var invalid *gocql.RequestErrInvalid
			if _, err := try(c.Query(take, c.name, "r1", "X")); !errors.As(err, &invalid) {
				c.Fatalf("got %v", err)
			}
			equal(c, c.ask(leave, c.name, "r1").applied, true, "release")
			equal(c, c.ask(leave, c.name, "r2").applied, true, "release")
			equal(c, c.ask(take, c.name, "w", "X").applied, true, "writer alone")
			equal(c, c.ask(take, c.name, "r1", "S").applied, false, "reader beside a writer")
			equal(c, c.ask(leave, c.name, "w").applied, true, "release")
		}
	})
}

func TestSeveralLocksAreTakenAllOrNone(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		var names []string
		for i := range 5 {
			names = append(names, fmt.Sprint(c.name, i))
		}
		all := func(owner string) (bool, []map[string]any) {
			for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
				batch := c.Batch(gocql.LoggedBatch)
				for _, name := range names {
					batch.Query(acquire, name, owner, ttl)
				}
				first := map[string]any{}
				applied, iter, err := batch.MapExecCAS(first)
				if notServed(err) && time.Now().Before(deadline) {
					continue
				}
				if err != nil {
					c.Fatal(err)
				}
				rows, err := iter.SliceMap()
				if err != nil {
					c.Fatal(err)
				}
				return applied, append([]map[string]any{first}, rows...)
			}
		}
		applied, rows := all("ann")
		equal(c, applied && len(rows) == len(names), true, fmt.Sprint(applied, rows))
		for i, name := range names {
			equal(c, rows[i]["name"], any(name), "name")
			equal(c, rows[i]["owner"], any("ann"), "owner")
			if i != 3 {
				equal(c, c.ask(release, name, "ann").applied, true, name)
			}
		}
		applied, rows = all("bob")
		equal(c, !applied && len(rows) == 1, true, fmt.Sprint(applied, rows))
		equal(c, rows[0]["name"], any(names[3]), "the lock that was refused")
		for i, name := range names {
			var owner string
			err := c.Query("SELECT owner FROM shunt.locks WHERE name = ?", name).Scan(&owner)
			equal(c, i == 3 && owner == "ann" || errors.Is(err, gocql.ErrNotFound), true, fmt.Sprint(name, owner, err))
		}
	})
}

func TestUnsupportedStatementsOnLocksAreInvalid(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		for _, statement := range []string{
			"INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') USING TTL 5",
			"INSERT INTO shunt.locks (name, owner) VALUES ('n', 'o') IF NOT EXISTS",
			"UPDATE shunt.locks SET owner = 'x' WHERE name = 'n'",
			"DELETE FROM shunt.locks WHERE name = 'n'",
			"SELECT count(*) FROM shunt.locks WHERE name = 'n'",
			"TRUNCATE shunt.locks",
		} {
			var invalid *gocql.RequestErrInvalid
			if err := c.Query(statement).Exec(); !errors.As(err, &invalid) {
				c.Fatalf("%s: got %v", statement, err)
			}
		}
	})
}

func TestTheDriverKnowsTheTables(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		shunt, err := c.KeyspaceMetadata("shunt")
		if err != nil {
			c.Fatal(err)
		}
		for table, key := range map[string]int{"locks": 1, "fast_locks": 1, "rwlocks": 2, "fast_rwlocks": 2, "lock_queue": 3} {
			found := shunt.Tables[table]
			if found == nil {
				c.Fatalf("there is no %s", table)
			}
			equal(c, len(found.PartitionKey)+len(found.ClusteringColumns), key, "columns of the key of "+table)
			equal(c, found.PartitionKey[0].Name, "name", "partition key of "+table)
			equal(c, found.Columns["fence"].Type.Type(), gocql.TypeBigInt, "fence of "+table)
		}
	})
}

func TestTheKeyspaceOfASession(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		host, port := contact()
		config := gocql.NewCluster(host)
		config.Port, config.Keyspace = port, "shunt"
		config.Timeout, config.ConnectTimeout = patience, patience
		session, err := config.CreateSession() // sends USE on each of its connections
		if err != nil {
			c.Fatal(err)
		}
		defer session.Close()
		own := &client{c.T, session, c.name}
		equal(c, own.ask("INSERT INTO locks (name, owner) VALUES (?, 'o') IF NOT EXISTS USING TTL 300", c.name).applied, true, "acquire")
		equal(c, own.ask("DELETE FROM locks WHERE name = ? IF owner = 'o'", c.name).applied, true, "release")
	})
}

func TestEveryProxyIsAHostThatTakesRequests(t *testing.T) {
	inEveryVersion(t, func(c *client) {
		equal(c, len(c.GetHosts()), len(proxies), "hosts")
		asked := map[string]bool{}
		for deadline := time.Now().Add(patience); len(asked) < len(proxies); {
			iter := c.Query("SELECT owner FROM shunt.locks WHERE name = ?", c.name).Iter()
			asked[iter.Host().ConnectAddressAndPort()] = true
			if err := iter.Close(); err != nil {
				c.Fatal(err)
			}
			if time.Now().After(deadline) {
				c.Fatalf("only %v are asked", asked)
			}
		}
		for _, proxy := range proxies {
			equal(c, asked[proxy], true, proxy)
		}
	})
}
