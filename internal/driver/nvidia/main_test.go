package nvidia

import (
	"os"
	"testing"
)

// TestMain lets this test program be the helper too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__nvml" {
		os.Exit(HelperMain(os.Args[2]))
	}
	os.Exit(m.Run())
}
