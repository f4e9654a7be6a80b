// Command registry serves the registry of go-containerregistry in memory, with the referrers API, over plain HTTP.
//
// The programs of go-containerregistry leave that API off. They also answer an upload without the Location header, which
// the OCI distribution specification requires and oci-client insists on; wkg could not push there. Nothing else is added.
package main

import (
	"flag"
	"log"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	address := flag.String("address", "127.0.0.1:0", "the address to listen on")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving on %s", listener.Addr())
	handler := registry.New(registry.WithReferrersSupport(true))
	server := &http.Server{
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
			handler.ServeHTTP(&located{response, request.URL.Path}, request)
		}),
	}
	log.Fatal(server.Serve(listener))
}

// A response that says where what was created is.
type located struct {
	http.ResponseWriter
	path string
}

func (response *located) WriteHeader(status int) {
	header := response.Header()
	digest := header.Get("Docker-Content-Digest")
	if status == http.StatusCreated && header.Get("Location") == "" && digest != "" {
		// Uploads of blobs end at /v2/NAME/blobs/uploads/ID, manifests at /v2/NAME/manifests/TAG.
		folder := path.Dir(response.path)
		if path.Base(folder) == "uploads" {
			folder = path.Dir(folder)
		}
		header.Set("Location", folder+"/"+digest)
	}
	response.ResponseWriter.WriteHeader(status)
}
