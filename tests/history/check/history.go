package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strings"
)

// Outcomes of an operation, as its client knows them.
const (
	OK            = "ok"            // it took effect between its call and its return
	Failed        = "failed"        // the server said that it had no effect, and will have none
	Indeterminate = "indeterminate" // it may take effect at any time after its call, or never
)

// Never is when an operation returns that has no known end.
const Never = math.MaxInt64

// Record is a line of a history: one operation of one client on one key. Times are nanoseconds of one monotonic clock.
type Record struct {
	Model   string          `json:"model"`
	Key     string          `json:"key"`
	Client  string          `json:"client"`
	Op      string          `json:"op"`
	Value   json.RawMessage `json:"value"`             // what is written, or what a read found
	Applied bool            `json:"applied,omitempty"` // of a conditional statement
	Found   *string         `json:"found,omitempty"`   // the owner that a conditional statement found, if it was not applied
	Fence   int64           `json:"fence,omitempty"`   // of the holder that an operation on a lock granted or found; 0: it has none
	Call    int64           `json:"call"`
	Return  int64           `json:"return"`
	Outcome string          `json:"outcome"`
	Error   string          `json:"error,omitempty"`
	value   string          // in the form that the model compares
}

func (r *Record) reads() bool { return r.Op == "read" }

func (r *Record) String() string {
	text := r.Op + " " + r.value
	switch {
	case r.reads():
		text = "read, found " + r.value
	case r.Model != "lock" || r.Outcome != OK:
	case r.Applied:
		text += ", applied"
	case r.Found == nil:
		text += ", not applied: nobody has it"
	default:
		text += ", not applied: " + *r.Found + " has it"
	}
	if r.Fence != 0 {
		text += fmt.Sprintf(", fence %d", r.Fence)
	}
	if r.Outcome != OK {
		text += ", " + r.Outcome
		if r.Error != "" {
			text += " (" + r.Error + ")"
		}
	}
	return text
}

// Key is all that happened to one key, in the order of the calls.
type Key struct {
	Model, Name string
	Records     []*Record
}

// Config says how a history was made; the test may have put more into it.
type Config struct {
	// From when to when all of the server was killed. See [Key.forget].
	Crashes [][2]int64 `json:"crashes"`
}

// Read takes a history apart by keys. A line with `config` says how it was made; it is given back as it is.
func Read(input io.Reader) (keys []*Key, config string, err error) {
	var made Config
	byName := map[string]*Key{}
	lines := bufio.NewScanner(input)
	lines.Buffer(nil, 1<<24)
	for number := 1; lines.Scan(); number++ {
		var line struct {
			Config json.RawMessage `json:"config"`
			Record
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, "", fmt.Errorf("line %d: %w", number, err)
		}
		if line.Config != nil {
			config = string(line.Config)
			if err := json.Unmarshal(line.Config, &made); err != nil {
				return nil, "", fmt.Errorf("line %d: %w", number, err)
			}
			continue
		}
		record := line.Record
		if err := record.check(); err != nil {
			return nil, "", fmt.Errorf("line %d: %w", number, err)
		}
		name := record.Model + " " + record.Key
		key := byName[name]
		if key == nil {
			key = &Key{Model: record.Model, Name: record.Key}
			byName[name] = key
			keys = append(keys, key)
		}
		key.Records = append(key.Records, &record)
	}
	if err := lines.Err(); err != nil {
		return nil, "", err
	}
	if len(keys) == 0 {
		return nil, "", fmt.Errorf("no operation in it: a history of nothing shows nothing")
	}
	for _, key := range keys {
		sort.SliceStable(key.Records, func(a, b int) bool { return key.Records[a].Call < key.Records[b].Call })
		if err := key.distinct(); err != nil {
			return nil, "", err
		}
		for _, crash := range made.Crashes {
			key.forget(crash[0], crash[1])
		}
	}
	return keys, config, nil
}

// forget leaves out what was seen, before a crash, of writes that were under way in it. The embedded node shows a write
// before it is durable and acknowledged, so a crash can take it from those who have seen it, but from nobody who wrote:
// every write that is acknowledged makes all before it durable. So only reads and refused conditions are left out.
func (k *Key) forget(killed, gone int64) {
	var lost []*Record
	for _, record := range k.Records {
		if !record.reads() && record.Outcome == Indeterminate && record.Call <= gone && record.Return >= killed {
			lost = append(lost, record)
		}
	}
	k.Records = slices.DeleteFunc(k.Records, func(seen *Record) bool {
		if seen.Call > gone || seen.Outcome != OK || !seen.reads() && (seen.Model != "lock" || seen.Applied) {
			return false
		}
		return slices.ContainsFunc(lost, func(write *Record) bool {
			released := write.Op == "release" && seen.holder() == nothing && seen.Return >= write.Call
			return released || models[k.Model].shows(seen, write)
		})
	})
}

// check refuses what no model knows, and brings values into one form.
func (r *Record) check() error {
	model, known := models[r.Model]
	if !known {
		return fmt.Errorf("model %q: there are register, list and lock", r.Model)
	}
	if r.Op != "read" && !strings.Contains(" "+model.writes+" ", " "+r.Op+" ") {
		return fmt.Errorf("operation %q of a %s: it has read and %s", r.Op, r.Model, model.writes)
	}
	if r.Outcome != OK && r.Outcome != Failed && r.Outcome != Indeterminate {
		return fmt.Errorf("outcome %q: ok, failed or indeterminate", r.Outcome)
	}
	if r.Fence != 0 && r.Model != "lock" {
		return fmt.Errorf("fence %d of a %s: only locks have fences", r.Fence, r.Model)
	}
	if r.Key == "" || r.Return < r.Call {
		return fmt.Errorf("key %q from %d to %d: no key, or it ends before it begins", r.Key, r.Call, r.Return)
	}
	var err error
	if !r.reads() || r.Outcome == OK {
		r.value, err = model.value(r.Value)
	}
	return err
}

// distinct says whether every write can be told from every other one by what is read: what [bounded] relies on.
func (k *Key) distinct() error {
	seen := map[string]bool{}
	for _, record := range k.Records {
		if record.reads() || record.Op == "release" || record.Op == "renew" {
			continue
		}
		for _, part := range models[k.Model].parts(record.value) {
			if seen[part] {
				return fmt.Errorf("%s %s: %s is written twice", k.Model, k.Name, part)
			}
			seen[part] = true
		}
	}
	return nil
}
