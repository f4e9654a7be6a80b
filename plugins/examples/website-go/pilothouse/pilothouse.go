// Package pilothouse is a small helper: from the contract's records to typed objects and back. wit/plugin.wit says what each
// member means, and so does docs/contract.md of Pilothouse.
package pilothouse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// Kind is a kind in one version; the core group is "".
type Kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// APIVersion is the kind's apiVersion, such as "apps/v1".
func (k Kind) APIVersion() string {
	if k.Group == "" {
		return k.Version
	}
	return k.Group + "/" + k.Version
}

// Touch is a kind that a controller reads or writes, and how.
type Touch struct {
	Kind Kind `json:"kind"`
	// Access has "read" for Get and List, "owned" for objects of the primary, and "contributed" for fields in objects of others.
	Access []string `json:"access"`
	// Fields are looked at beside the metadata, for example ".status.readyReplicas"; "." is everything.
	Fields []string `json:"fields,omitempty"`
	// Scope is "Namespace", the default, or "Any", where objects without a namespace are, too.
	Scope string `json:"scope,omitempty"`
	// LabelSelector leaves out objects that it does not match; for example "app=web,tier in (a,b),!legacy".
	LabelSelector string `json:"labelSelector,omitempty"`
	// Namespaces are the only ones, with the scope "Any".
	Namespaces []string `json:"namespaces,omitempty"`
	// Names are those of the only objects.
	Names []string `json:"names,omitempty"`
	// Optional says that the plugin runs where the kind is not served: it sees nothing, and what it wants of it fails alone.
	Optional bool `json:"optional,omitempty"`
}

// Controller has one primary kind.
type Controller struct {
	Name    string   `json:"name"`
	Kind    Kind     `json:"kind"`
	Fields  []string `json:"fields"`
	Touches []Touch  `json:"touches"`
	// Reconcile is what Typed makes.
	Reconcile func(RawRequest, Cluster) (Outcome, error) `json:"-"`
	// Finalizer is the finalizer's name, for example "example.com/website"; with it the component exports `finalizer`.
	Finalizer string `json:"finalizer,omitempty"`
	// Finalize is called for an object that is being deleted; it is what TypedFinalize makes.
	Finalize func(RawRequest, Cluster) (Finalization, error) `json:"-"`
	// ApplyDefaults returns the object with defaults filled in. The same again must change nothing. Numbers are json.Number.
	ApplyDefaults func(Review[Object], Cluster) (Object, error) `json:"-"`
	// Validate returns warnings, or the FieldErrors that refuse the object; it is what TypedValidate makes.
	Validate func(RawReview, Cluster) ([]string, error) `json:"-"`
	// Options are those that desired objects may have, such as "replace". A host that does not know one of them refuses the
	// plugin.
	Options []string `json:"options,omitempty"`
}

// MarshalJSON writes the controller's part of the manifest, which also says which of the functions there are.
func (c Controller) MarshalJSON() ([]byte, error) {
	type members Controller
	return json.Marshal(struct {
		members
		Defaulter bool `json:"defaulter"`
		Validator bool `json:"validator"`
	}{members(c), c.ApplyDefaults != nil, c.Validate != nil})
}

// Plugin is the manifest with the functions of the controllers.
// docs/reference/manifest.md of Pilothouse has all its members.
type Plugin struct {
	Name        string       `json:"name"`
	Version     string       `json:"version"`
	Description string       `json:"description"`
	Controllers []Controller `json:"controllers"`
	CRDs        []string     `json:"crds,omitempty"`
}

