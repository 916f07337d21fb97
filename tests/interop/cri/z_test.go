package cri

import (
	"fmt"
	"strings"
	"testing"
)

// TestZNothingIsLeft comes last, as this file does: the pods of all others are deleted by now.
func TestZNothingIsLeft(t *testing.T) {
	must(t, eventually("containerd has no containers", func() error {
		left, err := shared.ctr("containers", "ls", "-q")
		if err == nil && strings.TrimSpace(left) != "" {
			err = fmt.Errorf("left: %s", left)
		}
		return err
	}))
}
