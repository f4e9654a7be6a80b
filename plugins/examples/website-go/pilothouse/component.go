//go:build wasip1

package pilothouse

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"unsafe"
)

// The answer to the exit of a process is a trap.
func init() { stop = func(any) { os.Exit(2) } }

// This file is the component model's canonical ABI for the world `plugin`: records lie in memory as C would lay them out,
// with pointers of four bytes.

// What the other side may still look at. Each call has an instance of its own, so nothing has to be let go.
var kept [][]uint64

// allocate returns memory that the garbage collector leaves in place.
func allocate(size uint32) unsafe.Pointer {
	words := make([]uint64, size/8+1)
	kept = append(kept, words)
	return unsafe.Pointer(&words[0])
}

// Not cabi_realloc, which the adapter of WASI's preview 1 would call before Go's runtime has started.

//go:wasmexport cabi_import_realloc
func importRealloc(old unsafe.Pointer, oldSize, alignment, size uint32) unsafe.Pointer {
	return exportRealloc(old, oldSize, alignment, size)
}

//go:wasmexport cabi_export_realloc
func exportRealloc(old unsafe.Pointer, oldSize, _, size uint32) unsafe.Pointer {
	fresh := allocate(size)
	copy(unsafe.Slice((*byte)(fresh), size), unsafe.Slice((*byte)(old), min(oldSize, size)))
	return fresh
}

//go:wasmexport pilothouse:plugin/manifest@0.1.0#describe
func describe(_ uint32, _ unsafe.Pointer, _ uint32) unsafe.Pointer {
	manifest, err := json.Marshal(registered)
	answer := newRecord(12)
	if err != nil {
		answer.byte(0, 1)
		manifest = []byte(err.Error())
	}
	answer.string(4, string(manifest))
	return answer.at
}

//go:wasmexport pilothouse:plugin/reconciler@0.1.0#reconcile
func reconcile(object unsafe.Pointer, objectLength uint32, configuration unsafe.Pointer, configurationLength uint32,
	attempt uint32, _ unsafe.Pointer, _ uint32) unsafe.Pointer {
	request := requestOf(object, objectLength, configuration, configurationLength, attempt)
	answer := newRecord(80)
	outcome, failure := registered.Call(request, host{})
	if failure == nil {
		writeOutcome(answer.from(8), outcome)
	}
	writeFailure(answer, failure)
	return answer.at
}

func requestOf(object unsafe.Pointer, objectLength uint32, configuration unsafe.Pointer, configurationLength uint32,
	attempt uint32) RawRequest {
	return RawRequest{
		Object:        unsafe.Slice((*byte)(object), objectLength),
		Configuration: unsafe.Slice((*byte)(configuration), configurationLength),
		Attempt:       attempt,
	}
}

// writeFailure writes the error of a result whose payload begins at 8; nil is none.
func writeFailure(answer record, failure *Failure) {
	if failure == nil {
		return
	}
	answer.byte(0, 1)
	if failure.Transient {
		answer.byte(8, 0)
	} else {
		answer.byte(8, 1)
	}
	answer.string(12, failure.Message)
}

// writeOutcome writes an outcome, of 72 bytes.
func writeOutcome(answer record, outcome Outcome) {
	var desired []record
	desire := func(object Object, ownership byte, lifecycle Lifecycle) {
		if object == nil {
			return
		}
		text, err := json.Marshal(object)
		if err != nil {
			panic(fmt.Sprintf("an object is no JSON: %v", err))
		}
		item := newRecord(20)
		item.string(0, string(text))
		item.byte(8, ownership)
		item.byte(9, lifecycle.Flags())
		item.string(12, lifecycle.JSON())
		desired = append(desired, item)
	}
	for _, object := range outcome.Owned {
		desire(object, 0, Lifecycle{})
	}
	for _, owned := range outcome.OwnedWith {
		desire(owned.Object, 0, owned.Lifecycle)
	}
	for _, object := range outcome.Contributed {
		desire(object, 1, Lifecycle{})
	}
	answer.list(0, desired)
	if outcome.Status != nil {
		text, err := json.Marshal(outcome.Status)
		if err != nil {
			panic(fmt.Sprintf("the status is no JSON: %v", err))
		}
		answer.byte(8, 1)
		answer.string(12, string(text))
	}
	var conditions, events []record
	for _, condition := range outcome.Conditions {
		item := newRecord(28)
		item.string(0, condition.Type)
		item.byte(8, map[string]byte{"True": 0, "False": 1}[condition.Status])
		if condition.Status != "True" && condition.Status != "False" {
			item.byte(8, 2)
		}
		item.string(12, condition.Reason)
		item.string(20, condition.Message)
		conditions = append(conditions, item)
	}
	answer.list(20, conditions)
	for _, event := range outcome.Events {
		item := newRecord(20)
		if event.Warning {
			item.byte(0, 1)
		}
		item.string(4, event.Reason)
		item.string(12, event.Message)
		events = append(events, item)
	}
	answer.list(28, events)
	if outcome.RequeueAfter > 0 {
		answer.byte(40, 1)
		binary.LittleEndian.PutUint64(answer.bytes[48:], outcome.RequeueAfter)
	}
}

// A record in memory that the host reads.
type record struct {
	at    unsafe.Pointer
	bytes []byte
}

func newRecord(size uint32) record {
	at := allocate(size)
	return record{at: at, bytes: unsafe.Slice((*byte)(at), size)}
}

