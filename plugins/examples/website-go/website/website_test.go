package website

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.com/website/pilothouse"
)

// fakeCluster has objects by kind and name, and remembers what is logged.
type fakeCluster struct {
	objects map[string]string
	lines   []string
}

func (c *fakeCluster) Get(kind pilothouse.Kind, namespace, name string, into any) (bool, error) {
	object, found := c.objects[kind.Kind+" "+namespace+"/"+name]
	if !found {
		return false, nil
	}
	return true, json.Unmarshal([]byte(object), into)
}

func (c *fakeCluster) List(pilothouse.Kind, string, string) []json.RawMessage { return nil }
func (c *fakeCluster) Now(uint64) uint64                                      { return 0 }
func (c *fakeCluster) Reached(uint64) bool                                    { return false }
func (c *fakeCluster) Log(_ pilothouse.Level, message string, fields ...string) {
	c.lines = append(c.lines, message+" "+strings.Join(fields, " "))
}

func blog(host *string) pilothouse.Request[Website] {
	return pilothouse.Request[Website]{Object: Website{
		Metadata: pilothouse.ObjectMeta{Name: "blog", Namespace: "shop"},
		Spec:     Spec{Image: "nginx:1.27", Replicas: 2, Port: 8080, Host: host},
	}}
}

func kinds(outcome pilothouse.Outcome) string {
	var kinds []string
	for _, object := range outcome.Owned {
		kinds = append(kinds, object["kind"].(string))
	}
	return strings.Join(kinds, " ")
}

func TestWithoutAHostThereIsNoIngress(t *testing.T) {
	outcome, err := Reconcile(blog(nil), &fakeCluster{})
	if err != nil || kinds(outcome) != "Deployment Service" {
		t.Fatal(outcome, err)
	}
	if outcome.Status != (Status{URL: "http://blog.shop.svc"}) {
		t.Fatal(outcome.Status)
	}
}

func TestWithAHostThereIsAnIngress(t *testing.T) {
	host := "blog.example.com"
	outcome, err := Reconcile(blog(&host), &fakeCluster{})
	if err != nil || kinds(outcome) != "Deployment Service Ingress" {
		t.Fatal(outcome, err)
	}
	if outcome.Status != (Status{URL: "http://blog.example.com"}) {
		t.Fatal(outcome.Status)
	}
}

func TestTheStatusCountsTheReadyPodsOfTheLiveDeployment(t *testing.T) {
	cluster := &fakeCluster{objects: map[string]string{"Deployment shop/blog": `{"status":{"readyReplicas":2}}`}}
	outcome, err := Reconcile(blog(nil), cluster)
	if err != nil || outcome.Status.(Status).ReadyReplicas != 2 {
		t.Fatal(outcome, err)
	}
}

func TestAHostThatIsNoDNSNameIsRefused(t *testing.T) {
	for _, host := range []string{"My Blog", "blog_1", "-blog", "blog..example.com", ""} {
		_, err := Reconcile(blog(&host), &fakeCluster{})
		var failure *pilothouse.Failure
		if !errors.As(err, &failure) || failure.Transient || !strings.HasPrefix(failure.Message, "spec.host is ") {
			t.Fatal(host, err)
		}
	}
}

func call(t *testing.T, reconcile func(pilothouse.RawRequest, pilothouse.Cluster) (pilothouse.Outcome, error)) (string, *fakeCluster) {
	t.Helper()
	plugin, cluster := Plugin, &fakeCluster{}
	controller := Plugin.Controllers[0]
	controller.Reconcile = reconcile
	plugin.Controllers = []pilothouse.Controller{controller}
	object := `{"apiVersion":"example.com/v1","kind":"Website","metadata":{"name":"blog"}}`
	_, failure := plugin.Call(pilothouse.RawRequest{Object: json.RawMessage(object)}, cluster)
	if failure == nil {
		t.Fatal("it does not fail")
	}
	return failure.Message, cluster
}

