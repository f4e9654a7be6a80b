// Builds the component: go run ./tool [PACKAGE [OUTPUT]]. The WIT files are those of this repository, or the folder that
// PILOTHOUSE_WIT names. The WASI imports of Go's runtime stay in the component, so that it needs spec.wasi: Inert.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func build() error {
	source, output := ".", filepath.Join("build", "website.wasm")
	if len(os.Args) > 1 {
		source = os.Args[1]
	}
	if len(os.Args) > 2 {
		output = os.Args[2]
	}
	wit := os.Getenv("PILOTHOUSE_WIT")
	if wit == "" {
		wit = filepath.Join("..", "..", "..", "wit")
	}
	jco := filepath.Join("node_modules", ".bin", "jco")
	if _, err := os.Stat(jco); err != nil {
		if err := run(nil, "npm", "ci", "--no-audit", "--no-fund"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("build", 0o755); err != nil {
		return err
	}
	module, embedded := filepath.Join("build", "module.wasm"), filepath.Join("build", "embedded.wasm")
	target := []string{"GOOS=wasip1", "GOARCH=wasm"}
	flags := []string{"build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", module, source}
	if err := run(target, "go", flags...); err != nil {
		return err
	}
	if err := run(nil, jco, "embed", "--wit", wit, "--world-name", "plugin", module, "--output", embedded); err != nil {
		return err
	}
	return run(nil, jco, "new", "--wasi-reactor", embedded, "--output", output)
}

func run(environment []string, program string, arguments ...string) error {
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), environment...)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %v: %w", program, arguments, err)
	}
	return nil
}