// from is what of a record begins at an offset.
func (r record) from(offset int) record {
	return record{at: unsafe.Pointer(&r.bytes[offset]), bytes: r.bytes[offset:]}
}

func (r record) byte(offset int, value byte) {
	r.bytes[offset] = value
}

func (r record) word(offset int, value uint32) {
	binary.LittleEndian.PutUint32(r.bytes[offset:], value)
}

func (r record) string(offset int, text string) {
	copied := newRecord(uint32(len(text)))
	copy(copied.bytes, text)
	r.word(offset, uint32(uintptr(copied.at)))
	r.word(offset+4, uint32(len(text)))
}

func (r record) list(offset int, items []record) {
	var size int
	for _, item := range items {
		size += len(item.bytes)
	}
	all := newRecord(uint32(size))
	rest := all.bytes
	for _, item := range items {
		rest = rest[copy(rest, item.bytes):]
	}
	r.word(offset, uint32(uintptr(all.at)))
	r.word(offset+4, uint32(len(items)))
}

//go:wasmimport pilothouse:plugin/cluster@0.1.0 get
//go:noescape
func hostGet(group unsafe.Pointer, groupLength uint32, version unsafe.Pointer, versionLength uint32, kind unsafe.Pointer,
	kindLength uint32, hasNamespace uint32, namespace unsafe.Pointer, namespaceLength uint32, name unsafe.Pointer,
	nameLength uint32, answer unsafe.Pointer)

//go:wasmimport pilothouse:plugin/cluster@0.1.0 list
//go:noescape
func hostList(group unsafe.Pointer, groupLength uint32, version unsafe.Pointer, versionLength uint32, kind unsafe.Pointer,
	kindLength uint32, hasNamespace uint32, namespace unsafe.Pointer, namespaceLength uint32, hasLabels uint32,
	labels unsafe.Pointer, labelsLength uint32, fields unsafe.Pointer, fieldsLength uint32, hasLimit uint32, limit uint32,
	answer unsafe.Pointer)

//go:wasmimport pilothouse:plugin/clock@0.1.0 now
func hostNow(granularity uint64) uint64

//go:wasmimport pilothouse:plugin/clock@0.1.0 reached
func hostReached(moment uint64) uint32

//go:wasmimport pilothouse:plugin/log@0.1.0 log
//go:noescape
func hostLog(level uint32, message unsafe.Pointer, messageLength uint32, fields unsafe.Pointer, fieldsLength uint32)

// host is the Cluster of a component.
type host struct{}

func raw(text string) (unsafe.Pointer, uint32) {
	return unsafe.Pointer(unsafe.StringData(text)), uint32(len(text))
}

// optional is an option<string>; "" is none.
func optional(text string) (uint32, unsafe.Pointer, uint32) {
	at, length := raw(text)
	return min(length, 1), at, length
}

// read returns the bytes of a string that the host has written.
func read(answer record, offset int) []byte {
	return readItems(answer, offset, 1)
}

// readItems returns the bytes of a list, whose items have this size each.
func readItems(answer record, offset int, size uint32) []byte {
	at := uintptr(binary.LittleEndian.Uint32(answer.bytes[offset:]))
	count := binary.LittleEndian.Uint32(answer.bytes[offset+4:])
	for _, words := range kept {
		if uintptr(unsafe.Pointer(&words[0])) == at {
			return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), count*size)
		}
	}
	return nil
}

func (host) Get(kind Kind, namespace, name string, into any) (bool, error) {
	answer := newRecord(12)
	group, groupLength := raw(kind.Group)
	version, versionLength := raw(kind.Version)
	text, textLength := raw(kind.Kind)
	has, inNamespace, namespaceLength := optional(namespace)
	called, calledLength := raw(name)
	hostGet(group, groupLength, version, versionLength, text, textLength, has, inNamespace, namespaceLength, called,
		calledLength, answer.at)
	if answer.bytes[0] == 0 {
		return false, nil
	}
	return true, json.Unmarshal(read(answer, 4), into)
}

func (host) List(kind Kind, namespace, labelSelector string) []json.RawMessage {
	answer := newRecord(8)
	group, groupLength := raw(kind.Group)
	version, versionLength := raw(kind.Version)
	text, textLength := raw(kind.Kind)
	has, inNamespace, namespaceLength := optional(namespace)
	hasLabels, labels, labelsLength := optional(labelSelector)
	hostList(group, groupLength, version, versionLength, text, textLength, has, inNamespace, namespaceLength, hasLabels,
		labels, labelsLength, answer.at, 0, 0, 0, answer.at)
	items := record{bytes: readItems(answer, 0, 8)}
	var objects []json.RawMessage
	for offset := 0; offset < len(items.bytes); offset += 8 {
		objects = append(objects, read(items, offset))
	}
	return objects
}

func (host) Now(granularity uint64) uint64 { return hostNow(granularity) }

func (host) Reached(moment uint64) bool { return hostReached(moment) != 0 }

func (host) Log(level Level, message string, fields ...string) {
	var pairs []record
	for index := 0; index+1 < len(fields); index += 2 {
		pair := newRecord(16)
		pair.string(0, fields[index])
		pair.string(8, fields[index+1])
		pairs = append(pairs, pair)
	}
	list := newRecord(8)
	list.list(0, pairs)
	at, length := raw(message)
	hostLog(uint32(level), at, length, unsafe.Pointer(uintptr(binary.LittleEndian.Uint32(list.bytes))), uint32(len(pairs)))
}