// ObjectMeta has the members of a primary's metadata that controllers usually need.
type ObjectMeta struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	UID         string            `json:"uid,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// OwnerReferences are read by ControlledBy.
	OwnerReferences []OwnerReference `json:"ownerReferences,omitempty"`
}

// OwnerReference names an owner of an object.
type OwnerReference struct {
	UID        string `json:"uid"`
	Controller bool   `json:"controller,omitempty"`
}

// ControlledBy says whether an object that was read belongs to this primary.
func (m ObjectMeta) ControlledBy(owner ObjectMeta) bool {
	return slices.Contains(m.OwnerReferences, OwnerReference{UID: owner.UID, Controller: true})
}

// Object is a Kubernetes object without a type of its own.
type Object = map[string]any

// RawRequest is what the host calls a controller with, as JSON.
type RawRequest struct {
	Object        json.RawMessage
	Configuration json.RawMessage
	Attempt       uint32
}

// Request has a primary of a type of its own.
type Request[T any] struct {
	Object        T
	Configuration json.RawMessage
	// Attempt counts the failures in a row before this call.
	Attempt uint32
}

// Phase says why an object is reviewed. The host does not ask about deletions today.
type Phase uint8

// The phases.
const (
	Create Phase = iota
	Update
	Delete
	Reconcile
)

// Review is what the host calls a defaulter and a validator with.
type Review[T any] struct {
	Phase Phase
	// Object is the zero value only when it is deleted.
	Object T
	// OldObject is nil unless it is updated or deleted.
	OldObject     *T
	Configuration json.RawMessage
	// UserInfo is nil before a reconcile: nobody makes a request.
	UserInfo *UserInfo
	// DryRun says whether nothing will be stored.
	DryRun bool
}

// UserInfo is who makes a request.
type UserInfo struct {
	Username string
	Groups   []string
}

// RawReview is a review as JSON; an object that is not there is nil.
type RawReview struct {
	Review[json.RawMessage]
	Kind Kind
}

// Cluster is the host's cache and clock. Each read is a dependency: when it would answer otherwise, the object is
// reconciled again.
type Cluster interface {
	// Get reads an object into `into`, and says whether it is there.
	Get(kind Kind, namespace, name string, into any) (bool, error)
	// List returns the objects of a namespace that a label selector matches, as JSON.
	List(kind Kind, namespace, labelSelector string) []json.RawMessage
	// Now is the time in milliseconds since 1970, rounded down to a multiple of granularity.
	Now(granularity uint64) uint64
	// Reached says whether a moment, in milliseconds since 1970, has come.
	Reached(moment uint64) bool
	// Log writes a line of the host's log, with pairs of names and values.
	Log(level Level, message string, fields ...string)
}

// Level is a level of the host's log.
type Level uint32

// The levels.
const (
	Trace Level = iota
	Debug
	Info
	Warn
	Error
)

// Outcome is what should exist. What was desired before and is not here any more is deleted.
type Outcome struct {
	// Owned objects belong to the primary; nil is left out, for children that are optional.
	Owned []Object
	// OwnedWith are owned objects with exceptions to their lives.
	OwnedWith []OwnedObject
	// Contributed objects have fields for objects of others.
	Contributed []Object
	// Status becomes the primary's status.
	Status     any
	Conditions []Condition
	Events     []Event
	// RequeueAfter is in milliseconds; 0 means never.
	RequeueAfter uint64
}

// OwnedObject is an owned object with exceptions to its life.
type OwnedObject struct {
	Object    Object
	Lifecycle Lifecycle
}

// Lifecycle has exceptions to the life of an owned object.
type Lifecycle struct {
	// CreateOnly: created when absent, then never changed.
	CreateOnly bool `json:"-"`
	// Keep: left in place when it is no longer desired, and when the primary goes.
	Keep bool `json:"-"`
	// Recreate: deleted and created again where a changed field is immutable.
	Recreate bool `json:"-"`
	// Replace: deleted and created again whenever something else is desired than before. The controller lists it in Options.
	Replace bool `json:"replace,omitempty"`
	// Propagation: "Background", "Foreground" or "Orphan" where the host deletes it; without it the host decides. Listed in
	// Options, too.
	Propagation string `json:"propagation,omitempty"`
	// Adopt: "IfUnowned" takes an object of this name over that belongs to nobody. Listed in Options, too.
	Adopt string `json:"adopt,omitempty"`
	// Yield: fields, such as ".spec.replicas", that are left to who else sets them. Listed in Options, too.
	Yield []string `json:"yield,omitempty"`
	// After: owned objects that have to be Current before it is made or changed, and that go after it. Listed in Options, too.
	After []ObjectReference `json:"after,omitempty"`
	// Once: the token with which it is made once; when it is gone, it is made again with another one only. Listed in Options, too.
	Once string `json:"once,omitempty"`
}

// ObjectReference names an object; without a namespace it is in that of the primary.
type ObjectReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace,omitempty"`
}

