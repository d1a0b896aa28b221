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
	// A row that is there while somebody has the lock: INSERT .. IF NOT EXISTS, DELETE .. IF owner = ?, and UPDATE .. IF owner = ?,
	// which changes nothing. An owner's name is used for one acquisition. A statement that was not applied says who has the lock.
	// Where there are fences, that of each grant is larger than those of all before.
	"lock": {
		writes: "acquire release renew",
		value:  owner,
		parts:  func(value string) []string { return []string{value} },
		shows: func(seen, written *Record) bool {
			if written.Op != "acquire" || seen.Outcome != OK {
				return false // a lock that is free may have been released by anybody's statement
			}
			return seen.holder() == written.value || seen.Op != "acquire" && seen.Applied && seen.value == written.value
		},
		step: func(text string, record *Record) (bool, string) {
			state := held(text)
			if record.reads() || record.Outcome == OK && !record.Applied {
				refused := record.reads() || record.Op == "acquire" && state.owner != nothing || record.Op != "acquire" && state.owner != record.value
				return refused && record.holder() == state.owner && state.sees(record.Fence), state.String()
			}
			possible := state.owner == record.value
			switch record.Op {
			case "acquire":
				possible = state.owner == nothing
				state.owner, state.fence = record.value, 0
				possible = possible && state.sees(record.Fence)
			case "renew":
				possible = possible && state.sees(record.Fence)
			case "release":
				state.owner, state.fence = nothing, 0
			}
			if record.Outcome == OK {
				return possible, state.String()
			}
			if possible {
				return true, state.String()
			}
			return true, text // executed and not applied
		},
	},
}

// lock is a state of that model: who has it, by which fence, if that was seen already, and the largest fence seen before.
type lock struct {
	owner          string
	fence, highest int64
}

// String is the owner alone where there are no fences.
func (l lock) String() string {
	if l.highest == 0 {
		return l.owner
	}
	return fmt.Sprintf("%s %d %d", l.owner, l.fence, l.highest)
}

func held(state string) lock {
	l := lock{owner: state}
	if words := strings.Fields(state); len(words) == 3 {
		l.owner = words[0]
		fmt.Sscan(words[1], &l.fence)
		fmt.Sscan(words[2], &l.highest)
	}
	return l
}

// sees says whether the holder may have this fence, and keeps it. One who was granted the lock in an answer that was lost has one
// that is not known yet.
func (l *lock) sees(fence int64) bool {
	if fence == 0 || fence == l.fence {
		return true
	}
	if l.owner == nothing || l.fence != 0 || fence <= l.highest {
		return false
	}
	l.fence, l.highest = fence, fence
	return true
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
