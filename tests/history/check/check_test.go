package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// lines makes a history of one key of steps like "w1 10-20 write 7", "r1 30-40 read 7", "c1 10-20 acquire c1.1 applied",
// "c2 10-20 acquire c2.1 found c1.1 #7", "c2 10-20 release c2.1 none". A "?" after the times is an unknown outcome, "!" a failure,
// "#7" at the end a fence.
func lines(t *testing.T, model string, steps ...string) string {
	t.Helper()
	var out strings.Builder
	for _, step := range steps {
		words := strings.Fields(step)
		var call, end int
		if _, err := fmt.Sscanf(words[1], "%d-%d", &call, &end); err != nil {
			t.Fatalf("%q: %v", step, err)
		}
		fence := "0"
		if last := words[len(words)-1]; last[0] == '#' {
			words, fence = words[:len(words)-1], last[1:]
		}
		outcome := OK
		switch words[2] {
		case "?":
			outcome = Indeterminate
		case "!":
			outcome = Failed
		}
		if outcome != OK {
			words = append(words[:2], words[3:]...)
		}
		value := words[3]
		if model == "lock" && value != nothing {
			value = `"` + value + `"`
		}
		more := ""
		if len(words) > 4 {
			more = map[string]string{"applied": `,"applied":true`, "found": "", "none": ""}[words[4]]
		}
		if len(words) > 5 {
			more = `,"found":"` + words[5] + `"`
		}
		fmt.Fprintf(&out, `{"model":%q,"key":"k","client":%q,"op":%q,"value":%s,"call":%d,"return":%d,"outcome":%q,"fence":%s%s}`+"\n",
			model, words[0], words[2], value, call*1_000_000, end*1_000_000, outcome, fence, more)
	}
	return out.String()
}

// expect runs a history and looks at the exit code and for texts in what is said.
func expect(t *testing.T, history string, status int, says ...string) {
	t.Helper()
	var output strings.Builder
	if found := run(strings.NewReader(history), &output, time.Minute); found != status {
		t.Errorf("exit code %d, not %d:\n%s", found, status, output.String())
	}
	for _, text := range says {
		if !strings.Contains(output.String(), text) {
			t.Errorf("%q is not said:\n%s", text, output.String())
		}
	}
}

