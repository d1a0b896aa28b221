package drivers

import (
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func TestMetadataShowsTheKeyspaceItsTablesAndTypes(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		metadata, err := s.session.KeyspaceMetadata(keyspace)
		if err != nil {
			s.Fatal(err)
		}
		s.equal(metadata.StrategyOptions["replication_factor"], environment("SHUNT_RF", "1"), "replication factor")
		lines := metadata.Tables["lines"]
		if lines == nil {
			s.Fatal("no table lines")
		}
		s.equal(lines.PartitionKey[0].Name, "key", "partition key")
		s.equal(lines.ClusteringColumns[0].Name, "line", "clustering column")
		s.equal(lines.Columns["body"].Type.Type(), gocql.TypeText, "type of body")
		s.equal(metadata.UserTypes["address"].FieldNames[1], "number", "field of address")
	})
}

func TestDescribeIsAnsweredByTheStore(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		row := map[string]any{}
		if err := s.session.Query("DESCRIBE TABLE " + keyspace + ".items").MapScan(row); err != nil {
			s.Fatal(err)
		}
		s.equal(row["name"], "items", "name")
	})
}

// sees waits until the condition holds; events arrive when they arrive.
func (s *scenario) sees(session *gocql.Session, what string, condition func(*gocql.KeyspaceMetadata) bool) {
	s.Helper()
	for deadline := time.Now().Add(180 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		metadata, err := session.KeyspaceMetadata(keyspace)
		if err == nil && condition(metadata) {
			return
		}
	}
	s.Fatalf("never seen: %s", what)
}

func TestSchemaChangesAreSeenByAnotherSession(t *testing.T) {
	inOneSetup(t, func(s *scenario) {
		other := s.open(s.T, keyspace)
		table := "watched_" + s.name
		s.exec("CREATE TABLE " + table + " (key text PRIMARY KEY, number int)")
		if err := s.session.AwaitSchemaAgreement(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.sees(other, "table", func(k *gocql.KeyspaceMetadata) bool { return k.Tables[table] != nil })
		s.exec("ALTER TABLE " + table + " ADD added map<text, int>")
		s.sees(other, "column", func(k *gocql.KeyspaceMetadata) bool { return k.Tables[table].Columns["added"] != nil })
		s.exec("DROP TABLE " + table)
		s.sees(other, "end of the table", func(k *gocql.KeyspaceMetadata) bool { return k.Tables[table] == nil })
	})
}

func TestTruncateEmptiesATable(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		// On all replicas, or the last of them might write the row after it was emptied.
		insert := s.session.Query("INSERT INTO emptied (key) VALUES (?)", s.key).Consistency(gocql.All)
		if err := insert.Exec(); err != nil {
			s.Fatal(err)
		}
		s.exec("TRUNCATE emptied")
		s.equal(s.session.Query("SELECT * FROM emptied").Iter().NumRows(), 0, "rows")
	})
}
