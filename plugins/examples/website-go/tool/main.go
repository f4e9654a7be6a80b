// Builds the component: go run ./tool [PACKAGE [OUTPUT]].
//
// Go builds a module of WASI's preview 1. wasm-tools, from PyPI, makes a component of it, with the adapter of preview 1 that
// the package jco of npm has. The WASI imports stay in the component, so that it needs spec.wasi: Inert. The WIT files are
// those of this repository, or the folder that PILOTHOUSE_WIT names.
package main

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	jcoVersion    = "1.35.0"
	adapterName   = "package/lib/wasi_snapshot_preview1.reactor.wasm"
	adapterDigest = "b857310c4753c8fafaa0f890e9ccf978dc3d9dbe8804b1125291a627485041d0"
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
	if err := os.MkdirAll("build", 0o755); err != nil {
		return err
	}
	wasmTools, err := wasmTools()
	if err != nil {
		return err
	}
	adapter, err := adapter()
	if err != nil {
		return err
	}
	module, embedded := filepath.Join("build", "module.wasm"), filepath.Join("build", "embedded.wasm")
	target := []string{"GOOS=wasip1", "GOARCH=wasm"}
	flags := []string{"build", "-buildmode=c-shared", "-trimpath", "-ldflags=-s -w", "-o", module, source}
	if err := run(target, "go", flags...); err != nil {
		return err
	}
	wit := variable("PILOTHOUSE_WIT", filepath.Join("..", "..", "..", "wit"))
	if err := run(nil, wasmTools, "component", "embed", "--world", "plugin", wit, module, "--output", embedded); err != nil {
		return err
	}
	adapt := "wasi_snapshot_preview1=" + adapter
	return run(nil, wasmTools, "component", "new", "--adapt", adapt, embedded, "--output", output)
}

// wasmTools installs wasm-tools into a virtual environment of Python.
func wasmTools() (string, error) {
	folder := variable("VENV", ".venv")
	program := filepath.Join(folder, "bin", "wasm-tools")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := run(nil, variable("PYTHON", "python3"), "-m", "venv", folder); err != nil {
		return "", err
	}
	pip := filepath.Join(folder, "bin", "pip")
	return program, run(nil, pip, "install", "--quiet", "--disable-pip-version-check", "--requirement", "requirements.txt")
}

// adapter takes the adapter out of the npm package, of which nothing else is needed.
func adapter() (string, error) {
	path := filepath.Join("build", "wasi_snapshot_preview1.reactor.wasm")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := run(nil, "npm", "pack", "--silent", "--pack-destination", "build", "@bytecodealliance/jco@"+jcoVersion); err != nil {
		return "", err
	}
	archive, err := os.Open(filepath.Join("build", "bytecodealliance-jco-"+jcoVersion+".tgz"))
	if err != nil {
		return "", err
	}
	defer archive.Close()
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return "", err
	}
	files := tar.NewReader(unzipped)
	for {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("jco %s has no %s", jcoVersion, adapterName)
		}
		if err != nil {
			return "", err
		}
		if file.Name != adapterName {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return "", err
		}
		digest := sha256.Sum256(content)
		if found := hex.EncodeToString(digest[:]); !strings.EqualFold(found, adapterDigest) {
			return "", fmt.Errorf("the adapter of jco %s has the digest %s, not %s", jcoVersion, found, adapterDigest)
		}
		return path, os.WriteFile(path, content, 0o644)
	}
}

func variable(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
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