func TestHistoriesThatAreLinearizable(t *testing.T) {
	for name, test := range map[string]struct {
		model string
		steps []string
	}{
		"writes and reads in turn":           {"register", []string{"w 0-1 write 1", "r 2-3 read 1", "w 4-5 write 2", "r 6-7 read 2"}},
		"a read of nothing before all":       {"register", []string{"r 0-1 read null", "w 2-3 write 1"}},
		"a read meanwhile sees the new":      {"register", []string{"w 0-1 write 1", "w 2-9 write 2", "r 3-4 read 2"}},
		"a read meanwhile sees the old":      {"register", []string{"w 0-1 write 1", "w 2-9 write 2", "r 3-4 read 1", "r 5-6 read 2"}},
		"an unknown write is never seen":     {"register", []string{"w 0-1 write 1", "w 2-3 ? write 2", "r 5-6 read 1", "r 7-8 read 1"}},
		"an unknown write is seen late":      {"register", []string{"w 0-1 write 1", "w 2-3 ? write 2", "r 5-6 read 1", "w 7-8 write 3", "r 9-10 read 3", "r 50-51 read 2"}},
		"a failed write is not seen":         {"register", []string{"w 0-1 write 1", "w 2-3 ! write 2", "r 5-6 read 1"}},
		"a failed read says nothing":         {"register", []string{"w 0-1 write 1", "r 2-3 ? read null"}},
		"rows that are written together":     {"register", []string{"w 0-1 write [7,7]", "r 2-3 read [7,7]"}},
		"a list overwritten and appended to": {"list", []string{"w 0-1 overwrite [1,2]", "w 2-3 append [3]", "r 4-5 read [1,2,3]", "w 6-7 overwrite [4]", "r 8-9 read [4]"}},
		"an empty list is none":              {"list", []string{"r 0-1 read null", "r 2-3 read []", "w 4-5 append [1]", "r 6-7 read [1]"}},
		"an unknown append comes late":       {"list", []string{"w 0-1 overwrite [1]", "w 2-3 ? append [2]", "w 4-5 append [3]", "r 6-7 read [1,3]", "r 8-9 read [1,3,2]"}},
		"an unknown overwrite is never seen": {"list", []string{"w 0-1 overwrite [1]", "w 2-3 ? overwrite [2]", "r 6-7 read [1]"}},
		"a lock goes round": {"lock", []string{"a 0-1 acquire a1 applied", "b 2-3 acquire b1 found a1", "a 4-5 release a1 applied",
			"b 6-7 acquire b2 applied", "a 8-9 release a1 found b2", "r 10-11 read b2", "b 12-13 release b2 applied", "b 14-15 release b2 none", "r 16-17 read null"}},
		"an unknown acquire took effect late": {"lock", []string{"a 0-1 ? acquire a1", "b 2-3 acquire b1 applied", "b 4-5 release b1 applied",
			"b 6-7 acquire b2 found a1", "c 8-9 release a1 applied", "b 9-10 acquire b3 applied"}},
		"an unknown release took effect": {"lock", []string{"a 0-1 acquire a1 applied", "a 2-3 ? release a1", "b 4-5 acquire b1 found a1", "b 6-7 acquire b2 applied"}},
		"a holder renews": {"lock", []string{"a 0-1 acquire a1 applied", "a 2-3 renew a1 applied", "b 4-5 acquire b1 found a1", "a 6-7 release a1 applied",
			"a 8-9 renew a1 none", "b 10-11 acquire b2 applied", "a 12-13 renew a1 found b2", "b 14-15 ? renew b2"}},
		"an unknown acquire is seen by its renewal": {"lock", []string{"a 0-1 ? acquire a1", "a 2-3 renew a1 applied", "b 4-5 acquire b1 found a1"}},
		"fences rise": {"lock", []string{"a 0-1 acquire a1 applied #5", "b 2-3 acquire b1 found a1 #5", "a 4-5 release a1 applied", "r 6-7 read null",
			"b 8-9 acquire b2 applied #7", "r 10-11 read b2 #7"}},
		"a fence that was lost is found": {"lock", []string{"a 0-1 acquire a1 applied #5", "a 2-3 release a1 applied", "b 4-5 ? acquire b1", "c 6-7 acquire c1 found b1 #6",
			"r 8-9 read b1 #6", "b 10-11 release b1 applied", "c 12-13 acquire c2 applied #9"}},
		"two at once, the later one first": {"lock", []string{"a 0-9 acquire a1 applied #7", "b 1-8 acquire b1 applied #5", "b 2-8 release b1 applied"}},
		"unknown releases one after the other": {"lock", []string{"a 0-1 acquire a1 applied", "a 2-3 ? release a1", "a 4-5 ? release a1", "a 6-7 release a1 found b1",
			"b 5-6 acquire b1 applied", "b 8-9 release b1 applied", "r 10-11 read null"}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, lines(t, test.model, test.steps...), linearizable, "1 of 1 keys are linearizable")
		})
	}
}

