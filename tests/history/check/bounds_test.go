package main

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// plain is a key's history without any bound on what has an unknown outcome: what the bounded one must agree with.
func (k *Key) plain() (all []porcupine.Operation) {
	for _, record := range k.Records {
		switch {
		case record.Outcome == OK:
			all = append(all, operation(record, record.Return))
		case record.Outcome == Indeterminate && !record.reads():
			all = append(all, operation(record, Never))
		}
	}
	return all
}

// random is a small history whose answers are drawn, but often from what one copy of the data would have said: about half
// of them are linearizable.
func random(draw *rand.Rand, model string) string {
	state, states, owners, step := nothing, []string{nothing}, []string{}, models[model].step
	fenced, highest, fence := model == "lock" && draw.Intn(2) == 0, int64(0), int64(0) // of all grants, and of the present one
	var steps []string
	for turn, clock := 1, 0; turn <= 3+draw.Intn(7); turn++ {
		clock += draw.Intn(3)
		record := Record{Model: model, Op: "read", Outcome: OK, value: held(state).owner}
		if draw.Intn(3) > 0 {
			ops := strings.Fields(models[model].writes)
			record.Op, record.value = ops[draw.Intn(len(ops))], fmt.Sprint(turn)
		}
		if record.reads() && draw.Intn(3) == 0 {
			record.value = held(states[draw.Intn(len(states))]).owner
		}
		if record.Op == "acquire" {
			owners = append(owners, record.value)
		}
		if (record.Op == "release" || record.Op == "renew") && len(owners) > 0 {
			record.value = owners[draw.Intn(len(owners))]
		}
		if draw.Intn(4) == 0 && !record.reads() {
			record.Outcome = Indeterminate
		}
		if record.Outcome == Indeterminate && draw.Intn(2) == 0 || draw.Intn(6) == 0 {
			// without effect, or with an answer that is made up
		} else {
			record.Applied = true
			if may, after := step(state, &record); may {
				if fenced && record.Op == "acquire" && held(after).owner == record.value {
					fence = highest + 1 - int64(draw.Intn(8)/7) // hardly ever not above all
					highest = max(highest, fence)
				}
				if fenced && record.Outcome == OK && held(after).owner != nothing {
					record.Fence = fence
					if sees, seen := step(state, &record); sees {
						after = seen
					}
				}
				state = after
				states = append(states, state)
			} else {
				record.Applied = false
				if fenced && held(state).owner != nothing {
					record.Fence = fence - int64(draw.Intn(12)/11)
				}
			}
		}
		steps = append(steps, written(&record, state, clock, clock+draw.Intn(4)))
	}
	return strings.Join(steps, "\n")
}

// written is the record as a step of [lines].
func written(record *Record, state string, call, end int) (text string) {
	value, mark, more := record.value, "", ""
	if record.Model == "list" && value != nothing {
		value = "[" + value + "]"
	}
	if record.Fence != 0 {
		defer func() { text += fmt.Sprint(" #", record.Fence) }()
	}
	state = held(state).owner
	if record.Outcome != OK {
		mark = "? "
	} else if record.Model == "lock" && !record.reads() {
		more = map[bool]string{true: " applied", false: " none"}[record.Applied]
		if !record.Applied && state != nothing {
			more = " found " + state
		}
	}
	return fmt.Sprintf("c %d-%d %s%s %s%s", call, end, mark, record.Op, value, more)
}

func TestBoundsChangeNoVerdict(t *testing.T) {
	const seed, rounds = 1, 10_000
	draw := rand.New(rand.NewSource(seed))
	for _, model := range []string{"register", "list", "lock"} {
		fences := 0
		count := map[porcupine.CheckResult]int{}
		for range rounds {
			steps := random(draw, model)
			keys, _, err := Read(strings.NewReader(lines(t, model, strings.Split(steps, "\n")...)))
			if err != nil {
				t.Fatalf("%v:\n%s", err, steps)
			}
			want := porcupine.CheckOperationsTimeout(models[model].linear(), keys[0].plain(), time.Minute)
			if found := keys[0].decide(time.Now().Add(time.Minute)); found != want {
				t.Fatalf("%s is %s, with bounds %s:\n%s", model, want, found, steps)
			}
			count[want]++
			fences += strings.Count(steps, "#")
			if want == porcupine.Illegal {
				if core := keys[0].core(time.Now().Add(time.Minute)); core.decide(time.Now().Add(time.Minute)) != want {
					t.Fatalf("the core of this is none:\n%s", steps)
				}
			}
		}
		t.Logf("%s: %v, %d fences", model, count, fences)
		if count[porcupine.Ok] < rounds/10 || count[porcupine.Illegal] < rounds/20 {
			t.Errorf("%s: %v: too few of a kind to show anything", model, count)
		}
	}
}

// Hundreds of operations of unknown outcome, as a server that is down for seconds makes them, cost no time.
func TestManyUnknownOutcomes(t *testing.T) {
	var steps, locks []string
	for turn := 1; turn <= 400; turn++ {
		at := turn * 10
		steps = append(steps, fmt.Sprintf("w %d-%d ? write %d", at, at+5, turn))
		if turn%3 == 0 {
			steps = append(steps, fmt.Sprintf("r %d-%d read %d", at+1, at+6, turn))
		}
		locks = append(locks, fmt.Sprintf("c %d-%d acquire o%d applied", at, at+2, turn), fmt.Sprintf("c %d-%d ? release o%d", at+3, at+4, turn),
			fmt.Sprintf("c %d-%d ? release o%d", at+5, at+6, turn), fmt.Sprintf("d %d-%d ? acquire x%d", at+5, at+6, turn))
	}
	expect(t, lines(t, "register", steps...), linearizable)
	expect(t, lines(t, "lock", locks...), linearizable)
	expect(t, lines(t, "register", append(steps, "r 9000-9001 read 7", "r 9002-9003 read 6", "r 9004-9005 read 6", "r 9006-9007 read 9")...), violated)
	expect(t, lines(t, "lock", append(locks, "e 9000-9001 acquire e1 applied", "e 9002-9003 acquire e2 applied")...), violated)
}
