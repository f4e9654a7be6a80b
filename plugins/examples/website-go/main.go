// The component: its exports are in the package pilothouse.
package main

import (
	"example.com/website/pilothouse"
	"example.com/website/website"
)

func init() {
	pilothouse.Register(website.Plugin)
}

func main() {}