func TestHistoriesThatAreNot(t *testing.T) {
	for name, test := range map[string]struct {
		model, says string
		steps       []string
	}{
		"the last write is lost": {"register", "267 was read after 500 had been acknowledged",
			[]string{"w 0-1 write 267", "w 2-3 write 500", "r 4-5 read 500", "r 99-100 read 267"}},
		"the last write is lost although nobody saw it": {"register", "1 was read after 2 had been acknowledged",
			[]string{"w 0-1 write 1", "w 2-3 write 2", "r 4-5 read 1"}},
		"a stale read": {"register", "1 was read after 2 had been acknowledged",
			[]string{"w 0-1 write 1", "w 2-3 write 2", "r 4-5 read 1", "r 6-7 read 2"}},
		"the old after the new, both during the write": {"register", "no order",
			[]string{"w 0-1 write 1", "w 2-20 write 2", "r 3-4 read 2", "r 5-6 read 1"}},
		"an unknown write comes and goes": {"register", "no order",
			[]string{"w 0-1 write 1", "w 2-3 ? write 2", "r 4-5 read 2", "r 6-7 read 1"}},
		"a value that nobody wrote": {"register", "9 was read and nobody wrote it",
			[]string{"w 0-1 write 1", "r 2-3 read 9"}},
		"a failed write is seen": {"register", "whose write failed",
			[]string{"w 0-1 write 1", "w 2-3 ! write 2", "r 4-5 read 2"}},
		"a batch is torn": {"register", "[7,6] was read and nobody wrote it",
			[]string{"w 0-1 write [6,6]", "w 2-9 write [7,7]", "r 3-4 read [7,6]"}},
		"a deleted partition is seen without its new row": {"register", "null",
			[]string{"w 0-1 write [6,6]", "w 2-9 write [7,7]", "r 3-4 read null"}},
		"a list is doubled": {"list", "element 1 was written once and is there twice: 1,2,1,2",
			[]string{"w 0-1 overwrite [1,2]", "r 2-3 read [1,2,1,2]"}},
		"an overwritten list is doubled": {"list", "element 3 was written once",
			[]string{"w 0-1 overwrite [1,2]", "w 2-3 overwrite [3,4]", "r 4-5 read [3,4,3,4]"}},
		"two lists of unknown outcome merged": {"list", "no order",
			[]string{"w 0-1 ? overwrite [1,2]", "w 2-3 overwrite [3,4]", "r 4-5 read [1,2,3,4]"}},
		"an append is lost": {"list", "no order",
			[]string{"w 0-1 overwrite [1]", "w 2-3 append [2]", "r 4-5 read [1]"}},
		"two holders": {"lock", "two holders",
			[]string{"a 0-1 acquire a1 applied", "b 2-3 acquire b1 applied", "a 4-5 release a1 found b1"}},
		"a holder's release finds another owner": {"lock", "could not release",
			[]string{"a 0-1 acquire a1 applied", "b 0-9 acquire b1 applied", "a 2-3 release a1 found b1"}},
		"a lock is lost": {"lock", "no order",
			[]string{"a 0-1 acquire a1 applied", "r 2-3 read null"}},
		"a lock is refused in the name of one who released it": {"lock", "no order",
			[]string{"a 0-1 acquire a1 applied", "a 2-3 release a1 applied", "b 4-5 acquire b1 found a1"}},
		"an unknown acquire took effect twice": {"lock", "no order",
			[]string{"a 0-1 ? acquire a1", "r 2-3 read a1", "a 4-5 release a1 applied", "r 6-7 read null", "r 8-9 read a1"}},
		"a smaller fence later": {"lock", "fence 5 came after fence 7",
			[]string{"a 0-1 acquire a1 applied #7", "a 2-3 release a1 applied", "b 4-5 acquire b1 applied #5"}},
		"the same fence twice": {"lock", "fence 7 came after fence 7",
			[]string{"a 0-1 acquire a1 applied #7", "a 2-3 release a1 applied", "b 4-5 acquire b1 applied #7"}},
		"a holder's fence changes": {"lock", "no order",
			[]string{"a 0-1 acquire a1 applied #7", "r 2-3 read a1 #8"}},
		"a lost fence is found to be smaller": {"lock", "fence 5 came after fence 7",
			[]string{"a 0-1 acquire a1 applied #7", "a 2-3 release a1 applied", "b 4-5 ? acquire b1", "r 6-7 read b1 #5"}},
		"at once, but the fences are the other way round": {"lock", "two holders",
			[]string{"a 0-9 acquire a1 applied #5", "b 1-8 acquire b1 applied #7", "b 2-8 release b1 applied"}},
		"who has released it renews it": {"lock", "no order",
			[]string{"a 0-1 acquire a1 applied", "a 2-3 release a1 applied", "a 4-5 renew a1 applied"}},
		"a holder's renewal finds another owner": {"lock", "could not release or renew",
			[]string{"a 0-1 acquire a1 applied", "b 2-9 ? acquire b1", "a 4-5 renew a1 found b1"}},
		"an acquire that is said to have failed": {"lock", "no order",
			[]string{"a 0-1 ! acquire a1", "b 2-3 acquire b1 found a1"}},
		"an unknown release of another's lock": {"lock", "two holders",
			[]string{"a 0-1 acquire a1 applied", "b 2-3 ? release b1", "c 4-5 acquire c1 applied"}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, lines(t, test.model, test.steps...), violated, "NOT linearizable", test.says)
		})
	}
}

// What is wrong is found in a long history, and only that is shown.
func TestAnExplanationIsSmall(t *testing.T) {
	var steps []string
	for turn := 1; turn <= 500; turn++ {
		steps = append(steps, fmt.Sprintf("w %d-%d write %d", turn*10, turn*10+4, turn), fmt.Sprintf("r %d-%d read %d", turn*10+2, turn*10+6, turn))
	}
	steps = append(steps, "r 6000-6001 read 267", "r 6002-6003 read 267", "r 6004-6005 read 267")
	expect(t, lines(t, "register", steps...), violated, "267 was read after", "3 of its 1003 operations show it")
}

