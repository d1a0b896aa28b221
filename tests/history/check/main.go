// Command check says whether a history of operations on registers, lists and locks is linearizable: whether every
// operation can have taken effect at one moment between its call and its return, all of them on one copy of the data.
// Each key is checked by itself, by porcupine. Operations of unknown outcome may take effect at any time, or never.
//
// Exit codes: 0 it is; 1 it is not; 2 the history cannot be read; 3 not decided in time, which is no pass.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Exit codes.
const (
	linearizable = iota
	violated
	unreadable
	undecided
)

// How many keys are shown with their operations, and how many more by what is wrong with them; the others are counted.
const keysExplained, keysNamed = 5, 20

func main() {
	within := flag.Duration("within", time.Minute, "time for the verdict; an explanation may take a quarter of that in addition")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "check [-within TIME] FILE: whether a history of JSON lines is linearizable, key by key")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(unreadable)
	}
	file, err := os.Open(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(unreadable)
	}
	os.Exit(run(file, os.Stdout, *within))
}

// run checks a history and says what it found; the exit code.
func run(input io.Reader, output io.Writer, within time.Duration) int {
	begun := time.Now()
	keys, config, err := Read(input)
	if err != nil {
		fmt.Fprintln(output, err)
		return unreadable
	}
	verdicts := decideAll(keys, begun.Add(within))
	if config != "" {
		fmt.Fprintf(output, "history of %s\n", config)
	}
	fmt.Fprintf(output, "%s; decided in %.1f s\n", summary(keys), time.Since(begun).Seconds())
	status, explained, wrong, open := linearizable, 0, 0, 0
	explainUntil := time.Now().Add(within / 4)
	for at, verdict := range verdicts {
		switch verdict {
		case porcupine.Unknown:
			open++
			fmt.Fprintf(output, "%s %s: NOT DECIDED within %s, and so not shown to be linearizable\n", keys[at].Model, keys[at].Name, within)
		case porcupine.Illegal:
			wrong++
			if explained++; explained <= keysExplained+keysNamed {
				explain(output, keys[at], explainUntil, explained <= keysExplained)
			}
		}
	}
	switch {
	case wrong > 0:
		status = violated
	case open > 0:
		status = undecided
	}
	fmt.Fprintf(output, "%d of %d keys are linearizable, %d are not, %d are not decided\n", len(keys)-wrong-open, len(keys), wrong, open)
	return status
}

// decideAll decides the keys, as many at once as there are processors.
func decideAll(keys []*Key, deadline time.Time) []porcupine.CheckResult {
	verdicts := make([]porcupine.CheckResult, len(keys))
	turns := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for at, key := range keys {
		all.Add(1)
		go func() {
			defer all.Done()
			turns <- struct{}{}
			defer func() { <-turns }()
			verdicts[at] = key.decide(deadline)
		}()
	}
	all.Wait()
	return verdicts
}

// summary counts what the history is made of: one without reads, or in which nothing was acknowledged, shows nothing.
func summary(keys []*Key) string {
	var parts []string
	for _, name := range []string{"register", "list", "lock"} {
		count, outcomes, reads := 0, map[string]int{}, 0
		for _, key := range keys {
			if key.Model != name {
				continue
			}
			count++
			for _, record := range key.Records {
				if record.reads() && record.Outcome == OK {
					reads++
				} else {
					outcomes[record.Outcome]++
				}
			}
		}
		if count > 0 {
			parts = append(parts, fmt.Sprintf("%d of model %s (%d reads; others: %d ok, %d failed, %d indeterminate)",
				count, name, reads, outcomes[OK], outcomes[Failed], outcomes[Indeterminate]))
		}
	}
	return "keys: " + strings.Join(parts, ", ")
}
