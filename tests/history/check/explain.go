package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// recordsShown is how much of an explanation is printed: its end, where what cannot be explained is.
const recordsShown = 40

// explain prints the reason why no order fits a key's history, and the part of it that shows that.
func explain(output io.Writer, key *Key, deadline time.Time, operations bool) {
	core := key.core(deadline)
	last := core.Records[0]
	for _, record := range core.Records {
		if record.Outcome == OK && (last.Outcome != OK || record.Return >= last.Return) {
			last = record
		}
	}
	fmt.Fprintf(output, "%s %s is NOT linearizable: %s\n", key.Model, key.Name, core.reason(last))
	if !operations {
		return
	}
	first := max(0, len(core.Records)-recordsShown)
	fmt.Fprintf(output, "    %d of its %d operations show it; times in ms\n", len(core.Records), len(key.Records))
	for _, record := range core.Records[first:] {
		mark := " "
		if record == last {
			mark = ">"
		}
		until := "open"
		if record.Return != Never && record.Outcome == OK {
			until = fmt.Sprintf("%.3f", float64(record.Return)/1e6)
		}
		fmt.Fprintf(output, "  %s %12.3f to %12s  %-12s %s\n", mark, float64(record.Call)/1e6, until, record.Client, record)
	}
}

// reason puts into words what is wrong with the operation that cannot be explained, as far as that is a known pattern.
func (k *Key) reason(last *Record) string {
	if last.reads() && k.Model != "lock" {
		return k.reasonOfRead(last)
	}
	for _, before := range k.Records {
		if last.Fence != 0 && before.Applied && before.Op == "acquire" && before.value != last.value && before.Fence >= last.Fence && before.Return < last.Call {
			return fmt.Sprintf("fence %d came after fence %d", last.Fence, before.Fence)
		}
	}
	if k.Model == "lock" && last.Op == "acquire" && last.Applied {
		return fmt.Sprintf("two holders, or one that nobody released: %s acquired it", last.value)
	}
	if k.Model == "lock" && (last.Op == "release" || last.Op == "renew") && !last.Applied {
		return fmt.Sprintf("its holder %s could not release or renew it: another owner, or none, was found", last.value)
	}
	return fmt.Sprintf("no order of the operations explains %q", last)
}

func (k *Key) reasonOfRead(read *Record) string {
	model := models[k.Model]
	if doubled := doubled(read.value); k.Model == "list" && doubled != "" {
		return fmt.Sprintf("element %s was written once and is there twice: %s", doubled, read.value)
	}
	var source, newer *Record
	for _, record := range k.Records {
		if record.reads() {
			continue
		}
		if model.shows(read, record) {
			source = record
		} else if record.Outcome == OK && record.Return < read.Call && record.Op != "append" {
			newer = record
		}
	}
	switch {
	case source == nil && read.value != nothing:
		return fmt.Sprintf("%s was read and nobody wrote it", read.value)
	case source != nil && source.Outcome == Failed:
		return fmt.Sprintf("%s was read, whose write failed: the server said that it had no effect", read.value)
	case newer != nil && (source == nil || source.Return < newer.Call):
		return fmt.Sprintf("%s was read after %s had been acknowledged", read.value, newer.value)
	}
	return fmt.Sprintf("no order of the operations explains that %s was read", read.value)
}

// doubled is an element that is in a list more than once.
func doubled(value string) string {
	parts := elements(value)
	for at, part := range parts {
		if slices.Contains(parts[:at], part) {
			return part
		}
	}
	return ""
}