func TestAnErrorBecomesAFailure(t *testing.T) {
	failing := func(pilothouse.RawRequest, pilothouse.Cluster) (pilothouse.Outcome, error) {
		return pilothouse.Outcome{}, errors.New("no such thing")
	}
	message, cluster := call(t, failing)
	if message != "no such thing" || len(cluster.lines) != 0 {
		t.Fatal(message, cluster.lines)
	}
}

// panicked says whether a call ends with a panic, as natively; a component traps.
func panicked(call func()) (message string) {
	defer func() { message = fmt.Sprint(recover()) }()
	call()
	return ""
}

func TestAPanicIsLoggedWithItsStackAndEndsTheCall(t *testing.T) {
	panicking := func(pilothouse.RawRequest, pilothouse.Cluster) (pilothouse.Outcome, error) {
		panic("no such thing")
	}
	plugin := with(func(it *pilothouse.Controller) { it.Reconcile = panicking })
	cluster := &fakeCluster{}
	message := panicked(func() { plugin.Call(pilothouse.RawRequest{Object: json.RawMessage(object)}, cluster) })
	if message != "no such thing" {
		t.Fatal(message)
	}
	isLogged := func(line string) bool {
		return strings.HasPrefix(line, "panic: no such thing ") && strings.Contains(line, "website_test.go")
	}
	if len(cluster.lines) != 1 || !isLogged(cluster.lines[0]) {
		t.Fatal(cluster.lines)
	}
}

func TestTheManifestIsJSON(t *testing.T) {
	text, err := json.Marshal(Plugin)
	if err != nil || !strings.Contains(string(text), `"fields":[".spec"]`) {
		t.Fatal(string(text), err)
	}
	validating := with(func(it *pilothouse.Controller) {
		it.Validate = func(pilothouse.RawReview, pilothouse.Cluster) ([]string, error) { return nil, nil }
	})
	text, err = json.Marshal(validating)
	if err != nil || !strings.Contains(string(text), `"defaulter":false,"validator":true`) {
		t.Fatal(string(text), err)
	}
}

func with(change func(*pilothouse.Controller)) pilothouse.Plugin {
	plugin, controller := Plugin, Plugin.Controllers[0]
	change(&controller)
	plugin.Controllers = []pilothouse.Controller{controller}
	return plugin
}

const object = `{"apiVersion":"example.com/v1","kind":"Website","metadata":{"name":"blog","generation":9007199254740993}}`

func TestAFinalizerLetsGoOrSaysWhatShouldStillExist(t *testing.T) {
	for _, expected := range []pilothouse.Finalization{pilothouse.Done(), pilothouse.Pending(pilothouse.Outcome{})} {
		finalize := func(request pilothouse.Request[Website], _ pilothouse.Cluster) (pilothouse.Finalization, error) {
			if request.Object.Metadata.Name != "blog" {
				return pilothouse.Finalization{}, errors.New("another object")
			}
			return expected, nil
		}
		plugin := with(func(it *pilothouse.Controller) { it.Finalize = pilothouse.TypedFinalize(finalize) })
		answer, failure := plugin.CallFinalize(pilothouse.RawRequest{Object: json.RawMessage(object)}, &fakeCluster{})
		isDone, _ := answer.IsDone()
		if expectDone, _ := expected.IsDone(); failure != nil || isDone != expectDone {
			t.Fatal(answer, failure)
		}
	}
	_, failure := Plugin.CallFinalize(pilothouse.RawRequest{Object: json.RawMessage(object)}, &fakeCluster{})
	if failure == nil || !strings.Contains(failure.Message, "has no Finalize") {
		t.Fatal(failure)
	}
}

func review() pilothouse.RawReview {
	review := pilothouse.RawReview{Kind: kind}
	review.Phase = pilothouse.Update
	review.Object = json.RawMessage(object)
	old := json.RawMessage(strings.Replace(object, "blog", "old", 1))
	review.OldObject = &old
	return review
}

