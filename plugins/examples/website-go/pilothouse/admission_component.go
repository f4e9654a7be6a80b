//go:build wasip1 && admission

package pilothouse

import (
	"encoding/json"
	"fmt"
	"unsafe"
)

// The canonical ABI of the interfaces defaulter and validator: built with the tag `admission`, for a world that exports them.

//go:wasmexport pilothouse:plugin/defaulter@0.1.0#apply-defaults
func applyDefaults(review unsafe.Pointer) unsafe.Pointer {
	answer := newRecord(12)
	object, refused := registered.CallApplyDefaults(reviewAt(review), host{})
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("the object with defaults is no JSON: %v", err))
	}
	if refused != nil {
		writeFieldErrors(answer, refused)
	} else {
		answer.string(4, string(text))
	}
	return answer.at
}

//go:wasmexport pilothouse:plugin/validator@0.1.0#validate
func validate(review unsafe.Pointer) unsafe.Pointer {
	answer := newRecord(12)
	warnings, refused := registered.CallValidate(reviewAt(review), host{})
	if refused != nil {
		writeFieldErrors(answer, refused)
		return answer.at
	}
	var items []record
	for _, warning := range warnings {
		item := newRecord(8)
		item.string(0, warning)
		items = append(items, item)
	}
	answer.list(4, items)
	return answer.at
}

func writeFieldErrors(answer record, refused []*FieldError) {
	answer.byte(0, 1)
	var items []record
	for _, it := range refused {
		item := newRecord(20)
		item.byte(0, byte(it.Kind))
		item.string(4, it.Path)
		item.string(12, it.Message)
		items = append(items, item)
	}
	answer.list(4, items)
}

// reviewAt reads a review, which has too many members for parameters and lies in memory.
func reviewAt(at unsafe.Pointer) RawReview {
	review := record{at: at, bytes: unsafe.Slice((*byte)(at), 92)}
	text := func(offset int) string { return string(read(review, offset)) }
	raw := RawReview{Kind: Kind{Group: text(4), Version: text(12), Kind: text(20)}}
	raw.Phase = Phase(review.bytes[0])
	if review.bytes[28] != 0 {
		raw.Object = read(review, 32)
	}
	if review.bytes[40] != 0 {
		old := json.RawMessage(read(review, 44))
		raw.OldObject = &old
	}
	raw.Configuration = read(review, 52)
	if review.bytes[60] != 0 {
		items := record{bytes: readItems(review, 72, 8)}
		var groups []string
		for offset := 0; offset < len(items.bytes); offset += 8 {
			groups = append(groups, string(read(items, offset)))
		}
		raw.UserInfo = &UserInfo{Username: text(64), Groups: groups}
	}
	raw.DryRun = review.bytes[80] != 0
	return raw
}
