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

func TestSchemaIsInAgreementAfterAChange(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		s.exec("CREATE TABLE agreed_" + s.name + " (key int PRIMARY KEY)")
		if err := s.session.AwaitSchemaAgreement(s.Context()); err != nil {
			s.Fatal(err)
		}
	})
}

// sees waits until the condition holds; events arrive when they arrive.
func (s *scenario) sees(session *gocql.Session, what string, condition func(*gocql.KeyspaceMetadata) bool) {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		metadata, err := session.KeyspaceMetadata(keyspace)
		if err == nil && condition(metadata) {
			return
		}
	}
	s.Fatalf("never seen: %s", what)
}

func TestSchemaChangesAreSeenByAnotherSession(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		other := s.open(s.T, keyspace)
		table := "watched_" + s.name
		s.exec("CREATE TABLE " + table + " (key text PRIMARY KEY, number int)")
		s.sees(other, "table", func(k *gocql.KeyspaceMetadata) bool { return k.Tables[table] != nil })
		s.exec("ALTER TABLE " + table + " ADD added map<text, int>")
		s.exec("CREATE TYPE " + table + "_type (a int, b text)")
		s.sees(other, "column", func(k *gocql.KeyspaceMetadata) bool { return k.Tables[table].Columns["added"] != nil })
		s.sees(other, "type", func(k *gocql.KeyspaceMetadata) bool { return k.UserTypes[table+"_type"] != nil })
		s.exec("DROP TABLE " + table)
		s.sees(other, "end of the table", func(k *gocql.KeyspaceMetadata) bool { return k.Tables[table] == nil })
	})
}

func TestTruncateEmptiesATable(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		table := "emptied_" + s.name
		s.exec("CREATE TABLE " + table + " (key text PRIMARY KEY)")
		s.exec("INSERT INTO "+table+" (key) VALUES (?)", s.key)
		s.exec("TRUNCATE " + table)
		s.equal(s.session.Query("SELECT * FROM "+table).Iter().NumRows(), 0, "rows")
	})
}
