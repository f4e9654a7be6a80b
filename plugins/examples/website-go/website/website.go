// Package website is the operator: a Deployment, a Service and, with a host, an Ingress for each Website.
package website

import (
	_ "embed"
	"regexp"
	"strings"
	"unicode"

	"example.com/website/pilothouse"
)

//go:embed crd.yaml
var crd string

var (
	kind       = pilothouse.Kind{Group: "example.com", Version: "v1", Kind: "Website"}
	deployment = pilothouse.Kind{Group: "apps", Version: "v1", Kind: "Deployment"}
	service    = pilothouse.Kind{Version: "v1", Kind: "Service"}
	ingress    = pilothouse.Kind{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}
)

var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Website is the primary.
type Website struct {
	Metadata pilothouse.ObjectMeta `json:"metadata"`
	Spec     Spec                  `json:"spec"`
}

// Spec is what its author wants.
type Spec struct {
	Image    string  `json:"image"`
	Replicas int32   `json:"replicas"`
	Port     int32   `json:"port"`
	Host     *string `json:"host,omitempty"`
}

// Status is what the plugin says of it.
type Status struct {
	URL           string `json:"url"`
	ReadyReplicas int32  `json:"readyReplicas"`
}

// Plugin is the component.
var Plugin = pilothouse.Plugin{
	Name:        "website",
	Version:     "0.1.0",
	Description: "A web server for each Website.",
	CRDs:        []string{crd},
	Controllers: []pilothouse.Controller{{
		Name:   "website",
		Kind:   kind,
		Fields: []string{".spec"},
		Touches: []pilothouse.Touch{
			{Kind: deployment, Access: []string{"read", "owned"}, Fields: []string{".status.readyReplicas"}},
			{Kind: service, Access: []string{"owned"}},
			{Kind: ingress, Access: []string{"owned"}},
		},
		Reconcile: pilothouse.Typed(Reconcile),
	}},
}

// Reconcile says what should exist for a Website.
func Reconcile(request pilothouse.Request[Website], cluster pilothouse.Cluster) (pilothouse.Outcome, error) {
	name, namespace, spec := request.Object.Metadata.Name, request.Object.Metadata.Namespace, request.Object.Spec
	if err := check(spec); err != nil {
		return pilothouse.Outcome{}, err
	}
	var live struct {
		Status struct {
			ReadyReplicas int32 `json:"readyReplicas"`
		} `json:"status"`
	}
	if _, err := cluster.Get(deployment, namespace, name, &live); err != nil {
		return pilothouse.Outcome{}, err
	}
	owned := []pilothouse.Object{deploymentOf(name, spec), serviceOf(name, spec)}
	url := "http://" + name + "." + namespace + ".svc"
	if spec.Host != nil {
		owned = append(owned, ingressOf(name, *spec.Host))
		url = "http://" + *spec.Host
	}
	return pilothouse.Outcome{Owned: owned, Status: Status{URL: url, ReadyReplicas: live.Status.ReadyReplicas}}, nil
}

func check(spec Spec) error {
	if spec.Image == "" || strings.ContainsFunc(spec.Image, unicode.IsSpace) {
		return pilothouse.Permanent("spec.image is %q, which is not an image: it must have no spaces", spec.Image)
	}
	if spec.Host != nil && (len(*spec.Host) > 253 || !dnsName.MatchString(*spec.Host)) {
		return pilothouse.Permanent(
			`spec.host is %q, which is not a DNS name: use lower-case letters, digits, "-" and "."`, *spec.Host)
	}
	return nil
}

func metadata(name string) pilothouse.Object {
	return pilothouse.Object{"name": name, "labels": pilothouse.Object{"app": name}}
}

func deploymentOf(name string, spec Spec) pilothouse.Object {
	labels := pilothouse.Object{"app": name}
	container := pilothouse.Object{
		"name":  "web",
		"image": spec.Image,
		"ports": []any{pilothouse.Object{"containerPort": spec.Port, "protocol": "TCP"}},
	}
	template := pilothouse.Object{
		"metadata": pilothouse.Object{"labels": labels},
		"spec":     pilothouse.Object{"containers": []any{container}},
	}
	return pilothouse.Object{
		"apiVersion": deployment.APIVersion(),
		"kind":       deployment.Kind,
		"metadata":   metadata(name),
		"spec": pilothouse.Object{
			"replicas": spec.Replicas,
			"selector": pilothouse.Object{"matchLabels": labels},
			"template": template,
		},
	}
}

func serviceOf(name string, spec Spec) pilothouse.Object {
	port := pilothouse.Object{"name": "http", "port": 80, "targetPort": spec.Port, "protocol": "TCP"}
	return pilothouse.Object{
		"apiVersion": service.APIVersion(),
		"kind":       service.Kind,
		"metadata":   metadata(name),
		"spec":       pilothouse.Object{"selector": pilothouse.Object{"app": name}, "ports": []any{port}},
	}
}

func ingressOf(name, host string) pilothouse.Object {
	backend := pilothouse.Object{
		"service": pilothouse.Object{"name": name, "port": pilothouse.Object{"name": "http"}},
	}
	path := pilothouse.Object{"path": "/", "pathType": "Prefix", "backend": backend}
	rule := pilothouse.Object{"host": host, "http": pilothouse.Object{"paths": []any{path}}}
	return pilothouse.Object{
		"apiVersion": ingress.APIVersion(),
		"kind":       ingress.Kind,
		"metadata":   metadata(name),
		"spec":       pilothouse.Object{"rules": []any{rule}},
	}
}