// Flags are the flags of the contract, in the order of wit/plugin.wit.
func (l Lifecycle) Flags() byte {
	var flags byte
	for index, holds := range []bool{l.CreateOnly, l.Keep, l.Recreate} {
		if holds {
			flags |= 1 << index
		}
	}
	return flags
}

// JSON has the options of the contract.
func (l Lifecycle) JSON() string {
	text, err := json.Marshal(l)
	if err != nil {
		panic(fmt.Sprintf("options are no JSON: %v", err))
	}
	return string(text)
}

// Condition is a metav1.Condition; Status is "True", "False" or "Unknown".
type Condition struct{ Type, Status, Reason, Message string }

// Event is an event about the primary.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Failure is an error that says when to try again. Any other error is permanent.
type Failure struct {
	Transient bool
	Message   string
}

func (f *Failure) Error() string { return f.Message }

// Transient is a failure that is retried with back-off.
func Transient(format string, arguments ...any) error {
	return &Failure{Transient: true, Message: fmt.Sprintf(format, arguments...)}
}

// Permanent is a failure that is retried when the object, the configuration or something that was read changes.
func Permanent(format string, arguments ...any) error {
	return &Failure{Message: fmt.Sprintf(format, arguments...)}
}

// Finalization is what a finalizer answers: Done or Pending.
type Finalization struct {
	done    bool
	outcome Outcome
}

// Done says that the object may go.
func Done() Finalization { return Finalization{done: true} }

// Pending says what should still exist until the object may go.
func Pending(outcome Outcome) Finalization { return Finalization{outcome: outcome} }

// IsDone says whether the object may go, and if not, what should still exist.
func (f Finalization) IsDone() (bool, Outcome) { return f.done, f.outcome }

// FieldErrorKind says how a field is wrong.
type FieldErrorKind uint8

// The kinds, with the words of the API server.
const (
	Required FieldErrorKind = iota
	Duplicate
	Forbidden
	NotFound
	Invalid
)

// FieldError is what is wrong with one field. Several are joined with errors.Join.
type FieldError struct {
	Kind FieldErrorKind
	// Path is such as "spec.ports[0].name"; "" means the object as a whole.
	Path string
	// Message is without the path and the value, which the host adds.
	Message string
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Message }

var registered Plugin

// Register says which plugin the component is; call it in an init function.
func Register(plugin Plugin) {
	registered = plugin
}

// Typed reads the primary into a type of its own before it is reconciled.
func Typed[T any](reconcile func(Request[T], Cluster) (Outcome, error)) func(RawRequest, Cluster) (Outcome, error) {
	return func(raw RawRequest, cluster Cluster) (Outcome, error) {
		request := Request[T]{Configuration: raw.Configuration, Attempt: raw.Attempt}
		if err := json.Unmarshal(raw.Object, &request.Object); err != nil {
			return Outcome{}, Permanent("the object cannot be read: %v", err)
		}
		return reconcile(request, cluster)
	}
}

// TypedFinalize reads the primary into a type of its own before it is finalized.
func TypedFinalize[T any](
	finalize func(Request[T], Cluster) (Finalization, error),
) func(RawRequest, Cluster) (Finalization, error) {
	return func(raw RawRequest, cluster Cluster) (finalization Finalization, err error) {
		_, err = Typed(func(request Request[T], cluster Cluster) (Outcome, error) {
			finalization, err = finalize(request, cluster)
			return Outcome{}, err
		})(raw, cluster)
		return finalization, err
	}
}

// TypedValidate reads the primary into a type of its own before it is validated.
func TypedValidate[T any](validate func(Review[T], Cluster) ([]string, error)) func(RawReview, Cluster) ([]string, error) {
	return func(raw RawReview, cluster Cluster) ([]string, error) {
		review, err := reviewOf[T](raw)
		if err != nil {
			return nil, err
		}
		return validate(review, cluster)
	}
}

// reviewOf reads the objects of a review.
func reviewOf[T any](raw RawReview) (Review[T], error) {
	review := Review[T]{Phase: raw.Phase, Configuration: raw.Configuration, UserInfo: raw.UserInfo, DryRun: raw.DryRun}
	if raw.Object != nil {
		if err := unmarshal(raw.Object, &review.Object); err != nil {
			return review, &FieldError{Invalid, "", "the object cannot be read: " + err.Error()}
		}
	}
	if raw.OldObject != nil {
		review.OldObject = new(T)
		if err := unmarshal(*raw.OldObject, review.OldObject); err != nil {
			return review, &FieldError{Invalid, "", "the old object cannot be read: " + err.Error()}
		}
	}
	return review, nil
}

