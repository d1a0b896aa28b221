package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// model is what a key of one kind may do, one operation after the other. A state is a text.
type model struct {
	writes string                                            // its operations that are no reads
	value  func(json.RawMessage) (string, error)             // the form of a value that is compared
	parts  func(value string) []string                       // what of it is written only once
	shows  func(seen, written *Record) bool                  // whether the one can only be seen after the other took effect
	step   func(state string, record *Record) (bool, string) // whether the operation may be next, and the state after it
}

// nothing is the state of a key that was never written.
const nothing = "null"

var models = map[string]model{
	// One value, overwritten. Rows that are written together are one value: a torn one is a value that nobody wrote.
	"register": {
		writes: "write",
		value:  compact,
		parts:  func(value string) []string { return []string{value} },
		shows:  func(seen, written *Record) bool { return seen.reads() && seen.value == written.value },
		step: func(state string, record *Record) (bool, string) {
			if record.reads() {
				return record.value == state, state
			}
			return true, record.value
		},
	},
	// A list that is overwritten as a whole and appended to. Every element is written once.
	"list": {
		writes: "overwrite append",
		value:  list,
		parts:  elements,
		shows: func(seen, written *Record) bool {
			found := elements(seen.value)
			return seen.reads() && slices.ContainsFunc(elements(written.value), func(element string) bool {
				return slices.Contains(found, element)
			})
		},
		step: func(state string, record *Record) (bool, string) {
			switch {
			case record.reads():
				return record.value == state, state
			case record.Op == "overwrite" || state == nothing:
				return true, record.value
			case record.value == nothing:
				return true, state
			default:
				return true, state + "," + record.value
			}
		},
	},
	// A row that is there while somebody has the lock: INSERT .. IF NOT EXISTS, DELETE .. IF owner = ?. An owner's name is
	// used for one acquisition. A statement that was not applied says who has the lock.
	"lock": {
		writes: "acquire release",
		value:  owner,
		parts:  func(value string) []string { return []string{value} },
		shows: func(seen, written *Record) bool {
			if written.Op == "release" || seen.Outcome != OK {
				return false // a lock that is free may have been released by anybody's statement
			}
			return seen.holder() == written.value || seen.Op == "release" && seen.Applied && seen.value == written.value
		},
		step: func(state string, record *Record) (bool, string) {
			if record.reads() || record.Outcome == OK && !record.Applied {
				refused := record.reads() || record.Op == "acquire" && state != nothing || record.Op == "release" && state != record.value
				return refused && record.holder() == state, state
			}
			possible, after := state == nothing, record.value
			if record.Op == "release" {
				possible, after = state == record.value, nothing
			}
			if record.Outcome == OK {
				return possible, after
			}
			if possible {
				return true, after
			}
			return true, state // executed and not applied
		},
	},
}

// holder is who has the lock according to an operation that says so; empty for one that does not.
func (r *Record) holder() string {
	switch {
	case r.reads():
		return r.value
	case r.Outcome != OK || r.Applied:
		return ""
	case r.Found == nil:
		return nothing
	default:
		return *r.Found
	}
}

func compact(value json.RawMessage) (string, error) {
	if len(value) == 0 {
		return nothing, nil
	}
	var out bytes.Buffer
	err := json.Compact(&out, value)
	return out.String(), err
}

// list is the elements with commas between them. Cassandra does not tell an empty list from none.
func list(value json.RawMessage) (string, error) {
	var numbers []json.Number
	if err := json.Unmarshal(value, &numbers); err != nil && len(value) > 0 {
		return "", fmt.Errorf("value %s: a list of numbers", value)
	}
	texts := make([]string, len(numbers))
	for at, number := range numbers {
		texts[at] = number.String()
	}
	if len(texts) == 0 {
		return nothing, nil
	}
	return strings.Join(texts, ","), nil
}

func elements(value string) []string {
	if value == nothing {
		return nil
	}
	return strings.Split(value, ",")
}

func owner(value json.RawMessage) (string, error) {
	var name *string
	if err := json.Unmarshal(value, &name); err != nil && len(value) > 0 {
		return "", fmt.Errorf("value %s: the owner's name", value)
	}
	if name == nil {
		return nothing, nil
	}
	return *name, nil
}

// linear is a model as porcupine takes it; an operation's input is its record.
func (m model) linear() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return nothing },
		Step: func(state, input, _ any) (bool, any) {
			may, after := m.step(state.(string), input.(*Record))
			return may, after
		},
	}
}
