package locks

import (
	"fmt"
	"testing"
	"time"

	classic "github.com/gocql/gocql"
)

// The classic gocql, in the versions that it has.
func TestClassicDriver(t *testing.T) {
	victim(t, false)
	for _, version := range []int{3, 4} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			host, port := contact()
			config := classic.NewCluster(host)
			config.Port, config.ProtoVersion = port, version
			config.Timeout, config.ConnectTimeout = 30*time.Second, 30*time.Second
			session, err := config.CreateSession()
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close()
			name := fmt.Sprint(t.Name(), "-", time.Now().UnixNano())
			var last int64
			for _, owner := range []string{"ann", "bob"} {
				row := map[string]any{}
				applied, err := session.Query(acquire, name, owner, ttl).MapScanCAS(row)
				equal(t, applied && err == nil && row["owner"] == owner, true, fmt.Sprint(applied, err, row))
				equal(t, row["fence"].(int64) > last, true, "a fence that rises")
				last = row["fence"].(int64)
				row = map[string]any{}
				applied, err = session.Query(acquire, name, "eve", ttl).MapScanCAS(row)
				equal(t, !applied && err == nil && row["owner"] == owner, true, fmt.Sprint(applied, err, row))
				applied, err = session.Query(release+" AND fence = ?", name, owner, last).MapScanCAS(map[string]any{})
				equal(t, applied && err == nil, true, fmt.Sprint(applied, err))
			}
		})
	}
}