func TestADefaulterKeepsWhatItDoesNotKnow(t *testing.T) {
	plugin := with(func(it *pilothouse.Controller) {
		it.ApplyDefaults = func(review pilothouse.Review[pilothouse.Object], _ pilothouse.Cluster) (pilothouse.Object, error) {
			review.Object["spec"] = "filled in"
			return review.Object, nil
		}
	})
	completed, refused := plugin.CallApplyDefaults(review(), &fakeCluster{})
	text, err := json.Marshal(completed)
	if refused != nil || err != nil {
		t.Fatal(refused, err)
	}
	if said := string(text); !strings.Contains(said, "9007199254740993") || !strings.Contains(said, "filled in") {
		t.Fatal(said)
	}
}

func TestWhatAValidatorReturnsBecomesFieldErrors(t *testing.T) {
	notFound := &pilothouse.FieldError{Kind: pilothouse.NotFound, Path: "spec.host"}
	required := &pilothouse.FieldError{Kind: pilothouse.Required, Path: "spec.port"}
	for _, expected := range []struct {
		err   error
		paths string
	}{
		{nil, ""},
		{notFound, "spec.host"},
		{errors.Join(notFound, required), "spec.host spec.port"},
		{errors.New("something else"), ""},
	} {
		plugin := with(func(it *pilothouse.Controller) {
			it.Validate = pilothouse.TypedValidate(func(review pilothouse.Review[Website], _ pilothouse.Cluster) ([]string, error) {
				return []string{review.OldObject.Metadata.Name + " " + review.Object.Metadata.Name}, expected.err
			})
		})
		warnings, refused := plugin.CallValidate(review(), &fakeCluster{})
		var paths []string
		for _, it := range refused {
			paths = append(paths, it.Path)
		}
		if strings.Join(paths, " ") != expected.paths || (refused == nil) != (expected.err == nil) || warnings[0] != "old blog" {
			t.Fatal(expected, refused, warnings)
		}
	}
}

func TestAPanicOfAValidatorIsLoggedAndEndsTheCall(t *testing.T) {
	plugin := with(func(it *pilothouse.Controller) {
		it.Validate = func(pilothouse.RawReview, pilothouse.Cluster) ([]string, error) { panic("no such thing") }
	})
	cluster := &fakeCluster{}
	message := panicked(func() { plugin.CallValidate(review(), cluster) })
	if message != "no such thing" || len(cluster.lines) != 1 {
		t.Fatal(message, cluster.lines)
	}
}

func TestAnObjectBelongsToItsController(t *testing.T) {
	owner := pilothouse.ObjectMeta{UID: "u-1"}
	for _, expected := range []bool{true, false} {
		references := []pilothouse.OwnerReference{{UID: "u-1", Controller: expected}, {UID: "u-2", Controller: true}}
		if (pilothouse.ObjectMeta{OwnerReferences: references}).ControlledBy(owner) != expected {
			t.Fatal(references)
		}
	}
}

func TestEachExceptionToTheLifeOfAnObjectReachesTheHost(t *testing.T) {
	for _, it := range []struct {
		lifecycle pilothouse.Lifecycle
		flags     byte
		options   string
	}{
		{pilothouse.Lifecycle{}, 0, "{}"},
		{pilothouse.Lifecycle{CreateOnly: true}, 1, "{}"},
		{pilothouse.Lifecycle{Keep: true}, 2, "{}"},
		{pilothouse.Lifecycle{Recreate: true}, 4, "{}"},
		{pilothouse.Lifecycle{Keep: true, Replace: true}, 2, `{"replace":true}`},
		{pilothouse.Lifecycle{Propagation: "Orphan", Adopt: "IfUnowned"}, 0, `{"propagation":"Orphan","adopt":"IfUnowned"}`},
		{pilothouse.Lifecycle{Yield: []string{".spec.replicas"}}, 0, `{"yield":[".spec.replicas"]}`},
		{pilothouse.Lifecycle{Once: "v2"}, 0, `{"once":"v2"}`},
		{
			pilothouse.Lifecycle{After: []pilothouse.ObjectReference{{APIVersion: "v1", Kind: "Secret", Name: "b"}}},
			0, `{"after":[{"apiVersion":"v1","kind":"Secret","name":"b"}]}`,
		},
	} {
		if it.lifecycle.Flags() != it.flags || it.lifecycle.JSON() != it.options {
			t.Error(it, it.lifecycle.Flags(), it.lifecycle.JSON())
		}
	}
}