// unmarshal keeps numbers as they are written.
func unmarshal(text json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// stop ends a call that cannot go on, after the reason was logged. A component traps: the host then blames the plugin rather than
// the object, and its failure has the message that was logged. In tests it panics again.
var stop = func(cause any) { panic(cause) }

// Call reconciles. A panic is logged with its stack and ends the call.
func (p Plugin) Call(raw RawRequest, cluster Cluster) (outcome Outcome, failure *Failure) {
	err := p.called(raw, cluster, func(controller Controller) (err error) {
		outcome, err = controller.Reconcile(raw, cluster)
		return err
	})
	return outcome, failureOf(err)
}

// CallFinalize finalizes.
func (p Plugin) CallFinalize(raw RawRequest, cluster Cluster) (finalization Finalization, failure *Failure) {
	err := p.called(raw, cluster, func(controller Controller) (err error) {
		if controller.Finalize == nil {
			return fmt.Errorf("the controller %s has no Finalize", controller.Name)
		}
		finalization, err = controller.Finalize(raw, cluster)
		return err
	})
	return finalization, failureOf(err)
}

// CallApplyDefaults completes an object.
func (p Plugin) CallApplyDefaults(raw RawReview, cluster Cluster) (object Object, refused []*FieldError) {
	err := p.calledFor(raw.Kind, cluster, func(controller Controller) error {
		if controller.ApplyDefaults == nil {
			return fmt.Errorf("the controller %s has no ApplyDefaults", controller.Name)
		}
		review, err := reviewOf[Object](raw)
		if err != nil {
			return err
		}
		object, err = controller.ApplyDefaults(review, cluster)
		return err
	})
	return object, fieldErrorsOf(err)
}

// CallValidate validates an object.
func (p Plugin) CallValidate(raw RawReview, cluster Cluster) (warnings []string, refused []*FieldError) {
	err := p.calledFor(raw.Kind, cluster, func(controller Controller) (err error) {
		if controller.Validate == nil {
			return fmt.Errorf("the controller %s has no Validate", controller.Name)
		}
		warnings, err = controller.Validate(raw, cluster)
		return err
	})
	return warnings, fieldErrorsOf(err)
}

// called calls the controller of the object.
func (p Plugin) called(raw RawRequest, cluster Cluster, call func(Controller) error) error {
	var about struct{ APIVersion, Kind string }
	if err := json.Unmarshal(raw.Object, &about); err != nil {
		return fmt.Errorf("the object is not JSON: %w", err)
	}
	group, version, found := strings.Cut(about.APIVersion, "/")
	if !found {
		group, version = "", about.APIVersion
	}
	return p.calledFor(Kind{Group: group, Version: version, Kind: about.Kind}, cluster, call)
}

// calledFor calls the controller of a kind. A panic is logged with its stack and ends the call.
func (p Plugin) calledFor(kind Kind, cluster Cluster, call func(Controller) error) error {
	defer func() {
		if cause := recover(); cause != nil {
			cluster.Log(Error, fmt.Sprintf("panic: %v", cause), "stack", string(debug.Stack()))
			stop(cause)
		}
	}()
	for _, controller := range p.Controllers {
		if controller.Kind == kind {
			return call(controller)
		}
	}
	return fmt.Errorf("there is no controller for %s %s", kind.APIVersion(), kind.Kind)
}

func failureOf(err error) *Failure {
	var failure *Failure
	if err == nil || errors.As(err, &failure) {
		return failure
	}
	return &Failure{Message: err.Error()}
}

// fieldErrorsOf finds the FieldErrors that were joined. Another error is about the object as a whole.
func fieldErrorsOf(err error) []*FieldError {
	var one *FieldError
	joined, isJoined := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case isJoined:
		var all []*FieldError
		for _, err := range joined.Unwrap() {
			all = append(all, fieldErrorsOf(err)...)
		}
		return all
	case errors.As(err, &one):
		return []*FieldError{one}
	default:
		return []*FieldError{&FieldError{Invalid, "", err.Error()}}
	}
}