func TestAnExplanationOfALockNamesBoth(t *testing.T) {
	var steps []string
	for turn := 1; turn <= 300; turn++ {
		at := turn * 10
		steps = append(steps, fmt.Sprintf("a %d-%d acquire a%d applied", at, at+2, turn), fmt.Sprintf("b %d-%d acquire b%d found a%d", at+1, at+4, turn, turn),
			fmt.Sprintf("a %d-%d release a%d applied", at+5, at+6, turn))
	}
	steps = append(steps, "a 5000-5001 acquire x applied", "b 5002-5003 acquire y applied", "a 5004-5005 release x found y", "c 5006-5007 acquire z found y")
	expect(t, lines(t, "lock", steps...), violated, "two holders", "acquire x, applied", "acquire y, applied", "2 of its 904 operations show it")
}

// What was seen of a write that was under way in a crash may be gone after it; what was acknowledged may not.
func TestCrashes(t *testing.T) {
	crash := `{"config":{"crashes":[[50000000,60000000]]}}` + "\n"
	for name, test := range map[string]struct {
		model  string
		status int
		steps  []string
	}{
		"a write under way is seen and lost":        {"register", linearizable, []string{"w 0-1 write 1", "w 40-55 ? write 2", "r 42-43 read 2", "r 70-71 read 1"}},
		"one seen after the crash is not lost":      {"register", violated, []string{"w 0-1 write 1", "w 40-55 ? write 2", "r 65-66 read 2", "r 70-71 read 1"}},
		"an acknowledged write is lost":             {"register", violated, []string{"w 0-1 write 1", "w 40-45 write 2", "r 42-43 read 2", "r 70-71 read 1"}},
		"a write that had ended before":             {"register", violated, []string{"w 0-1 write 1", "w 40-45 ? write 2", "r 46-47 read 2", "r 70-71 read 1"}},
		"an acquisition under way is seen and lost": {"lock", linearizable, []string{"a 40-55 ? acquire a1", "b 41-42 acquire b1 found a1", "b 70-71 acquire b2 applied"}},
		"a release under way is seen and lost":      {"lock", linearizable, []string{"a 0-1 acquire a1 applied", "a 40-55 ? release a1", "r 42-43 read null", "r 70-71 read a1"}},
		"a lock taken after that release is kept":   {"lock", violated, []string{"a 0-1 acquire a1 applied", "a 40-55 ? release a1", "b 42-43 acquire b1 applied", "r 70-71 read a1"}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, crash+lines(t, test.model, test.steps...), test.status) })
	}
	without := lines(t, "register", "w 0-1 write 1", "w 40-55 ? write 2", "r 42-43 read 2", "r 70-71 read 1")
	expect(t, without, violated)
}

func TestHistoriesThatCannotBeRead(t *testing.T) {
	for name, history := range map[string]string{
		"nothing":             "",
		"no JSON":             "{",
		"only a heading":      `{"config":{"seed":1}}`,
		"an unknown model":    `{"model":"queue","key":"k","op":"read","outcome":"ok"}`,
		"an unknown write":    `{"model":"lock","key":"k","op":"append","value":"1","outcome":"ok"}`,
		"an unknown outcome":  `{"model":"register","key":"k","op":"write","value":1,"outcome":"lost"}`,
		"a fence for a write": strings.Replace(lines(t, "register", "w 0-1 write 1"), `"fence":0`, `"fence":1`, 1),
		"an end before":       lines(t, "register", "w 2-1 write 1"),
		"a value twice":       lines(t, "register", "w 0-1 write 1", "w 2-3 write 1"),
		"an element twice":    lines(t, "list", "w 0-1 overwrite [1,2]", "w 2-3 append [2]"),
		"an owner twice":      lines(t, "lock", "a 0-1 acquire a1 applied", "a 2-3 acquire a1 applied"),
		"a list that is none": lines(t, "list", "w 0-1 overwrite 5"),
	} {
		t.Run(name, func(t *testing.T) { expect(t, history, unreadable) })
	}
}

// A verdict that does not come in time is no pass.
func TestNotDecidedIsAFailure(t *testing.T) {
	var output strings.Builder
	status := run(strings.NewReader(lines(t, "register", "w 0-1 write 1", "r 2-3 read 1")), &output, 0)
	if status != undecided || !strings.Contains(output.String(), "NOT DECIDED") {
		t.Errorf("exit code %d:\n%s", status, output.String())
	}
}

// All keys are decided, and the seed is said.
func TestOneKeyOfManyIsWrong(t *testing.T) {
	good := lines(t, "register", "w 0-1 write 1", "r 2-3 read 1")
	bad := strings.ReplaceAll(lines(t, "register", "w 0-1 write 1", "r 2-3 read 2"), `"key":"k"`, `"key":"other"`)
	expect(t, `{"config":{"seed":42}}`+"\n"+good+bad, violated, `"seed":42`, "register other is NOT", "1 of 2 keys are linearizable, 1 are not, 0")
}
