package drivers

import (
	"bytes"
	"math/big"
	"math/rand"
	"net"
	"reflect"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"gopkg.in/inf.v0"
)

const fiveMegabytes = 5 << 20

// deepEqual compares values that have no ==.
func (s *scenario) deepEqual(got, want any, what string) {
	s.Helper()
	if !reflect.DeepEqual(got, want) {
		s.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

type scalars struct {
	a   string
	bi  int64
	bl  []byte
	bo  bool
	d   time.Time
	de  *inf.Dec
	dbl float64
	du  gocql.Duration
	f   float32
	ip  net.IP
	i   int
	si  int16
	t   time.Duration
	ts  time.Time
	tu  gocql.UUID
	ti  int8
	u   gocql.UUID
	vc  string
	vi  *big.Int
}

func TestScalarsOfEveryType(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		want := scalars{
			a: "ascii", bi: -1 << 63, bl: []byte{0, 1, 255}, bo: true,
			d:  time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC),
			de: inf.NewDec(-123456789, 4), dbl: 3.141592653589793,
			du: gocql.Duration{Months: 1, Days: 2, Nanoseconds: 3_600_000_000_000}, f: 1.5,
			ip: net.ParseIP("2001:db8::1"), i: -1 << 31, si: 1<<15 - 1,
			t:  23*time.Hour + 59*time.Minute + 999_999_999,
			ts: time.UnixMilli(1_700_000_000_123).UTC(), tu: gocql.TimeUUID(), ti: -128,
			u: gocql.MustRandomUUID(), vc: "zürich 🚂",
			vi: new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 200)),
		}
		columns := "a, bi, bl, bo, d, de, dbl, du, f, ip, i, si, t, ts, tu, ti, u, vc, vi"
		s.exec("INSERT INTO scalars (key, "+columns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
			s.key, want.a, want.bi, want.bl, want.bo, want.d, want.de, want.dbl, want.du, want.f, want.ip,
			want.i, want.si, want.t, want.ts, want.tu, want.ti, want.u, want.vc, want.vi)
		got := scalars{de: new(inf.Dec), vi: new(big.Int)}
		s.scan("SELECT "+columns+" FROM scalars WHERE key = ?", []any{s.key},
			&got.a, &got.bi, &got.bl, &got.bo, &got.d, &got.de, &got.dbl, &got.du, &got.f, &got.ip,
			&got.i, &got.si, &got.t, &got.ts, &got.tu, &got.ti, &got.u, &got.vc, &got.vi)
		s.equal(got.de.Cmp(want.de), 0, "decimal")
		s.equal(got.vi.Cmp(want.vi), 0, "varint")
		got.de, got.vi = want.de, want.vi
		s.deepEqual(got, want, "row")
	})
}

func TestCollectionsTupleAndVector(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		list, set := []int{3, 1, 2}, []string{"a", "b"}
		dictionary := map[string]int64{"x": 1, "y": -1}
		nested := map[int][][]int{1: {{1, 2}, {3}}}
		vector := []float32{0.5, -1, 2.25}
		// gocql takes and gives the elements of a tuple one by one.
		s.exec("INSERT INTO collected (key, l, s, m, t, n, v) VALUES (?, ?, ?, ?, (?, ?, ?), ?, ?)",
			s.key, list, set, dictionary, 1, "two", true, nested, vector)
		var gotList []int
		var gotSet []string
		var gotDictionary map[string]int64
		var number int
		var text string
		var flag bool
		var gotNested map[int][][]int
		var gotVector []float32
		s.scan("SELECT l, s, m, t, n, v FROM collected WHERE key = ?", []any{s.key},
			&gotList, &gotSet, &gotDictionary, &number, &text, &flag, &gotNested, &gotVector)
		s.deepEqual(gotList, list, "list")
		s.deepEqual(gotSet, set, "set")
		s.deepEqual(gotDictionary, dictionary, "map")
		s.deepEqual([]any{number, text, flag}, []any{1, "two", true}, "tuple")
		s.deepEqual(gotNested, nested, "nested")
		s.deepEqual(gotVector, vector, "vector")
	})
}

type address struct {
	Street string   `cql:"street"`
	Number int      `cql:"number"`
	Tags   []string `cql:"tags"`
}

type person struct {
	Name   string   `cql:"name"`
	Home   *address `cql:"home"`
	Phones []string `cql:"phones"`
}

func TestUserDefinedTypesNestedInEachOtherAndInCollections(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		home := address{"Ring", 3, []string{"x", "y"}}
		ada := person{"Ada", &home, []string{"1", "2"}}
		bob := person{Name: "Bob"}
		s.exec("INSERT INTO people (key, who, known, homes) VALUES (?, ?, ?, ?)",
			s.key, ada, []person{bob, ada}, map[string]address{"main": home})
		var who person
		var known []person
		var homes map[string]address
		s.scan("SELECT who, known, homes FROM people WHERE key = ?", []any{s.key}, &who, &known, &homes)
		s.deepEqual(who, ada, "who")
		s.equal(len(known), 2, "known")
		s.equal(known[0].Name, "Bob", "name")
		s.deepEqual(known[1], ada, "known")
		s.deepEqual(homes, map[string]address{"main": home}, "homes")
	})
}

func TestFiveMegabytesThatDoNotCompress(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		body := make([]byte, fiveMegabytes)
		rand.New(rand.NewSource(5)).Read(body)
		s.blobRoundTrip(body)
	})
}

func TestFiveMegabytesThatCompressWell(t *testing.T) {
	inEverySetup(t, func(s *scenario) { s.blobRoundTrip(make([]byte, fiveMegabytes)) })
}

// A v5 segment carries at most 131,071 bytes; an envelope just below, at and above that travels in one or several.
func TestValuesAroundTheSizeOfASegment(t *testing.T) {
	inEverySetup(t, func(s *scenario) {
		random := rand.New(rand.NewSource(7))
		for size := 130_900; size < 131_200; size += 13 {
			body := make([]byte, size)
			random.Read(body)
			s.blobRoundTrip(body)
		}
	})
}

func (s *scenario) blobRoundTrip(body []byte) {
	s.Helper()
	s.exec("INSERT INTO blobs (key, body) VALUES (?, ?)", s.key, body)
	var got []byte
	s.scan("SELECT body FROM blobs WHERE key = ?", []any{s.key}, &got)
	if !bytes.Equal(got, body) {
		s.Fatalf("%d bytes came back, different from the %d sent", len(got), len(body))
	}
}
