//go:build wasip1 && finalizer

package pilothouse

import "unsafe"

// The canonical ABI of the interface finalizer: built with the tag `finalizer`, for a world that exports it.

//go:wasmexport pilothouse:plugin/finalizer@0.1.0#finalize
func finalize(object unsafe.Pointer, objectLength uint32, configuration unsafe.Pointer, configurationLength uint32,
	attempt uint32, _ unsafe.Pointer, _ uint32) unsafe.Pointer {
	request := requestOf(object, objectLength, configuration, configurationLength, attempt)
	answer := newRecord(88)
	finalization, failure := registered.CallFinalize(request, host{})
	// The variant's case is at 8, and its payload at 16.
	if isDone, outcome := finalization.IsDone(); failure == nil && !isDone {
		answer.byte(8, 1)
		writeOutcome(answer.from(16), outcome)
	}
	writeFailure(answer, failure)
	return answer.at
}
