package main

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// operations is the history of a key as porcupine takes it. Reads without an answer and writes that failed are left out:
// the former say nothing, the latter have no effect.
//
// An operation of unknown outcome may take effect at any time after its call. Left like that, each stays a possibility to
// the end, and the work doubles with every one. Writes are distinct, so their times can be bounded without changing the
// verdict:
//   - One that nobody saw can be left out. Had it taken effect, everything until the next write would have shown it; so
//     there was nothing, and it can as well never have happened.
//   - One that was seen took effect before the first operation that saw it returned.
//   - Of the releases of one owner's lock, who acquires once, the first call stands for all. Once the lock has been seen
//     without him, after he acquired it, a release does nothing any more: it was before that operation returned, if at all.
func (k *Key) operations() []porcupine.Operation {
	model := models[k.Model]
	var kept []porcupine.Operation
	acquired := map[string]int64{} // by when each owner has the lock, of those who were ever seen with it
	for _, record := range k.Records {
		until := record.Return
		switch {
		case record.Outcome == OK:
		case record.reads() || record.Outcome == Failed || record.Op == "release" || record.Op == "renew":
			continue
		default:
			if until = firstReturn(k.Records, func(seen *Record) bool { return model.shows(seen, record) }); until == Never {
				continue
			}
			until = max(until, record.Call)
		}
		if record.Op == "acquire" && (record.Applied || record.Outcome != OK) {
			acquired[record.value] = until
		}
		kept = append(kept, operation(record, until))
	}
	for _, record := range k.Records {
		since, had := acquired[record.value]
		if record.Op != "release" || record.Outcome != Indeterminate || !had {
			continue
		}
		delete(acquired, record.value)
		gone := firstReturn(k.Records, func(seen *Record) bool {
			without := seen.holder() != "" && seen.holder() != record.value || seen.Applied && seen.Op == "acquire" && seen.value != record.value
			return without && seen.Outcome == OK && seen.Call > since
		})
		if gone >= record.Call { // both ends belong to an operation
			kept = append(kept, operation(record, gone))
		}
	}
	return kept
}

func operation(record *Record, until int64) porcupine.Operation {
	return porcupine.Operation{Input: record, Call: record.Call, Return: until}
}

// firstReturn is when the first of those operations ended that are of a kind; Never if there are none.
func firstReturn(records []*Record, kind func(*Record) bool) int64 {
	first := int64(Never)
	for _, record := range records {
		if record.Outcome == OK && record.Return < first && kind(record) {
			first = record.Return
		}
	}
	return first
}

// decide says whether the operations on a key can be put into an order that fits their times and its model.
func (k *Key) decide(deadline time.Time) porcupine.CheckResult {
	left := time.Until(deadline)
	if left <= 0 {
		return porcupine.Unknown // porcupine takes 0 for no limit
	}
	return porcupine.CheckOperationsTimeout(models[k.Model].linear(), k.operations(), left)
}

// until is the history as it was known at a moment: what had not returned may still take effect.
func (k *Key) until(moment int64) *Key {
	known := &Key{Model: k.Model, Name: k.Name}
	for _, record := range k.Records {
		if record.Call > moment {
			break
		}
		if record.Return > moment {
			if record.reads() {
				continue
			}
			open := *record
			open.Outcome, open.Return, open.Applied, open.Found = Indeterminate, Never, false, nil
			record = &open
		}
		known.Records = append(known.Records, record)
	}
	return known
}

// core is a small part of a history that is not linearizable, and is not either: up to the first operation that cannot be
// explained, and then without all that need not be there. It is what was found when the time was over.
//
// Only what a linearizable history can do without is taken away: a read, a statement that was not applied, a write with
// all that show it. So the core is wrong for a reason that is the history's.
func (k *Key) core(deadline time.Time) *Key {
	var moments []int64
	for _, record := range k.Records {
		moments = append(moments, record.Return)
	}
	slices.Sort(moments)
	low, high := 0, len(moments)-1 // the first moment that is wrong is in between
	for low < high && time.Now().Before(deadline) {
		middle := (low + high) / 2
		if k.until(moments[middle]).decide(deadline) == porcupine.Ok {
			low = middle + 1
		} else {
			high = middle
		}
	}
	core := k.until(moments[high])
	if core.decide(deadline) != porcupine.Illegal {
		return k
	}
	for chunk := len(core.Records); chunk > 0; chunk /= 2 {
		for at := 0; at < len(core.Records) && time.Now().Before(deadline); {
			smaller := core.without(core.Records[at:min(at+chunk, len(core.Records))])
			if smaller.decide(deadline) == porcupine.Illegal {
				core = smaller
			} else {
				at += chunk
			}
		}
	}
	return core
}

// without leaves operations out, and with a write all that could not be without it.
func (k *Key) without(left []*Record) *Key {
	model := models[k.Model]
	smaller := &Key{Model: k.Model, Name: k.Name}
	for _, record := range k.Records {
		gone := slices.ContainsFunc(left, func(out *Record) bool {
			same := record == out
			if out.reads() || out.Op == "renew" || out.Outcome == OK && k.Model == "lock" && !out.Applied {
				return same
			}
			return same || model.shows(record, out) || k.Model == "lock" && (record.holder() == out.value || !record.reads() && record.value == out.value)
		})
		if !gone {
			smaller.Records = append(smaller.Records, record)
		}
	}
	return smaller
}
