package drivers

import (
	"fmt"
	"net"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func TestSettlesOnTheExpectedProtocolVersion(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		own := s.open(s.T, "")
		if err := own.Query("SELECT key FROM system.local").Exec(); err != nil {
			s.Fatal(err)
		}
		s.equal(int(s.seen.last.Load()), s.expected, "protocol version")
	})
}

func TestSeesTheContactPointAsTheOnlyHost(t *testing.T) {
	if !singleHostExpected() {
		t.Skip("a bare ring")
	}
	inEverySetup(t, func(s *scenario) {
		hosts := s.session.GetHosts()
		s.equal(len(hosts), 1, fmt.Sprint(hosts))
		host, port := contact()
		s.equal(hosts[0].ConnectAddress().String(), host, "address")
		s.equal(hosts[0].Port(), port, "port")
		s.equal(hosts[0].IsUp(), true, "up")
		if hosts[0].HostID() == "" || hosts[0].DataCenter() == "" || hosts[0].ClusterName() == "" {
			s.Fatalf("incomplete: %v", hosts[0])
		}
		if len(hosts[0].Tokens()) == 0 {
			s.Fatal("no tokens")
		}
	})
}

func TestTokenAwarePolicyStaysAtTheContactPoint(t *testing.T) {
	if !singleHostExpected() {
		t.Skip("a bare ring")
	}
	inEverySetup(t, func(s *scenario) {
		config := s.cluster()
		config.Keyspace = keyspace
		config.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
		session, err := config.CreateSession()
		if err != nil {
			s.Fatal(err)
		}
		defer session.Close()
		host, _ := contact()
		for i := 0; i < 50; i++ {
			iter := session.Query("INSERT INTO items (key, number) VALUES (?, ?)", fmt.Sprint(s.key, i), i).Iter()
			s.equal(iter.Host().ConnectAddress().String(), host, "coordinator")
			if err := iter.Close(); err != nil {
				s.Fatal(err)
			}
		}
	})
}

func TestOpensSocketsToTheContactPointOnly(t *testing.T) {
	if !singleHostExpected() {
		t.Skip("a bare ring")
	}
	inEverySetup(t, func(s *scenario) {
		s.exec("SELECT key FROM items LIMIT 1")
		host, port := contact()
		want := net.JoinHostPort(host, fmt.Sprint(port))
		remote := remoteAddresses(s.T)
		if len(remote) != 1 || !remote[want] {
			s.Fatalf("connections to %v, want only %s", remote, want)
		}
	})
}

func TestOpensAndClosesSessionsOneAfterTheOther(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		for i := 0; i < 5; i++ {
			session, err := s.cluster().CreateSession()
			if err != nil {
				s.Fatal(err)
			}
			var release string
			err = session.Query("SELECT release_version FROM system.local").Scan(&release)
			session.Close()
			if err != nil || release == "" {
				s.Fatalf("release %q: %v", release, err)
			}
		}
	})
}
