// Package pilothouse is a small helper: from the contract's records to typed objects and back. wit/plugin.wit and
// docs/contract.md of Pilothouse say what each member means.
package pilothouse

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
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

// Touch is a kind that a controller reads or writes.
type Touch struct {
	Kind   Kind     `json:"kind"`
	Access []string `json:"access"`
	Fields []string `json:"fields,omitempty"`
}

// Controller has one primary kind.
type Controller struct {
	Name    string   `json:"name"`
	Kind    Kind     `json:"kind"`
	Fields  []string `json:"fields"`
	Touches []Touch  `json:"touches"`
	// Reconcile is what Typed makes.
	Reconcile func(RawRequest, Cluster) (Outcome, error) `json:"-"`
}

// Plugin is what wit/manifest.schema.json describes, with the functions of the controllers.
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
	// Contributed objects have fields for objects of others.
	Contributed []Object
	// Status becomes the primary's status.
	Status     any
	Conditions []Condition
	Events     []Event
	// RequeueAfter is in milliseconds; 0 means never.
	RequeueAfter uint64
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

// Call reconciles. A panic is logged with its stack and becomes a failure.
func (p Plugin) Call(raw RawRequest, cluster Cluster) (outcome Outcome, failure *Failure) {
	defer func() {
		if cause := recover(); cause != nil {
			message := fmt.Sprint(cause)
			cluster.Log(Error, message, "stack", string(debug.Stack()))
			outcome, failure = Outcome{}, &Failure{Message: "the plugin panicked: " + message}
		}
	}()
	var about struct{ APIVersion, Kind string }
	if err := json.Unmarshal(raw.Object, &about); err != nil {
		return Outcome{}, &Failure{Message: "the object is not JSON: " + err.Error()}
	}
	for _, controller := range p.Controllers {
		if controller.Kind.Kind != about.Kind || controller.Kind.APIVersion() != about.APIVersion {
			continue
		}
		outcome, err := controller.Reconcile(raw, cluster)
		if err == nil {
			return outcome, nil
		}
		if errors.As(err, &failure) {
			return Outcome{}, failure
		}
		return Outcome{}, &Failure{Message: err.Error()}
	}
	return Outcome{}, &Failure{Message: fmt.Sprintf("there is no controller for %s %s", about.APIVersion, about.Kind)}
}
