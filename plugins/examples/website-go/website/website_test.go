package website

import (
	"encoding/json"
	"errors"
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

func TestAPanicIsLoggedWithItsStackAndBecomesAFailure(t *testing.T) {
	panicking := func(pilothouse.RawRequest, pilothouse.Cluster) (pilothouse.Outcome, error) {
		panic("no such thing")
	}
	message, cluster := call(t, panicking)
	if message != "the plugin panicked: no such thing" {
		t.Fatal(message)
	}
	if len(cluster.lines) != 1 || !strings.Contains(cluster.lines[0], "website_test.go") {
		t.Fatal(cluster.lines)
	}
}

func TestTheManifestIsJSON(t *testing.T) {
	text, err := json.Marshal(Plugin)
	if err != nil || !strings.Contains(string(text), `"fields":[".spec"]`) {
		t.Fatal(string(text), err)
	}
}
