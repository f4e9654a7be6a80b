// The operator: a Deployment, a Service and, with a host, an Ingress for each Website.
#include "pilothouse.h"

#include <string.h>

#include "crd.h"

static bool is_alphanumeric(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Labels of a-z, 0-9 and "-", which begin and end with one of the former, with "." between them.
static bool is_dns_name(const char *text) {
    size_t length = strlen(text);
    for (size_t at = 0; at < length; at++) {
        bool is_edge = at == 0 || at + 1 == length || text[at - 1] == '.' || text[at + 1] == '.';
        bool is_allowed = is_alphanumeric(text[at]) || (!is_edge && (text[at] == '-' || text[at] == '.'));
        bool is_dot = text[at] == '.' && at > 0 && at + 1 < length && text[at - 1] != '.' && text[at + 1] != '.';
        if (!is_allowed && !is_dot) {
            return false;
        }
    }
    return length > 0 && length <= 253;
}

static char *deployment(const char *name, const char *image, long long replicas, long long port) {
    return ph_format(
        "{'apiVersion': 'apps/v1', 'kind': 'Deployment', 'metadata': {'name': %s, 'labels': {'app': %s}},"
        " 'spec': {'replicas': %d, 'selector': {'matchLabels': {'app': %s}},"
        "  'template': {'metadata': {'labels': {'app': %s}},"
        "   'spec': {'containers': [{'name': 'web', 'image': %s, 'ports': [{'containerPort': %d, 'protocol': 'TCP'}]}]}}}}",
        name, name, replicas, name, name, image, port);
}

static char *service(const char *name, long long port) {
    return ph_format(
        "{'apiVersion': 'v1', 'kind': 'Service', 'metadata': {'name': %s, 'labels': {'app': %s}},"
        " 'spec': {'selector': {'app': %s},"
        "  'ports': [{'name': 'http', 'port': 80, 'targetPort': %d, 'protocol': 'TCP'}]}}",
        name, name, name, port);
}

static char *ingress(const char *name, const char *host) {
    return ph_format(
        "{'apiVersion': 'networking.k8s.io/v1', 'kind': 'Ingress', 'metadata': {'name': %s, 'labels': {'app': %s}},"
        " 'spec': {'rules': [{'host': %s, 'http': {'paths': [{'path': '/', 'pathType': 'Prefix',"
        "  'backend': {'service': {'name': %s, 'port': {'name': 'http'}}}}]}}]}}",
        name, name, host, name);
}

static ph_result reconcile(const ph_request *request, ph_outcome *outcome) {
    const char *name = request->name;
    const char *image = ph_string(ph_get(request->object, "spec.image"), "");
    const char *host = ph_string(ph_get(request->object, "spec.host"), NULL);
    long long replicas = ph_integer(ph_get(request->object, "spec.replicas"), 1);
    long long port = ph_integer(ph_get(request->object, "spec.port"), 80);
    if (image[0] == '\0' || strpbrk(image, " \t\r\n") != NULL) {
        outcome->failure = ph_text("spec.image is %q, which is not an image: it must have no spaces", image);
        return PH_PERMANENT;
    }
    if (host != NULL && !is_dns_name(host)) {
        const char *rule = "use lower-case letters, digits, \"-\" and \".\"";
        outcome->failure = ph_text("spec.host is %q, which is not a DNS name: %s", host, rule);
        return PH_PERMANENT;
    }
    ph_own(outcome, deployment(name, image, replicas, port));
    ph_own(outcome, service(name, port));
    if (host != NULL) {
        ph_own(outcome, ingress(name, host));
    }
    const ph_value *live = ph_read("apps", "v1", "Deployment", request->namespace, name);
    const char *url =
        host != NULL ? ph_text("http://%s", host) : ph_text("http://%s.%s.svc", name, request->namespace);
    long long ready = ph_integer(ph_get(live, "status.readyReplicas"), 0);
    outcome->status = ph_format("{'url': %s, 'readyReplicas': %d}", url, ready);
    return PH_DONE;
}

static const ph_controller website = {
    .name = "website",
    .group = "example.com",
    .version = "v1",
    .kind = "Website",
    .fields = "['.spec']",
    .touches = "[{'kind': {'group': 'apps', 'version': 'v1', 'kind': 'Deployment'}, 'access': ['read', 'owned'],"
               "  'fields': ['.status.readyReplicas']},"
               " {'kind': {'group': '', 'version': 'v1', 'kind': 'Service'}, 'access': ['owned']},"
               " {'kind': {'group': 'networking.k8s.io', 'version': 'v1', 'kind': 'Ingress'}, 'access': ['owned']}]",
    .reconcile = reconcile,
};

static const char *const crds[] = {crd};
static const ph_controller *const controllers[] = {&website};

const ph_plugin ph_operator = {
    .name = "website",
    .version = "0.1.0",
    .description = "A web server for each Website.",
    .crds = crds,
    .crd_count = sizeof crds / sizeof crds[0],
    .controllers = controllers,
    .controller_count = sizeof controllers / sizeof controllers[0],
};
