// Package secured connects gocql, unmodified, the Apache driver v2 and the classic one, to a proxy with mutual TLS.
// SHUNT_SECURED is the proxy's address, SHUNT_SECURED_CA, SHUNT_SECURED_CERTIFICATE and SHUNT_SECURED_KEY are files in PEM;
// tests/tls/test_other_drivers.py makes them. The programs of the other drivers do the same.
package secured

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	classic "github.com/gocql/gocql"
)

const (
	patience = 120 * time.Second
	// An answer of many records.
	largeSize = 1 << 20
)

func secured(t *testing.T) (host string, port int, config *tls.Config) {
	address := os.Getenv("SHUNT_SECURED")
	if address == "" {
		t.Skip("tests/tls/test_other_drivers.py starts the proxy")
	}
	host, portText, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(portText)
	}
	if err != nil {
		t.Fatal(err)
	}
	roots, err := os.ReadFile(os.Getenv("SHUNT_SECURED_CA"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(os.Getenv("SHUNT_SECURED_CERTIFICATE"), os.Getenv("SHUNT_SECURED_KEY"))
	if err != nil {
		t.Fatal(err)
	}
	config = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	if !config.RootCAs.AppendCertsFromPEM(roots) {
		t.Fatal("no authority")
	}
	return host, port, config
}

// session is what both drivers have in common.
type session struct {
	execute func(statement string, values ...any) error
	read    func(destination *[]byte, statement string, values ...any) error
	// Reads keys in pages of this many rows. `hasMore` says whether there are more than those of the first page.
	page func(statement string, rows int) (keys []int, hasMore bool, err error)
}

func work(t *testing.T, s session, keyspace string) {
	replication := "{'class': 'SimpleStrategy', 'replication_factor': 1}"
	for _, statement := range []string{
		"CREATE KEYSPACE IF NOT EXISTS " + keyspace + " WITH replication = " + replication,
		"CREATE TABLE IF NOT EXISTS " + keyspace + ".items (k int PRIMARY KEY, v blob)",
	} {
		if err := s.execute(statement); err != nil {
			t.Fatal(err)
		}
	}
	for key, size := range []int{1, 100, largeSize} {
		written, found := bytes.Repeat([]byte{byte(size), 0x16}, size/2+1), []byte(nil)
		if err := s.execute("INSERT INTO "+keyspace+".items (k, v) VALUES (?, ?)", key, written); err != nil {
			t.Fatal(err)
		}
		if err := s.read(&found, "SELECT v FROM "+keyspace+".items WHERE k = ?", key); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(written, found) {
			t.Fatalf("of %d bytes others came back", size)
		}
	}
	keys, hasMore, err := s.page("SELECT k FROM "+keyspace+".items", 2)
	if err != nil || !hasMore || len(keys) != 3 {
		t.Fatalf("pages of two rows: %v, more than one page: %v, %v", keys, hasMore, err)
	}
}

func TestMutualTls(t *testing.T) {
	host, port, config := secured(t)
	for _, version := range []int{3, 4, 5} {
		t.Run("v"+strconv.Itoa(version), func(t *testing.T) {
			cluster := gocql.NewCluster(host)
			cluster.Port, cluster.ProtoVersion = port, version
			cluster.Timeout, cluster.ConnectTimeout = patience, patience
			cluster.SslOpts = &gocql.SslOptions{Config: config, EnableHostVerification: true}
			connected, err := cluster.CreateSession()
			if err != nil {
				t.Fatal(err)
			}
			defer connected.Close()
			work(t, session{
				execute: func(statement string, values ...any) error { return connected.Query(statement, values...).Exec() },
				read: func(destination *[]byte, statement string, values ...any) error {
					return connected.Query(statement, values...).Scan(destination)
				},
				page: func(statement string, rows int) (keys []int, hasMore bool, err error) {
					pages, key := connected.Query(statement).PageSize(rows).Iter(), 0
					hasMore = len(pages.PageState()) > 0
					for pages.Scan(&key) {
						keys = append(keys, key)
					}
					return keys, hasMore, pages.Close()
				},
			}, "secured_go_"+strconv.Itoa(version))
		})
	}
}

func TestMutualTlsOfTheClassicDriver(t *testing.T) {
	host, port, config := secured(t)
	cluster := classic.NewCluster(host)
	cluster.Port, cluster.ProtoVersion = port, 4
	cluster.Timeout, cluster.ConnectTimeout = patience, patience
	cluster.SslOpts = &classic.SslOptions{Config: config, EnableHostVerification: true}
	connected, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	work(t, session{
		execute: func(statement string, values ...any) error { return connected.Query(statement, values...).Exec() },
		read: func(destination *[]byte, statement string, values ...any) error {
			return connected.Query(statement, values...).Scan(destination)
		},
		page: func(statement string, rows int) (keys []int, hasMore bool, err error) {
			pages, key := connected.Query(statement).PageSize(rows).Iter(), 0
			hasMore = len(pages.PageState()) > 0
			for pages.Scan(&key) {
				keys = append(keys, key)
			}
			return keys, hasMore, pages.Close()
		},
	}, "secured_classic")
}
